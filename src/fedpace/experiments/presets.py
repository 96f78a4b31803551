"""Configs of presets: methods and ablations as TOML files, and what is set on top of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpace.experiments.config import RunConfig
from fedpace.experiments.overrides import merged, nested
from fedpace.experiments.parsing import parse_config
from fedpace.experiments.preset_tables import known_preset, read_preset


def load_config(preset: str | Path, *layers: Mapping[str, Any]) -> RunConfig:
    """The config of a preset (a name, or the path of a TOML file) with ``{"dotted.key": value}`` overrides.

    Of several layers of overrides the later ones win. Within one, all must hold together: none is lost. What a file
    may not do is in :mod:`fedpace.core.trust`. Another number of rounds moves the windows of the preset's stages along,
    unless a window is overridden, too.

    >>> load_config("gma", {"aggregate.rule.tau": 0.5}).aggregate.rule.tau
    0.5
    >>> load_config("fedpace-paper", {"rounds": 25}).dampen.first
    10
    """
    origin = known_preset(str(preset))
    table = read_preset(origin)
    own_rounds = table.get("rounds", RunConfig().rounds)
    for overrides in layers:
        table = merged(table, nested(overrides))
    config = parse_config(table, origin)
    changed = {key for overrides in layers for key in overrides}
    if "rounds" not in changed or any(map(_is_window, changed)):
        return config
    return parse_config({**table, "rounds": own_rounds}, origin).shortened(config.rounds)


def _is_window(key: str) -> bool:
    """Whether a key says when something happens."""
    return key.endswith((".first", ".last", ".joins")) or key in ("anneal", "dampen", "prune", "freeze", "cohort")

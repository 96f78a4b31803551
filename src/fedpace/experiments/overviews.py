"""What a preset does, and what a key of the config is, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from fedpace.analysis import Rows, StageWindow, panels, stage_rows
from fedpace.core import printable
from fedpace.experiments.config import RunConfig
from fedpace.experiments.keys import Key, below, explained
from fedpace.experiments.presets import load_config


def planned_windows(config: RunConfig) -> list[StageWindow]:
    """The stages of a run in their order, as they are planned."""
    schedule = config.schedule()
    groups = groupby(range(config.rounds), key=lambda number: schedule.stage(number).name)
    rounds = ((stage, [*numbers]) for stage, numbers in groups)
    return [StageWindow(stage, numbers[0], numbers[-1]) for stage, numbers in rounds]


def preset_overview(preset: str) -> RenderableType:
    """What a preset is for, and its stages in words."""
    config = load_config(preset)
    stages = stage_rows(config.model_dump(mode="json"), planned_windows(config))
    return Group(Text(printable(config.description)), panels({"Stages": stages}))


def key_overview(key: str) -> RenderableType:
    """What may stand at a key; objects that say the same of it are named together."""
    groups: dict[tuple[str, str, str], list[Key]] = {}
    for one in explained(key):
        groups.setdefault((one.values, one.default, one.about), []).append(one)
    facts = [
        panels({key: [*_where(found, len(groups)), ("values", values), ("default", default), ("", about)]})
        for (values, default, about), found in groups.items()
    ]
    return Group(*facts, panels({f"Keys below {key}": _rows(below(key))}))


def config_overview() -> RenderableType:
    """The keys of the config that are in no table."""
    return panels({"Keys of the config": _rows(below(""))})


def _rows(keys: Sequence[str]) -> Rows:
    """What each key means."""
    return [(key, explained(key)[0].about) for key in keys]


def _where(found: Sequence[Key], groups: int) -> Rows:
    """Of which objects something is true, if it is not of all."""
    return [("for", ", ".join(one.of for one in found))] if groups > 1 else []

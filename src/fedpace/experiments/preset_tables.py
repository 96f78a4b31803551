"""The tables of presets, merged over those that they extend. Reading them needs no torch."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fedpace.core import ConfigError, refuse_import_paths, same_name
from fedpace.experiments.overrides import merged
from fedpace.experiments.toml_files import PRESETS


def preset_names() -> list[str]:
    """Names of the presets that come with the library."""
    return PRESETS.names()


def is_preset(text: str) -> bool:
    """Whether a text is the name of a preset, or the path of a TOML file."""
    return _is_path(text) or same_name(text, PRESETS.names()) is not None


def known_preset(preset: str) -> str:
    """A preset's name as its file spells it; the path of a TOML file as it is."""
    return preset if _is_path(preset) else PRESETS.known(preset)


def method_of(preset: str) -> str:
    """What the method of a preset is called unless it says so: its name, or that of its file without suffix.

    >>> method_of("and_mask"), method_of("folder/mine.toml")
    ('and-mask', 'mine')
    """
    return Path(preset).stem if _is_path(preset) else PRESETS.known(preset)


def preset_text(preset: str) -> str:
    """The TOML of a preset."""
    return _read_file(Path(preset)) if _is_path(preset) else PRESETS.text(preset)


def read_preset(preset: str, extended_by: tuple[str, ...] = ()) -> dict[str, Any]:
    """A preset's table, merged over those that it extends."""
    if preset in extended_by:
        raise ConfigError(f"{extended_by[0]}: extends itself ({' -> '.join((*extended_by, preset))})")
    try:
        table = tomllib.loads(preset_text(preset))
    except ValueError as error:  # TOML's own kind among them, and numbers of too many digits
        raise ConfigError(f"{preset}: not valid TOML ({error})") from None
    except RecursionError:
        raise ConfigError(f"{preset}: not valid TOML (too many brackets within one another)") from None
    refuse_import_paths(table, preset)
    parent = table.pop("extends", None)
    if parent is not None and str(parent).endswith(".toml"):
        parent = Path(preset).parent / parent  # beside the file that names it
    whole = merged(read_preset(str(parent), (*extended_by, preset)), table) if parent is not None else table
    return {**whole, "method": table.get("method", method_of(preset)), "kind": table.get("kind", "method")}


def _is_path(preset: str) -> bool:
    return preset.endswith(".toml")


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: preset cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML (expected UTF-8, {error.reason} at byte {error.start})") from None

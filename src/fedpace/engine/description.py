"""``run.json``: what a run is, and what it ended with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedpace.core import ACCURACY, Metric, RunFolderError, one_line, refuse_import_paths
from fedpace.core.records import Count

# Settings that do not change results, so a resumed run may change them.
IRRELEVANT = ("executor", "track", "method", "kind", "description", "tunable", "durability")

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class _Cohort:
    late: Count = 0


@dataclass(frozen=True)
class _Local:
    private: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Config:
    """Of a config, no more than what readers of a run folder look into: it may be that of another version."""

    method: str = ""
    description: str = ""
    seed: Count = 0
    rounds: Count = 0
    cohort: _Cohort = _Cohort()
    local: _Local = _Local()
    privacy: dict[str, Any] | None = None
    dampen: dict[str, Any] | None = None


@dataclass(frozen=True)
class Finished:
    """How many rounds a finished run has, and the digests of ``rounds.jsonl`` and ``model.safetensors``."""

    rounds: Count
    history: str
    model: str


@dataclass(frozen=True)
class _Description:
    """What ``run.json`` holds, to check it. Only the config is always there: older versions wrote less."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    config: _Config
    seed: Count = 0
    warnings: list[str] = field(default_factory=list)
    parameters: Count = 0
    data: str = ""
    clients: Count = 0
    metric: Metric = ACCURACY
    client_names: list[str] = field(default_factory=list)
    attackers: list[Count] = field(default_factory=list)
    encoding: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str | int | None] = field(default_factory=dict)
    finished: Finished | None = None


def read_run(path: Path) -> dict[str, Any]:
    """``run.json`` of a run folder; anything in it that is not as a run writes it is refused."""
    file = path / "run.json"
    try:
        content = file.read_bytes()
        _adapter().validate_json(content)
        description: dict[str, Any] = json.loads(content)  # a setting may be infinite, for which JSON has no word
    except FileNotFoundError:
        raise RunFolderError(f"{path}: is not a run folder (no run.json)") from None
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(map(str, detail["loc"]))
        raise RunFolderError(f"{file}: is damaged ({f'{where}: ' if where else ''}{detail['msg'].lower()})") from None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{file}: cannot be read ({one_line(error)})") from None
    clients, names = description.get("clients"), description.get("client_names")
    if clients is not None and names is not None and len(names) != clients:
        raise RunFolderError(f"{file}: is damaged (expected names of {clients} clients, found {len(names)})")
    return description


def read_metric(run: Mapping[str, Any]) -> Metric:
    """What a run is judged by, from its ``run.json``; older runs knew accuracy only."""
    return Metric(**run["metric"]) if "metric" in run else ACCURACY


@cache
def _adapter() -> TypeAdapter[_Description]:
    return TypeAdapter(_Description)


def check_same(path: Path, run: Mapping[str, Any], description: Mapping[str, Any], upgrade: Upgrade) -> None:
    """Refuse to go on with the ``run`` in a folder as another one.

    ``upgrade`` completes the config of an older version with the settings that are new since then.
    """
    if run.get("data", description["data"]) != description["data"]:
        raise RunFolderError(f"{path}: holds a run on other data; choose another --out")
    wanted = relevant(description["config"])
    unlike = {key: value for key, value in relevant(run["config"]).items() if value != wanted.get(key)}
    refuse_import_paths(unlike, str(path / "run.json"))  # code of the run that goes on is the user's own
    found = relevant(upgrade({key: value for key, value in run["config"].items() if key not in IRRELEVANT}))
    others = description.keys() & run.keys() - {"config", "data", "warnings"}  # of an older version not all
    pairs = [(key, found.get(key), wanted.get(key)) for key in sorted(found.keys() | wanted.keys())]
    for key, has, needs in [*pairs, *((key, run[key], description[key]) for key in sorted(others))]:
        if has != needs:
            raise RunFolderError(
                f"{path}: holds a run with {key} = {has!r}, this one has {needs!r}; choose another --out"
            )


def relevant(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys of the settings that change results."""
    return {key: value for key, value in _flat(config).items() if key.split(".")[0] not in IRRELEVANT}


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat

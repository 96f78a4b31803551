"""Tables as configs; whatever is wrong with one is one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fedpace.core import ConfigError, first_error, refuse_import_paths
from fedpace.experiments.config import RunConfig
from fedpace.experiments.keys import elsewhere


def read_config(run: Mapping[str, Any], where: str) -> RunConfig:
    """The config in a ``run.json``, whoever wrote it. How the run was executed and tuned is nothing to its readers."""
    table = {key: value for key, value in run["config"].items() if key not in ("executor", "track", "tunable")}
    refuse_import_paths(table, where)
    return parse_config(table, where)


def parse_config(table: dict[str, Any], origin: str) -> RunConfig:
    """Check a table; anything wrong is one line that begins with its origin."""
    try:
        return RunConfig(**table)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_misplaced(error) or first_error(RunConfig, error)}") from None
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None


def _misplaced(error: ValidationError) -> str | None:
    """What to say of a key that there is elsewhere."""
    detail = error.errors()[0]
    path = [str(part) for part in detail["loc"]]
    place = elsewhere(path) if detail["type"] == "extra_forbidden" else None
    return None if place is None else f"unknown key '{'.'.join(path)}'; {place}"

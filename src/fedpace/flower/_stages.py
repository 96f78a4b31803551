"""The parts of a schedule, from what the parameters of a strategy say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fedpace.core import ConfigError, first_error
from fedpace.server import Annealing, Exchange, Guard, Stage

Window = tuple[int, int | None]
"""The first and the last round of a stage, counted from 0; an open end if the last is ``None``."""


def exchange(**settings: Any) -> Exchange:
    """An exchange with these settings; what is wrong with them is one line."""
    try:
        return Exchange(**settings)
    except ValidationError as error:
        raise ConfigError(first_error(Exchange, error)) from None


def annealed(window: Window, search: Annealing | Mapping[str, Any], then: Exchange) -> Stage:
    """Rounds that begin with a search."""
    try:
        return Stage(name="anneal", first=window[0], last=window[1], search=search, exchanges=(then,))
    except ValidationError as error:
        raise ConfigError(first_error(Stage, error)) from None


def guard_of(settings: Guard | Mapping[str, Any] | None) -> Guard:
    """A guard as it is, from its settings, or the usual one."""
    if isinstance(settings, Guard):
        return settings
    try:
        return Guard(**(settings or {}))
    except ValidationError as error:
        raise ConfigError(f"guard: {first_error(Guard, error)}") from None

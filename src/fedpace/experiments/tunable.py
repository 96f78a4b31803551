"""What may be tuned of a method, and between which values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedpace.core import ConfigError, Settings, did_you_mean

Value = bool | int | float | str


class Range(Settings):
    """Which values of a setting are tried: ``low`` to ``high`` (on a ``log`` scale if wanted), or one of ``choices``.

    With neither it is the method's own value, divided or multiplied by at most ``factor``, on a log scale.
    """

    factor: float = Field(10.0, gt=1, allow_inf_nan=False)
    low: float | None = Field(None, allow_inf_nan=False)
    high: float | None = Field(None, allow_inf_nan=False)
    log: bool = False
    choices: tuple[Value, ...] = ()

    @model_validator(mode="after")
    def _is_a_range(self) -> Range:
        if (self.low is None) != (self.high is None):
            raise ValueError("expected both low and high, or neither")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"expected low below high, found {self.low:g} and {self.high:g}")
        if self.log and (self.low is None or self.low <= 0):
            raise ValueError("expected low above 0 for a log scale")
        if self.choices and (self.low is not None or len(set(self.choices)) < 2):
            raise ValueError("expected either low and high, or at least two choices")
        return self

    @model_serializer(mode="wrap")
    def _what_was_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without defaults: ``run.json`` and reports are to be read."""
        return {key: value for key, value in handler(self).items() if getattr(self, key) != _default(key)}

    def bounds(self, own: float) -> tuple[float, float]:
        """The lowest and the highest value, for a method whose own value is ``own``.

        >>> Range(factor=2).bounds(0.5)
        (0.25, 1.0)
        """
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return own / self.factor, own * self.factor

    def check(self, own: Any) -> None:
        """The method's own value is the first that is tried, so it must be one of the values."""
        if self.choices:
            if own not in self.choices:
                raise ConfigError(f"its own value {own!r} is none of the choices {', '.join(map(repr, self.choices))}")
            return
        if not isinstance(own, float):
            raise ConfigError(f"its own value {own!r} is no real number: expected choices")
        if self.low is None and own <= 0:
            raise ConfigError(f"its own value {own:g} cannot be multiplied by a factor: expected low and high")
        low, high = self.bounds(own)
        if not low <= own <= high:
            raise ConfigError(f"its own value {own:g} is not between {low:g} and {high:g}")


def _default(key: str) -> Any:
    return Range.model_fields[key].default


def _dotted(table: Any, prefix: str = "") -> Any:
    """``local.lr = { low = … }`` is a table within a table: here it becomes one dotted key."""
    if not isinstance(table, Mapping):
        return table
    found: dict[str, Any] = {}
    for key, value in table.items():
        # A range holds numbers and lists, a table of ranges holds tables alone.
        inner = isinstance(value, Mapping) and value and all(isinstance(each, Mapping) for each in value.values())
        found |= _dotted(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


Tunable = Annotated[dict[str, Range], BeforeValidator(_dotted)]
"""Dotted key of a setting → the values that are tried."""


def own_value(config: Settings, key: str) -> Any:
    """The value at a dotted key of a config; an unknown key is an error that names the nearest one.

    >>> own_value(Range(factor=3), "factor")
    3.0
    """
    value: Any = config
    for part in key.split("."):
        known = dict(value) if isinstance(value, BaseModel | Mapping) else {}
        if part not in known:
            raise ConfigError(f"tunable: unknown key '{key}'; {did_you_mean(part, known)}")
        value = known[part]
    return value

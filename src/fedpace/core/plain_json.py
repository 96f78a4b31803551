"""JSON as the standard has it."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says; anything else is a ``ValueError``, also what Python alone takes for JSON.

    >>> parse_json('{"rounds": 3}')
    {'rounds': 3}
    >>> parse_json("[NaN]")
    Traceback (most recent call last):
    ValueError: NaN is no JSON
    """
    try:
        return json.loads(text, parse_constant=_refused)
    except RecursionError:
        raise ValueError("tables within tables without an end") from None


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")

"""Names in a line of text."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMES = 5


def listed(names: Sequence[object]) -> str:
    """The names, of many the first ones and how many more there are.

    >>> listed("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    shown = ", ".join(map(str, names[:MOST_NAMES])) or "none"
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown

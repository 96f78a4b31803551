"""What a server sees of a round whose updates are summed before they reach it, and what it cannot do with that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedpace.aggregation import Sums, rules
from fedpace.core import Buffers, Update
from fedpace.server.schedule import Stage

FEWEST = 3  # clients: in a sum of two, each of them knows the other's update as soon as it knows the sum
Weights = Literal["uniform", "samples"]


@dataclass(frozen=True)
class Weighing:
    """How a client weighs what it adds to the sums: its update, and its buffers, if they are summed at all."""

    updates: Weights
    buffers: Weights | None = None


@dataclass(frozen=True)
class Collected:
    """Sums, and who took part.

    ``clients`` answer without vectors: each with what it kept, or with its failure. ``ended`` says why there are no
    ``sums``. ``buffers`` and ``train_loss`` are means. ``clipped`` values lay outside the range of the sums, and so
    many more ``numbers`` of 4 bytes travelled than without secrecy.
    """

    clients: Sequence[Update]
    sums: Sums | None = None
    buffers: Buffers | None = None
    train_loss: float | None = None
    clipped: int = 0
    numbers: int = 0
    ended: str = ""


def beyond_sums(stage: Stage) -> str | None:
    """Why a stage cannot do with sums, or ``None``."""
    if stage.search is not None:
        return "a search needs each client's own gradient; expected no search"
    if stage.pace is not None:
        return "a pace needs the size of each client's own update; expected no pace"
    needs = stage.rule.start(0, FEWEST).beyond_sums
    if needs is None:
        return None
    able = [name for name in rules.names() if rules.get(name)().start(0, FEWEST).beyond_sums is None]
    return f"rule '{stage.rule.registered_name()}' needs {needs}; rules that work: {', '.join(able)}"

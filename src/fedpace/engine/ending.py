"""What the rounds of a run say about it: whether it is to go on, and what its user should know at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedpace.core import RoundRecord
from fedpace.server import Guard


def standstill(records: Sequence[RoundRecord], guard: Guard, rounds: int, *, personal: bool) -> str | None:
    """Why more rounds would change nothing; ``None`` if they may.

    Where clients have models of their own (``personal``), these may change while what they share does not.
    """
    last = records[-guard.patience :]
    return guard.reason_to_stop([replace(record, still=None) for record in last] if personal else last, rounds)


def idle_search(records: Sequence[RoundRecord]) -> str | None:
    """Annealing that never found anything."""
    searches = [record.search for record in records if record.search is not None]
    if not searches or any(search.accepted for search in searches):
        return None
    tried = sum(search.candidates for search in searches)
    scores = [(search.sim_best, search.sim0) for search in searches]
    gains = [best - first for best, first in scores if best is not None and first is not None]
    message = f"annealing did nothing: none of {tried} perturbations was accepted"
    return message + (f" (largest gain {max(gains):.2g})" if gains else "")


def lost_clients(records: Sequence[RoundRecord], patience: int) -> str | None:
    """A model that most clients cannot train on is seldom what was meant."""
    lost = [record for record in records if len(record.dropped) > len(record.cohort) / 2]
    if not lost or len(lost) < min(patience, len(records)):
        return None
    last = lost[-1].dropped[0]
    return f"most clients were dropped in {len(lost)} rounds: client {last.client} with '{last.reason}'"

"""The guard's bounds: how much a client may count, and how long its update may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedpace.core import Tensors, Update
from fedpace.server.clipping import Adaptive, Clipping
from fedpace.server.guard import Guard


@dataclass
class Bounded:
    """What bounds did in one exchange: whose weight was ``capped``, and whose update ``shortened`` to ``bound``."""

    capped: list[int] = field(default_factory=list)
    shortened: list[int] = field(default_factory=list)
    bound: float | None = None


class Bounds:
    """Keeps usable updates within the bounds of a guard, and remembers from round to round what these need.

    A checkpoint holds that memory: the first number of examples that each client declared, and for each kind of vector
    where an adaptive bound stands.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._declared: dict[int, int] = {}
        self._clip: dict[str, float] = {}

    def within(self, updates: Iterable[Update], kind: str, seen: Bounded) -> Iterator[Update]:
        """The same updates within their bounds. They are kept only if a bound depends on all of them."""
        guard = self._guard
        if guard.max_examples is not None or guard.growth is not None:
            updates = (self._declares(update, seen) for update in updates)
        if guard.needs_all:
            updates = [update.owned() for update in updates]
        if guard.max_share is not None:
            most = largest_weight([update.examples for update in updates], guard.max_share)
            updates = [_capped(update, most, seen) for update in updates]
        return iter(updates) if guard.clip is None else self._clipped(updates, guard.clip, kind, seen)

    def _declares(self, update: Update, seen: Bounded) -> Update:
        guard, most = self._guard, update.examples
        if guard.growth is not None:
            most = int(guard.growth * self._declared.setdefault(update.client, update.examples))
        return _capped(update, min(most, guard.max_examples or most), seen)

    def _clipped(self, updates: Iterable[Update], clip: Clipping, kind: str, seen: Bounded) -> Iterator[Update]:
        kept = list(updates) if clip.needs_all else []
        seen.bound = bound = clip.bound([_norm(update) for update in kept], self._clip.get(kind))
        norms = []
        for update in kept or updates:
            norms.append(_norm(update))
            if norms[-1] > bound and update.vector is not None:
                update.vector.mul_(bound / norms[-1])
                update.norm = bound
                seen.shortened.append(update.client)
            yield update
        next_one = clip.remembers(bound, norms)
        if next_one is not None:
            self._clip[kind] = next_one

    def learns(self, kind: str, seen: Bounded, share: float) -> None:
        """Let an adaptive bound follow this ``share`` of updates below it, in place of the one that was counted."""
        if isinstance(self._guard.clip, Adaptive) and seen.bound is not None:
            self._clip[kind] = self._guard.clip.moved(seen.bound, share)

    def state(self) -> Tensors:
        """The memory; nothing where no bound needs any."""
        found = {f"bound.{kind}": torch.tensor([bound], dtype=torch.float64) for kind, bound in self._clip.items()}
        if self._declared:
            clients, declared = zip(*sorted(self._declared.items()), strict=True)
            found["clients"] = torch.tensor([_signed(client) for client in clients])
            found["declared"] = torch.tensor(declared)
        return found

    def load_state(self, tensors: Tensors) -> None:
        """Go on with such a memory."""
        self._clip = {
            name.removeprefix("bound."): float(tensor) for name, tensor in tensors.items() if name.startswith("bound.")
        }
        nobody = torch.zeros(0, dtype=torch.int64)
        clients, declared = tensors.get("clients", nobody).tolist(), tensors.get("declared", nobody).tolist()
        self._declared = {client % 2**64: first for client, first in zip(clients, declared, strict=True)}


def largest_weight(examples: Sequence[int], share: float) -> int:
    """The highest number of examples with which no client has more than a ``share`` of all; 1 if none is low enough.

    >>> largest_weight([10**12, 30, 20], 0.5)
    50
    """
    low, high = 1, max(examples, default=1)
    while low < high:  # a cap that is too high for one share is so for all: halve what is left
        cap = (low + high + 1) // 2
        total = sum(min(each, cap) for each in examples)
        low, high = (cap, high) if cap <= share * total * (1 + 1e-9) else (low, cap - 1)
    return low


def _capped(update: Update, most: int, seen: Bounded) -> Update:
    if update.examples <= most:
        return update
    if update.client not in seen.capped:
        seen.capped.append(update.client)
    return replace(update, examples=most)


def _norm(update: Update) -> float:
    """The guard has measured it."""
    assert update.norm is not None
    return update.norm


def _signed(client: int) -> int:
    """Flower's node ids are unsigned, and tensors of 64 bits are not."""
    return client - 2**64 if client >= 2**63 else client

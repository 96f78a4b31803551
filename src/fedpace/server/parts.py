"""One aggregate of two parts: what the stage's rule is for, and what is averaged whatever the rule."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedpace.aggregation import Diagnostics, Mean, Rows, Rule, SignSum, Sums
from fedpace.core import Layout


class Parts:
    """A stream of updates under a ``rule`` for the tensors of ``ruled``, and the sample-weighted mean for the rest.

    Usually everything is ruled: then this is the rule's own stream, and nothing is copied.
    """

    def __init__(self, rule: Rule, layout: Layout, ruled: Layout, clients: int, seed: int = 0) -> None:
        self._layout, self._ruled = layout, ruled
        self._rest = layout.with_personal(lambda name: name in ruled.slices).shared
        self._stream = rule.start(ruled.size, clients)
        self._stream.tensors, self._stream.seed = tuple(ruled.slices.values()), seed
        self._mean = Mean().start(self._rest.size, clients)

    @property
    def signs(self) -> SignSum | None:
        """The sign sum of all coordinates, if the rule counts it anyway."""
        return None if self._rest.names else self._stream.signs

    @property
    def rows(self) -> Rows | None:
        """All updates, if the rule keeps them anyway."""
        return None if self._rest.names else self._stream.rows

    @property
    def diagnostics(self) -> Diagnostics:
        """The rule's."""
        return self._stream.diagnostics

    def add(self, vector: Tensor, weight: float, examples: float) -> None:
        """Take one client's update, of this ``weight`` in the rule and of so many ``examples`` in the rest."""
        self._stream.add(self._layout.take(vector, self._ruled), weight)
        if self._rest.names:
            self._mean.add(self._layout.take(vector, self._rest), examples)

    def say_whose(self, clients: Sequence[int]) -> None:
        """Say whose the updates were, in their order."""
        self._stream.clients = clients

    def absorb(self, sums: Sums) -> None:
        """Take updates that were summed elsewhere, where everything is ruled."""
        self._stream.absorb(sums)

    def finish(self) -> Tensor:
        """The aggregate."""
        return self._whole(self._stream.finish(), self._mean.finish())

    def split(self) -> tuple[Tensor, Tensor | None]:
        """The aggregate before it is masked, and its mask, which lets the rest pass."""
        ruled, mask = self._stream.split()
        rest = self._mean.finish()
        return self._whole(ruled, rest), None if mask is None else self._whole(mask, torch.ones_like(rest))

    def _whole(self, ruled: Tensor, rest: Tensor) -> Tensor:
        if not self._rest.names:
            return ruled
        whole = ruled.new_empty(self._layout.size)
        self._layout.put(whole, ruled, self._ruled)
        self._layout.put(whole, rest, self._rest)
        return whole

"""Local training of several clients at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from fedpace.client._work import Context
from fedpace.client.stack import MeanLosses, Stack
from fedpace.client.stacked_batches import StackedBatches
from fedpace.client.steps import Steps
from fedpace.client.training import Correction, TrainingSettings, descend, in_groups, pace_of
from fedpace.core import Layout


@dataclass(frozen=True)
class StackedTraining:
    """What :class:`LocalTraining` is to one client: steps of several on their own batches, all on the task's loss.

    Attributes:
        settings: Optimizer and batches.
        stack: The clients' models, in rows.
        correction: How the method changes gradients in rows, for a context in which the states are rows, too.

    """

    settings: TrainingSettings
    stack: Stack
    correction: Callable[[Context], Correction | None]

    def run(self, part: Layout, contexts: Sequence[Context], *, epochs: int | None = None) -> list[float]:
        """Go over the batches from where the rows stand, changing ``part`` of each; the mean losses.

        ``contexts`` are those of the rows, with the seeds that say which batches.
        """
        batches = StackedBatches.for_training(self.settings, self.stack.shards, contexts, epochs=epochs)
        blocks, mean = list(self._blocks(batches.counts, part)), MeanLosses(batches.counts)
        for step, group in enumerate(in_groups(iter(batches), self.settings.accumulate)):
            self.stack.gradient.zero_()
            for batch in group:
                mean.add(self.stack.add_gradients(batch, part))
            for block in blocks:
                block.step(step)
        return mean.by_row()

    def _blocks(self, counts: Sequence[int], part: Layout) -> Iterator[_Block]:
        """Rows with the same number of batches move and stop together."""
        start, pace = 0, self._pace(part)
        for batches, same in groupby(counts):
            rows = slice(start, start := start + len(list(same)))
            shared = replace(self.stack.contexts[0], client=-1, state=_Rows(self.stack.contexts[rows]))
            steps = self.settings.steps_on(self.stack, [rows])
            yield _Block(self.settings, self.stack, rows, batches, self.correction(shared), steps, pace)

    def _pace(self, part: Layout) -> Tensor | None:
        """That of the server. What is not in ``part`` does not move."""
        layout, pace = self.stack.model.layout, pace_of(self.stack.contexts[0])
        if part.names == layout.names:
            return pace
        moves = layout.where(lambda name, _: name in part.names).to(self.stack.vector)
        return moves if pace is None else moves * pace


@dataclass
class _Block:
    """Rows that have equally many batches, and what moves them."""

    settings: TrainingSettings
    stack: Stack
    rows: slice
    batches: int
    correction: Correction | None
    steps: Steps
    pace: Tensor | None

    def step(self, number: int) -> None:
        """One step along the mean of the gradients, if these clients still have batches."""
        size = self.settings.accumulate
        done = min(self.batches - number * size, size)
        if done <= 0:
            return
        gradient = self.stack.gradient[self.rows]
        if done > 1:
            gradient.div_(done)
        descend(self.settings, gradient, self.stack.vector[self.rows], self.correction, self.steps, self.pace)


class _Rows(Mapping[str, Tensor]):
    """What several clients keep: under each name their tensors in rows."""

    def __init__(self, contexts: Sequence[Context]) -> None:
        self._states = [context.state for context in contexts]

    def __getitem__(self, name: str) -> Tensor:
        if not any(name in state for state in self._states):
            raise KeyError(name)
        try:
            return torch.stack([state[name] for state in self._states])
        except KeyError:
            raise ValueError(f"'{name}' is kept by some of the clients only") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._states[0])

    def __len__(self) -> int:
        return len(self._states[0])

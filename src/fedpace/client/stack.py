"""The models of several clients in rows, computed as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedpace.client._work import Context
from fedpace.client.stacked_batches import Sizes, StackedBatch
from fedpace.core import Inputs, Layout, call_with, devices
from fedpace.data import Shard
from fedpace.tasks import Task


class Stack:
    """What :class:`FlatModule` is to one client: ``vector`` and ``gradient`` have one row for each of several.

    All rows go through the resident module at once (``torch.func.vmap``). Its buffers and frozen parameters are the
    same for all, so none may change while clients train. Nor may it draw random numbers, and a client's answer may
    depend on its own examples only.

    Attributes:
        shards, contexts: Those of the clients, row by row. Who has the most examples comes first.
        rows: Position of a client among those that were given → its row.

    """

    def __init__(self, shards: Sequence[Shard], contexts: Sequence[Context]) -> None:
        order = sorted(range(len(shards)), key=lambda client: -len(shards[client]))
        self.rows = {client: row for row, client in enumerate(order)}
        self.shards = [shards[client] for client in order]
        self.contexts = [contexts[client] for client in order]
        self.model = contexts[0].model
        self.vector = self.model.vector.new_empty(len(order), self.model.layout.size)
        self._loss = StackedLoss(contexts[0].task)
        self._spare: dict[str, Tensor] = {}

    @property
    def gradient(self) -> Tensor:
        """A row for each client's gradient, of zeros at first."""
        if "gradient" not in self._spare:
            self.spare("gradient").zero_()
        return self._spare["gradient"]

    def spare(self, use: str) -> Tensor:
        """As much memory as the vector's, for one use."""
        if use not in self._spare:
            self._spare[use] = torch.empty_like(self.vector)
        return self._spare[use]

    def add_gradients(self, batch: StackedBatch, part: Layout) -> Tensor:
        """Add the gradients of a batch of each of the first rows, of ``part`` alone, to theirs; the losses."""
        rows = slice(len(batch.targets))
        tensors = {name: view.detach() for name, view in self.model.layout.tensors(self.vector[rows])}
        trained = [tensors[name].requires_grad_() for name in part.names]
        losses = self._loss(self._called(tensors, batch.inputs), batch.targets, batch.sizes)
        found = torch.autograd.grad(losses.sum(), trained, allow_unused=True, materialize_grads=True)
        holders = dict(self.model.layout.tensors(self.gradient[rows]))
        for name, gradient in zip(part.names, found, strict=True):
            holders[name].add_(gradient)
        return devices.to_host(losses)

    def outputs(self, inputs: Inputs) -> Tensor:
        """What the clients' models say, each about the examples of its row."""
        return self._called(dict(self.model.layout.tensors(self.vector)), inputs)

    def _called(self, tensors: Mapping[str, Tensor], inputs: Inputs) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # of the attentions, vmap knows only this one by heart
            found: Tensor = vmap(partial(call_with, self.model.module))(tensors, inputs)
        return found


class MeanLosses:
    """The mean loss of each row, over as many batches as it has."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = torch.tensor(counts)
        self._total = torch.zeros(len(counts), dtype=torch.float64)

    def add(self, losses: Tensor) -> None:
        """Of a batch of each of the first rows."""
        self._total[: len(losses)] += losses

    def by_row(self) -> list[float]:
        """The means."""
        found: list[float] = (self._total / self._counts).tolist()
        return found


class StackedLoss:
    """A task's loss of several batches, of each alone. One that ``vmap`` cannot do is computed batch by batch."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._stackable = True

    def __call__(self, outputs: Tensor, targets: Tensor, sizes: Sizes) -> Tensor:
        """The losses. Examples beyond the size of a batch only fill it up."""
        return torch.cat([self._of(outputs[rows, :size], targets[rows, :size]) for rows, size in sizes])

    def _of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self._stackable:
            try:
                found: Tensor = vmap(self._task.loss)(outputs, targets)
                return found
            except Exception:  # whatever a user's loss does; if it is wrong, it fails once more below
                self._stackable = False
        return torch.stack([self._task.loss(*pair) for pair in zip(outputs, targets, strict=True)])

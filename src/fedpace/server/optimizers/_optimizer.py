"""What a server optimizer is: it moves θ by the aggregated update and remembers what it needs in named tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import isfinite

import torch
from pydantic import Field
from torch import Tensor

from fedpace.aggregation import largest_value
from fedpace.core import Named, Registry

_BLOCK = 1 << 16
NOT_FINITE = "the step would not have been finite"
UNCHANGED = "the step changed nothing"


class ServerOptimizer(Named, ABC):
    """Stateless parameters; the state is a dictionary of tensors that the server saves with its checkpoint."""

    lr: float = Field(1.0, gt=0, allow_inf_nan=False)

    def step(self, vector: Tensor, update: Tensor, state: dict[str, Tensor], mask: Tensor | None = None) -> str | None:
        """Move ``vector`` in place along ``update``, a direction of descent; why it stays where it is, if it does.

        A step that would make θ or the state not finite is not taken, and nothing is remembered of it. A ``mask``
        multiplies the step and nothing else: what is remembered comes from the unmasked update, so a coordinate that
        the mask stops still gathers momentum (GMA, Algorithm 2).
        """
        memory = {name: tensor.clone() for name, tensor in state.items()}
        direction = self.direction(update, memory)
        moves = not len(vector)  # a model of which nothing is shared has no step to miss
        for part in _blocks(len(vector)):
            after = vector[part].add(_masked(direction, mask, part), alpha=self.lr)
            if not isfinite(largest_value(after)):
                return NOT_FINITE
            moves = moves or not torch.equal(after, vector[part])
        if not all(isfinite(largest_value(tensor)) for tensor in memory.values()):
            return NOT_FINITE
        state.update(memory)
        for part in [slice(None)] if mask is None else _blocks(len(vector)):
            vector[part].add_(_masked(direction, mask, part), alpha=self.lr)
        return None if moves else UNCHANGED

    @abstractmethod
    def direction(self, update: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Where to go, for a step of ``lr``; ``state`` takes what later steps need.

        The result is only read: it may be ``update`` itself, or a tensor of the state.
        """


def _blocks(size: int) -> Iterator[slice]:
    """Parts of a vector of which temporaries need little memory."""
    return (slice(start, start + _BLOCK) for start in range(0, size, _BLOCK))


def _masked(direction: Tensor, mask: Tensor | None, part: slice) -> Tensor:
    return direction[part] if mask is None else direction[part] * mask[part]


optimizers: Registry[ServerOptimizer] = Registry("server optimizer", ServerOptimizer)

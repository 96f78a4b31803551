"""A model measured on some of a shard's examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from fedpace.client._work import ClientWork, Context, works
from fedpace.core import Inputs, Update, call, devices
from fedpace.data import Shard
from fedpace.tasks import Sums, added

BATCH = 100  # divides the usual 10,000 test images; larger batches leave the cache


@works.register("evaluation")
class Evaluation(ClientWork):
    """The task's sums over the positions start, start + step, … before stop. Sends no vector."""

    start: int = 0
    stop: int
    step: int = 1

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Measure in evaluation mode."""
        module = context.model.evaluated(vector, context.buffers)
        positions = torch.arange(len(shard))[self.start : self.stop : self.step]
        return measured(partial(call, module), shard, positions, context)


def measured(predict: Callable[[Inputs], Tensor], shard: Shard, positions: Tensor, context: Context) -> Update:
    """The task's sums of what ``predict`` says, from inputs to outputs, about some examples."""
    sums: Sums = {}
    with torch.inference_mode():
        for inputs, targets in in_order(shard, positions, context):
            sums = added(sums, context.task.sums(predict(inputs), targets))
    return Update(context.client, None, len(positions), sums)


def in_order(shard: Shard, positions: Tensor, context: Context) -> Iterator[tuple[Inputs, Tensor]]:
    """Batches of the examples at ``positions``, where the model lies."""
    chunks = positions.split(BATCH) if len(positions) else ()  # type: ignore[no-untyped-call]
    batches = (shard.batch(chunk, padding=context.task.padding) for chunk in chunks)
    return devices.carried(batches, context.model.device)

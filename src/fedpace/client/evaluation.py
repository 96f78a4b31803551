"""A model measured on some of a shard's examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedpace.client._work import ClientWork, Context, works
from fedpace.client.stacked_batches import Indices, common_pool
from fedpace.core import Inputs, Update, call, devices
from fedpace.data import Examples, Shard
from fedpace.tasks import Sums, added

BATCH = 100  # divides the usual 10,000 test images; larger batches leave the cache


@works.register("evaluation")
class Evaluation(ClientWork):
    """The task's sums over the positions start, start + step, … before stop. Sends no vector."""

    start: int = 0
    stop: int
    step: int = 1

    @property
    def stackable(self) -> bool:
        """Every client's examples meet the same model."""
        return True

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Measure in evaluation mode."""
        module = context.model.evaluated(vector, context.buffers)
        return measured(partial(call, module), shard, self._positions(shard), context)

    def stacked(self, vector: Tensor, shards: Sequence[Shard], contexts: Sequence[Context]) -> Iterator[Update]:
        """The examples of many clients in batches that they share."""
        pool, model = common_pool(shards), contexts[0].model
        indices = [shard.indices[self._positions(shard).numpy()] for shard in shards]
        at_once = BATCH // max(map(len, indices))
        if pool is None or at_once < 2:
            yield from (self(vector, *client) for client in zip(shards, contexts, strict=True))
            return
        predict = partial(call, model.evaluated(vector, contexts[0].buffers))
        for start in range(0, len(shards), at_once):
            some = slice(start, start + at_once)
            yield from _measured_together(predict, pool, indices[some], contexts[some])

    def _positions(self, shard: Shard) -> Tensor:
        return torch.arange(len(shard))[self.start : self.stop : self.step]


def measured(predict: Callable[[Inputs], Tensor], shard: Shard, positions: Tensor, context: Context) -> Update:
    """The task's sums of what ``predict`` says, from inputs to outputs, about some examples."""
    sums: Sums = {}
    with torch.inference_mode():
        for inputs, targets in in_order(shard, positions, context):
            sums = added(sums, context.task.sums(predict(inputs), targets))
    return Update(context.client, None, len(positions), sums)


def _measured_together(
    predict: Callable[[Inputs], Tensor], pool: Examples, clients: Sequence[Indices], contexts: Sequence[Context]
) -> list[Update]:
    """The same of examples of several clients at once."""
    task, sizes = contexts[0].task, list(map(len, clients))
    whole = Shard(pool, np.concatenate(clients))
    with torch.inference_mode():
        ((inputs, targets),) = in_order(whole, torch.arange(len(whole)), contexts[0])
        answers = zip(contexts, sizes, predict(inputs).split(sizes), targets.split(sizes), strict=True)  # type: ignore[no-untyped-call]
        return [Update(context.client, None, size, task.sums(*own)) for context, size, *own in answers]


def in_order(shard: Shard, positions: Tensor, context: Context) -> Iterator[tuple[Inputs, Tensor]]:
    """Batches of the examples at ``positions``, where the model lies."""
    chunks = positions.split(BATCH) if len(positions) else ()  # type: ignore[no-untyped-call]
    batches = (shard.batch(chunk, padding=context.task.padding) for chunk in chunks)
    return devices.carried(batches, context.model.device)

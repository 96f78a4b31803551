"""Accuracy and loss of a model on some of a shard's examples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fedpace.client._work import ClientWork, Context, works
from fedpace.core import Inputs, Update, call
from fedpace.data import Shard

BATCH = 100  # divides the usual 10,000 test images; larger batches leave the cache


@works.register("evaluation")
class Evaluation(ClientWork):
    """Correct answers and summed loss on the positions start, start + step, … before stop. Sends no vector."""

    start: int = 0
    stop: int
    step: int = 1

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Count correct answers in evaluation mode."""
        context.model.load(vector, context.buffers)
        positions = torch.arange(len(shard))[self.start : self.stop : self.step]
        return answered(partial(call, context.model.module.eval()), shard, positions, context.client)


def answered(predict: Callable[[Inputs], Tensor], shard: Shard, positions: Tensor, client: int) -> Update:
    """Correct answers and summed loss of what ``predict`` says, from inputs to scores, about some examples."""
    correct, loss = 0, 0.0
    with torch.inference_mode():
        for chunk in positions.split(BATCH):  # type: ignore[no-untyped-call]
            inputs, labels = shard.batch(chunk)
            scores = predict(inputs)
            correct += int((scores.argmax(1) == labels).sum())
            loss += float(F.cross_entropy(scores, labels, reduction="sum"))
    return Update(client, None, len(positions), {"correct": correct, "loss": loss})

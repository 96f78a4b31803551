"""The mean gradient at fixed parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from fedpace.client._work import ClientWork, Context, works
from fedpace.client.batches import Batches
from fedpace.client.stack import MeanLosses, Stack
from fedpace.client.stacked_batches import StackedBatches
from fedpace.core import Update, call
from fedpace.data import Shard


@works.register("gradient")
class Gradient(Batches, ClientWork):
    """Average of mini-batch gradients at θ, without local steps (FedSGD; FedPACE's dampening and pruning rounds).

    BatchNorm works in training mode on a copy of the statistics that is thrown away. The answer's ``vector`` is minus
    the gradient, so that servers add it like any update. Examples are not augmented: clients shall disagree because of
    their data, not because of chance.
    """

    @property
    def stackable(self) -> bool:
        """Every client's model stands at θ, and none moves."""
        return True

    @property
    def held(self) -> int:
        """A batch."""
        return self.batch

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Average the gradients of the client's batches."""
        model = context.model
        model.load(vector, context.buffers)
        losses = []
        for inputs, targets in self.batches(shard, context):
            loss = context.task.loss(call(model.module, inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]  # accumulates into model.gradient
            losses.append(loss.item())
        direction = model.gradient.div_(-len(losses))
        return Update(context.client, direction, len(shard), {"loss": sum(losses) / len(losses)})

    def stacked(self, vector: Tensor, shards: Sequence[Shard], contexts: Sequence[Context]) -> Iterator[Update]:
        """The same of many clients at once."""
        stack = Stack(shards, contexts)
        stack.model.load(vector, contexts[0].buffers)
        stack.vector.copy_(vector)
        batches = StackedBatches.of(self, stack.shards, stack.contexts)
        mean = MeanLosses(batches.counts)
        for batch in batches:
            mean.add(stack.add_gradients(batch, stack.model.layout))
        losses = mean.by_row()
        for client, (shard, context) in enumerate(zip(shards, contexts, strict=True)):
            row = stack.rows[client]
            direction = stack.gradient[row].div_(-batches.counts[row])
            yield Update(context.client, direction, len(shard), {"loss": losses[row]})

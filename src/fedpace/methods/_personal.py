"""What a personalised method is: each client keeps something of its own."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import SerializeAsAny
from torch import Tensor, nn

from fedpace.client import ClientWork, Context, Stack, works
from fedpace.client.evaluation import BATCH, measured
from fedpace.client.stacked_batches import StackedBatches
from fedpace.core import FlatModule, Inputs, Layout, ModelError, Tensors, Update, by_name, call
from fedpace.data import Shard
from fedpace.methods._method import Method, methods
from fedpace.models import head_names

Predictor = Callable[[Inputs], Tensor]
PERSONAL = "personal"  # what a client keeps of its personal tensors is a vector of this name in its state


class Personal(Method, ABC):
    """A method with parts of the model that never leave the client. It states only what differs:

    * ``is_personal``: which tensors are its own (usually none, or head, or base);
    * ``first_state`` and ``state``: what else it keeps;
    * ``phases`` or ``fit``: its training, on the resident model that ``load`` has put together;
    * ``predictor``: the model with which it answers, by default the one that ``load`` puts together.
    """

    personal: ClassVar[bool] = True

    def is_personal(self, name: str, head: frozenset[str]) -> bool:
        """Whether a tensor stays with the client; ``head`` are the names of the classifier's tensors."""
        return False

    def layout(self, module: nn.Module) -> Layout:
        """Shared and personal tensors; a model of which nothing would be shared is refused."""
        head = frozenset(head_names(module))
        layout = Layout.of(module).with_personal(lambda name: self.is_personal(name, head))
        if not layout.shared.names:
            raise ModelError(
                f"'{self.registered_name()}' shares nothing of {type(module).__name__}: expected layers before the "
                f"head, found only the head ({', '.join(sorted(head))})"
            )
        return layout

    def first_state(self, model: FlatModule) -> Tensors:
        """The personal tensors of the initial model."""
        layout = model.layout
        return {PERSONAL: layout.take(model.vector, layout.own).clone()} if layout.personal else {}

    def load(self, vector: Tensor, context: Context) -> None:
        """Put the client's model together: the server's shared tensors and its own."""
        model, layout = context.model, context.model.layout
        model.gradient.zero_()
        model.train()
        model.buffers.copy_(context.buffers)
        layout.put_shared(model.vector, vector)
        if layout.personal:
            layout.put(model.vector, context.state[PERSONAL], layout.own)

    def load_all(self, vector: Tensor, stack: Stack) -> None:
        """Put the models of many clients together."""
        for row, context in zip(stack.vector, stack.contexts, strict=True):
            self.load(vector, context)
            row.copy_(context.model.vector)

    def answer(self, vector: Tensor, shard: Shard, context: Context, loss: float, kept: Tensors) -> Update:
        """The change of what is shared."""
        model, layout = context.model, context.model.layout
        if layout.personal:
            kept = {PERSONAL: layout.take(model.vector, layout.own), **kept}
        change = model.change_since(vector)
        return Update(context.client, change, len(shard), {"loss": loss}, model.buffers, state=kept or None)

    def predictor(self, vector: Tensor, context: Context) -> Predictor:
        """From inputs to outputs, in evaluation mode."""
        self.load(vector, context)
        return partial(call, context.model.module.eval())

    def evaluation(self) -> ClientWork:
        """Each client's model on its own test examples."""
        return PersonalEvaluation(method=self)


@works.register("personal_evaluation")
class PersonalEvaluation(ClientWork):
    """The task's sums for a client's own model. Sends no vector."""

    method: SerializeAsAny[Annotated[Personal, by_name(methods)]]

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Measure in evaluation mode."""
        return measured(self.method.predictor(vector, context), shard, torch.arange(len(shard)), context)

    @property
    def stackable(self) -> bool:
        """Where the method's model can be put together for many clients."""
        return self.method.stackable

    @property
    def held(self) -> int:
        """No more than a batch: clients with more examples are measured alone."""
        return BATCH

    def stacked(self, vector: Tensor, shards: Sequence[Shard], contexts: Sequence[Context]) -> Iterator[Update]:
        """The models of many clients at once."""
        if max(map(len, shards)) > BATCH:
            yield from (self(vector, *client) for client in zip(shards, contexts, strict=True))
            return
        stack = Stack(shards, contexts)
        self.method.load_all(vector, stack)
        stack.model.module.eval()
        everything = [np.arange(len(shard))[None] for shard in stack.shards]
        with torch.inference_mode():
            (batch,) = StackedBatches(stack.shards, everything, contexts[0])
            outputs = stack.outputs(batch.inputs)
        for client, (shard, context) in enumerate(zip(shards, contexts, strict=True)):
            row, own = stack.rows[client], slice(len(shard))
            sums = context.task.sums(outputs[row, own], batch.targets[row, own])
            yield Update(context.client, None, len(shard), sums)

"""Per-FedAvg: one model for all, from which each client is one step away from its own."""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from fedpace.client import Context, Loss
from fedpace.core import Inputs, Tensors, call, call_with, part
from fedpace.data import Shard
from fedpace.methods._method import methods
from fedpace.methods._personal import Personal, Predictor


@methods.register("per_fedavg")
class PerFedAvg(Personal):
    """Training for what the model is after one step on a client's data (Fallah et al., 2020), to first order.

    With two batches x₁ and x₂: φ = θᵢ − α∇L(θᵢ; x₁), then a step of the optimizer along ∇L(φ; x₂). A client answers
    with θ after one such step φ on a random batch of its training examples, and statistics as they were before it.

    Parameters: ``alpha``, by default ``lr``; ``passes``, how often a round goes through all its epochs (2 in PFLlib,
    1 in the paper). A step needs two batches; a client that has fewer examples divides what it has.
    Keeps: nothing. Travels: the model, each way. Cost: ``passes`` times FedAvg's.
    """

    alpha: float | None = Field(None, gt=0, allow_inf_nan=False)
    passes: int = Field(2, ge=1)

    @model_validator(mode="after")
    def _first_steps_are_not_scaled(self) -> PerFedAvg:
        if self.precision == "fp16":
            raise ValueError(
                "the step within a batch would lose small gradients: expected precision = 'float32' or "
                "'bf16', found 'fp16'"
            )
        return self

    def fit(self, vector: Tensor, shard: Shard, context: Context) -> tuple[float, Tensors]:
        """Steps on pairs of batches."""
        training = self.training(vector, shard, context)
        return training.run(epochs=self.passes * self.epochs, batch=2 * self.batch), {}

    def loss_of(self, start: Tensor, shard: Shard, context: Context) -> Loss:
        """What the second half of the batch says about a model that made a step on the first."""

        def loss(module: nn.Module, inputs: Inputs, targets: Tensor) -> Tensor:
            middle = (len(targets) + 1) // 2  # of an odd number, both have the one in the middle
            first, second = slice(middle), slice(-middle, None)
            adapted = self._adapted(part(inputs, first), targets[first], context)
            return context.task.loss(call_with(module, adapted, part(inputs, second)), targets[second])

        return loss

    def predictor(self, vector: Tensor, context: Context) -> Predictor:
        """The model after one step."""
        assert context.training is not None  # who asks a client for answers lends it its training examples
        self.load(vector, context)
        module = context.model.module
        adapted = self._adapted(*next(self.batches(context.training, context)), context)
        context.model.buffers.copy_(context.buffers)
        return partial(call_with, module.eval(), adapted)

    def _adapted(self, inputs: Inputs, targets: Tensor, context: Context) -> Tensors:
        """φ. Its gradient counts as a constant, so that ∇L(φ) is what θᵢ receives (first order)."""
        module = context.model.module
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        loss = context.task.loss(call(module, inputs), targets)
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
        rate = self.alpha or self.lr
        return {name: p - rate * gradient for (name, p), gradient in zip(parameters.items(), gradients, strict=True)}

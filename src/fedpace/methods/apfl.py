"""APFL: a model of one's own beside the one for all, and a learnt mixture of both."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedpace.client import Context, LocalTraining
from fedpace.client.training import paced_step
from fedpace.core import Buffers, FlatModule, Inputs, Tensors, call
from fedpace.data import Shard
from fedpace.methods._method import methods
from fedpace.methods._personal import Personal, Predictor

_V, _FLOATS, _INTEGERS, _ALPHA = "v", "v.floats", "v.integers", "alpha"


@methods.register("apfl")
class APFL(Personal):
    """The server's w and a personal v are trained side by side, and so is their mixture (Deng et al., 2020).

    With v̄ = αv + (1 − α)w, a batch does, by ``variant``:

    * ``paper``: w −= lr∇L(w); v −= lr·α∇L(v̄); α −= lr⟨∇L(v̄), v − w⟩. The client answers with its v̄.
    * ``pfllib``: w −= lr∇L(w); v −= lr∇L(v); then α −= lr(⟨v − w, α∇L(v) + (1 − α)∇L(w)⟩ + 0.02α). After the last
      batch v becomes v̄, and the client answers with v.

    α stays within [0, 1] and begins at ``alpha`` (1 in PFLlib; usually 0.5). Other optimizers than plain SGD step along
    the same gradients; α's own steps are always lr times its slope. The personal model has statistics of its own.
    Keeps: v, its statistics, α. Travels: w, each way. Cost: twice FedAvg's.
    """

    variant: Literal["paper", "pfllib"] = "pfllib"
    alpha: float = Field(1.0, ge=0, le=1)

    def first_state(self, model: FlatModule) -> Tensors:
        """A copy of the initial model, and α."""
        return _kept(model, self.alpha)

    def fit(self, vector: Tensor, shard: Shard, context: Context) -> tuple[float, Tensors]:
        """Both models on the same batches; the loss is the personal one's."""
        w, (v, alpha) = context.model, _personal(context)
        optimizers = [self.steps_on(model) for model in (w, v)]

        def step() -> None:
            paced_step(optimizers[0], w.vector, context.extras.get("pace"))
            optimizers[1].step()

        training = self.training(vector, shard, context)
        learn = _paper if self.variant == "paper" else _pfllib
        losses = []
        for batch in self.training_batches(shard, context):
            loss, slope = learn(w, v, alpha, partial(_backward, training, batch), step)
            alpha = min(max(alpha - self.lr * slope, 0.0), 1.0)
            losses.append(loss)
        if self.variant == "pfllib":
            v.vector.lerp_(w.vector, 1 - alpha)
        return sum(losses) / len(losses), _kept(v, alpha)

    def predictor(self, vector: Tensor, context: Context) -> Predictor:
        """The personal model: v, or in the paper v̄ with the server's w."""
        v, alpha = _personal(context)
        if self.variant == "paper":
            v.vector.lerp_(vector, 1 - alpha)
        return partial(call, v.module.eval())


def _backward(training: LocalTraining, batch: tuple[Inputs, Tensor], model: FlatModule) -> float:
    """Leave the gradient of a batch in the model; its loss."""
    model.gradient.zero_()
    return training.backward(model, *batch)


def _paper(
    w: FlatModule, v: FlatModule, alpha: float, backward: Callable[[FlatModule], float], step: Callable[[], None]
) -> tuple[float, float]:
    """One batch; the personal loss and α's slope."""
    backward(w)
    own = v.vector.clone()
    v.vector.lerp_(w.vector, 1 - alpha)
    loss = backward(v)  # at v̄
    v.vector.copy_(own)
    slope = torch.dot(v.gradient, v.vector - w.vector).item()
    v.gradient.mul_(alpha)
    step()
    return loss, slope


def _pfllib(
    w: FlatModule, v: FlatModule, alpha: float, backward: Callable[[FlatModule], float], step: Callable[[], None]
) -> tuple[float, float]:
    """One batch; the personal loss and α's slope, which PFLlib takes after the steps."""
    backward(w)
    loss = backward(v)
    step()
    slope = torch.dot(v.vector - w.vector, w.gradient.lerp(v.gradient, alpha)).item()
    return loss, slope + 0.02 * alpha


def _kept(v: FlatModule, alpha: float) -> Tensors:
    buffers = v.buffers.clone()
    return {
        _V: v.vector.clone(),
        _FLOATS: buffers.floats,
        _INTEGERS: buffers.integers,
        _ALPHA: torch.tensor(alpha, dtype=torch.float64),
    }


def _personal(context: Context) -> tuple[FlatModule, float]:
    """The client's own model, beside the resident one, and α."""
    kept, v = context.state, copy.deepcopy(context.model)
    v.load(kept[_V], Buffers(kept[_FLOATS], kept[_INTEGERS]))
    return v, float(kept[_ALPHA])

"""FedALA: each client starts from a learnt mixture of its last model and the server's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedpace.client import Context
from fedpace.core import FlatModule, Layout, Tensors, call, derive, torch_stream
from fedpace.data import Shard
from fedpace.methods._method import methods
from fedpace.methods._personal import Personal, Predictor

PASSES = 100  # without a bound a loss that is not a number would be waited for forever
SETTLING = 10  # losses whose deviation tells whether W has settled

_LOCAL, _W = "local", "W"


@methods.register("fedala")
class FedALA(Personal):
    """Local training from θ̂ = θᵢ + (θ − θᵢ) ⊙ W, an adaptive local aggregation (Zhang et al., AAAI 2023).

    θᵢ is where the client ended last time. Only the last ``layer_idx`` tensors are mixed (2: weight and bias of the
    last layer; 0: all), those below are the server's. Before training W −= ``eta``·∇L(θ̂) ⊙ (θ − θᵢ), clipped to
    [0, 1], batch by batch over a random ``share`` of the client's examples: one pass, but at the first time as many
    as it takes until the last ten losses deviate by less than ``threshold`` (0.1 in PFLlib, 0.01 in the paper), 100 at
    most. Before its first turn a client has the initial model: if that is still the server's, nothing is mixed. The
    update is θᵢ − θ, although training began at θ̂. A client answers with such a mixture, and forgets it.

    Unlike in PFLlib, only clients that take part keep a mixture and W, each mixture has another random sample (so that
    a client answers with a slightly different one than it trains from next), and incomplete batches are left out.

    Keeps: its whole model, and W. Travels: the model, each way. Cost: FedAvg's, and the passes for W.
    """

    layer_idx: int = Field(2, ge=0)
    eta: float = Field(1.0, gt=0, allow_inf_nan=False)
    share: float = Field(0.8, gt=0, le=1)
    threshold: float = Field(0.1, ge=0)

    def first_state(self, model: FlatModule) -> Tensors:
        """The initial model. There is no W yet, which tells the first time."""
        return {_LOCAL: model.vector.clone()}

    def fit(self, vector: Tensor, shard: Shard, context: Context) -> tuple[float, Tensors]:
        """Mix, then train."""
        weights = self._mix(vector, shard, context)
        loss = self.training(vector, shard, context).run()
        return loss, {_LOCAL: context.model.vector.clone(), **weights}

    def predictor(self, vector: Tensor, context: Context) -> Predictor:
        """The mixture. What W became is forgotten: the next turn begins with what the last one kept."""
        assert context.training is not None  # who asks a client for answers lends it its training examples
        self.load(vector, context)
        self._mix(vector, context.training, context)
        return partial(call, context.model.module.eval())

    def _mix(self, vector: Tensor, shard: Shard, context: Context) -> Tensors:
        """Learn W and bring the resident model from θ to θ̂; W, if there is one by now."""
        model, kept = context.model, context.state
        known = {_W: kept[_W]} if _W in kept else {}
        if torch.equal(kept[_LOCAL], vector):
            return known
        layout = model.layout
        top = _last(layout, self.layer_idx)
        local, server = layout.take(kept[_LOCAL], top), layout.take(vector, top)
        weights = known.get(_W, torch.ones_like(local))
        layout.put(model.vector, local.lerp(server, weights), top)
        sample, training = self._sample(shard, context.seed), self.training(vector, shard, context)
        seeded = replace(context, seed=derive(context.seed, "ala"))  # the same in each pass: its losses are comparable
        losses: list[float] = []
        with model.only(top):
            for _ in range(1 if known else PASSES):
                for inputs, targets in self.batches(sample, seeded, epochs=1):
                    model.gradient.zero_()
                    loss = training.backward(model, inputs, targets)
                    slope = layout.take(model.gradient, top) * (server - local)
                    weights = (weights - self.eta * slope).clamp(0, 1)
                    layout.put(model.vector, local.lerp(server, weights), top)
                losses.append(loss)
                if len(losses) > SETTLING and np.std(losses[-SETTLING:]) < self.threshold:
                    break
        model.buffers.copy_(context.buffers)  # as if W had been known
        return {_W: weights}

    def _sample(self, shard: Shard, seed: int) -> Shard:
        order = torch.randperm(len(shard), generator=torch_stream(seed, "sample")).numpy()
        return replace(shard, indices=shard.indices[order[: max(int(self.share * len(shard)), 1)]])


def _last(layout: Layout, number: int) -> Layout:
    names = layout.names[-number:]  # of 0, all
    return layout.with_personal(lambda name: name not in names).shared

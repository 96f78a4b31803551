"""Adam whose second moments are common to all clients."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpace.client import Context
from fedpace.core import FlatModule, Layout, ServerSide, Tensors, Update
from fedpace.data import Shard
from fedpace.methods._method import Method, methods

_MOMENTS = "moments"


@methods.register("common_adam")
class CommonAdam(Method):
    """Local training with Adam whose second moments all clients share, so that they measure steps alike (ours).

    Adam divides a step by √v, where v averages the squares of the gradients that *this* client has seen since the round
    began. Clients that disagree then step by different measures: one goes far where another hardly moves, and the first
    steps of a round have their full length in every coordinate, however small its gradient is. Here each client sends
    the mean square of its gradients, the server averages them by samples, and v is that average in all steps of the
    next round. In the first round v is the client's own. Momentum starts anew in every round, as ever.

    Cost: one more vector travels each way.
    """

    def turn(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Train, and say how large the gradients were."""
        model = context.model
        model.start_from(vector, context.buffers)
        steps = _CommonSteps(model, self.lr, self.weight_decay, context.extras.get(_MOMENTS))
        loss = self.training(vector, shard, context).run(optimizer=steps)
        extras = {_MOMENTS: steps.squares.div_(steps.count)}
        return Update(
            context.client, model.change_since(vector), len(shard), {"loss": loss}, model.buffers, extras=extras
        )

    def server_side(self, layout: Layout, population: int) -> ServerSide:
        """The mean of the clients' squares."""
        return _MeanSquares(layout.size)


class _CommonSteps:
    """Adam's steps with second moments from outside; without any, with the mean of the squares seen so far."""

    beta, eps = 0.9, 1e-8  # torch's

    def __init__(self, model: FlatModule, lr: float, weight_decay: float, moments: Tensor | None) -> None:
        self._model, self._lr, self._weight_decay = model, lr, weight_decay
        self._root = None if moments is None else moments.sqrt().add_(self.eps)
        self._momentum = torch.zeros_like(model.vector)
        self.squares = torch.zeros_like(model.vector)
        self.count = 0

    def step(self) -> None:
        """Move the model's vector in place."""
        gradient = self._model.gradient.add_(self._model.vector, alpha=self._weight_decay)
        self.count += 1
        self.squares.addcmul_(gradient, gradient)
        self._momentum.lerp_(gradient, 1 - self.beta)
        root = self._root if self._root is not None else self.squares.div(self.count).sqrt_().add_(self.eps)
        # Adam's own v bounds a step by about lr. A common one does not: where others saw no gradient, it would explode.
        step = self._momentum.div(root).div_(1 - self.beta**self.count).clamp_(-1, 1)
        self._model.vector.sub_(step, alpha=self._lr)


class _MeanSquares(ServerSide):
    def __init__(self, size: int) -> None:
        super().__init__({}, {_MOMENTS: (size,)})
        self._sum, self._examples = torch.zeros(size), 0

    def learn(self, update: Update) -> None:
        """Add a client's squares, as often as it has examples."""
        # Adam's measure is never negative, whatever a client sends.
        self._sum.add_(update.extras[_MOMENTS].clamp(min=0), alpha=update.examples)
        self._examples += update.examples

    def finish(self) -> None:
        """The mean replaces that of the last round."""
        self.memory: Tensors = {_MOMENTS: self._sum.div(self._examples)}
        self._sum.zero_()
        self._examples = 0

"""FedPAC: features that agree on where a class lies, and classifiers shared by those whose features are alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedpace.client import Context, Loss
from fedpace.client.evaluation import in_order
from fedpace.core import Inputs, Layout, ServerSide, Tensors, Update, Weights, devices
from fedpace.data import Shard
from fedpace.methods._head import head_layer, with_features
from fedpace.methods._method import methods
from fedpace.methods.fedrep import FedRep
from fedpace.tasks import Task

_HEAD, _PROTOTYPES, _COUNTS = "head", "prototypes", "counts"
_MOMENTS, _VARIANCE = "moments", "variance"  # h and v
_NEGLIGIBLE = 1e-3  # weights below are dropped (the authors' code)
_RIDGE = 1e-9  # relative: makes the minimum unique where clients are exactly alike

Matrix = NDArray[np.float64]


@methods.register("fedpac")
class FedPAC(FedRep):
    """FedRep's two phases, with features drawn to global prototypes, and heads that clients combine (Xu et al., 2023).

    The base descends CE + ``lam`` · MSE(z, prototype of the example's class), once there are prototypes: the mean
    features of each class, averaged over clients by ``prototype_weights`` (``samples`` in the authors' code,
    ``uniform`` in PFLlib). A class that nobody had in the last round has none, and its features are drawn nowhere, as
    in PFLlib (in the authors' code, to the client's own mean). Head and base have one learning rate, as in PFLlib (the
    authors' head has 0.1).

    Client i gets the head Σⱼ αᵢⱼ headⱼ, where αᵢ minimises Σⱼ αⱼ² vⱼ + ‖Σⱼ αⱼ(hᵢ − hⱼ)‖² over the simplex. h are a
    client's class means times the classes' shares, v = (E‖z‖² − ‖h‖²) / n, both of the received base before training.
    Weights below 0.001 are dropped and the others renormalised. An aggregation rule is for the base.

    Keeps: the head. Travels: up base, head, prototypes, class counts, h and v; down base, a head of one's own and
    prototypes. Cost: FedRep's, and two passes that only look; on the server N quadratic problems of size N.
    """

    lam: float = Field(1.0, ge=0, allow_inf_nan=False)
    prototype_weights: Weights = "samples"

    def unfit_for(self, task: Task) -> str | None:
        """Other tasks have no classes, so no prototypes."""
        return None if task.classes else "its prototypes are the mean features of each class"

    def prepare(self, module: nn.Module, seed: int) -> nn.Module:
        """The model as it is, if its head is linear."""
        head_layer(module)
        return module

    def load(self, vector: Tensor, context: Context) -> None:
        """The combined head takes the place of the client's own."""
        super().load(vector, context)
        if _HEAD in context.extras:
            layout = context.model.layout
            layout.put(context.model.vector, context.extras[_HEAD], layout.own)

    def turn(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Look at the features, train, look again."""
        model, layout = context.model, context.model.layout
        self.load(vector, context)
        sums, squares = _class_sums(shard, context)
        moments = sums / len(shard)
        variance = (squares / len(shard) - moments.square().sum()).clamp(min=0) / len(shard)
        update = super().turn(vector, shard, context)
        counts = torch.from_numpy(shard.class_counts())
        prototypes = _class_sums(shard, context)[0] / counts.clamp(min=1)[:, None]
        sent = {_PROTOTYPES: prototypes, _COUNTS: counts, _MOMENTS: moments, _VARIANCE: variance}
        head = layout.take(model.vector, layout.own)
        return replace(update, extras={_HEAD: head, **{name: tensor.float() for name, tensor in sent.items()}})

    def loss_of(self, start: Tensor, shard: Shard, context: Context) -> Loss:
        """The task's loss, and the distance from the prototypes; that has no gradient while the head is trained."""
        prototypes = context.extras.get(_PROTOTYPES)
        if prototypes is None:
            return super().loss_of(start, shard, context)

        def loss(module: nn.Module, inputs: Inputs, targets: Tensor) -> Tensor:
            scores, features = with_features(module, inputs)
            wanted = prototypes[targets]
            distance = F.mse_loss(features, torch.where(wanted.isnan(), features.detach(), wanted))
            return context.task.loss(scores, targets) + self.lam * distance

        return loss

    def server_side(self, layout: Layout, population: int) -> ServerSide:
        """Prototypes, and a head for each client that took part."""
        return _Heads(layout.own, self.prototype_weights)


def _class_sums(shard: Shard, context: Context) -> tuple[Tensor, Tensor]:
    """Σz of each class and Σ‖z‖² of all examples, in evaluation mode."""
    module = context.model.module.eval()
    head = head_layer(module)
    # On the host, because a GPU adds in another order each time, and not every one knows double precision.
    sums = torch.zeros(head.out_features, head.in_features, dtype=torch.float64)
    squares = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for inputs, labels in in_order(shard, torch.arange(len(shard)), context):
            features = devices.to_host(with_features(module, inputs)[1]).double()
            sums.index_add_(0, devices.to_host(labels), features)
            squares += features.square().sum()
    return sums, squares


class _Heads(ServerSide):
    """Remembers the prototypes (a row of NaN where no client had the class) and each client's combined head."""

    def __init__(self, head: Layout, prototype_weights: str) -> None:
        matrix = next(shape for shape in head.shapes if len(shape) == 2)  # classes × features
        expects = {_HEAD: (head.size,), _PROTOTYPES: matrix, _COUNTS: matrix[:1], _MOMENTS: matrix, _VARIANCE: ()}
        super().__init__({}, expects)
        self._by_samples = prototype_weights == "samples"
        self._received: dict[int, Tensors] = {}  # by client, in this round

    def sends(self) -> Tensors:
        """The prototypes, once there are any."""
        return {name: tensor for name, tensor in self.memory.items() if name == _PROTOTYPES}

    def sends_to(self, client: int) -> Tensors:
        """Its head, once it took part."""
        name = f"{_HEAD}.{client}"
        return {_HEAD: self.memory[name]} if name in self.memory else {}

    def learn(self, update: Update) -> None:
        """Keep it until everyone's is there. Counts and variances are never negative, whatever a client sends."""
        kept = {name: tensor.clone() for name, tensor in update.extras.items()}
        for name in (_COUNTS, _VARIANCE):
            kept[name].clamp_(min=0)
        self._received[update.client] = kept

    def finish(self) -> None:
        """Average the prototypes and combine the heads."""
        received, self._received = self._received, {}

        def rows(name: str) -> Tensor:
            return torch.stack([extras[name] for extras in received.values()])

        counts = rows(_COUNTS) if self._by_samples else (rows(_COUNTS) > 0).float()
        sums = (counts[:, :, None] * rows(_PROTOTYPES)).sum(0)
        self.memory[_PROTOTYPES] = sums / counts.sum(0)[:, None]  # 0 / 0 where nobody has the class
        weights = head_weights(rows(_MOMENTS).flatten(1).double().numpy(), rows(_VARIANCE).double().numpy())
        heads = rows(_HEAD)
        for client, own in zip(received, torch.from_numpy(weights).float(), strict=True):
            self.memory[f"{_HEAD}.{client}"] = own @ heads


def head_weights(moments: Matrix, variances: Matrix) -> Matrix:
    """αᵢ of each client i in a row, for one row of ``moments`` (h) and one of ``variances`` (v) per client.

    >>> head_weights(np.array([[0.0, 1.0], [0.0, 1.0], [9.0, 0.0]]), np.full(3, 0.1)).round(6).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    centred = moments - moments.mean(0)  # no distance changes, and no digits are lost
    gram = centred @ centred.T
    forms = (gram[i, i] - gram[i][:, None] - gram[i] + gram + np.diag(variances) for i in range(len(gram)))
    return np.stack([_minimum(form) for form in forms])


def _minimum(form: Matrix) -> Matrix:
    """The α of the simplex with the least αᵀPα, without negligible weights.

    Up to its length that is the β ≥ 0 with the least βᵀPβ + (Σβ − 1)²: of all tα, for a fixed α, the best has the
    value f / (1 + f) with f = αᵀPα.
    """
    from scipy.optimize import nnls  # here, because no other method needs SciPy, and it is slow to import

    size = len(form)
    scale = np.trace(form) / size or 1.0
    root = np.linalg.cholesky(form / scale + _RIDGE * np.eye(size)).T
    found, _ = nnls(np.vstack([root, np.ones(size)]), np.append(np.zeros(size), 1.0))
    weights: Matrix = found / found.sum()
    weights[weights < min(_NEGLIGIBLE, 0.5 / size)] = 0  # of a thousand clients an equal share is not negligible
    weights /= weights.sum()
    return weights

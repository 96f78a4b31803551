"""FedCP: each example's features are divided between a classifier for all and one of one's own."""

from __future__ import annotations

import copy

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedpace.client import Context, Loss
from fedpace.core import Inputs, Layout, Tensors, derive, devices
from fedpace.data import Shard
from fedpace.methods._head import head_layer, with_features
from fedpace.methods._method import methods
from fedpace.methods._personal import Personal, Predictor
from fedpace.tasks import NextToken, Task

_MODEL, _GLOBAL_HEAD = "model.", "head_g."  # how the names of their tensors begin
_BANDWIDTHS = (10, 15, 20, 50)  # of the authors' code


@methods.register("fedcp")
class FedCP(Personal):
    """A policy network separates global from personal information in the features (Zhang et al., 2023).

    With features z, v the normalised sum of the personal head's class weights, and (r, s) = policy(z · v), r + s = 1 in
    each feature, the scores are head_p(z · r) + head_g(z · s). The loss is CE + ``lam`` · MMD²(z, z of the received
    base). The policy (a linear layer, LayerNorm, ReLU, softmax of pairs) samples by Gumbel noise while it is trained;
    its answers are free of noise. The global head and the received base are not trained. The client sends its base,
    its policy and (head_p + head_g) / 2. An aggregation rule is for the base; head and policy are averaged by samples.

    Unlike in PFLlib, v is that of the head in the first round too (there it is random), and whoever takes part starts
    from the newest head and policy (there they only reach those who took part in the round that made them).

    ``lam`` weighs the distance to the received features (1 in PFLlib, 5 for MNIST in the paper).

    Keeps: the personal head. Travels: base, head and policy, each way. Cost: a forward pass more, and the
    distances of all pairs of a batch.
    """

    lam: float = Field(1.0, ge=0, allow_inf_nan=False)

    def unfit_for(self, task: Task) -> str | None:
        """Places of a text are not divided one by one."""
        return "it divides the features of whole examples" if isinstance(task, NextToken) else None

    def prepare(self, module: nn.Module, seed: int) -> nn.Module:
        """The model with a policy and a global head beside it."""
        self.layout(module)  # refuses a model that is nothing but a head
        return _Divided(module, seed)

    def is_personal(self, name: str, head: frozenset[str]) -> bool:
        """The model's own head."""
        return name in head

    def ruled(self, layout: Layout) -> Layout:
        """The base."""
        return layout.shared.with_personal(lambda name: not name.startswith(_MODEL)).shared

    def fit(self, vector: Tensor, shard: Shard, context: Context) -> tuple[float, Tensors]:
        """Everything but the global head, which then meets the personal one half way."""
        module, layout = context.model.module, context.model.layout
        assert isinstance(module, _Divided)
        trained = layout.with_personal(lambda name: name.startswith(_GLOBAL_HEAD)).shared
        with devices.forked_rng(context.model.device):
            torch.manual_seed(derive(context.seed, "gumbel"))
            loss = self.training(vector, shard, context).run(trained)
        with torch.no_grad():
            for common, own in zip(module.head_g.parameters(), head_layer(module).parameters(), strict=True):
                common.lerp_(own, 0.5)
        return loss, {}

    def loss_of(self, start: Tensor, shard: Shard, context: Context) -> Loss:
        """The task's loss, and the distance from the features of the received base."""
        resident = context.model.module
        assert isinstance(resident, _Divided)
        own = resident.context()  # what the head looked at before this turn
        shared = context.model.layout.shared.tensors(start)
        received = {name.removeprefix(_MODEL): tensor for name, tensor in shared if name.startswith(_MODEL)}

        def loss(module: nn.Module, inputs: Inputs, targets: Tensor) -> Tensor:
            assert isinstance(module, _Divided)
            scores, features = module.divided(inputs, own)
            statistics = {name: buffer.clone() for name, buffer in module.model.named_buffers()}  # none counts twice
            with torch.no_grad():
                _, before = with_features(module.model, inputs, received | statistics)
            return context.task.loss(scores, targets) + self.lam * mmd(features, before)

        return loss

    def predictor(self, vector: Tensor, context: Context) -> Predictor:
        """Divided features, without noise."""
        self.load(vector, context)
        module = context.model.module.eval()
        assert isinstance(module, _Divided)
        own = module.context()
        return lambda inputs: module.divided(inputs, own)[0]


class _Divided(nn.Module):
    """A model, whose head is the personal one, a policy and a global head. On its own it answers with the latter."""

    def __init__(self, model: nn.Module, seed: int) -> None:
        super().__init__()
        head = head_layer(model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "policy"))
            self.policy = _Policy(head.in_features)
        self.head_g = copy.deepcopy(head)
        self.model = model  # behind the others, because the last matrix is the head

    def forward(self, inputs: Tensor | None = None, **named: Tensor) -> Tensor:
        scores: Tensor = self.head_g(with_features(self.model, named if inputs is None else inputs)[1])
        return scores

    def context(self) -> Tensor:
        """The client's: what its head looks at."""
        return F.normalize(head_layer(self.model).weight.detach().sum(0), dim=0)

    def divided(self, inputs: Inputs, context: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and features."""
        _, features = with_features(self.model, inputs)
        personal, common = self.policy(features * context)
        return head_layer(self.model)(features * personal) + self.head_g(features * common), features


class _Policy(nn.Module):
    """How much of each feature is personal and how much is global: noisy in training, and only there."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size, 2 * size), nn.LayerNorm(2 * size), nn.ReLU())

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        pairs = self.layers(features).view(len(features), 2, -1)
        personal, common = (F.gumbel_softmax(pairs, dim=1) if self.training else pairs.softmax(1)).unbind(1)
        return personal, common


def mmd(x: Tensor, y: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of two samples under a sum of Gaussian kernels exp(−‖a − b‖² / 2h).

    >>> mmd(torch.zeros(2, 3), torch.zeros(2, 3)).item()
    0.0
    """
    points = torch.cat([x, y])
    squares = points.square().sum(1)
    distances = squares[:, None] + squares - 2 * points @ points.T
    kernel = torch.stack([(-distances / (2 * width)).exp() for width in _BANDWIDTHS]).sum(0)
    sides = torch.cat([x.new_full((len(x),), 1 / len(x)), y.new_full((len(y),), -1 / len(y))])
    return sides @ kernel @ sides

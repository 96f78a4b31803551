"""FedROD: a generic classifier and, on top of it, one of one's own."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpace.client import Context, works
from fedpace.core import Tensors
from fedpace.data import Shard
from fedpace.personal._head import head_layer, with_features
from fedpace.personal._personal import Personal, Predictor

_LOG_COUNTS = "log_counts"


@works.register("fedrod")
class FedROD(Personal):
    """Two heads on one base: a generic head G that is fair to all classes, and a personal head H (Chen and Chao, 2022).

    With features z and the client's class counts n, base and G descend the balanced loss CE(G(z) + log n), in which a
    class that the client lacks plays no part, and H descends CE(G(z) + H(z)), of which base and G feel nothing. The
    client answers with G(z) + H(z); H begins as a copy of G. The loss that is reported is the sum of both.

    Keeps: H. Travels: base and G, each way. Cost: FedAvg's, and one more head.
    """

    def prepare(self, module: nn.Module) -> nn.Module:
        """The model with a second head beside it."""
        return _TwoHeads(module)

    def is_personal(self, name: str, head: frozenset[str]) -> bool:
        """The second head."""
        return name.startswith("personal.")

    def fit(self, vector: Tensor, shard: Shard, context: Context) -> tuple[float, Tensors]:
        """Both heads together: neither loss has a gradient where the other has one."""
        log_counts = torch.from_numpy(shard.class_counts()).log()  # of all examples, also those that no batch contains
        context = replace(context, extras={**context.extras, _LOG_COUNTS: log_counts})
        return self.train(shard, context, vector), {}

    def loss(self, module: nn.Module, inputs: Tensor, labels: Tensor, context: Context) -> Tensor:
        """The balanced loss of G, and the loss of H on top of it."""
        assert isinstance(module, _TwoHeads)
        generic, features = with_features(module, inputs)
        balanced = F.cross_entropy(generic + context.extras[_LOG_COUNTS], labels)
        return balanced + F.cross_entropy(generic.detach() + module.personal(features.detach()), labels)

    def predictor(self, vector: Tensor, context: Context) -> Predictor:
        """G + H."""
        self.load(vector, context)
        module = context.model.module.eval()
        assert isinstance(module, _TwoHeads)

        def predict(inputs: Tensor) -> Tensor:
            generic, features = with_features(module, inputs)
            scores: Tensor = generic + module.personal(features)
            return scores

        return predict


class _TwoHeads(nn.Module):
    """A model and a second head. On its own it answers generically, as the model does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.personal = copy.deepcopy(head_layer(model))
        self.model = model  # behind the other, because the last matrix is the head

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.model(inputs)
        return scores

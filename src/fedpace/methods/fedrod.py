"""FedROD: a generic classifier and, on top of it, one of one's own."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from fedpace.client import Context, Loss
from fedpace.core import Inputs
from fedpace.data import Shard
from fedpace.methods._head import head_layer, with_features
from fedpace.methods._method import methods
from fedpace.methods._personal import Personal, Predictor
from fedpace.tasks import Task


@methods.register("fedrod")
class FedROD(Personal):
    """Two heads on one base: a generic head G that is fair to all classes, and a personal head H (Chen and Chao, 2022).

    With features z and the client's class counts n, base and G descend the balanced loss CE(G(z) + log n), in which a
    class that the client lacks plays no part, and H descends CE(G(z) + H(z)), of which base and G feel nothing. The
    client answers with G(z) + H(z); H begins as a copy of G. The loss that is reported is the sum of both.

    Keeps: H. Travels: base and G, each way. Cost: FedAvg's, and one more head.
    """

    def unfit_for(self, task: Task) -> str | None:
        """Other tasks have no classes to balance."""
        return None if task.classes else "its balanced loss counts the examples of each class"

    def prepare(self, module: nn.Module, seed: int) -> nn.Module:
        """The model with a second head beside it."""
        return _TwoHeads(module)

    def is_personal(self, name: str, head: frozenset[str]) -> bool:
        """The second head."""
        return name.startswith("personal.")

    def loss_of(self, start: Tensor, shard: Shard, context: Context) -> Loss:
        """The balanced loss of G, and the loss of H on top of it; neither has a gradient where the other has one."""
        counts = torch.from_numpy(shard.class_counts()).to(context.model.device)
        log_counts = counts.log()  # of all examples, also those that no batch contains

        def loss(module: nn.Module, inputs: Inputs, targets: Tensor) -> Tensor:
            assert isinstance(module, _TwoHeads)
            generic, features = with_features(module, inputs)
            balanced = context.task.loss(generic + log_counts, targets)
            return balanced + context.task.loss(generic.detach() + module.personal(features.detach()), targets)

        return loss

    def predictor(self, vector: Tensor, context: Context) -> Predictor:
        """G + H."""
        self.load(vector, context)
        module = context.model.module.eval()
        assert isinstance(module, _TwoHeads)

        def predict(inputs: Inputs) -> Tensor:
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

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        scores: Tensor = self.model(*inputs, **named)
        return scores

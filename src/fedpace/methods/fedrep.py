"""FedRep: a classifier of one's own on a representation for all."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from fedpace.client import Context
from fedpace.core import Tensors, derive
from fedpace.data import Shard
from fedpace.methods._method import methods
from fedpace.methods._personal import Personal


@methods.register("fedrep")
class FedRep(Personal):
    """First the head is trained on a frozen base, then the base under a frozen head (Collins et al., 2021).

    Only the base is shared. ``head_epochs`` are the epochs of the first phase (1 in PFLlib, 10 in the paper).
    Keeps: the head. Travels: the base, each way. Cost: FedAvg's, and ``head_epochs`` passes that train the head alone.
    """

    head_epochs: int = Field(1, ge=1)

    def is_personal(self, name: str, head: frozenset[str]) -> bool:
        """The head."""
        return name in head

    def fit(self, vector: Tensor, shard: Shard, context: Context) -> tuple[float, Tensors]:
        """Head, then base."""
        layout = context.model.layout
        seeded = replace(context, seed=derive(context.seed, "head"))
        self.training(vector, shard, seeded).run(layout.own, epochs=self.head_epochs)
        return self.training(vector, shard, context).run(layout.shared), {}

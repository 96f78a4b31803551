"""A client's answer to a perturbation: the gradient and loss of one batch at a displaced point."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedpace.client._work import ClientWork, Context, works
from fedpace.client.gradient import Gradient
from fedpace.core import Perturbation, Update
from fedpace.data import Shard


@works.register("probe")
class Probe(ClientWork):
    """Gradient of one batch at the point that ``path`` leads to. Every path of a round is probed on the same batch."""

    perturbation: Perturbation = Perturbation()
    path: tuple[int, ...] = ()
    batch: int = Field(32, ge=1)

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Move along the path, then take one batch's gradient."""
        point = self.perturbation.follow(vector, context.model.layout, self.path)
        return Gradient(epochs=1, batch=self.batch, max_steps=1)(point, shard, context)

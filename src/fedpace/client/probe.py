"""A client's answer to a perturbation: the gradient and loss of one batch at a displaced point."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from fedpace.client._work import ClientWork, Context, works
from fedpace.client.gradient import Gradient
from fedpace.core import Perturbation, Update, sketch
from fedpace.data import Shard

SKETCH = "sketch"  # it travels as an extra: the rows of workers are as long as the model


@works.register("probe")
class Probe(ClientWork):
    """Gradient of one batch at the point that ``path`` leads to. Every path of a round is probed on the same batch.

    With a ``sketch`` that many numbers are sent instead of the gradient, along with the answer: see :meth:`opened`.
    """

    perturbation: Perturbation = Perturbation()
    path: tuple[int, ...] = ()
    batch: int = Field(32, ge=1)
    sketch: int | None = Field(None, ge=2)

    def __call__(self, vector: Tensor, shard: Shard, context: Context) -> Update:
        """Move along the path, then take one batch's gradient."""
        point = self.perturbation.follow(vector, context.model.layout, self.path)
        update = Gradient(epochs=1, batch=self.batch, max_steps=1)(point, shard, context)
        if self.sketch is None or update.vector is None:
            return update
        return replace(update, vector=None, extras={SKETCH: sketch(update.vector, self.sketch)})

    @staticmethod
    def opened(update: Update) -> Update:
        """An answer as the search reads it: a sketch is its vector."""
        return replace(update, vector=update.extras.get(SKETCH, update.vector), extras={})

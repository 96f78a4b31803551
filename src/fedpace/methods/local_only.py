"""Local training: nobody shares anything."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from fedpace.core import Layout
from fedpace.methods._method import methods
from fedpace.methods._personal import Personal


@methods.register("local_only")
class LocalOnly(Personal):
    """Every client trains a model of its own from the same start, and nothing travels: what sharing has to beat.

    Keeps: the model. Travels: nothing. Cost: FedAvg's.
    """

    in_phases: ClassVar[bool] = True

    def layout(self, module: nn.Module) -> Layout:
        """All of it is personal."""
        return Layout.of(module).with_personal(lambda name: True)

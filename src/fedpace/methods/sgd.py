"""FedAvg's local training."""

from __future__ import annotations

from typing import ClassVar

from fedpace.methods._method import Method, methods


@methods.register("sgd")
class LocalSGD(Method):
    """A few epochs of an optimizer on the task's loss, and nothing else (McMahan et al., 2017)."""

    by_examples: ClassVar[bool] = True
    in_phases: ClassVar[bool] = True

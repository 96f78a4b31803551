"""LG-FedAvg: a representation of one's own under a classifier for all."""

from __future__ import annotations

from typing import ClassVar

from fedpace.methods._method import methods
from fedpace.methods._personal import Personal


@methods.register("lg_fedavg")
class LGFedAvg(Personal):
    """Base and head are trained together, and only the head is shared (Liang et al., 2020).

    All bases begin as the base of the initial model, as in PFLlib; the authors begin with a model that FedAvg trained.
    Keeps: the base. Travels: the head, each way. Cost: FedAvg's.
    """

    in_phases: ClassVar[bool] = True

    def is_personal(self, name: str, head: frozenset[str]) -> bool:
        """The base."""
        return name not in head

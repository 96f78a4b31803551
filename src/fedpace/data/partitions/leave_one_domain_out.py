"""A client per domain, and one domain that no client has seen."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedpace.core import PartitionError
from fedpace.core.errors import did_you_mean
from fedpace.data.examples import Examples
from fedpace.data.partitions._partition import Assignment, Partition, partitions


@partitions.register("leave_one_domain_out")
class LeaveOneDomainOut(Partition):
    """Each domain is a client, except one that is the test set: generalisation to an unseen domain (PACS in FedPACE).

    Nothing is random. Repeat it with every domain held out and average.

    Parameters: ``held_out``, the name of the test domain; the first one by default.
    """

    pool: ClassVar[Literal["train", "all"]] = "all"

    held_out: str | None = None

    def assign(self, examples: Examples, rng: np.random.Generator) -> Assignment:
        """One client per remaining domain."""
        domains = examples.domain_names
        if examples.domains is None or len(domains) < 2:
            raise PartitionError(
                "partition 'leave_one_domain_out': expected data with two domains or more, "
                f"found {len(domains)}; use 'pacs' or 'digit_domains', or add a 'domain' column"
            )
        held_out = domains[0] if self.held_out is None else self.held_out
        if held_out not in domains:
            raise PartitionError(
                f"partition 'leave_one_domain_out': held_out is an unknown domain '{held_out}'; "
                f"{did_you_mean(held_out, domains)}"
            )
        indices = {name: np.flatnonzero(examples.domains == index) for index, name in enumerate(domains)}
        test = indices.pop(held_out)
        return Assignment(list(indices.values()), names=tuple(indices), held_out=test)

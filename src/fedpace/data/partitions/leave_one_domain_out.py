"""A client per domain, and one domain that no client has seen."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedpace.core import PartitionError
from fedpace.core.errors import did_you_mean
from fedpace.data.dataset import Dataset
from fedpace.data.partitions._partition import Assignment, Partition, partitions


@partitions.register("leave_one_domain_out")
class LeaveOneDomainOut(Partition):
    """Each domain is a client, except one that is the test set: generalisation to an unseen domain (PACS in FedPACE).

    Nothing is random. Repeat it with every domain held out and average.

    Parameters: ``held_out``, the name of the test domain; the first one by default.
    """

    pool: ClassVar[Literal["train", "all"]] = "all"

    held_out: str | None = None

    def assign(self, dataset: Dataset, rng: np.random.Generator) -> Assignment:
        """One client per remaining domain."""
        domains = dataset.domain_names
        if dataset.domains is None or len(domains) < 2:
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
        examples = {name: np.flatnonzero(dataset.domains == index) for index, name in enumerate(domains)}
        test = examples.pop(held_out)
        return Assignment(list(examples.values()), names=tuple(examples), held_out=test)

"""ConFREE as published in code."""

from __future__ import annotations

from typing import Literal

from fedpace.aggregation._guided import Rescale
from fedpace.aggregation._rule import rules
from fedpace.aggregation.conflict_free import ConflictFree


@rules.register("conflict_free_authors")
class ConflictFreeAuthors(ConflictFree):
    """:class:`ConflictFree` as its authors' code has it, which is another rule than the poster's.

    Each tensor on its own; sequential projections without normalisation; SciPy's SLSQP on unscaled values, with 1e-8
    added to lengths; result divided by 1 + c²; clients count alike, those that sent zero too. Where updates are short
    (a tensor's norm below about 0.03) that is (1 + c)/(1 + c²) times the mean; where they are long, projections
    overshoot. The result therefore depends on the scale of updates. Buffers, which the code leaves with the clients,
    are not a rule's business. Two corrections: the order of projections comes from ``seed`` instead of an unseeded
    generator, and is the same for all tensors and rounds; where the solver ends at a client that sent zero, the step is
    the guidance, to which the code adds what is left of the others, enlarged.
    """

    granularity: Literal["model", "tensor"] = "tensor"
    projection: Literal["simultaneous", "sequential", "sequential_unnormalised"] = "sequential_unnormalised"
    rescale: Rescale = "one_plus_c_squared"
    solver: Literal["pgd", "slsqp"] = "slsqp"
    zero_clients: Literal["excluded", "included"] = "included"

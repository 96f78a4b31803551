"""ConFREE with the length of a mean."""

from __future__ import annotations

from fedpace.aggregation._guided import Rescale
from fedpace.aggregation._rule import rules
from fedpace.aggregation.conflict_free import ConflictFree


@rules.register("conflict_free_sound")
class ConflictFreeSound(ConflictFree):
    """:class:`ConflictFree` divided by 1 + c: one client alone decides, and equal clients are averaged.

    What remains of a comparison with the mean is then the direction, not a longer server step.
    """

    rescale: Rescale = "one_plus_c"

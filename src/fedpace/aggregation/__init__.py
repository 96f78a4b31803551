"""Aggregation rules: callables on an N × d matrix of updates, or streams. They know tensors and nothing else."""

from fedpace.aggregation._distances import DistanceRule
from fedpace.aggregation._gram import Rows, cosines, gram, pairs
from fedpace.aggregation._gram_rule import GramRule
from fedpace.aggregation._length import length
from fedpace.aggregation._magnitude import MagnitudeAgreement
from fedpace.aggregation._mixing import Mixing
from fedpace.aggregation._ordered import Ordered
from fedpace.aggregation._range import largest_value
from fedpace.aggregation._rule import AnyRule, Diagnostics, Quantity, Rule, ScaledStream, Stream, Sums, rules
from fedpace.aggregation._scaled import SignScaled
from fedpace.aggregation._signs import SignSum, highest_below, sign_type, threshold_count
from fedpace.aggregation._thresholded import Thresholded
from fedpace.aggregation.and_mask import AndMask
from fedpace.aggregation.bucketing import Bucketing
from fedpace.aggregation.centred_clipping import CentredClipping
from fedpace.aggregation.conflict_averse import ConflictAverse
from fedpace.aggregation.conflict_free import ConflictFree
from fedpace.aggregation.conflict_free_authors import ConflictFreeAuthors
from fedpace.aggregation.conflict_free_sound import ConflictFreeSound
from fedpace.aggregation.dampened import Dampened
from fedpace.aggregation.elected import Elected
from fedpace.aggregation.geometric_median import GeometricMedian
from fedpace.aggregation.harmonised import Harmonised
from fedpace.aggregation.harmonised_projection import HarmonisedProjection
from fedpace.aggregation.krum import Krum
from fedpace.aggregation.magnitude_dampened import MagnitudeDampened
from fedpace.aggregation.masked import Masked
from fedpace.aggregation.mean import Mean
from fedpace.aggregation.median import Median
from fedpace.aggregation.multi_krum import MultiKrum
from fedpace.aggregation.nearest_neighbours import NearestNeighbours
from fedpace.aggregation.norm_clipping import NormClipping
from fedpace.aggregation.projected import Projected
from fedpace.aggregation.root_trust import RootTrust
from fedpace.aggregation.shrunk import Shrunk
from fedpace.aggregation.trimmed_mean import TrimmedMean

__all__ = [
    "AndMask",
    "AnyRule",
    "Bucketing",
    "CentredClipping",
    "ConflictAverse",
    "ConflictFree",
    "ConflictFreeAuthors",
    "ConflictFreeSound",
    "Dampened",
    "Diagnostics",
    "DistanceRule",
    "Elected",
    "GeometricMedian",
    "GramRule",
    "Harmonised",
    "HarmonisedProjection",
    "Krum",
    "MagnitudeAgreement",
    "MagnitudeDampened",
    "Masked",
    "Mean",
    "Median",
    "Mixing",
    "MultiKrum",
    "NearestNeighbours",
    "NormClipping",
    "Ordered",
    "Projected",
    "Quantity",
    "RootTrust",
    "Rows",
    "Rule",
    "ScaledStream",
    "Shrunk",
    "SignScaled",
    "SignSum",
    "Stream",
    "Sums",
    "Thresholded",
    "TrimmedMean",
    "cosines",
    "gram",
    "highest_below",
    "largest_value",
    "length",
    "pairs",
    "rules",
    "sign_type",
    "threshold_count",
]

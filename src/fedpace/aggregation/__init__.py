"""Aggregation rules: callables on an N × d matrix of updates, or streams. They know tensors and nothing else."""

from fedpace.aggregation._gram import GramRule, cosines, gram, pairs
from fedpace.aggregation._magnitude import MagnitudeAgreement
from fedpace.aggregation._rule import Diagnostics, Rule, Stream, rules
from fedpace.aggregation._scaled import SignScaled
from fedpace.aggregation._signs import SignSum, threshold_count
from fedpace.aggregation.dampened import Dampened
from fedpace.aggregation.elected import Elected
from fedpace.aggregation.harmonised import Harmonised
from fedpace.aggregation.harmonised_projection import HarmonisedProjection
from fedpace.aggregation.magnitude_dampened import MagnitudeDampened
from fedpace.aggregation.masked import Masked
from fedpace.aggregation.mean import Mean
from fedpace.aggregation.shrunk import Shrunk

__all__ = [
    "Dampened",
    "Diagnostics",
    "Elected",
    "GramRule",
    "Harmonised",
    "HarmonisedProjection",
    "MagnitudeAgreement",
    "MagnitudeDampened",
    "Masked",
    "Mean",
    "Rule",
    "Shrunk",
    "SignScaled",
    "SignSum",
    "Stream",
    "cosines",
    "gram",
    "pairs",
    "rules",
    "threshold_count",
]

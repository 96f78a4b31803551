"""From histories to answers: summaries, comparison tables with paired intervals, figures, overviews and reports."""

from fedpace.analysis._style import save
from fedpace.analysis._tables import Side, TextTable
from fedpace.analysis.agreement import agreement_by_layer, chance_agreement, mean_agreement
from fedpace.analysis.comparison import Comparison, ComparisonRow
from fedpace.analysis.differences import unequal, unfair
from fedpace.analysis.fairness import Fairness, fairness, late_accuracy
from fedpace.analysis.figures import accuracy_and_similarity, accuracy_and_similarity_of, accuracy_curves, seed_points
from fedpace.analysis.history import (
    Record,
    StageWindow,
    accuracy_curve,
    client_accuracy_curve,
    similarity_curve,
    stage_windows,
)
from fedpace.analysis.interval import Interval, anytime_interval, corrected_level, paired_interval
from fedpace.analysis.membership import MembershipAttack, equal_number, membership_attack
from fedpace.analysis.report import ReportedRun, write_report
from fedpace.analysis.show import run_overview
from fedpace.analysis.summary import Summary, summarise
from fedpace.analysis.sweeps import SweepPoint, sweep_figure

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Fairness",
    "Interval",
    "MembershipAttack",
    "Record",
    "ReportedRun",
    "Side",
    "StageWindow",
    "Summary",
    "SweepPoint",
    "TextTable",
    "accuracy_and_similarity",
    "accuracy_and_similarity_of",
    "accuracy_curve",
    "accuracy_curves",
    "agreement_by_layer",
    "anytime_interval",
    "chance_agreement",
    "client_accuracy_curve",
    "corrected_level",
    "equal_number",
    "fairness",
    "late_accuracy",
    "mean_agreement",
    "membership_attack",
    "paired_interval",
    "run_overview",
    "save",
    "seed_points",
    "similarity_curve",
    "stage_windows",
    "summarise",
    "sweep_figure",
    "unequal",
    "unfair",
    "write_report",
]

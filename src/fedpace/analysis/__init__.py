"""From histories to answers: summaries, comparison tables with paired intervals, figures, overviews and reports."""

from fedpace.analysis._style import save
from fedpace.analysis.agreement import agreement_by_layer, chance_agreement, mean_agreement
from fedpace.analysis.comparison import Comparison, ComparisonRow
from fedpace.analysis.figures import accuracy_and_similarity, accuracy_curves, seed_points
from fedpace.analysis.history import Record, StageWindow, accuracy_curve, similarity_curve, stage_windows
from fedpace.analysis.interval import Interval, paired_interval
from fedpace.analysis.report import ReportedRun, write_report
from fedpace.analysis.show import run_overview
from fedpace.analysis.summary import Summary, summarise

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Interval",
    "Record",
    "ReportedRun",
    "StageWindow",
    "Summary",
    "accuracy_and_similarity",
    "accuracy_curve",
    "accuracy_curves",
    "agreement_by_layer",
    "chance_agreement",
    "mean_agreement",
    "paired_interval",
    "run_overview",
    "save",
    "seed_points",
    "similarity_curve",
    "stage_windows",
    "summarise",
    "write_report",
]

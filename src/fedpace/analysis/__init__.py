"""From histories to answers: summaries, comparison tables with paired intervals, figures, overviews and reports."""

from typing import TYPE_CHECKING

from fedpace._lazy import on_first_use

if TYPE_CHECKING:
    from fedpace.analysis._fairness import Fairness, fairness, late_clients
    from fedpace.analysis._style import save
    from fedpace.analysis._tables import Side, TextTable
    from fedpace.analysis.agreement import agreement_by_layer, chance_agreement, mean_agreement
    from fedpace.analysis.asynchrony import cosine_by_staleness, cosines_by_staleness, metric_over_time
    from fedpace.analysis.comparison import Comparison, ComparisonRow
    from fedpace.analysis.differences import unequal, unfair
    from fedpace.analysis.doctor import Check, Finding, checks, diagnose
    from fedpace.analysis.figures import (
        labelled_points,
        metric_and_similarity,
        metric_and_similarity_of,
        metric_curves,
        seed_points,
    )
    from fedpace.analysis.history import (
        StageWindow,
        client_metric_curve,
        metric_curve,
        similarity_curve,
        stage_windows,
        time_curve,
        value_at,
    )
    from fedpace.analysis.interval import Interval, anytime_interval, corrected_level, paired_interval
    from fedpace.analysis.membership import (
        Adversary,
        Evidence,
        MembershipAttack,
        adversaries,
        attacked,
        equal_number,
        membership_attack,
    )
    from fedpace.analysis.report import write_report
    from fedpace.analysis.runs import ReportedRun
    from fedpace.analysis.show import Rows, duration, panels, run_overview, stage_rows
    from fedpace.analysis.summary import Summary, summarise
    from fedpace.analysis.sweeps import SweepPoint, sweep_figure
else:
    __getattr__, __dir__ = on_first_use(__name__)

__all__ = [
    "Adversary",
    "Check",
    "Comparison",
    "ComparisonRow",
    "Evidence",
    "Fairness",
    "Finding",
    "Interval",
    "MembershipAttack",
    "ReportedRun",
    "Rows",
    "Side",
    "StageWindow",
    "Summary",
    "SweepPoint",
    "TextTable",
    "adversaries",
    "agreement_by_layer",
    "anytime_interval",
    "attacked",
    "chance_agreement",
    "checks",
    "client_metric_curve",
    "corrected_level",
    "cosine_by_staleness",
    "cosines_by_staleness",
    "diagnose",
    "duration",
    "equal_number",
    "fairness",
    "labelled_points",
    "late_clients",
    "mean_agreement",
    "membership_attack",
    "metric_and_similarity",
    "metric_and_similarity_of",
    "metric_curve",
    "metric_curves",
    "metric_over_time",
    "paired_interval",
    "panels",
    "run_overview",
    "save",
    "seed_points",
    "similarity_curve",
    "stage_rows",
    "stage_windows",
    "summarise",
    "sweep_figure",
    "time_curve",
    "unequal",
    "unfair",
    "value_at",
    "write_report",
]

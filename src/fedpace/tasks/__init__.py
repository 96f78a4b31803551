"""What clients learn: targets, loss and metrics. One task per file."""

from fedpace.core import ACCURACY, Metric
from fedpace.tasks._task import Sums, Task, added, metric_named, tasks
from fedpace.tasks.classification import Classification
from fedpace.tasks.multilabel import Multilabel
from fedpace.tasks.next_token import PADDING, NextToken
from fedpace.tasks.regression import Regression

__all__ = [
    "ACCURACY",
    "PADDING",
    "Classification",
    "Metric",
    "Multilabel",
    "NextToken",
    "Regression",
    "Sums",
    "Task",
    "added",
    "metric_named",
    "tasks",
]

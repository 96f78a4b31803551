"""The keyword parameters that our strategies hand on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from flwr.app import MetricRecord, RecordDict

from fedpace.core import Weights as Weights
from fedpace.server import Guard, ServerOptimizer

Optimizer = ServerOptimizer | str | Mapping[str, Any]  # or its name, or a table with name and parameters
Metrics = Callable[[list[RecordDict], str], MetricRecord]


class FedAvgOptions(TypedDict, total=False):
    """The parameters of Flower's ``FedAvg``, with the same meaning."""

    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: Metrics | None
    evaluate_metrics_aggr_fn: Metrics | None


class CommonOptions(FedAvgOptions, total=False):
    """What every strategy of ours takes besides its rule; see :class:`ServerStrategy`."""

    seed: int
    guard: Guard | Mapping[str, Any] | None
    buffers: Callable[[str], bool]
    pairwise: int
    wait: float
    timeout: float


class RuleOptions(CommonOptions, total=False):
    """What a strategy takes besides the parameters of its rule; see :class:`ServerStrategy`."""

    optimizer: Optimizer
    weights: Weights

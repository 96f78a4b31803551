"""Experiments: config, presets, runs, comparisons and sweeps."""

from typing import TYPE_CHECKING

from fedpace._lazy import on_first_use

if TYPE_CHECKING:
    from fedpace.experiments.api import compare, train
    from fedpace.experiments.attack import AttackedRun, attack_membership
    from fedpace.experiments.config import RunConfig
    from fedpace.experiments.preset_tables import preset_names
    from fedpace.experiments.presets import load_config
    from fedpace.experiments.run import Result, execute, federate
else:
    __getattr__, __dir__ = on_first_use(__name__)

__all__ = [
    "AttackedRun",
    "Result",
    "RunConfig",
    "attack_membership",
    "compare",
    "execute",
    "federate",
    "load_config",
    "preset_names",
    "train",
]

"""The engine: round loop, cohorts, executors, checkpoints, run folder and events."""

from typing import TYPE_CHECKING

from fedpace._lazy import on_first_use

if TYPE_CHECKING:
    from fedpace.engine.asynchronous import Asynchronous, Simulation
    from fedpace.engine.attackers import Attackers
    from fedpace.engine.beginning import initial_module, task_of
    from fedpace.engine.checks import check_device
    from fedpace.engine.cohort import Cohort
    from fedpace.engine.description import IRRELEVANT, read_metric, read_run
    from fedpace.engine.events import Listener
    from fedpace.engine.executors import Auto, Execution, Executor, Processes, Serial, Vectorised, cores
    from fedpace.engine.folder import RunFolder
    from fedpace.engine.measuring import Measuring
    from fedpace.engine.participation import Step
    from fedpace.engine.reading import read_model, read_rounds
    from fedpace.engine.sending import opened, travels_encoded
    from fedpace.engine.speeds import AnySpeeds, EqualSpeeds, LognormalSpeeds, Speeds, SpeedsByExamples
    from fedpace.engine.training import Outcome, Plan, Training, one_thread, train
    from fedpace.engine.worker import CLASSIFICATION, Turn, Worker
else:
    __getattr__, __dir__ = on_first_use(__name__)

__all__ = [
    "CLASSIFICATION",
    "IRRELEVANT",
    "AnySpeeds",
    "Asynchronous",
    "Attackers",
    "Auto",
    "Cohort",
    "EqualSpeeds",
    "Execution",
    "Executor",
    "Listener",
    "LognormalSpeeds",
    "Measuring",
    "Outcome",
    "Plan",
    "Processes",
    "RunFolder",
    "Serial",
    "Simulation",
    "Speeds",
    "SpeedsByExamples",
    "Step",
    "Training",
    "Turn",
    "Vectorised",
    "Worker",
    "check_device",
    "cores",
    "initial_module",
    "one_thread",
    "opened",
    "read_metric",
    "read_model",
    "read_rounds",
    "read_run",
    "task_of",
    "train",
    "travels_encoded",
]

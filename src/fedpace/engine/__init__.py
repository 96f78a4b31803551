"""The engine: round loop, cohorts, executors, checkpoints, run folder and events."""

from fedpace.engine.cohort import Cohort
from fedpace.engine.events import Listener, Record
from fedpace.engine.executors import Executor, Processes, Serial, executors
from fedpace.engine.folder import IRRELEVANT, RunFolder, read_rounds, read_run
from fedpace.engine.measuring import Measuring
from fedpace.engine.training import Outcome, Plan, Training, train

__all__ = [
    "IRRELEVANT",
    "Cohort",
    "Executor",
    "Listener",
    "Measuring",
    "Outcome",
    "Plan",
    "Processes",
    "Record",
    "RunFolder",
    "Serial",
    "Training",
    "executors",
    "read_rounds",
    "read_run",
    "train",
]

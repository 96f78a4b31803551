"""The engine: round loop, cohorts, executors, checkpoints, run folder and events."""

from fedpace.engine.cohort import Cohort
from fedpace.engine.events import Listener, Record
from fedpace.engine.executors import Execution, Executor, Processes, Serial, cores, executors
from fedpace.engine.folder import IRRELEVANT, RunFolder, read_rounds, read_run
from fedpace.engine.measuring import Measuring
from fedpace.engine.training import Outcome, Plan, Training, one_thread, train
from fedpace.engine.worker import CLASSIFICATION, Task, Worker

__all__ = [
    "CLASSIFICATION",
    "IRRELEVANT",
    "Cohort",
    "Execution",
    "Executor",
    "Listener",
    "Measuring",
    "Outcome",
    "Plan",
    "Processes",
    "Record",
    "RunFolder",
    "Serial",
    "Task",
    "Training",
    "Worker",
    "cores",
    "executors",
    "one_thread",
    "read_rounds",
    "read_run",
    "train",
]

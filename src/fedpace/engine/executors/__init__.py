"""Executors: where client work runs. The result does not depend on the choice."""

from fedpace.engine.executors._child import begin_child
from fedpace.engine.executors._executor import Execution, Executor, can_fork, cores, executors
from fedpace.engine.executors.auto import Auto
from fedpace.engine.executors.processes import Processes
from fedpace.engine.executors.serial import Serial
from fedpace.engine.executors.vectorised import Vectorised

__all__ = [
    "Auto",
    "Execution",
    "Executor",
    "Processes",
    "Serial",
    "Vectorised",
    "begin_child",
    "can_fork",
    "cores",
    "executors",
]

"""Federated learning for clients that disagree.

>>> import fedpace
>>> federation = fedpace.load("digits").partition("dirichlet", alpha=0.1, clients=3)
>>> result = fedpace.train(federation, "fedpace", model="linear", rounds=21, settings={"executor": "serial"})
>>> result.records[-1].stage
'freeze'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Data",
    "Federation",
    "FedpaceError",
    "Result",
    "compare",
    "federate",
    "load",
    "train",
    "trusted_files",
]

if TYPE_CHECKING:
    from fedpace.analysis import Comparison
    from fedpace.core import FedpaceError, trusted_files
    from fedpace.data import Data, Federation, federate, load
    from fedpace.experiments import Result, compare, train

_ORIGIN = {
    "Comparison": "fedpace.analysis",
    "Data": "fedpace.data",
    "FedpaceError": "fedpace.core",
    "Federation": "fedpace.data",
    "Result": "fedpace.experiments",
    "compare": "fedpace.experiments",
    "federate": "fedpace.data",
    "load": "fedpace.data",
    "train": "fedpace.experiments",
    "trusted_files": "fedpace.core",
}


def __getattr__(name: str) -> Any:
    """Import on first use: ``fedpace --help`` need not wait for torch."""
    if name not in _ORIGIN:
        raise AttributeError(f"module 'fedpace' has no attribute '{name}'")
    return getattr(import_module(_ORIGIN[name]), name)

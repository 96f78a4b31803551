"""Federated learning for clients that disagree.

>>> import fedpace
>>> federation = fedpace.load("digits").partition("dirichlet", alpha=0.1, clients=3)
>>> result = fedpace.train(federation, "fedpace", model="linear", rounds=21, settings={"executor": "serial"})
>>> result.records[-1].stage
'freeze'
"""

from typing import TYPE_CHECKING

from fedpace._lazy import on_first_use

if TYPE_CHECKING:
    from fedpace.analysis import Comparison
    from fedpace.core import FedpaceError, trusted_files
    from fedpace.data import Data, Federation, federate, load
    from fedpace.experiments import Result, compare, train
else:
    __getattr__, __dir__ = on_first_use(__name__)

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

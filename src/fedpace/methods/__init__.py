"""Methods: how clients train, and what of the model is shared."""

from fedpace.methods._method import Method, MethodTurn, methods
from fedpace.methods._personal import Personal, PersonalEvaluation, Predictor
from fedpace.methods.apfl import APFL
from fedpace.methods.common_adam import CommonAdam
from fedpace.methods.fedala import FedALA
from fedpace.methods.fedcp import FedCP
from fedpace.methods.fedpac import FedPAC
from fedpace.methods.fedrep import FedRep
from fedpace.methods.fedrod import FedROD
from fedpace.methods.lg_fedavg import LGFedAvg
from fedpace.methods.local_only import LocalOnly
from fedpace.methods.per_fedavg import PerFedAvg
from fedpace.methods.proximal import Proximal
from fedpace.methods.scaffold import Scaffold
from fedpace.methods.sgd import LocalSGD

__all__ = [
    "APFL",
    "CommonAdam",
    "FedALA",
    "FedCP",
    "FedPAC",
    "FedROD",
    "FedRep",
    "LGFedAvg",
    "LocalOnly",
    "LocalSGD",
    "Method",
    "MethodTurn",
    "PerFedAvg",
    "Personal",
    "PersonalEvaluation",
    "Predictor",
    "Proximal",
    "Scaffold",
    "methods",
]

"""Personalised methods: a model of its own for each client, of which a part is shared."""

from fedpace.client import methods  # the registry, with these methods in it
from fedpace.personal._personal import Personal, PersonalEvaluation, Predictor
from fedpace.personal.apfl import APFL
from fedpace.personal.fedala import FedALA
from fedpace.personal.fedcp import FedCP
from fedpace.personal.fedpac import FedPAC
from fedpace.personal.fedrep import FedRep
from fedpace.personal.fedrod import FedROD
from fedpace.personal.lg_fedavg import LGFedAvg
from fedpace.personal.local_only import LocalOnly
from fedpace.personal.per_fedavg import PerFedAvg

__all__ = [
    "APFL",
    "FedALA",
    "FedCP",
    "FedPAC",
    "FedROD",
    "FedRep",
    "LGFedAvg",
    "LocalOnly",
    "PerFedAvg",
    "Personal",
    "PersonalEvaluation",
    "Predictor",
    "methods",
]

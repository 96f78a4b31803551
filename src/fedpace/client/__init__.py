"""Local work: what one client does with the server's vector and its own shard."""

from fedpace.client._work import BatchedWork, ClientWork, Context, Method, methods, parse_work, works
from fedpace.client.common_adam import CommonAdam
from fedpace.client.evaluation import Evaluation
from fedpace.client.gradient import Gradient
from fedpace.client.probe import Probe
from fedpace.client.proximal import Proximal
from fedpace.client.rates import Rate, rates
from fedpace.client.scaffold import Scaffold
from fedpace.client.sgd import Correction, LocalSGD, Loss

__all__ = [
    "BatchedWork",
    "ClientWork",
    "CommonAdam",
    "Context",
    "Correction",
    "Evaluation",
    "Gradient",
    "LocalSGD",
    "Loss",
    "Method",
    "Probe",
    "Proximal",
    "Rate",
    "Scaffold",
    "methods",
    "parse_work",
    "rates",
    "works",
]

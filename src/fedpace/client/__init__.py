"""Local work: what one client does with the server's vector and its own shard."""

from fedpace.client._work import BatchedWork, ClientWork, Context, works
from fedpace.client.evaluation import Evaluation
from fedpace.client.gradient import Gradient
from fedpace.client.probe import Probe
from fedpace.client.proximal import Proximal
from fedpace.client.scaffold import Scaffold
from fedpace.client.sgd import LocalSGD

__all__ = [
    "BatchedWork",
    "ClientWork",
    "Context",
    "Evaluation",
    "Gradient",
    "LocalSGD",
    "Probe",
    "Proximal",
    "Scaffold",
    "works",
]

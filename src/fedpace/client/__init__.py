"""Pieces of local work: what one client does with the server's vector and its own shard."""

from fedpace.client._work import ClientWork, Context, works
from fedpace.client.batches import Batches
from fedpace.client.evaluation import Evaluation
from fedpace.client.gradient import Gradient
from fedpace.client.private import Loss, PrivateSteps
from fedpace.client.probe import Probe
from fedpace.client.rates import Rate, rates
from fedpace.client.stack import Stack
from fedpace.client.stacked_training import StackedTraining
from fedpace.client.training import Correction, LocalTraining, TrainingSettings

__all__ = [
    "Batches",
    "ClientWork",
    "Context",
    "Correction",
    "Evaluation",
    "Gradient",
    "LocalTraining",
    "Loss",
    "PrivateSteps",
    "Probe",
    "Rate",
    "Stack",
    "StackedTraining",
    "TrainingSettings",
    "rates",
    "works",
]

"""pfl-research's simulation: federated averaging of its PyTorch model, users made when they are asked for."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from benchmarks.contest.gate import Gate
from benchmarks.contest.setups import EVALUATION_BATCH, Job
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional as F

ENDLESS = 10**6


class Gated(TrainingProcessCallback):
    """Lets every round wait at the gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Before the first round."""
        self._gate()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Before the next one."""
        self._gate()
        return False, Metrics()


def run(job: Job, gate: Gate) -> None:
    """Train as its CIFAR-10 benchmark does. Several workers are its own processes, of which this is one."""
    set_up = job.set_up
    inputs, labels = job.tensors()

    def of_user(user: int) -> Dataset:
        where = job.of_client(user)
        return Dataset([inputs[where], labels[where]], user_id=user)

    users = FederatedDataset(of_user, get_user_sampler("random", range(set_up.clients)))
    measuring = NNEvalHyperParams(local_batch_size=EVALUATION_BATCH)
    callbacks: list[TrainingProcessCallback] = [Gated(gate)]
    if set_up.evaluated:
        test = Dataset([inputs[job.test], labels[job.test]], eval_kwargs={"eval": True})
        callbacks.insert(0, CentralEvaluationCallback(test, model_eval_params=measuring))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ENDLESS,
            evaluation_frequency=ENDLESS,  # of users
            train_cohort_size=set_up.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users, postprocessors=[WeightByDatapoints()]),
        model=model(job),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=set_up.learning_rate, local_num_epochs=1, local_batch_size=set_up.batch
        ),
        model_eval_params=measuring,
        callbacks=callbacks,
        send_metrics_to_platform=False,
    )


def model(job: Job) -> PyTorchModel:
    """The module with what pfl asks of one: a loss and metrics."""
    module = job.set_up.module()
    module.loss, module.metrics = MethodType(loss, module), MethodType(metrics, module)
    central = torch.optim.SGD(module.parameters(), lr=1.0)
    return PyTorchModel(model=module, local_optimizer_create=torch.optim.SGD, central_optimizer=central)


def loss(self: nn.Module, inputs: Tensor, targets: Tensor, eval: bool = False) -> Tensor:  # noqa: A002
    """As in its benchmarks."""
    self.eval() if eval else self.train()
    return F.cross_entropy(self(inputs), targets)


@torch.no_grad()
def metrics(self: nn.Module, inputs: Tensor, targets: Tensor, eval: bool = True) -> dict[str, Any]:  # noqa: A002
    """As in its benchmarks."""
    self.eval() if eval else self.train()
    outputs = self(inputs)
    correct = (outputs.argmax(1) == targets).sum().item()
    total = F.cross_entropy(outputs, targets, reduction="sum").item()
    return {"loss": Weighted(total, len(targets)), "accuracy": Weighted(correct, len(targets))}

"""A bare PyTorch loop: FedAvg as anyone would write it. With the option ``compute`` not even that."""

from __future__ import annotations

import numpy as np
import torch
from benchmarks.contest.gate import Gate
from benchmarks.contest.setups import EVALUATION_BATCH, Job
from torch import Tensor, nn
from torch.nn import functional as F


def run(job: Job, gate: Gate) -> None:
    """Rounds without end; with several workers each takes its share, and the sums are added up."""
    if job.workers > 1:
        torch.distributed.init_process_group("gloo")
    loop = Loop(job)
    rng = np.random.default_rng(0)
    while True:
        gate()
        cohort = rng.choice(job.set_up.clients, job.set_up.cohort, replace=False)
        (loop.compute if job.option == "compute" else loop.round)(cohort.tolist())


class Loop:
    """One resident model."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._model: nn.Module = job.set_up.module().to(memory_format=torch.channels_last)
        self._parameters = list(self._model.parameters())
        self._optimizer = torch.optim.SGD(self._parameters, job.set_up.learning_rate)

    def round(self, cohort: list[int]) -> None:
        """Train this worker's part of a cohort, and take the mean of all."""
        start = [parameter.detach().clone() for parameter in self._parameters]
        sums = [torch.zeros_like(parameter) for parameter in start]
        self._model.train()
        for client in cohort[self._job.rank :: self._job.workers]:
            self._put(start)
            self._train(client)
            for total, parameter in zip(sums, self._parameters, strict=True):
                total.add_(parameter.detach())
        if self._job.workers > 1:
            for total in sums:
                torch.distributed.all_reduce(total)
        self._put([total / len(cohort) for total in sums])
        if self._job.set_up.evaluated:
            self._evaluate()

    def compute(self, cohort: list[int]) -> None:
        """Nothing but the steps."""
        for client in cohort:
            self._train(client)

    def _put(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.data.copy_(value)

    def _train(self, client: int) -> None:
        inputs, labels = (whole[self._job.of_client(client)] for whole in self._job.tensors())
        for positions in torch.randperm(len(labels)).split(self._job.set_up.batch):
            self._optimizer.zero_grad()
            F.cross_entropy(self._model(inputs[positions]), labels[positions]).backward()
            self._optimizer.step()

    def _evaluate(self) -> None:
        inputs, labels = (whole[self._job.test][self._job.rank :: self._job.workers] for whole in self._job.tensors())
        correct = torch.zeros(1)
        self._model.eval()
        with torch.inference_mode():
            for batch, targets in zip(inputs.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
                correct += (self._model(batch).argmax(1) == targets).sum()
        if self._job.workers > 1:
            torch.distributed.all_reduce(correct)

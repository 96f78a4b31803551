"""What is possible: the models of many clients as one, by ``torch.func.vmap``. A prototype for clients of one size."""

from __future__ import annotations

import numpy as np
import torch
from benchmarks.contest.gate import Gate
from benchmarks.contest.setups import Job
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F


def run(job: Job, gate: Gate) -> None:
    """Rounds without end."""
    set_up, module = job.set_up, job.set_up.module()
    inputs, labels = job.tensors()
    model = {name: parameter.detach() for name, parameter in module.named_parameters()}
    rng = np.random.default_rng(0)

    def loss(parameters: dict[str, Tensor], batch: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(module, parameters, (batch,)), targets)

    gradients = vmap(grad(loss), randomness="different")
    while True:
        gate()
        cohort = torch.from_numpy(rng.choice(set_up.clients, set_up.cohort, replace=False))
        sums = {name: torch.zeros_like(tensor) for name, tensor in model.items()}
        for clients in cohort.split(set_up.stacked):
            stack = {name: tensor.expand(len(clients), *tensor.shape).clone() for name, tensor in model.items()}
            orders = torch.rand(len(clients), set_up.examples).argsort(1) + clients[:, None] * set_up.examples
            for positions in orders.split(set_up.batch, dim=1):
                for name, gradient in gradients(stack, inputs[positions], labels[positions]).items():
                    stack[name].sub_(gradient, alpha=set_up.learning_rate)
            for name, tensors in stack.items():
                sums[name] += tensors.sum(0)
        model = {name: total / len(cohort) for name, total in sums.items()}

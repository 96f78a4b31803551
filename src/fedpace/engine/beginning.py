"""What a run begins with: the task that the data pose, and a model that fits both."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from fedpace.core import DataError, Inputs, ModelError, call, one_line
from fedpace.data import Federation, Ragged
from fedpace.models import Model, build
from fedpace.tasks import Classification, Multilabel, NextToken, Regression, Task

TRIED = 2  # examples of a client on which a new model is tried


def task_of(federation: Federation, task: Task | None = None) -> Task:
    """``task``, or the one that the targets suggest; targets that are none of this task are refused.

    Classes suggest classification, rows of integers several labels, tokens the next token, and floats a regression.

    >>> from fedpace.data import load
    >>> task_of(load("diabetes").partition("iid", clients=2))
    Regression(error='squared', delta=1.0)
    """
    examples = federation.test.pool
    if task is None:
        if examples.classes:
            task = Classification()
        elif examples.vocabulary:
            task = NextToken()
        else:
            task = Regression() if examples.targets.dtype.kind == "f" else Multilabel()
    for examples in federation.pools():
        targets = examples.targets
        rows = targets.padded(task.padding) if isinstance(targets, Ragged) else targets
        wrong = task.check_targets(torch.from_numpy(rows), examples.outputs)
        if wrong:
            raise DataError(f"{federation.name}, task '{task.registered_name()}': {wrong}")
    return task


def initial_module(model: Model, federation: Federation, task: Task, seed: int) -> nn.Module:
    """A new model, tried on two examples of a client: outputs and loss must be what the task expects."""
    shard = federation.clients[0]
    inputs, targets = shard.batch(slice(TRIED), padding=task.padding)
    check = partial(_wrong_outputs, task, targets, federation.outputs)
    module = build(model, federation.shape, federation.outputs, seed, inputs=inputs, check=check)
    _check_loss(task, module, inputs, targets)
    return module


def _wrong_outputs(task: Task, targets: Tensor, expected: int, outputs: Tensor) -> str | None:
    return task.check_outputs(outputs, targets, expected)


def _check_loss(task: Task, module: nn.Module, inputs: Inputs, targets: Tensor) -> None:
    """An own loss must be a number from which every step can go down."""
    name = task.registered_name()
    with torch.random.fork_rng(devices=[]):
        outputs = call(module.eval(), inputs)
    module.train()
    try:
        loss = task.loss(outputs, targets)
    except Exception as error:  # whatever the user's code raises
        raise ModelError(
            f"task '{name}': its loss fails on a batch ({type(error).__name__}: {one_line(error)})"
        ) from error
    if not isinstance(loss, Tensor) or loss.dim():
        found = f"one of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ModelError(f"task '{name}': expected a loss that is a tensor without dimensions, found {found}")
    if not loss.requires_grad:
        raise ModelError(
            f"task '{name}': expected a loss with a gradient, found none; compute it from the outputs with torch"
        )

"""What an existing ClientApp calls to take part in gradient rounds, searches and paces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedpace.core import Layout, Perturbation, sketch
from fedpace.flower._replies import EXAMPLES, GRADIENT, PACE, PARAMETERS, PROBES, SEND, VECTORS
from fedpace.flower._wire import to_record, to_tensors

Batch = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


def wants_gradient(message: Message) -> bool:
    """Whether this round's answer is to be a gradient (:func:`gradient_reply`) instead of weights."""
    return _config(message).get(SEND) == GRADIENT


def gradient_reply(
    message: Message,
    model: nn.Module,
    batches: Iterable[Batch],
    loss: Loss = F.cross_entropy,
    examples: int | None = None,
) -> Message:
    """The answer with the mean gradient over some batches at the message's weights, which are not changed.

    What is sent is *minus* the gradient, a direction of descent like any update. ``model`` serves as the architecture:
    its own weights and BatchNorm statistics stay as they are. ``examples`` are the client's, by default those in the
    batches.

    ::

        @app.train()
        def train(message, context):
            if wants_gradient(message):
                return gradient_reply(message, model, loader)
            ...  # train as before
    """
    asked = _Asked(message, model)
    total, losses, seen = torch.zeros(asked.layout.size), [], 0
    for batch in batches:
        direction, value = asked.direction(asked.vector, batch, loss)
        total += direction
        losses.append(value)
        seen += len(batch[1])
    if not losses:
        raise ValueError("gradient_reply: expected at least one batch, found none")
    record = to_record(dict(asked.layout.tensors(total.div_(len(losses)))))
    metrics = MetricRecord({EXAMPLES: examples or seen, "loss": sum(losses) / len(losses)})
    return Message(RecordDict({GRADIENT: record, "metrics": metrics}), reply_to=message)


def answer_probe(message: Message, model: nn.Module, batch: Batch, loss: Loss = F.cross_entropy) -> Message:
    """The answer to a search: one batch's gradients and losses at the points around θ that the message's seeds lead to.

    ``model`` serves as the architecture, as in :func:`gradient_reply`. Every point is judged on the same batch; the
    server's wish for its size is ``json.loads(message.content["config"]["fedpace-probe"])["batch"]``.

    ::

        @app.train("probe")
        def probe(message, context):
            return answer_probe(message, model, next(iter(loader)))
    """
    asked, settings = _Asked(message, model), json.loads(str(_config(message)[PROBES]))
    perturbation = Perturbation(**settings["perturbation"])
    directions, losses = [], []
    for path in settings["paths"]:
        point = perturbation.follow(asked.vector, asked.layout, tuple(path))
        with torch.random.fork_rng(asked.devices):  # puts the generators back: every point meets the same dropout
            direction, value = asked.direction(point, batch, loss)
        directions.append(direction if settings["sketch"] is None else sketch(direction, settings["sketch"]))
        losses.append(value)
    metrics = MetricRecord({EXAMPLES: len(batch[1]), "loss": losses})
    content = RecordDict({"probes": to_record({VECTORS: torch.stack(directions)}), "metrics": metrics})
    return Message(content, reply_to=message)


def apply_pace(message: Message, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Scale each coordinate of the optimizer's steps by the pace in the message, if it holds one.

    Call it once, on a new optimizer of the model's parameters, before training. Steps are scaled and not gradients,
    which would not slow Adam down.
    """
    record = message.content.array_records.get(PACE)
    if record is None:
        return
    sent = to_tensors(record)
    paces = {p: sent[name].to(p.device, p.dtype) for name, p in model.named_parameters() if name in sent}
    before: dict[nn.Parameter, Tensor] = {}

    def remember(*_: object) -> None:
        before.update((parameter, parameter.detach().clone()) for parameter in paces)

    def scale(*_: object) -> None:
        with torch.no_grad():
            for parameter, pace in paces.items():
                parameter.sub_(before[parameter]).mul_(pace).add_(before[parameter])

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(scale)


class _Asked:
    """The point at which a message asks for gradients, and how to take them there without touching the user's model."""

    def __init__(self, message: Message, model: nn.Module) -> None:
        tensors = to_tensors(_weights(message))
        names = tuple(cast(list[str], _config(message)[PARAMETERS]))
        if unknown := set(tensors) - set(model.state_dict()):
            raise ValueError(f"expected arrays named as in model.state_dict(), found {', '.join(sorted(unknown)[:3])}")
        self.layout = Layout(names, tuple(tuple(tensors[name].shape) for name in names))
        self.vector = torch.cat([tensors.pop(name).float().flatten() for name in names])
        self.devices = sorted({parameter.device.index for parameter in model.parameters() if parameter.is_cuda})
        self._model, self._rest = model, tensors
        self._state = model.state_dict()
        self._trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}

    def direction(self, point: Tensor, batch: Batch, loss: Loss) -> tuple[Tensor, float]:
        """Minus the gradient of one batch at a point, and the loss there; frozen parameters have none."""
        inputs, labels = batch
        rest = {name: self._own(name, tensor) for name, tensor in self._rest.items()}
        values = {name: self._own(name, tensor) for name, tensor in self.layout.tensors(point)}
        trained = [name for name in values if name in self._trained]
        for name in trained:
            values[name].requires_grad_()
        with _training(self._model):
            found = loss(functional_call(self._model, {**rest, **values}, (inputs,)), labels)
        gradients = torch.autograd.grad(found, [values[name] for name in trained], allow_unused=True)
        direction = torch.zeros_like(point)
        views = dict(self.layout.tensors(direction))
        for name, gradient in zip(trained, gradients, strict=True):
            if gradient is not None:
                views[name].copy_(gradient.neg())
        return direction, found.item()

    def _own(self, name: str, tensor: Tensor) -> Tensor:
        """A copy where the model is, and as precise."""
        return tensor.to(self._state[name].device, self._state[name].dtype, copy=True)


@contextmanager
def _training(model: nn.Module) -> Iterator[None]:
    """Training mode, as in a round of training; afterwards each part has its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _config(message: Message) -> ConfigRecord:
    return next(iter(message.content.config_records.values()))


def _weights(message: Message) -> ArrayRecord:
    return next(record for name, record in message.content.array_records.items() if name != PACE)

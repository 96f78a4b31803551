"""Whether a model can train many clients as one computation, tried on two of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite

import torch
from torch import Tensor, nn

from fedpace.client import Context, Gradient
from fedpace.core import ConfigError, FlatModule, Update, call, devices, one_line
from fedpace.data import Federation, Shard
from fedpace.data.ragged import Ragged
from fedpace.tasks import Task

WORK = Gradient(epochs=1, batch=4, max_steps=2)
EXAMPLES = 8, 3  # of the two clients: one has two batches, the other a single smaller one
LONGEST = 160  # characters of torch's reasons
TINY = 1e-6  # a gradient that is nothing but rounding
TOLERANCE = 0.02  # of a gradient's length: rounding that turns a ReLU of ResNet18 makes 0.001, a wrong model far more


@dataclass(frozen=True)
class Trial:
    """What a trial tells of a model: how much memory the gradients of an example need meanwhile.

    Gradients of two clients are taken together and one after the other. If that fails or they differ, the model is
    refused, in one line that names the layer: BatchNorm and other layers that keep something from batch to batch or mix
    its examples, layers that draw random numbers (dropout), recurrent ones, a course that depends on values.
    """

    bytes_per_example: float

    @classmethod
    def of(cls, model: FlatModule, federation: Federation, task: Task) -> Trial:
        """Try a copy of a model on the first and the last client's examples."""
        shards, tried = _cut(federation), copy.deepcopy(model)
        vector, buffers = model.vector.clone(), model.buffers.clone()
        contexts = [Context(tried, buffers, client, 0, task=task) for client in range(len(shards))]
        with devices.forked_rng(model.device):
            try:
                alone = [WORK(vector, *pair).owned() for pair in zip(shards, contexts, strict=True)]
            except Exception:  # that is no matter of the executor: in its turn this client fails
                return cls(0.0)
            _check_buffers(tried.module, dict(model.module.named_buffers()))
            together = _together(tried.module, vector, shards, contexts)
            _check_same(tried.module, alone, together)
            return cls(_saved(tried, shards[0], contexts[0]))


def _cut(federation: Federation) -> list[Shard]:
    """A few examples of two clients; of texts, the longest and the shortest ones."""
    found: list[Shard] = []
    for shard, examples in zip((federation.clients[0], federation.clients[-1]), EXAMPLES, strict=True):
        inputs = shard.pool.inputs
        rows = shard.indices
        if isinstance(inputs, Ragged):
            by_length = inputs.lengths[rows].argsort(kind="stable")
            rows = rows[by_length[::-1] if not found else by_length]
        found.append(replace(shard, indices=rows[:examples]))
    return found


def _together(module: nn.Module, vector: Tensor, shards: Sequence[Shard], contexts: Sequence[Context]) -> list[Update]:
    with _entered(module) as inside:
        try:
            return [update.owned() for update in WORK.stacked(vector, shards, contexts)]
        except Exception as error:  # whatever torch says
            raise _refusal(inside[-1] if inside else _titled("", module), _said(error)) from error


@contextmanager
def _entered(module: nn.Module) -> Iterator[list[str]]:
    """Within this context the list tells which layers are at work, the innermost one last."""
    inside: list[str] = []

    def enter(title: str, *_: object) -> None:
        inside.append(title)

    def leave(*_: object) -> None:
        inside.pop()

    with ExitStack() as hooks:
        for name, layer in module.named_modules():
            hooks.callback(layer.register_forward_pre_hook(partial(enter, _titled(name, layer))).remove)
            hooks.callback(layer.register_forward_hook(leave).remove)
        yield inside


def _check_buffers(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    """What a layer notes of a batch would be that of all clients."""
    for name, buffer in module.named_buffers():
        if not torch.equal(buffer, before[name]):
            owner, _, own = name.rpartition(".")
            raise _refusal(_titled(owner, module.get_submodule(owner)), f"it changes its buffer '{own}' in training")


def _check_same(module: nn.Module, alone: Sequence[Update], together: Sequence[Update]) -> None:
    """Both up to rounding. Gradients that are no numbers are the client's matter."""
    for one, other in zip(alone, together, strict=True):
        assert one.vector is not None
        assert other.vector is not None
        length, apart = one.vector.norm().item(), (other.vector - one.vector).norm().item()
        if isfinite(length) and not apart <= TOLERANCE * length + TINY:
            share = apart / max(length, TINY)
            raise _refusal(_titled("", module), f"together, gradients differ by {share:.1%} from those of each client")


def _saved(model: FlatModule, shard: Shard, context: Context) -> float:
    """Bytes that one example's gradients need to know of the way there."""
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    inputs, targets = shard.batch(slice(None), padding=context.task.padding)
    ((inputs, targets),) = devices.carried(iter([(inputs, targets)]), model.device)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = context.task.loss(call(model.module, inputs), targets)
    sizes.pop(model.vector.untyped_storage().data_ptr(), None)
    del loss  # it held them
    return sum(sizes.values()) / len(shard)


def _titled(name: str, layer: nn.Module) -> str:
    return f"layer '{name}' ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"


def _said(error: Exception) -> str:
    """The first sentence of what torch says."""
    return one_line(error).removeprefix("vmap: ").partition(". ")[0][:LONGEST].rstrip(".")


def _refusal(what: str, reason: str) -> ConfigError:
    return ConfigError(
        f"executor 'vectorised': {what} cannot train many clients as one computation: {reason}; expected "
        "executor = 'serial', or a model without that (GroupNorm in place of BatchNorm, no dropout)"
    )

"""A module whose parameters are views of one flat vector: loading, reading and stepping touch one tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedpace.core import devices
from fedpace.core.layout import Layout


@dataclass
class Buffers:
    """A module's buffers (BatchNorm statistics), flat; integers are kept apart because they are never averaged."""

    floats: Tensor
    integers: Tensor

    def clone(self) -> Buffers:
        """An independent copy."""
        return Buffers(self.floats.clone(), self.integers.clone())

    def to(self, device: torch.device) -> Buffers:
        """The same on a device; what lies there already is not copied."""
        return Buffers(self.floats.to(device), self.integers.to(device))

    def fits(self, other: Buffers) -> bool:
        """Whether both belong to the same model."""
        return self.floats.shape == other.floats.shape and self.integers.shape == other.integers.shape

    def copy_(self, other: Buffers) -> None:
        """Take over another's values in place."""
        if self.floats.numel() or self.integers.numel():
            self.floats.copy_(other.floats)
            self.integers.copy_(other.integers)


class FlatModule:
    """Wraps a module so that ``vector``, ``gradient`` and ``buffers`` *are* its parameters, gradients and buffers.

    Writing to ``vector`` changes the module; ``backward()`` accumulates into ``gradient``. One such object is resident
    per worker and serves every client, so a client costs one copy in and one subtraction out. A ``layout`` may declare
    some of the module's tensors personal. The module is moved to the ``device``, where all of them lie.

    Trainable parameters of any other type (float64, bfloat16) become float32, and so do the statistics of the same type
    beside them in a layer. Frozen parameters and all other buffers keep type and value. A tensor that several layers
    share is in the vector once, and they go on sharing it.

    >>> flat = FlatModule(nn.Linear(2, 1, bias=False))
    >>> _ = flat.vector.copy_(torch.tensor([1.0, 2.0]))
    >>> flat.module(torch.ones(1, 2)).item()
    3.0
    """

    def __init__(self, module: nn.Module, layout: Layout | None = None, device: torch.device = devices.HOST) -> None:
        self.module = devices.settled(module, device)
        self.device = device
        self.layout = layout or Layout.of(module)
        self.vector = torch.empty(self.layout.size, device=device)
        self.gradient = torch.zeros(self.layout.size, device=device)
        parameters = dict(module.named_parameters())
        _follow_parameters(module, [parameters[name] for name in self.layout.names])
        gradients = dict(self.layout.tensors(self.gradient))
        for name, view in self.layout.tensors(self.vector):
            view.copy_(parameters[name].data)
            parameters[name].data = view
            parameters[name].grad = gradients[name]
        self.buffers = self._flatten_buffers()
        self._modules = tuple(self.module.modules())
        self._spare: dict[str, Tensor] = {}
        self._change: Tensor | None = None

    def __reduce__(self) -> tuple[type[FlatModule], tuple[nn.Module, Layout, torch.device]]:
        """Pickled as its module, because pickling would tear the views from the vectors that they look at."""
        return FlatModule, (self.module, self.layout, self.device)

    def _flatten_buffers(self) -> Buffers:
        owners = [(owner, name, b) for owner in self.module.modules() for name, b in owner.named_buffers(recurse=False)]
        flat = {}
        for dtype in (
            torch.float32,
            torch.int64,
        ):  # any other (a boolean mask, a table in half precision) stays as it is
            chosen = [(o, n, b) for o, n, b in owners if b.dtype == dtype]
            flat[dtype] = torch.empty(sum(b.numel() for _, _, b in chosen), dtype=dtype, device=self.device)
            start = 0
            for owner, name, buffer in chosen:
                view = flat[dtype][start : start + buffer.numel()].view(buffer.shape)
                view.copy_(buffer)
                setattr(owner, name, view)
                start += buffer.numel()
        return Buffers(flat[torch.float32], flat[torch.int64])

    def load(self, vector: Tensor, buffers: Buffers) -> None:
        """Take over parameters and buffers, clear the gradient, switch to training mode."""
        self.start_from(vector, buffers)
        self.gradient.zero_()

    def start_from(self, vector: Tensor, buffers: Buffers) -> None:
        """The same for training that clears the gradient before each step itself."""
        self.vector.copy_(vector)
        self.buffers.copy_(buffers)
        self.train()

    def train(self) -> None:
        """Switch to training mode; usually all of the module is in it, which is sooner seen than done."""
        if not all(module.training for module in self._modules):
            self.module.train()

    def evaluated(self, vector: Tensor, buffers: Buffers) -> nn.Module:
        """The module with these parameters and buffers, in evaluation mode."""
        self.vector.copy_(vector)
        self.buffers.copy_(buffers)
        return self.module.eval()

    def spare(self, use: str) -> Tensor:
        """A vector of the model's size for one use, allocated once; it holds what that use left behind."""
        if use not in self._spare:
            self._spare[use] = torch.empty_like(self.vector)
        return self._spare[use]

    def lend(self, row: Tensor) -> None:
        """Memory on the host for the next change, where it is to end up."""
        if self.device == devices.HOST:
            self._change = row

    def change_since(self, vector: Tensor) -> Tensor:
        """How far what is shared of the model has moved away from a vector; overwritten by the next call."""
        if self._change is None:
            self._change = torch.empty(self.layout.shared.size, device=self.device)
        return torch.sub(self.layout.take_shared(self.vector), vector, out=self._change)

    def only(self, part: Layout) -> AbstractContextManager[None]:
        """Within this context only the tensors of ``part`` are trainable: the rest costs no gradient."""
        return nullcontext() if part is self.layout else self._only(part)

    @contextmanager
    def _only(self, part: Layout) -> Iterator[None]:
        others = set(self.layout.names) - set(part.names)
        frozen = [p for name, p in self.module.named_parameters() if name in others] if others else []
        for parameter in frozen:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)

    def state_dict(self) -> dict[str, Tensor]:
        """The module's state as independent contiguous tensors, for saving."""
        return {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}


def _follow_parameters(module: nn.Module, trainable: list[nn.Parameter]) -> None:
    """Statistics become float32 with their layer's parameters: BatchNorm refuses to mix float32 and float64."""
    converted = {id(parameter) for parameter in trainable if parameter.dtype != torch.float32}
    for owner in module.modules():
        types = {p.dtype for p in owner.parameters(recurse=False) if id(p) in converted}
        for name, buffer in list(owner.named_buffers(recurse=False)):
            if buffer.dtype in types:
                setattr(owner, name, buffer.float())

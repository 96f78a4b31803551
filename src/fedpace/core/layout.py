"""A model's trainable parameters as one flat vector, and the map from names to its slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor, nn

from fedpace.core.errors import ModelError


@dataclass(frozen=True)
class Layout:
    """Where each named tensor lies in a flat vector, in ``named_parameters()`` order.

    ``personal`` names the tensors that never leave a client; all others are shared, and only they are aggregated.

    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> layout.size, layout.slices
    (8, {'weight': slice(0, 6, None), 'bias': slice(6, 8, None)})
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    personal: frozenset[str] = frozenset()

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module's trainable parameters; a tensor that several layers share is there once."""
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if unfit := [name for name, p in trainable.items() if p.is_complex()]:
            raise ModelError(
                f"parameter '{unfit[0]}': expected real numbers, found complex ones; keep them as two tensors"
            )
        return cls(tuple(trainable), tuple(tuple(p.shape) for p in trainable.values()))

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Name → slice of the flat vector."""
        found, start = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            found[name] = slice(start, start := start + prod(shape))
        return found

    @cached_property
    def size(self) -> int:
        """Length of the flat vector."""
        return sum(prod(shape) for shape in self.shapes)

    def with_personal(self, is_personal: Callable[[str], bool]) -> Layout:
        """The same layout, with the tensors whose name satisfies ``is_personal`` declared personal."""
        return Layout(self.names, self.shapes, frozenset(filter(is_personal, self.names)))

    @cached_property
    def shared(self) -> Layout:
        """The layout of the shared part alone, as it travels."""
        kept = [(n, s) for n, s in zip(self.names, self.shapes, strict=True) if n not in self.personal]
        return Layout(tuple(n for n, _ in kept), tuple(s for _, s in kept))

    @cached_property
    def own(self) -> Layout:
        """The layout of the personal part alone, as a client keeps it."""
        return self.with_personal(lambda name: name not in self.personal).shared

    def take_shared(self, vector: Tensor) -> Tensor:
        """The shared part of a whole vector, as a vector of its own (the vector itself if nothing is personal)."""
        return self.take(vector, self.shared)

    def take(self, vector: Tensor, part: Layout) -> Tensor:
        """The tensors of ``part`` from a whole vector, as a vector of their own (the vector itself if it is all)."""
        if part.names == self.names:
            return vector
        return torch.cat([vector[:0], *(vector[self.slices[name]] for name in part.names)])

    def put_shared(self, vector: Tensor, shared: Tensor) -> None:
        """Write a shared part into a whole vector, in place; personal coordinates keep their values."""
        self.put(vector, shared, self.shared)

    def put(self, vector: Tensor, values: Tensor, part: Layout) -> None:
        """Write the tensors of ``part`` into a whole vector, in place."""
        for name, tensor in part.tensors(values):
            vector[self.slices[name]] = tensor.flatten()

    def runs(self, part: Layout) -> list[slice]:
        """The coordinates of ``part`` in as few slices as possible.

        >>> layout = Layout(("a", "b", "c"), ((2,), (3,), (1,)))
        >>> layout.runs(layout), layout.runs(Layout(("a", "c"), ((2,), (1,))))
        ([slice(0, 6, None)], [slice(0, 2, None), slice(5, 6, None)])
        """
        if part.names == self.names:
            return [slice(0, self.size)] if self.names else []
        found: list[slice] = []
        for name in part.names:
            here = self.slices[name]
            if found and found[-1].stop == here.start:
                here = slice(found.pop().start, here.stop)
            found.append(here)
        return found

    def tensors(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Each tensor's name and its view of ``vector`` in its own shape; of vectors in rows, rows of such views."""
        for (name, part), shape in zip(self.slices.items(), self.shapes, strict=True):
            yield name, vector[..., part].view((*vector.shape[:-1], *shape))

    def where(self, included: Callable[[str, tuple[int, ...]], bool]) -> Tensor:
        """Boolean vector: true at the coordinates of the tensors that ``included(name, shape)`` accepts."""
        flags = torch.zeros(self.size, dtype=torch.bool)
        for (name, part), shape in zip(self.slices.items(), self.shapes, strict=True):
            flags[part] = included(name, shape)
        return flags

"""A second device that no machine has: its tensors have values, and mixing them with the host's is an error.

Within :class:`Elsewhere` a tensor that is created on or moved to ``cuda:0`` is an ordinary tensor whose memory bears a
mark. Whatever is made of it lies there, too. As on a GPU, an operation fails if its tensors do not lie together
(except copies, indices and numbers without dimensions), and NumPy cannot see what is there.

What this does not show: whether a kernel exists on a real GPU, how it rounds, its streams, memory and random numbers,
and anything that CUDA itself refuses (forked processes, integers where it wants floats).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_leaves

HOST, AWAY = torch.device("cpu"), torch.device("cuda:0")

aten = torch.ops.aten
ACROSS = {aten.copy_.default, aten._foreach_copy_.default, aten.index.Tensor, aten.index_put_.default}
"""Operations whose tensors need not lie together: copies, and indices, which may be the host's."""


def place(tensor: Tensor) -> torch.device:
    """Where a tensor lies, as far as a test is concerned."""
    return getattr(tensor.untyped_storage(), "place", HOST)


def put(tensor: Tensor, where: torch.device) -> Tensor:
    """Mark a new tensor's memory."""
    if where != HOST:
        tensor.untyped_storage().place = where
    return tensor


class _Together(TorchDispatchMode):
    """Each operation's tensors must lie in the same place, and so do its results."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        places = {place(tensor) for tensor in given if tensor.dim() or place(tensor) != HOST}
        if len(places) > 1 and function not in ACROSS:
            shapes = [(str(place(tensor)), tuple(tensor.shape)) for tensor in given]
            raise RuntimeError(f"Expected all tensors to be on the same device, but {function} found {shapes}")
        made = function(*args, **kwargs)
        where = place(given[0]) if given and len(places) != 1 else next(iter(places), HOST)
        known = {tensor.untyped_storage()._cdata for tensor in given}
        for tensor in tree_iter(made):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in known:
                put(tensor, where)
        return made


class Elsewhere(TorchFunctionMode):
    """Within this context ``cuda:0`` is such a device."""

    def __enter__(self):
        self._together = _Together()
        self._together.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._together.__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        asked = _ANSWERS.get(function)
        if asked is not None:
            return asked(*args, **kwargs)
        if kwargs.get("device") is not None:  # a new tensor
            where = torch.device(kwargs.pop("device"))
            with torch.device("cpu"):
                return put(function(*args, **kwargs), where)
        return function(*args, **kwargs)


def _to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``Tensor.to`` in all its forms: a device, a type, both, or another tensor; flags as they are."""
    where, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    for value in (*args, kwargs.pop("other", None)):
        if isinstance(value, Tensor):
            where, dtype = place(value), value.dtype
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, str | torch.device):
            where = value
    where = place(tensor) if where is None else torch.device(where)
    if where == place(tensor):
        return tensor.to(dtype or tensor.dtype, **kwargs)
    found = tensor.to(dtype or tensor.dtype, **{**kwargs, "copy": True})
    found.untyped_storage().place = where
    return found


def _numpy(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    if place(tensor) != HOST:
        raise TypeError(f"can't convert {place(tensor)} device type tensor to numpy")
    return tensor.numpy(*args, **kwargs)


_ANSWERS = {
    Tensor.to: _to,
    Tensor.numpy: _numpy,
    Tensor.cpu: lambda tensor: _to(tensor, "cpu"),
    Tensor.new_tensor: lambda tensor, *args, **kwargs: put(tensor.new_tensor(*args, **kwargs), place(tensor)),
    Tensor.pin_memory: lambda tensor: tensor,
    Tensor.device.__get__: place,
    Tensor.is_cpu.__get__: lambda tensor: place(tensor) == HOST,
    Tensor.is_cuda.__get__: lambda tensor: place(tensor) != HOST,
}

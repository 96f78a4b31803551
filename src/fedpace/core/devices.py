"""Where tensors live and in which precision models compute. No other module of the package names a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated, Any, Literal, ParamSpec

import torch
from numpy.typing import NDArray
from pydantic import AfterValidator
from torch import Tensor, nn

from fedpace.core.errors import ConfigError, did_you_mean
from fedpace.core.inputs import Inputs

HOST = torch.device("cpu")
"""Where random numbers are drawn, so that every device sees the same, and where NumPy works."""

Precision = Literal["float32", "bf16", "fp16"]
"""What a model computes in; its parameters are float32 whatever the precision."""

LOSS_SCALE = 1024.0
"""For fp16; constant factors from 8 to 32,768 have served (Micikevicius et al., 2018, Section 3.2)."""

P = ParamSpec("P")
_NAMES = ("auto", "cpu", "cuda", "mps")
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def check_name(name: str) -> str:
    """``name``, if it is the name of a device, be it here or not."""
    kind, colon, index = name.partition(":")
    if name in _NAMES or (kind + colon == "cuda:" and index.isdecimal()):
        return name
    nearest = did_you_mean(name.replace("gpu", "cuda"), _NAMES)  # "gpu" looks like "cpu", but means something else
    raise ConfigError(f"device: expected auto, cpu, cuda, cuda:N or mps, found '{name}'; {nearest}")


Device = Annotated[str, AfterValidator(check_name)]
"""A setting: ``auto`` (the best that is here), ``cpu``, ``cuda`` (the first), ``cuda:1`` and so on, or ``mps``."""


def here() -> list[str]:
    """The devices of this machine, the best first."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [*(f"cuda:{i}" for i in range(count)), *["mps"] * torch.backends.mps.is_available(), "cpu"]


def choose(name: Device = "auto") -> torch.device:
    """The device that a setting means, as tensors will name it; one that is not here is an error.

    >>> choose("cpu")
    device(type='cpu')
    """
    found = here()
    wanted = {"auto": found[0], "cuda": "cuda:0"}.get(name, check_name(name))
    if wanted not in found:
        raise ConfigError(f"device: expected one that is here ({', '.join(found)}) or auto, found '{name}'")
    return torch.device("mps:0" if wanted == "mps" else wanted)


def choose_all(name: Device) -> list[torch.device]:
    """The devices over which workers are dealt: all of CUDA's where a setting names none of them, else the one."""
    first = choose(name)
    several = first.type == "cuda" and ":" not in name
    return [torch.device(found) for found in here() if found.startswith("cuda")] if several else [first]


def on_cpu(tensor: Tensor) -> bool:
    """Whether compiled loops may read a tensor where it lies; any other is left to torch."""
    return tensor.is_cpu


def to_host(tensor: Tensor) -> Tensor:
    """A tensor for NumPy, SciPy or a file: itself if it lies on the CPU, else a copy."""
    return tensor.detach().to(HOST)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """The same as an array."""
    return to_host(tensor).numpy()


def placed(device: torch.device) -> AbstractContextManager[Any]:
    """Within this context new tensors lie on a device unless told otherwise, those of a user's own code, too.

    >>> with placed(HOST):
    ...     torch.zeros(1).device
    device(type='cpu')
    """
    return nullcontext() if device == HOST else device  # the context would cost something in each call


def settled(module: nn.Module, device: torch.device) -> nn.Module:
    """The module itself, with all its tensors on a device."""
    tensors = (*module.parameters(), *module.buffers())
    return module if all(tensor.device == device for tensor in tensors) else module.to(device)


def moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Named tensors on a device; one that lies there already is not copied.

    Double precision stays on the host where the device has none (mps).
    """
    if device.type == "mps":
        return {name: t if t.dtype == torch.float64 else t.to(device) for name, t in tensors.items()}
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def carried(batches: Iterator[tuple[Inputs, Tensor]], device: torch.device) -> Iterator[tuple[Inputs, Tensor]]:
    """The same batches on a device; on the CPU this is the very same iterator, so that no batch costs anything."""
    return batches if device == HOST else ((_carried(x, device), _sent(y, device)) for x, y in batches)


def _carried(inputs: Inputs, device: torch.device) -> Inputs:
    if isinstance(inputs, Mapping):
        return {name: _sent(tensor, device) for name, tensor in inputs.items()}
    return _sent(inputs, device)


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Towards CUDA from pinned memory: the next batch is made while this one is under way."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def seed(number: int, device: torch.device) -> None:
    """Seed what draws random numbers in a model on this device."""
    if device == HOST:
        torch.default_generator.manual_seed(number)  # torch.manual_seed also looks for GPUs: 200 times as long
    else:
        torch.manual_seed(number)


def forked_rng(device: torch.device) -> AbstractContextManager[None]:
    """Within this context random numbers are drawn that nobody outside notices, on the CPU and on the device."""
    if device == HOST:
        return _forked_on_host()
    return torch.random.fork_rng(devices=[device.index] if device.type == "cuda" else [])  # mps cannot put it back


@contextmanager
def _forked_on_host() -> Iterator[None]:
    """What torch's ``fork_rng`` does without its look at GPUs, which costs more than the numbers."""
    state = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Within this context models compute in ``precision``; refused where the device cannot.

    >>> with autocast(torch.device("cpu"), "float32"):
    ...     torch.ones(1).dtype
    torch.float32
    """
    if (reason := _obstacle(device, precision)) is not None:
        raise ConfigError(f"precision: {precision} needs {reason}, found the device '{device}'; take float32 instead")
    return nullcontext() if precision == "float32" else torch.autocast(device.type, _TYPES[precision])


def computed(function: Callable[P, Tensor], device: torch.device, precision: Precision) -> Callable[P, Tensor]:
    """The same function, computed in ``precision``: in float32 it is itself."""
    context = autocast(device, precision)
    if precision == "float32":
        return function

    def compute(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        with context:
            return function(*args, **kwargs)

    return compute


def backward(loss: Tensor, gradient: Tensor, precision: Precision) -> None:
    """Add a loss's gradient to the vector ``gradient``, of which the gradients of all parameters are views.

    What is small would be zero in fp16, whose least number is 6e-8, so the loss is scaled. A power of two rounds
    nothing. It is fixed: should a gradient overflow all the same, the client's update is not finite, and the server's
    guard drops and names it.
    """
    if precision != "fp16":
        loss.backward()  # type: ignore[no-untyped-call]
        return
    gradient.mul_(LOSS_SCALE)
    loss.backward(torch.full_like(loss, LOSS_SCALE))  # type: ignore[no-untyped-call]
    gradient.div_(LOSS_SCALE)


def _obstacle(device: torch.device, precision: Precision) -> str | None:
    """What this device lacks for a precision."""
    if precision == "fp16":
        return None if device.type in ("cuda", "mps") else "a GPU"
    if precision == "bf16" and device.type == "cuda":
        return None if torch.cuda.is_bf16_supported() else "a GPU that knows bfloat16"
    if precision == "bf16" and device.type == "mps":
        return None if torch.backends.mps.is_macos_or_newer(14, 0) else "macOS 14 or newer"
    if precision == "bf16" and not _cpu_knows_bf16():
        return "a CPU with AVX512_BF16 or AMX"
    return None


def _cpu_knows_bf16() -> bool:
    """Without these instructions bfloat16 is slower than float32, and some builds of torch end the process."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # torch has no public name for them
    return any(getattr(torch.cpu, check, bool)() for check in checks)

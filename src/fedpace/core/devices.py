"""Where tensors live and in which precision models compute. No other module of the package names a device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Literal

import torch
from numpy.typing import NDArray
from pydantic import AfterValidator
from torch import Tensor

from fedpace.core.errors import ConfigError, did_you_mean

HOST = torch.device("cpu")
"""Where random numbers are drawn, so that every device sees the same, and where NumPy works."""

Precision = Literal["float32", "bf16", "fp16"]
"""What a model computes in; its parameters are float32 whatever the precision."""

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


def on_cpu(tensor: Tensor) -> bool:
    """Whether compiled loops may read a tensor where it lies; any other is left to torch."""
    return tensor.is_cpu


def to_host(tensor: Tensor) -> Tensor:
    """A tensor for NumPy, SciPy or a file: itself if it lies on the CPU, else a copy."""
    return tensor.detach().to(HOST)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """The same as an array."""
    return to_host(tensor).numpy()


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Within this context models compute in ``precision``; refused where the device cannot.

    >>> with autocast(torch.device("cpu"), "float32"):
    ...     torch.ones(1).dtype
    torch.float32
    """
    if (reason := _obstacle(device, precision)) is not None:
        raise ConfigError(f"precision: {precision} needs {reason}, found the device '{device}'; take float32 instead")
    return nullcontext() if precision == "float32" else torch.autocast(device.type, _TYPES[precision])


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

"""The normalisation that follows a convolution."""

from __future__ import annotations

from typing import Literal

from torch import nn

from fedpace.core import ModelError

Norm = Literal["group", "batch"]

# Two groups in every layer, as in Reddi et al. (2021) and the federated work that compares with it. The number divides
# every width, and a group holds many values even where pooling has left a single pixel.
_GROUPS = 2


def normalisation(norm: Norm, channels: int) -> nn.Module:
    """GroupNorm, which sees one example and keeps no state, or BatchNorm, whose statistics mix clients.

    With skewed labels the clients' batch statistics contradict each other (Hsieh et al., 2020), which is why GMA
    trains ResNet18 with GroupNorm.
    """
    if norm == "group":
        return nn.GroupNorm(_GROUPS, channels)
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    raise ModelError(f"norm: expected 'group' or 'batch', found {norm!r}")

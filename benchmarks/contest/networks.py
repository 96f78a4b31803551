"""The modules that all contestants train."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def pfl_cnn() -> nn.Module:
    """The network of pfl-research's CIFAR-10 benchmark (its ``simple_cnn``): 1,626,442 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, kernel_size=3), nn.ReLU()),
        *(nn.Conv2d(32, 64, kernel_size=3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(128, 10),
    )


def tutorial_cnn() -> nn.Module:
    """The network of PyTorch's CIFAR-10 tutorial, which BlazeFL's benchmark trains: 62,006 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(16 * 5 * 5, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, 10),
    )


def mlp() -> nn.Module:
    """Two hidden layers of 64 units on 60 numbers (the shape of LEAF's synthetic data): 8,714 parameters."""
    return nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def resnet18() -> nn.Module:
    """ResNet-18 with GroupNorm: 11,173,962 parameters."""
    from fedpace.models import build  # imported here: the memory of the other set-ups is without it

    return build("resnet18", (3, 8, 8), 10, seed=0)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A module with the same weights in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()

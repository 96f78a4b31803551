"""What is trained: clients, examples, model, batches. Data are random numbers of the right shape, in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from benchmarks.contest import networks
from numpy.typing import NDArray
from torch import Tensor, nn

Unit = Literal["s per round", "ms per round", "ms per client", "ms per client beyond compute"]
CLASSES, EVALUATION_BATCH = 10, 100
BLOCK = 10_000  # examples that are written at a time
FEW = 100  # test examples of a set-up that does not evaluate


@dataclass(frozen=True)
class SetUp:
    """One table: everybody trains the same model on the same examples with as many steps of SGD."""

    name: str
    about: str
    clients: int
    examples: int  # of each client: a multiple of the batch
    batch: int
    cohort: int
    shape: tuple[int, ...]  # of an image as it is stored, channels last, or of a row
    network: Callable[[], nn.Module]
    unit: Unit = "s per round"
    workers: tuple[int, ...] = (1, 2)
    evaluated: int = 0  # test examples that are measured after each round
    repeats: int = 5
    stacked: int = 0  # clients that torch.func.vmap trains at a time; 0 where it is hopeless
    cosines: bool = False  # whether fedpace's comparison of all pairs is a row of its own
    learning_rate: float = 0.1

    def module(self) -> nn.Module:
        """The model before the first round."""
        return networks.seeded(self.network)

    def quick(self) -> SetUp:
        """A tenth of the cohort, once."""
        return replace(self, cohort=max(2, self.cohort // 10), repeats=1)

    @property
    def total(self) -> int:
        """Training and test examples; the test examples are the last ones."""
        return self.clients * self.examples + (self.evaluated or FEW)


A = SetUp(
    name="A",
    about="pfl-research's CIFAR-10 benchmark: 1,000 users of 50 images, 50 a round, batches of 10, 1.6 M parameters",
    clients=1000,
    examples=50,
    batch=10,
    cohort=50,
    shape=(32, 32, 3),
    network=networks.pfl_cnn,
    repeats=4,
    stacked=5,
    cosines=True,
)
SET_UPS = (
    A,
    replace(A, name="C", about=f"{A.about}, and 10,000 test images after each round", evaluated=10_000, stacked=0),
    SetUp(
        name="B",
        about="BlazeFL's CNN benchmark: 100 clients of 500 images, 10 a round, batches of 50, 62,006 parameters",
        clients=100,
        examples=500,
        batch=50,
        cohort=10,
        shape=(32, 32, 3),
        network=networks.tutorial_cnn,
        stacked=10,
        cosines=True,
    ),
    SetUp(
        name="D-mlp",
        about="1,000 clients of 24 rows, all a round, batches of 8, two hidden layers, 8,714 parameters",
        clients=1000,
        examples=24,
        batch=8,
        cohort=1000,
        shape=(60,),
        network=networks.mlp,
        unit="ms per client",
        stacked=100,
    ),
    SetUp(
        name="D-linear",
        about="1,000 clients of 24 rows, all a round, batches of 8, logistic regression, 610 parameters",
        clients=1000,
        examples=24,
        batch=8,
        cohort=1000,
        shape=(60,),
        network=partial(nn.Linear, 60, CLASSES),
        unit="ms per client",
        workers=(1,),
        stacked=100,
    ),
    SetUp(
        name="E",
        about="ResNet-18 with GroupNorm, 11.2 M parameters: 10 clients, one step each on one image of 8 × 8 pixels",
        clients=10,
        examples=1,
        batch=1,
        cohort=10,
        shape=(8, 8, 3),
        network=networks.resnet18,
        unit="ms per client beyond compute",
        workers=(1,),
        repeats=15,
        cosines=True,
    ),
    SetUp(
        name="P",
        about="1,000,000 clients of 5 rows, 50 a round, one step, logistic regression, 170 parameters",
        clients=1_000_000,
        examples=5,
        batch=5,
        cohort=50,
        shape=(16,),
        network=partial(nn.Linear, 16, CLASSES),
        unit="ms per round",
        workers=(1,),
        repeats=21,
    ),
)


@dataclass(frozen=True)
class Job:
    """What one process of a contestant is to do: the set-up, where its data are, and which of the workers it is."""

    set_up: SetUp
    folder: Path
    option: str = ""
    workers: int = 1
    rank: int = 0

    def stored(self) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
        """Inputs as they are stored, images as bytes with their channels last, and labels; training before test."""
        return _mapped(self.folder / "stored.npy"), _mapped(self.folder / "labels.npy")

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Inputs as the model takes them (images as floats, channels_last in memory) and labels."""
        return _tensors(self.folder)

    def of_client(self, client: int) -> slice:
        """Where a client's examples lie."""
        return slice(client * self.set_up.examples, (client + 1) * self.set_up.examples)

    @property
    def test(self) -> slice:
        """Where the test examples lie."""
        return slice(self.set_up.clients * self.set_up.examples, None)


def _mapped(path: Path) -> NDArray[np.generic]:
    """Copy-on-write, which torch takes without complaint; nobody writes, so that all processes share one copy."""
    return np.asarray(np.load(path, mmap_mode="c"))


@lru_cache(maxsize=1)
def _tensors(folder: Path) -> tuple[Tensor, Tensor]:
    inputs, labels = (torch.from_numpy(_mapped(folder / f"{name}.npy")) for name in ("floats", "labels"))
    return inputs.permute(0, 3, 1, 2) if inputs.dim() == 4 else inputs, labels


def write_data(set_up: SetUp, folder: Path) -> None:
    """Random images or rows and their labels."""
    rng = np.random.default_rng(0)
    images = len(set_up.shape) == 3
    np.save(folder / "labels.npy", rng.integers(0, CLASSES, set_up.total))
    shape = (set_up.total, *set_up.shape)
    floats = np.lib.format.open_memmap(folder / "floats.npy", "w+", np.float32, shape)
    if images:
        stored = np.lib.format.open_memmap(folder / "stored.npy", "w+", np.uint8, shape)
    else:
        (folder / "stored.npy").symlink_to("floats.npy")
    for start in range(0, set_up.total, BLOCK):
        rows = slice(start, min(start + BLOCK, set_up.total))
        size = (rows.stop - start, *set_up.shape)
        if images:
            stored[rows] = rng.integers(0, 256, size, dtype=np.uint8)
            floats[rows] = stored[rows] * np.float32(2 / 255) - 1
        else:
            floats[rows] = rng.standard_normal(size, dtype=np.float32)

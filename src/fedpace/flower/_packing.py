"""A client's answer as integers whose sums say what the server needs, and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import floor, isfinite, log2
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from fedpace.aggregation import Sums, sign_type
from fedpace.core import Buffers, Update, Weights
from fedpace.server import Weighing

_LOSS = 2.0**20  # a loss in fixed point
_COUNTS = 5  # weight of the update, weight of the buffers, clipped values, clients with a loss, their losses


@dataclass(frozen=True)
class Opened:
    """What the sums of all answers say."""

    sums: Sums
    buffers: Buffers | None
    train_loss: float | None
    clipped: int


@dataclass(frozen=True)
class Packing:
    """What the integers mean: agreed upon by server and ``clients`` before a round.

    ``sums`` of 64 bits hold, in fixed point, wᵢuᵢ and the weighted buffers, each clipped at ±``bound``, then counts and
    integer buffers as they are. ``signs`` hold sgn(uᵢ) in as few bits as suffice for their sum. A model has ``size``
    coordinates, and ``floats`` and ``integers`` in its buffers.
    """

    clients: int
    bound: float
    size: int
    floats: int
    integers: int
    updates: Weights
    buffers: Weights | Literal["none"]

    @classmethod
    def of(cls, clients: int, bound: float, size: int, buffers: Buffers, weighing: Weighing) -> Packing:
        """The packing of answers from a model of ``size`` coordinates."""
        floats, integers = (len(buffers.floats), len(buffers.integers)) if weighing.buffers else (0, 0)
        return cls(clients, bound, size, floats, integers, weighing.updates, weighing.buffers or "none")

    @classmethod
    def read(cls, record: ConfigRecord) -> Packing:
        """From a message."""
        return cls(**record)  # type: ignore[arg-type]

    def record(self) -> ConfigRecord:
        """For a message."""
        return ConfigRecord(asdict(self))

    @property
    def scale(self) -> float:
        """The power of two by which values are multiplied: so high that no sum leaves 63 bits, with one to spare."""
        return 2.0 ** floor(62 - log2(self.clients * self.bound))

    @property
    def resolution(self) -> float:
        """The furthest that one client's value can be rounded."""
        return 0.5 / self.scale

    def empty(self) -> dict[str, NDArray[Any]]:
        """A vector of zeros."""
        signs = np.dtype(f"u{sign_type(self.clients).itemsize}")
        length = self.size + self.floats + _COUNTS + self.integers
        return {"sums": np.zeros(length, np.uint64), "signs": np.zeros(self.size, signs)}

    def pack(self, update: Update) -> dict[str, NDArray[Any]]:
        """The integers of one client."""
        assert update.vector is not None  # clients check what they send
        vector = self.empty()
        weight = update.examples if self.updates == "samples" else 1
        statistics = update.examples if self.buffers == "samples" else 1
        values = update.vector.numpy().astype(np.float64) * weight
        integers: list[int] = []
        if self.buffers != "none":
            if update.buffers is None:
                raise ValueError("expected the model's buffers, found none")
            values = np.concatenate([values, update.buffers.floats.numpy().astype(np.float64) * statistics])
            integers = update.buffers.integers.tolist()
        clipped = int((np.abs(values) > self.bound).sum())
        np.clip(values, -self.bound, self.bound, out=values)
        loss = update.metrics.get("loss", float("nan"))
        known = isfinite(loss)
        counts = [weight, statistics, clipped, int(known), round(loss * _LOSS) if known else 0, *integers]
        signed = np.concatenate([np.rint(values * self.scale).astype(np.int64), np.asarray(counts, np.int64)])
        vector["sums"][:] = signed.view(np.uint64)
        vector["signs"][:] = torch.sign(update.vector).short().numpy().astype(vector["signs"].dtype)
        return vector

    def open(self, vector: dict[str, NDArray[Any]], clients: int) -> Opened:
        """What the sum of ``clients`` vectors says."""
        sums, signs = (part.view(f"i{part.itemsize}") for part in (vector["sums"], vector["signs"]))
        values = torch.from_numpy(sums[: self.size + self.floats] / self.scale)
        weight, statistics, clipped, known, loss, *integers = sums[self.size + self.floats :].tolist()
        buffers = None
        if self.buffers != "none":
            # The plain server takes the maximum, which no sum tells; clients that did equal work have equal counts.
            whole = [-(-total // clients) for total in integers]
            buffers = Buffers(values[self.size :] / statistics, torch.tensor(whole, dtype=torch.int64))
        found = Sums(values[: self.size], torch.from_numpy(signs), clients, float(weight))
        return Opened(found, buffers, loss / _LOSS / known if known else None, clipped)

"""A client's answer as integers whose sums say what the server needs, and nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log2, sqrt
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import ConfigRecord
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedpace.aggregation import Quantity, Sums, sign_type
from fedpace.core import Buffers, Settings, Update, Weights
from fedpace.server import HIGHEST_BOUND, Secure, Weighing

DOUBLINGS = 10
"""How often the bound may double. Clients say that they clipped, so one that lies can have it: 2¹⁰ does no harm."""
_LOSS = 2.0**20  # a loss in fixed point
_HIGHEST_LOSS = 2**20
_HIGHEST_INTEGER = 2**40  # of a buffer of integers, which counts batches
_COUNTS = 5  # weight of the update, weight of the buffers, clipped values, clients with a loss, their losses


@dataclass(frozen=True)
class Opened:
    """What the sums of all answers say."""

    sums: Sums
    buffers: Buffers | None
    train_loss: float | None
    clipped: int


class Packing(Settings):
    """What the integers mean: agreed upon by server and ``clients`` before a round.

    ``sums`` of 64 bits hold, in fixed point, wᵢuᵢ and the weighted buffers, each clipped at ±``bound``, then counts and
    integer buffers as they are. What is ``asked`` for besides has an array of its own: ``signs`` sgn(uᵢ) in as few bits
    as suffice for their sum, ``votes`` wᵢ sgn(uᵢ), ``sizes`` |wᵢuᵢ| in the same fixed point. A model has ``size``
    coordinates, and ``floats`` and ``integers`` in its buffers. An update is no longer than ``norm`` (0: any length),
    and no weight is above ``most_examples``. In a private round each client adds ``noise`` of this deviation to its
    update, and says nothing that would go without: neither its loss nor what it clipped.
    """

    clients: int = Field(ge=1)
    bound: float = Field(gt=0, le=HIGHEST_BOUND * 2**DOUBLINGS)
    size: int = Field(ge=0)
    floats: int = Field(0, ge=0)
    integers: int = Field(0, ge=0)
    updates: Weights
    buffers: Weights | Literal["none"] = "none"
    asked: tuple[Quantity, ...] = ()
    norm: float = Field(0.0, ge=0, allow_inf_nan=False)
    most_examples: int = Field(2**20, ge=1, le=2**40)
    noise: float = Field(0.0, ge=0, allow_inf_nan=False)

    @classmethod
    def of(
        cls, clients: int, size: int, buffers: Buffers, weighing: Weighing, secure: Secure, bound: float | None = None
    ) -> Packing:
        """The packing of answers from a model of ``size`` coordinates; the bound may have grown since the beginning."""
        floats, integers = (len(buffers.floats), len(buffers.integers)) if weighing.buffers else (0, 0)
        return cls(
            clients=clients,
            bound=bound or secure.bound,
            size=size,
            floats=floats,
            integers=integers,
            updates=weighing.updates,
            buffers=weighing.buffers or "none",
            asked=weighing.asked,
            norm=secure.norm or 0.0,
            most_examples=secure.most_examples,
            noise=weighing.noise,
        )

    @classmethod
    def read(cls, record: ConfigRecord) -> Packing:
        """From a message."""
        asked = tuple(filter(None, str(record["asked"]).split(",")))
        return cls(**{**record, "asked": asked})

    def record(self) -> ConfigRecord:
        """For a message."""
        return ConfigRecord({**self.model_dump(), "asked": ",".join(self.asked)})

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
        votes = "u4" if self.clients * self.most_examples < 2**31 else "u8"
        kinds = {"signs": f"u{sign_type(self.clients).itemsize}", "votes": votes, "sizes": "u8"}
        found = {"sums": np.zeros(self.size + self.floats + _COUNTS + self.integers, np.uint64)}
        return found | {name: np.zeros(self.size, kinds[name]) for name in self.asked}

    def pack(self, update: Update) -> dict[str, NDArray[Any]]:
        """The integers of one client, within all bounds."""
        assert update.vector is not None  # clients check what they send
        examples = min(int(update.examples), self.most_examples)
        weight = examples if self.updates == "samples" else 1
        statistics = examples if self.buffers == "samples" else 1
        values = self._short(update.vector) * weight
        integers: list[int] = []
        if self.buffers != "none":
            if update.buffers is None:
                raise ValueError("expected the model's buffers, found none")
            values = np.concatenate([values, update.buffers.floats.numpy().astype(np.float64) * statistics])
            integers = update.buffers.integers.clamp(-_HIGHEST_INTEGER, _HIGHEST_INTEGER).tolist()
        clipped = int((np.abs(values) > self.bound).sum())
        np.clip(values, -self.bound, self.bound, out=values)
        fixed = np.rint(values * self.scale).astype(np.int64)
        loss = update.metrics.get("loss", float("nan"))
        known = isfinite(loss) and not self.noise
        if self.noise:
            fixed[: self.size] += self._noise()
            clipped = 0
        loss = round(max(-_HIGHEST_LOSS, min(loss, _HIGHEST_LOSS)) * _LOSS) if known else 0
        signs = torch.sign(update.vector).numpy().astype(np.int64)
        parts = {
            "sums": np.concatenate(
                [fixed, np.asarray([weight, statistics, clipped, known, loss, *integers], np.int64)]
            ),
            "signs": signs,
            "votes": signs * weight,
            "sizes": np.abs(fixed[: self.size]),
        }
        vector = self.empty()
        for name, into in vector.items():
            into[:] = parts[name].astype(into.dtype)
        return vector

    def _noise(self) -> NDArray[np.int64]:
        """Normal numbers in fixed point, from the operating system's randomness.

        Sums of whole numbers this large cannot be told from normal ones (the discrete Gaussian, Kairouz et al., 2021).
        """
        drawn = np.random.default_rng(secrets.randbits(128)).standard_normal(self.size)
        return np.rint(drawn * (self.noise * self.scale)).astype(np.int64)

    def _short(self, update: Tensor) -> NDArray[np.float64]:
        """The update, shortened to the norm."""
        values = update.numpy().astype(np.float64)
        length = float(np.linalg.norm(values))
        return values * (self.norm / length) if 0 < self.norm < length else values

    def open(self, vector: dict[str, NDArray[Any]], clients: int) -> Opened:
        """What the sum of ``clients`` vectors says; a ValueError if so many clients cannot have added up to it."""
        parts = {name: part.view(f"i{part.itemsize}") for name, part in vector.items()}
        fixed, counts = np.split(parts.pop("sums"), [self.size + self.floats])
        weight, statistics, clipped, known, loss, *integers = counts.tolist()
        self._check_counts(counts.tolist(), clients)
        self._check_values(fixed, parts, weight, clients)
        values = torch.from_numpy(fixed / self.scale)
        found = {name: torch.from_numpy(part / self.scale if name == "sizes" else part) for name, part in parts.items()}
        sums = Sums(values[: self.size], found.pop("signs", None), clients, float(weight), **found)
        buffers = self._buffers(values[self.size :], statistics, integers, clients)
        return Opened(sums, buffers, loss / _LOSS / known if known else None, clipped)

    def _check_counts(self, counts: Sequence[int], clients: int) -> None:
        weight, statistics, clipped, known, loss, *integers = counts
        for what, found, weights in (("Σ w", weight, self.updates), ("Σ w of buffers", statistics, self.buffers)):
            _check(what, [found], clients * self.most_examples if weights == "samples" else clients, least=clients)
        _check("clipped values", [clipped], clients * (self.size + self.floats), least=0)
        _check("clients with a loss", [known], clients, least=0)
        _check("losses", [loss], known * int(_HIGHEST_LOSS * _LOSS))
        _check("integers of buffers", integers, clients * _HIGHEST_INTEGER)

    def _check_values(
        self, fixed: NDArray[np.int64], parts: Mapping[str, NDArray[Any]], weight: int, clients: int
    ) -> None:
        most = clients * round(self.bound * self.scale)
        for what, found, highest in (
            ("Σ w u", fixed, most),
            ("Σ sgn(u)", parts.get("signs"), clients),
            ("Σ w sgn(u)", parts.get("votes"), weight),
            ("Σ w |u|", parts.get("sizes"), most),
        ):
            _check(what, () if found is None else found, highest)
        total = fixed[: self.size]
        if "sizes" in parts and not np.all(np.abs(total) <= parts["sizes"]):
            raise ValueError("expected |Σ w u| ≤ Σ w |u|")
        rounded = sqrt(self.size) * clients * self.resolution
        length, longest = float(np.linalg.norm(total / self.scale)), weight * self.norm
        if self.norm and not self.noise and length > longest * (1 + 1e-9) + rounded:
            raise ValueError(f"Σ w u: expected a length of at most {longest:.6g}, found {length:.6g}")

    def _buffers(self, floats: Tensor, weight: int, integers: Sequence[int], clients: int) -> Buffers | None:
        if self.buffers == "none":
            return None
        # The plain server takes the maximum, which no sum tells; clients that did equal work have equal counts.
        whole = [-(-total // clients) for total in integers]
        return Buffers(floats / weight, torch.tensor(whole, dtype=torch.int64))


def _check(what: str, found: NDArray[Any] | Sequence[int], most: int, least: int | None = None) -> None:
    """Whether all integers lie within bounds: ±``most``, if no lower one is given."""
    if not len(found):
        return
    lowest, highest = int(np.min(found)), int(np.max(found))
    least = -most if least is None else least
    if lowest < least or highest > most:
        raise ValueError(f"{what}: expected integers from {least} to {most}, found {lowest} to {highest}")

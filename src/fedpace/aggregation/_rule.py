"""What an aggregation rule is: a function of the clients' updates, on a matrix or as a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import frexp, ldexp
from typing import Annotated, Any, Literal

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from fedpace.aggregation._gram import Rows
from fedpace.aggregation._range import leaves_range, narrowed
from fedpace.aggregation._signs import SignSum
from fedpace.core import ConfigError, Named, Registry, by_name, devices

Diagnostics = dict[str, Any]
MANY = 1000  # clients, among whom a robust rule bears some attackers

Quantity = Literal["signs", "votes", "sizes"]
"""What may be summed besides updates: sgn(uᵢ), wᵢ sgn(uᵢ) or wᵢ|uᵢ|."""


@dataclass(frozen=True)
class Sums:
    """Updates that were summed before anybody saw one: Σ wᵢuᵢ of N clients, Σ wᵢ > 0, and what else was asked for.

    That are the integers Σ sgn(uᵢ), ``votes`` Σ wᵢ sgn(uᵢ) and ``sizes`` Σ wᵢ|uᵢ|.
    """

    total: Tensor
    signs: Tensor | None
    clients: int
    weight: float
    votes: Tensor | None = None
    sizes: Tensor | None = None

    def count(self, signs: SignSum) -> None:
        """Add the sums of signs to others, if they are known."""
        if self.signs is not None:
            signs.absorb(self.signs, self.clients)

    def of(self, quantity: Quantity) -> Sums:
        """The sums of another quantity, in the place of those of updates."""
        found = getattr(self, quantity)
        if found is None:
            raise ConfigError(f"expected sums of {quantity}, which nobody asked for")
        return replace(self, total=found)


class Stream(ABC):
    """Takes one update at a time and ends in the aggregate. A row may be overwritten after ``add``: copy what is kept.

    A stream ends once, by ``finish`` or by ``split``; either fills ``diagnostics``. ``signs`` is the sign sum and
    ``rows`` are the kept updates where the rule needs them anyway, so that nobody counts signs or keeps rows twice.
    ``tensors`` tells a rule that treats tensors one by one where they lie, ``seed`` is that of the round, for a rule
    that draws, and ``clients`` says whose the updates were, in their order, to a rule that trusts one; whoever knows
    them sets them before the end. Without it, clients are numbered as they come.
    """

    signs: SignSum | None = None
    rows: Rows | None = None
    tensors: Sequence[slice] = ()
    seed: int = 0
    clients: Sequence[int] | None = None

    def __init__(self) -> None:
        self.diagnostics: Diagnostics = {}

    @abstractmethod
    def add(self, update: Tensor, weight: float = 1.0) -> None:
        """Take one client's update."""

    def absorb(self, sums: Sums) -> None:
        """Take many clients' updates at once, already summed."""
        raise ConfigError(f"{type(self).__name__} needs each client's own update, found sums")

    @abstractmethod
    def finish(self) -> Tensor:
        """The aggregate of everything added; zero if nothing was."""

    def split(self) -> tuple[Tensor, Tensor | None]:
        """The aggregate before it is masked, and its mask (many rules have none), for those who mask something else."""
        return self.finish(), None


class ScaledStream(Stream):
    """A stream that ends in a vector and the factor (the mask) of each of its coordinates."""

    @abstractmethod
    def split(self) -> tuple[Tensor, Tensor]:
        """The vector and its factors."""

    def finish(self) -> Tensor:
        """Their product."""
        unmasked, mask = self.split()
        return unmasked.mul_(mask)


class Rule(Named, ABC):
    """A callable on an N × d matrix of updates. Written as a stream, so both ways give bitwise the same result."""

    def __call__(self, updates: Tensor, weights: Tensor | None = None) -> Tensor:
        """Aggregate the rows of ``updates``; ``weights`` (one per row, not negative) default to uniform.

        Where sums could leave the range of float32 they are taken in float64. A stream cannot know that beforehand.
        """
        checked = check_weights(updates, weights)
        if leaves_range(updates, checked):
            smaller = -frexp(max(checked))[1]  # a power of two: nothing is rounded
            widened = self.taken(Rows.of(updates.double()), [ldexp(each, smaller) for each in checked])
            return narrowed(widened.finish(), updates.dtype)
        return self.taken(Rows.of(updates), checked).finish()

    def taken(self, rows: Rows, weights: list[float]) -> Stream:
        """A stream that has taken these rows already."""
        none = rows.none
        with devices.placed(none.device):
            stream = self.start(none.shape[1], rows.clients, none.dtype)
        for update, weight in zip(rows.each(), weights, strict=True):
            stream.add(update, weight)
        return stream

    def bears(self, clients: int) -> int:
        """How many attackers among so many clients cannot move the result at will, whatever they send.

        However far their updates lie from the others, the result stays within a bound that the others set.
        """
        return 0

    @property
    def robust(self) -> bool:
        """Whether there are rounds in which it bears attackers."""
        return self.bears(MANY) > 0

    def check(self, clients: int) -> None:
        """Refuse settings that cannot work among so many clients."""

    @property
    def caution(self) -> str | None:
        """Why these parameters, though legal, may not do what was meant."""
        return None

    @property
    def trusted(self) -> int | None:
        """The number of the one client without whom there is no step, if there is one."""
        return None

    @property
    def beyond_sums(self) -> str | None:
        """What this rule must know besides :class:`Sums`; ``None`` if its stream can ``absorb`` them."""
        return "each client's own update"

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Which sums its stream absorbs besides that of updates."""
        return ()

    @abstractmethod
    def start(self, size: int, clients: int, dtype: torch.dtype = torch.float32) -> Stream:
        """Begin a stream of at most ``clients`` updates of ``size`` coordinates.

        New tensors lie where the updates will: whoever calls this has made that torch's default device.
        """


rules: Registry[Rule] = Registry("rule", Rule)
AnyRule = SerializeAsAny[Annotated[Rule, by_name(rules, "mean")]]  # a field for a rule: its name, its table, or itself


def check_weights(updates: Tensor, weights: Tensor | None) -> list[float]:
    """Weights as floats, after a check that they fit the matrix."""
    if updates.dim() != 2:
        raise ConfigError(f"updates: expected a matrix with a row per client, found shape {tuple(updates.shape)}")
    if weights is None:
        return [1.0] * updates.shape[0]
    values = torch.as_tensor(weights, dtype=torch.float64)
    fit = values.shape == updates.shape[:1] and bool((values >= 0).all()) and bool(values.sum().isfinite())
    if not fit:
        expected = f"{updates.shape[0]} finite values that are not negative and have a finite sum"
        raise ConfigError(f"weights: expected {expected}, found {values.tolist()}")
    return [float(value) for value in values]


def shares(weights: Sequence[float]) -> Tensor:
    """Weights that sum to 1; clients count alike where all of them are zero."""
    found = torch.tensor(weights, dtype=torch.float64, device=devices.HOST)
    return found / found.sum() if found.sum() > 0 else torch.full_like(found, 1 / len(found))


def minority(clients: int) -> int:
    """The most that are less than half.

    >>> minority(10), minority(11), minority(0)
    (4, 5, 0)
    """
    return max(clients - 1, 0) // 2


class WeightedSum:
    """Running Σ wᵢuᵢ and Σ wᵢ. While every weight so far is zero, clients count alike (``algorithms``: fall back)."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.sum = torch.zeros(size, dtype=dtype)
        self.total = 0.0
        self.clients = 0

    def add(self, update: Tensor, weight: float) -> None:
        """Add one weighted update."""
        self.sum.add_(update, alpha=self.share(weight))

    def share(self, weight: float) -> float:
        """Count one more update, and return the factor with which it is to be added."""
        if weight > 0 and self.total == 0:
            self.sum.zero_()  # what came before had no weight
        self.clients += 1
        self.total += weight
        return weight if self.total > 0 else 1.0

    def absorb(self, sums: Sums) -> None:
        """Add what others have summed."""
        self.sum += sums.total
        self.total += sums.weight
        self.clients += sums.clients

    def mean(self) -> Tensor:
        """Σ wᵢuᵢ / Σ wᵢ, in place; call once."""
        return self.sum.div_(self.total or max(self.clients, 1))

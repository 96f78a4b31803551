"""Rounds whose updates are summed before they reach the server: how, what it sees of them, what it cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import get_args

from pydantic import Field

from fedpace.aggregation import Quantity, Sums, rules
from fedpace.core import Buffers, ConfigError, Settings, Update, Weights
from fedpace.server.schedule import Exchange, Schedule

FEWEST = 3  # clients: in a sum of two, each of them knows the other's update as soon as it knows the sum
HIGHEST_BOUND = 2.0**30


class Secure(Settings):
    """How updates are summed in secret (SecAgg+, Bell et al., 2020).

    ``shares``: the part of a round's clients among which each one's secrets are shared; ``threshold``: the part of the
    shares that opens a secret, and so, of the clients, what must be left at the end of a round. Both are rounded up.
    No sum of less than ``fewest`` clients is opened, and none of less than ``fewest_agreeing`` where the rule needs to
    know how far clients agree: where all of them do, the sum tells each one's sign.

    Each client keeps within bounds before it adds anything, and the sum that is opened has to lie within theirs: an
    update is no longer than ``norm`` (any length if ``None``), a client counts for at most ``most_examples``, and
    values wᵢuᵢ are clipped at ±``bound``. Whenever that happens, the next round's bound is twice as high, up to ten
    times in all. Each value is rounded by less than N · ``bound`` / 2⁶².

    Cost: a client sends 8 bytes per coordinate instead of 4, in four messages; 1 more where signs are summed (2 if more
    than 127 take part, 4 if more than 32,767), 8 more for a pace.
    """

    shares: float = Field(1.0, gt=0, le=1)
    threshold: float = Field(2 / 3, gt=0.5, le=1)  # above a half, or two groups could open different secrets
    fewest: int = Field(FEWEST, ge=FEWEST)
    fewest_agreeing: int = Field(5, ge=FEWEST)
    bound: float = Field(2.0**20, gt=0, le=HIGHEST_BOUND)
    norm: float | None = Field(None, gt=0, allow_inf_nan=False)
    most_examples: int = Field(2**20, ge=1, le=2**40)

    def least(self, asked: Sequence[Quantity]) -> int:
        """The smallest number of clients whose sums may be opened, where these are ``asked`` for besides updates."""
        return max(self.fewest, self.fewest_agreeing) if asked else self.fewest

    def counts(self, clients: int, asked: Sequence[Quantity] = ()) -> tuple[int, int]:
        """Shares and threshold among so many clients. On a ring, a client and its neighbours are an odd number."""
        least = self.least(asked)
        shares = max(least, ceil(self.shares * clients - 1e-9))
        shares = min(shares + 1 - shares % 2, clients) if shares < clients else clients
        return shares, max(least, ceil(self.threshold * shares - 1e-9))


@dataclass(frozen=True)
class Weighing:
    """What a client adds to the sums: its update, its buffers if they are summed at all, each with its weight, and
    what else is ``asked`` for. In private runs it adds ``noise`` of this deviation to its update.
    """

    updates: Weights
    buffers: Weights | None = None
    asked: tuple[Quantity, ...] = ()
    noise: float = 0.0


@dataclass(frozen=True)
class Collected:
    """Sums, and who took part.

    ``clients`` answer without vectors: each with what it kept, or with its failure. ``ended`` says why there are no
    ``sums``. ``buffers`` and ``train_loss`` are means. ``clipped`` values lay outside the range of the sums, and so
    many more ``numbers`` of 4 bytes travelled than without secrecy.
    """

    clients: Sequence[Update]
    sums: Sums | None = None
    buffers: Buffers | None = None
    train_loss: float | None = None
    clipped: int = 0
    numbers: int = 0
    ended: str = ""


def quantities(exchange: Exchange) -> tuple[Quantity, ...]:
    """Which sums an exchange needs besides those of updates; nothing else is asked for."""
    needed = {*exchange.rule.quantities}
    needed |= {"signs"} if exchange.counts or exchange.prunes else set()
    needed |= {"sizes"} if exchange.pace is not None else set()
    return tuple(each for each in get_args(Quantity) if each in needed)


def check_schedule(schedule: Schedule, clients: int, secure: Secure) -> None:
    """Refuse a schedule for which sums over ``clients`` clients are too little to see, or too much."""
    if clients < secure.fewest:
        raise ConfigError(f"secure aggregation: expected at least {secure.fewest} clients in a round, found {clients}")
    for stage in schedule.all:
        searches = ["a search needs each client's own gradient; expected no search"] if stage.search is not None else []
        reasons = [reason for each in stage.exchanges for reason in (beyond_sums(each), _shows(each, clients, secure))]
        for reason in (*searches, *filter(None, reasons)):
            raise ConfigError(f"secure aggregation, stage '{stage.name}': {reason}")


def _shows(exchange: Exchange, clients: int, secure: Secure) -> str | None:
    """Why sums over so few clients would tell too much about each of them, or ``None``."""
    asked = quantities(exchange)
    if clients >= secure.least(asked):
        return None
    return (
        f"it sums {' and '.join(asked)}, which tell each client's sign where all agree; expected at least "
        f"{secure.least(asked)} clients in a round, found {clients} (secure.fewest_agreeing = {FEWEST} allows it)"
    )


def beyond_sums(exchange: Exchange) -> str | None:
    """Why an exchange cannot do with sums, or ``None``."""
    needs = exchange.rule.beyond_sums
    if needs is None:
        return None
    able = [name for name in rules.names() if rules.get(name)().beyond_sums is None]
    return f"rule '{exchange.rule.registered_name()}' needs {needs}; rules that work: {', '.join(able)}"

"""Rounds whose updates are summed before they reach the server: how, what it sees of them, what it cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pydantic import Field

from fedpace.aggregation import Sums, rules
from fedpace.core import Buffers, ConfigError, Settings, Update, Weights
from fedpace.server.schedule import Exchange, Schedule

FEWEST = 3  # clients: in a sum of two, each of them knows the other's update as soon as it knows the sum


class Secure(Settings):
    """How updates are summed in secret (SecAgg+, Bell et al., 2020).

    ``shares``: the part of a round's clients among which each one's secrets are shared; ``threshold``: the part of the
    shares that opens a secret, and so, of the clients, what must be left at the end of a round. Both are rounded up,
    and at least 3. ``bound``: values wᵢuᵢ beyond it are clipped in the first round; whenever that happens, the next
    round's is twice as high. Each value is rounded by less than N · ``bound`` / 2⁶².

    Cost: a client sends 9 bytes per coordinate instead of 4 (10 if more than 127 take part, 12 if more
    than 32,767), in four messages.
    """

    shares: float = Field(1.0, gt=0, le=1)
    threshold: float = Field(2 / 3, gt=0.5, le=1)  # above a half, or two groups could open different secrets
    bound: float = Field(2.0**20, gt=0, allow_inf_nan=False)

    def counts(self, clients: int) -> tuple[int, int]:
        """Shares and threshold among so many clients. On a ring, a client and its neighbours are an odd number."""
        shares = max(FEWEST, ceil(self.shares * clients - 1e-9))
        shares = min(shares + 1 - shares % 2, clients) if shares < clients else clients
        return shares, max(FEWEST, ceil(self.threshold * shares - 1e-9))


@dataclass(frozen=True)
class Weighing:
    """How a client weighs what it adds to the sums: its update, and its buffers, if they are summed at all."""

    updates: Weights
    buffers: Weights | None = None


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


def check_schedule(schedule: Schedule, clients: int) -> None:
    """Refuse a schedule for which sums over ``clients`` clients are too little to see, or too much."""
    if clients < FEWEST:
        raise ConfigError(f"secure aggregation: expected at least {FEWEST} clients in a round, found {clients}")
    for stage in schedule.all:
        searches = ["a search needs each client's own gradient; expected no search"] if stage.search is not None else []
        for reason in (*searches, *filter(None, map(beyond_sums, stage.exchanges))):
            raise ConfigError(f"secure aggregation, stage '{stage.name}': {reason}")


def beyond_sums(exchange: Exchange) -> str | None:
    """Why an exchange cannot do with sums, or ``None``."""
    if exchange.pace is not None:
        return "a pace needs the size of each client's own update; expected no pace"
    needs = exchange.rule.beyond_sums
    if needs is None:
        return None
    able = [name for name in rules.names() if rules.get(name)().beyond_sums is None]
    return f"rule '{exchange.rule.registered_name()}' needs {needs}; rules that work: {', '.join(able)}"

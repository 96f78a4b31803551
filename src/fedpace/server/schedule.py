"""Which stage a round belongs to. FedPACE and each of its ablations are nothing but schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from fedpace.aggregation import AndMask, AnyRule, Mean, Thresholded, highest_below
from fedpace.core import ConfigError, Settings, Weights, by_name
from fedpace.server.annealing import Annealing
from fedpace.server.freezing import Freezing
from fedpace.server.optimizers import ServerOptimizer, ServerSGD, optimizers
from fedpace.server.pace import Pace, paces
from fedpace.server.pruning import Pruning

AnyPace = SerializeAsAny[Annotated[Pace, by_name(paces, "agreement")]]
AnyOptimizer = SerializeAsAny[Annotated[ServerOptimizer, by_name(optimizers, "sgd")]]


class Exchange(Settings):
    """What clients send in one go, and what the server makes of it.

    Clients send an update or a gradient, the ``rule`` aggregates, the ``optimizer`` steps. A mask, where the rule has
    one, multiplies that step (``mask_at`` = ``post``) or the update before the optimizer sees it (``pre``); to an
    optimizer without memory that is the same. ``pace`` scales the local steps of which an update consists, and
    ``freezes`` stops them where its memory shows conflict. ``counts`` notes conflicts for pruning and ``prunes`` acts
    on them.
    """

    sends: Literal["update", "gradient"] = "update"
    rule: AnyRule = Mean()
    weights: Weights = "samples"
    optimizer: AnyOptimizer = ServerSGD()
    mask_at: Literal["post", "pre"] = "post"
    pace: AnyPace | None = None
    freezes: Freezing | None = None
    counts: bool = False
    prunes: bool = False


class Stage(Settings):
    """The rounds ``first`` to ``last`` (inclusive; open end if ``None``): perhaps a ``search``, then exchanges."""

    name: str = "fedavg"
    first: int = Field(0, ge=0)
    last: int | None = Field(None, ge=0)
    search: Annealing | None = None
    exchanges: tuple[Exchange, ...] = (Exchange(),)

    def covers(self, number: int) -> bool:
        """Whether a round lies in this stage's window."""
        return self.first <= number and (self.last is None or number <= self.last)

    @property
    def ends_with_search(self) -> bool:
        """Whether a search takes the place of the first exchange; one that is skipped does not."""
        return self.search is not None and self.search.k > 0 and self.search.after != "train"

    @property
    def window(self) -> str:
        """The window in words."""
        return f"rounds {self.first} to {'the end' if self.last is None else self.last}"


class Schedule(Settings):
    """Stages with disjoint windows; a round outside all of them belongs to ``base``."""

    base: Stage = Stage()
    stages: tuple[Stage, ...] = ()
    pruning: Pruning | None = None

    @property
    def all(self) -> tuple[Stage, ...]:
        """Every stage, and the base."""
        return (self.base, *self.stages)

    def stage(self, number: int) -> Stage:
        """The stage of a round."""
        return next((stage for stage in self.stages if stage.covers(number)), self.base)

    def validate_for(self, rounds: int, clients: int) -> list[str]:
        """Reject a schedule that cannot be meant; return a warning for each stage that cannot act.

        ``clients`` is the number that takes part in a round.
        """
        for i, stage in enumerate(self.stages):
            last = stage.first if stage.last is None else stage.last
            if last < stage.first:
                raise ConfigError(f"stage '{stage.name}': {stage.window} is empty; the first round comes first")
            if last >= rounds:
                raise ConfigError(
                    f"stage '{stage.name}': {stage.window} (from 0) needs {last + 1} rounds, the run has {rounds}"
                )
            for other in self.stages[:i]:
                if any(stage.covers(r) and other.covers(r) for r in range(rounds)):
                    raise ConfigError(
                        f"stages '{other.name}' ({other.window}) and '{stage.name}' ({stage.window}) overlap"
                    )
        for stage in self.all:
            for exchange in stage.exchanges:
                _check_rule(stage, exchange, clients)
        return list(dict.fromkeys(text for stage in self.all for text in self._idle(stage, clients)))

    def _idle(self, stage: Stage, clients: int) -> Iterator[str]:
        if stage.search is not None and clients < 2:
            yield f"stage '{stage.name}' cannot search: one client has no other to agree with"
        for exchange in stage.exchanges:
            yield from (f"stage '{stage.name}'{text}" for text in self._idle_exchange(exchange, clients))

    def _idle_exchange(self, exchange: Exchange, clients: int) -> Iterator[str]:
        if exchange.prunes and self.pruning is not None and not self.pruning.can_act(clients):
            lowest = self.pruning.lowest_agreement(clients)
            yield (
                f" cannot prune: the lowest agreement that {clients} clients can show is "
                f"{lowest:.3g}, not below the threshold {self.pruning.threshold:g}; one above {lowest:.3g} would act"
            )
        if exchange.rule.caution:
            yield f": {exchange.rule.caution}"
        if exchange.rule.robust and not exchange.rule.bears(clients):
            yield f": rule '{exchange.rule.registered_name()}' bears no attackers among {clients} clients"
        if isinstance(exchange.rule, Thresholded):
            yield from self._idle_mask(exchange.rule, exchange.weights, clients)

    def _idle_mask(self, rule: Thresholded, weights: Weights, clients: int) -> Iterator[str]:
        if rule.agreement_weights == "samples" and weights == "samples":
            return  # votes of different weight can show any agreement
        if rule.agreement_weights == "samples":
            yield (
                ": agreement_weights = 'samples' has no effect while clients count alike; expected weights = 'samples'"
            )
        highest = highest_below(rule.tau, clients, rule.threshold)
        if highest < clients % 2:
            yield (f": no agreement of {clients} clients lies below tau = {rule.tau:g}, so masking is the plain mean")
        if isinstance(rule, AndMask) and highest >= clients:
            yield f" stands still: no agreement lies above tau = {rule.tau:g}"


def _check_rule(stage: Stage, exchange: Exchange, clients: int) -> None:
    try:
        exchange.rule.check(clients)
    except ConfigError as error:
        raise ConfigError(f"stage '{stage.name}': {error}") from None

"""What is known of a round: typed, versioned, and read and written in one place."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

VERSION = 2


@dataclass(frozen=True)
class Dropped:
    """A client whose answer was not used, and why."""

    client: int
    reason: str


@dataclass(frozen=True)
class Similarity:
    """Cosines of pairs of clients; ``kind`` says of which vectors: updates, gradients or probes."""

    kind: str = "update"
    mean: float | None = None
    min: float | None = None
    matrix: list[list[float | None]] | None = None


@dataclass(frozen=True)
class Agreement:
    """Number of coordinates by |S| = 0 … N, where S sums the clients' signs, overall and per layer; and the mean."""

    mean: float | None = None
    histogram: list[int] = field(default_factory=list)
    layers: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchReport:
    """What a search found; ``gain`` is the score won, zero if nothing was accepted."""

    accepted: bool
    candidates: int
    sim0: float | None = None
    sim_best: float | None = None
    gain: float | None = None
    loss0: float | None = None
    loss_best: float | None = None
    probe_mean: float | None = None
    probe_min: float | None = None


@dataclass(frozen=True)
class Seconds:
    """Where the time of a round went."""

    search: float = 0.0
    local: float = 0.0
    aggregate: float = 0.0
    evaluate: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.search + self.local + self.aggregate + self.evaluate


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What the server saw of a round.

    Of the ``cohort`` so many clients were ``used`` in the last exchange. ``pruned`` and ``frozen`` are shares of the
    parameters, ``frozen`` at the beginning of the round. ``clipped`` is there where updates were summed in secret: so
    many values lay outside the range of the sums. Of the clients that were used, ``capped`` ones counted for less than
    they claimed, and the updates of ``shortened`` ones were clipped to the length ``bound``, if there was one.
    ``epsilon`` is what all models of a private run up to this one tell of a client, at the delta of the config.
    ``still`` says why the model stayed as it was, if it did.
    """

    round: int
    stage: str = "fedavg"
    cohort: list[int] = field(default_factory=list)
    used: int = 0
    search: SearchReport | None = None
    similarity: Similarity | None = None
    agreement: Agreement | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    train_loss: float | None = None
    pruned: float = 0.0
    frozen: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    clipped: int | None = None
    capped: list[int] = field(default_factory=list)
    shortened: list[int] = field(default_factory=list)
    bound: float | None = None
    epsilon: float | None = None
    still: str | None = None


@dataclass(frozen=True, kw_only=True)
class RoundRecord(RoundReport):
    """A round as it is recorded: a line of ``rounds.jsonl``.

    ``metrics`` are those of the test set, under the names that the task gives them, its headline first; empty in a
    round that was not measured. ``client_metrics`` are those of each measured client, on examples that it trains on or
    that it does not (``clients_on``). A figure that is not finite is ``None``.

    >>> RoundRecord.from_json(RoundRecord(round=3, metrics={"accuracy": 0.5}).to_json()).headline
    0.5
    """

    version: int = VERSION
    metrics: dict[str, float | None] = field(default_factory=dict)
    client_metrics: dict[int, dict[str, float | None]] = field(default_factory=dict)
    clients_on: Literal["train", "test"] = "train"
    seconds: Seconds = Seconds()

    @property
    def headline(self) -> float | None:
        """The metric that a run is judged by, if it was measured."""
        return next(iter(self.metrics.values()), None)

    @property
    def client_headlines(self) -> dict[int, float]:
        """The same of each client that was measured."""
        first = {client: next(iter(metrics.values()), None) for client, metrics in self.client_metrics.items()}
        return {client: value for client, value in first.items() if value is not None}

    def to_json(self) -> str:
        """As one line."""
        return _adapter().dump_json(self).decode()

    @classmethod
    def from_json(cls, line: str) -> RoundRecord:
        """Read a line, be it of an older version; anything else is a ``ValueError`` of one line."""
        table = json.loads(line)
        if not isinstance(table, dict):
            raise ValueError(f"expected a round, found {type(table).__name__}")
        version = table.get("version", 1)
        if version not in (1, VERSION):
            raise ValueError(f"expected a record of version {VERSION} or older, found {version!r}")
        try:
            return _adapter().validate_python(_upgraded(table) if version == 1 else table)
        except ValidationError as error:
            detail = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, detail['loc']))}: {detail['msg'].lower()}") from None


@cache
def _adapter() -> TypeAdapter[RoundRecord]:
    return TypeAdapter(RoundRecord)


def _upgraded(table: dict[str, Any]) -> dict[str, Any]:
    """A record of the first version, which knew classes only."""
    measured = {name: table[name] for name in ("accuracy", "loss") if table.get(name) is not None}
    clients = {client: {"accuracy": value} for client, value in (table.get("client_accuracy") or {}).items()}
    known = {name.name for name in fields(RoundRecord)} - {"version"}
    kept = {name: value for name, value in table.items() if name in known}
    return {
        **kept,
        "metrics": measured,
        "client_metrics": clients,
        "clients_on": table.get("client_accuracy_on", "train"),
    }

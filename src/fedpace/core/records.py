"""What is known of a round: typed, versioned, and read and written in one place."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fedpace.core.plain_json import parse_json

VERSION: Final = 2

# What a line may hold; a record that is made in Python is not checked.
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Cosine = Annotated[float, Field(ge=-1.001, le=1.001)]  # rounding may leave the circle
NotNegative = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Dropped:
    """A client whose answer was not used, and why."""

    client: Count
    reason: str


@dataclass(frozen=True)
class Similarity:
    """Cosines of pairs of clients; ``kind`` says of which vectors: updates, gradients or probes."""

    kind: str = "update"
    mean: Cosine | None = None
    min: Cosine | None = None
    matrix: list[list[Cosine | None]] | None = None


@dataclass(frozen=True)
class Agreement:
    """Number of coordinates by |S| = 0 … N, where S sums the clients' signs, overall and per layer; and the mean."""

    mean: Share | None = None
    histogram: list[Count] = field(default_factory=list)
    layers: dict[str, list[Count]] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchReport:
    """What a search found; ``gain`` is the score won, zero if nothing was accepted."""

    accepted: bool
    candidates: Count
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

    search: NotNegative = 0.0
    local: NotNegative = 0.0
    aggregate: NotNegative = 0.0
    evaluate: NotNegative = 0.0

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
    their examples, and the updates of ``shortened`` ones were clipped to the length ``bound``, if there was one.
    ``epsilon`` is what all models of a private run up to this one tell of a client, at the delta of the config;
    ``local_epsilon`` is what a client that trains privately told of one of its examples, the one that told most.
    ``still`` says why the model stayed as it was, if it did. ``time`` is the virtual time at which the server took its
    step, where clients have speeds, and ``staleness`` says, where they do not wait for one another, how many steps the
    server took since each of the cohort began.
    """

    round: Count
    stage: str = "fedavg"
    cohort: list[Count] = field(default_factory=list)
    used: Count = 0
    search: SearchReport | None = None
    similarity: Similarity | None = None
    agreement: Agreement | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    train_loss: float | None = None
    pruned: Share = 0.0
    frozen: Share = 0.0
    bytes_up: Count = 0
    bytes_down: Count = 0
    clipped: Count | None = None
    capped: list[Count] = field(default_factory=list)
    shortened: list[Count] = field(default_factory=list)
    bound: NotNegative | None = None
    epsilon: NotNegative | None = None
    local_epsilon: NotNegative | None = None
    still: str | None = None
    time: NotNegative | None = None
    staleness: dict[Count, Count] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RoundRecord(RoundReport):
    """A round as it is recorded: a line of ``rounds.jsonl``.

    ``metrics`` are those of the test set, under the names that the task gives them, its headline first; empty in a
    round that was not measured. ``client_metrics`` are those of each measured client, on examples that it trains on or
    that it does not (``clients_on``); ``unmeasured`` ones were asked in vain. A figure that is not finite is ``None``.

    >>> RoundRecord.from_json(RoundRecord(round=3, metrics={"accuracy": 0.5}).to_json()).headline
    0.5
    """

    # A line is read as it was written: no text is a number, no fraction a whole one, nothing is infinite or unknown.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    version: Literal[1, 2] = VERSION
    metrics: dict[str, float | None] = field(default_factory=dict)
    client_metrics: dict[Count, dict[str, float | None]] = field(default_factory=dict)
    clients_on: Literal["train", "test"] = "train"
    unmeasured: list[Dropped] = field(default_factory=list)
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
        table = parse_json(line)
        if not isinstance(table, dict):
            raise ValueError(f"expected a round, found {type(table).__name__}")
        version = table.get("version", 1)
        if version is True or version not in (1, VERSION):
            raise ValueError(f"expected a record of version {VERSION} or older, found {version!r}")
        try:
            record = _adapter().validate_json(json.dumps(_upgraded(table)) if version == 1 else line)
        except ValidationError as error:
            detail = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, detail['loc']))}: {detail['msg'].lower()}") from None
        if (wrong := _misfit(record)) is not None:
            raise ValueError(wrong)
        return record


def _misfit(record: RoundRecord) -> str | None:
    """What in a record does not go with the rest of it."""
    if len(set(record.cohort)) < len(record.cohort):
        return f"cohort: expected each client once, found {record.cohort}"
    if record.staleness and record.staleness.keys() != set(record.cohort):
        return f"staleness: expected that of the cohort {record.cohort}, found that of {list(record.staleness)}"
    if record.used > len(record.cohort):
        return f"used: expected at most the {len(record.cohort)} clients of the cohort, found {record.used}"
    matrix = None if record.similarity is None else record.similarity.matrix
    if matrix is not None and any(len(row) != len(matrix) for row in matrix):
        return f"similarity.matrix: expected {len(matrix)} rows of as many numbers, found others"
    if record.agreement is not None:
        histograms = {"histogram": record.agreement.histogram or None, **record.agreement.layers}
        sizes = {name: len(histogram) for name, histogram in histograms.items() if histogram is not None}
        if len(set(sizes.values())) > 1:
            return f"agreement: expected lists of one length, found {sizes}"
    return None


@cache
def _adapter() -> TypeAdapter[RoundRecord]:
    return TypeAdapter(RoundRecord)


def _upgraded(table: dict[str, Any]) -> dict[str, Any]:
    """A record of the first version, which knew classes only."""
    if "metrics" in table:
        raise ValueError("expected a record of version 1, found metrics, which came with version 2")
    measured = {name: table[name] for name in ("accuracy", "loss") if table.get(name) is not None}
    by_client = table.get("client_accuracy") or {}
    if not isinstance(by_client, dict):
        raise ValueError(f"client_accuracy: expected a table, found {type(by_client).__name__}")
    clients = {client: {"accuracy": value} for client, value in by_client.items()}
    known = {name.name for name in fields(RoundRecord)} - {"version"}
    kept = {name: value for name, value in table.items() if name in known}
    return {
        **kept,
        "metrics": measured,
        "client_metrics": clients,
        "clients_on": table.get("client_accuracy_on", "train"),
    }

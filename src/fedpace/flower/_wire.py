"""How our tensors and turns travel in Flower's records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import ConfigDict, Field, TypeAdapter
from torch import Tensor

from fedpace.client import works
from fedpace.core import Buffers, Settings, Tensors, Update, one_line, parse, with_prefix
from fedpace.engine import Turn
from fedpace.flower._arrays import values
from fedpace.flower._replies import MOST_EXAMPLES, refuse_large

TOKEN = "kept"  # in place of a client's state, which never travels: the name under which the client keeps it
_VECTOR, _FLOATS, _INTEGERS = "vector", "buffers.floats", "buffers.integers"


def to_record(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Tensors as an ArrayRecord."""
    return ArrayRecord({name: Array(tensor.detach().contiguous().numpy()) for name, tensor in tensors.items()})


def to_tensors(record: ArrayRecord) -> Tensors:
    """The tensors of an ArrayRecord, as copies that may be changed."""
    return {name: torch.from_numpy(values(array).copy()) for name, array in record.items()}


def model_record(vector: Tensor, buffers: Buffers) -> ArrayRecord:
    """The server's vector and buffers; the record may be part of many messages."""
    return to_record({_VECTOR: vector, _FLOATS: buffers.floats, _INTEGERS: buffers.integers})


def model_from(record: ArrayRecord) -> tuple[Tensor, Buffers]:
    """Vector and buffers from a record."""
    tensors = to_tensors(record)
    return tensors[_VECTOR], Buffers(tensors[_FLOATS], tensors[_INTEGERS])


def turns_record(model: ArrayRecord, extras: ArrayRecord, turns: Sequence[Turn]) -> RecordDict:
    """Everything that one client is to do in one message: the model once, and what differs between its turns."""
    described = [
        {
            "client": turn.client,
            "work": turn.work.model_dump(mode="json"),
            "seed": turn.seed,
            "on": turn.on,
            "keeps_buffers": turn.keeps_buffers,
            "state": int(turn.state[TOKEN]) if TOKEN in turn.state else None,
        }
        for turn in turns
    ]
    own = {f"{number}.{name}": tensor for number, turn in enumerate(turns) for name, tensor in turn.extras.items()}
    config = ConfigRecord({"turns": json.dumps(described)})
    return RecordDict({"model": model, "extras": extras, "own": to_record(own), "config": config})


def turns_from(content: RecordDict) -> list[Turn]:
    """The turns of a message, each with the token of what its client kept instead of the state itself."""
    own = to_tensors(content.array_records["own"])
    found = []
    for number, table in enumerate(json.loads(str(content.config_records["config"]["turns"]))):
        token = table.pop("state")
        found.append(
            Turn(
                **{**table, "work": parse(works, table["work"])},
                state={} if token is None else {TOKEN: torch.tensor(token)},
                extras=with_prefix(f"{number}.", own),
            )
        )
    return found


def answers_record(updates: Sequence[Update]) -> RecordDict:
    """The answers to all turns of a message. Of a state only its token is sent."""
    described: list[dict[str, Any]] = []
    tensors: Tensors = {}
    for number, update in enumerate(updates):
        sent = {f"extras.{name}": tensor for name, tensor in update.extras.items()}
        if update.vector is not None:
            sent[_VECTOR] = update.vector
        if update.buffers is not None:
            sent |= {_FLOATS: update.buffers.floats, _INTEGERS: update.buffers.integers}
        tensors |= {f"{number}.{name}": tensor for name, tensor in sent.items()}
        token = None if update.state is None else int(update.state[TOKEN])
        described.append(
            {"examples": update.examples, "metrics": update.metrics, "failure": update.failure, "state": token}
        )
    return RecordDict({"arrays": to_record(tensors), "config": ConfigRecord({"answers": json.dumps(described)})})


class _Answer(Settings):
    """What a client says of one turn besides tensors."""

    model_config = ConfigDict(strict=True)

    examples: int = Field(ge=0, le=MOST_EXAMPLES)
    metrics: dict[str, float]
    failure: str | None
    state: int | None = Field(ge=0, lt=2**63)


_ANSWERS = TypeAdapter(list[_Answer])


def answers_from(content: RecordDict, client: int, turns: int) -> list[Update]:
    """A client's answers to so many turns. An error of any kind says that they cannot be read."""
    described = _ANSWERS.validate_json(str(content.config_records["config"]["answers"]))
    if len(described) != turns:
        raise ValueError(f"expected answers to {turns} turns, found {len(described)}")
    tensors = {name: _tensor(name, array) for name, array in content.array_records["arrays"].items()}
    return [_update(client, each, with_prefix(f"{number}.", tensors)) for number, each in enumerate(described)]


def _tensor(name: str, array: Array) -> Tensor:
    """One array of an answer, as a copy that may be changed."""
    expected, found = "int64" if name.endswith(f".{_INTEGERS}") else "float32", values(array)
    if found.dtype != expected:
        raise ValueError(f"array '{name}': expected {expected}, found {found.dtype}")
    tensor = torch.from_numpy(found.copy())
    refuse_large(tensor)
    return tensor


def _update(client: int, answer: _Answer, sent: Tensors) -> Update:
    return Update(
        client,
        sent.get(_VECTOR),
        answer.examples,
        answer.metrics,
        Buffers(sent[_FLOATS], sent[_INTEGERS]) if _FLOATS in sent else None,
        None if answer.failure is None else one_line(answer.failure) or "it failed",
        with_prefix("extras.", sent),
        None if answer.state is None else {TOKEN: torch.tensor(answer.state)},
    )

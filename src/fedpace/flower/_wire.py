"""How our tensors and turns travel in Flower's records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter
from torch import Tensor

from fedpace.client import works
from fedpace.core import Buffers, Settings, Tensors, Update, one_line, parse, with_prefix
from fedpace.engine import Turn, opened, travels_encoded
from fedpace.flower._arrays import values
from fedpace.flower._replies import MOST_EXAMPLES, refuse_large
from fedpace.server import frozen_by
from fedpace.wire import wires

TOKEN = "kept"  # in place of a client's state, which never travels: the name under which the client keeps it
_VECTOR, _FLOATS, _INTEGERS = "vector", "buffers.floats", "buffers.integers"
_ENCODED = "encoded"  # a vector as bytes, in a format that the turn says


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
            "wire": None if turn.wire is None else turn.wire.model_dump(mode="json"),
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
        token, wire = table.pop("state"), table.pop("wire")
        found.append(
            Turn(
                **{**table, "work": parse(works, table["work"])},
                wire=None if wire is None else parse(wires, wire),
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
        if update.encoded is not None:
            sent[_ENCODED] = update.encoded
        elif update.vector is not None:
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
_TYPES = {_INTEGERS: "int64", _ENCODED: "uint8"}  # of arrays that are not of float32


def answers_from(
    content: RecordDict, turns: Sequence[Turn], size: int, extras: Mapping[str, Tensor]
) -> Iterator[Update]:
    """A client's answers to its turns, from θ of ``size`` coordinates with these ``extras``.

    Each is made when it is asked for, from the bytes that came. An error of any kind says that they cannot be read.
    """
    described = _ANSWERS.validate_json(str(content.config_records["config"]["answers"]))
    if len(described) != len(turns):
        raise ValueError(f"expected answers to {len(turns)} turns, found {len(described)}")
    arrays = {name: _checked(name, array) for name, array in content.array_records["arrays"].items()}
    read = partial(_update, size=size, frozen=frozen_by(extras))
    for number, (answer, turn) in enumerate(zip(described, turns, strict=True)):
        yield read(turn, answer, with_prefix(f"{number}.", arrays))


def _checked(name: str, array: Array) -> NDArray[Any]:
    """One array of an answer, where it lies."""
    expected, found = _TYPES.get(name.partition(".")[2], "float32"), values(array)
    if found.dtype != expected:
        raise ValueError(f"array '{name}': expected {expected}, found {found.dtype}")
    return found


def _update(
    turn: Turn, answer: _Answer, arrays: Mapping[str, NDArray[Any]], size: int, frozen: Tensor | None
) -> Update:
    sent = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    if _VECTOR in sent and travels_encoded(turn.wire, frozen):
        raise ValueError("expected the bytes of a vector, found the vector")
    if _ENCODED in sent and turn.wire is not None:
        sent[_VECTOR] = opened(turn.wire, sent.pop(_ENCODED), size, frozen)
    for tensor in sent.values():
        refuse_large(tensor)
    return Update(
        turn.client,
        sent.get(_VECTOR),
        answer.examples,
        answer.metrics,
        Buffers(sent[_FLOATS], sent[_INTEGERS]) if _FLOATS in sent else None,
        None if answer.failure is None else one_line(answer.failure) or "it failed",
        with_prefix("extras.", sent),
        None if answer.state is None else {TOKEN: torch.tensor(answer.state)},
    )

"""How our tensors and turns travel in Flower's records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fedpace.client import works
from fedpace.core import Buffers, Tensors, Update, parse, with_prefix
from fedpace.engine import Turn

TOKEN = "kept"  # in place of a client's state, which never travels: the name under which the client keeps it
_VECTOR, _FLOATS, _INTEGERS = "vector", "buffers.floats", "buffers.integers"


def to_record(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Tensors as an ArrayRecord."""
    return ArrayRecord({name: Array(tensor.detach().contiguous().numpy()) for name, tensor in tensors.items()})


def to_tensors(record: ArrayRecord) -> Tensors:
    """The tensors of an ArrayRecord, as copies that may be changed."""
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in record.items()}


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


def answers_from(content: RecordDict, client: int) -> list[Update]:
    """The answers of a client's message."""
    tensors = to_tensors(content.array_records["arrays"])
    found = []
    for number, table in enumerate(json.loads(str(content.config_records["config"]["answers"]))):
        sent, token = with_prefix(f"{number}.", tensors), table.pop("state")
        update = Update(client, sent.get(_VECTOR), extras=with_prefix("extras.", sent), **table)
        if _FLOATS in sent:
            update = replace(update, buffers=Buffers(sent[_FLOATS], sent[_INTEGERS]))
        found.append(update if token is None else replace(update, state={TOKEN: torch.tensor(token)}))
    return found

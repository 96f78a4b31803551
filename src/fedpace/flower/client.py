"""The client's side: a ClientApp that does our client work on one node."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedpace.core import Buffers, Device, Tensors, Update, devices, written_aside
from fedpace.data import Federation
from fedpace.engine import CLASSIFICATION, Turn, Worker, check_device, one_thread
from fedpace.flower._wire import TOKEN, answers_record, model_from, to_record, to_tensors, turns_from
from fedpace.flower.secure import refuse_open, secure_answer
from fedpace.methods import Method
from fedpace.tasks import Task

log = logging.getLogger("fedpace")

KEPT = 2  # states that a client remembers: a server that was interrupted may repeat a round


@dataclass(frozen=True)
class Node:
    """What a node holds: model and data in a worker, and what its client keeps before its first turn."""

    worker: Worker
    first_state: Tensors

    @classmethod
    def build(
        cls,
        module: nn.Module,
        federation: Federation,
        local: Method,
        *,
        seed: int = 0,
        task: Task = CLASSIFICATION,
        device: Device = "cpu",
    ) -> Node:
        """A node with a copy of the initial ``module`` of the run with this ``seed``, trained by a method."""
        check_device(local, device)
        prepared = local.prepare(copy.deepcopy(module), seed)
        worker = Worker(prepared, federation, local.layout(prepared), task, devices.choose(device))
        return cls(worker, local.first_state(worker.model))


def client_app(node: Callable[[Context], Node], client: Callable[[Context], int] | None = None) -> ClientApp:
    """A ClientApp that answers the turns of a :class:`FlowerExecution`, openly or within a secure sum.

    ``node`` gives what a node holds (it should remember it: every message asks again), ``client`` says which client the
    node is, by default its ``partition-id``. What a personalised method or SCAFFOLD keeps lives in the node's
    ``context.state`` and never travels. Flower forgets that state with its run; a folder ``keep`` in the node's config
    keeps it for a run that is resumed as another one. With ``secure=true`` in it, the node refuses to train openly.
    """
    app = ClientApp()
    which = client or (lambda context: int(context.node_config["partition-id"]))

    @app.query("fedpace")
    def who(message: Message, context: Context) -> Message:
        return Message(RecordDict({"config": ConfigRecord({"client": which(context)})}), reply_to=message)

    @app.train("fedpace")
    def work(message: Message, context: Context) -> Message:
        vector, buffers = model_from(message.content.array_records["model"])
        updates = _answers(node(context), vector, buffers, message, context)
        refuse_open(context, updates)
        return Message(answers_record(updates), reply_to=message)

    @app.train("secure")
    def part_of_a_sum(message: Message, context: Context) -> Message:
        def train() -> tuple[Update, Buffers, int]:
            vector, buffers = model_from(message.content.array_records["model"])
            (update,) = _answers(node(context), vector, buffers, message, context)
            return update, buffers, len(vector)

        return secure_answer(message, context, train)

    return app


def _answers(held: Node, vector: Tensor, buffers: Buffers, message: Message, context: Context) -> list[Update]:
    """Do the turns of a message, one after another."""
    extras, updates = to_tensors(message.content.array_records["extras"]), []
    with one_thread(), devices.forked_rng(held.worker.model.device):
        for turn in turns_from(message.content):
            update = held.worker.answer(_with_state(turn, held, context), vector, buffers, extras).to(devices.HOST)
            # Owned, because the resident model, of which updates are views, does the next turn now.
            updates.append(_kept(update, turn.seed, context).owned())
    return updates


def _with_state(turn: Turn, held: Node, context: Context) -> Turn:
    """The turn with what its client kept: the state whose token the server names, or the first one."""
    if TOKEN not in turn.state:
        return replace(turn, state=held.first_state)
    name, folder = _name(int(turn.state[TOKEN])), _folder(context)
    if name in context.state.array_records:
        return replace(turn, state=to_tensors(context.state.array_records[name]))
    if folder is not None and (folder / name).exists():
        return replace(turn, state=load_file(folder / name))
    log.warning("client %d has lost what it kept, and begins anew (node config: keep=FOLDER prevents it)", turn.client)
    return replace(turn, state=held.first_state)


def _kept(update: Update, seed: int, context: Context) -> Update:
    """Keep the update's state on this node, and put its token in its place."""
    if update.state is None:
        return update
    token = seed % 2**62
    older = [name for name in context.state.array_records if name.startswith(TOKEN)]
    for name in older[: len(older) + 1 - KEPT]:
        del context.state[name]
    context.state[_name(token)] = to_record(update.state)
    folder = _folder(context)
    if folder is not None:
        _write(folder, _name(token), update.state)
    return replace(update, state={TOKEN: torch.tensor(token)})


def _write(folder: Path, name: str, state: Tensors) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with written_aside(folder / name) as aside:
        save_file({key: tensor.contiguous() for key, tensor in state.items()}, aside)
    files = sorted(folder.glob(f"{TOKEN}-*"), key=lambda path: path.stat().st_mtime_ns)
    for path in files[:-KEPT]:
        path.unlink(missing_ok=True)


def _folder(context: Context) -> Path | None:
    """Where the node's own config wants states to be kept as well: Flower forgets a context with its run."""
    found = context.node_config.get("keep")
    return None if found is None else Path(str(found))


def _name(token: int) -> str:
    return f"{TOKEN}-{token}"

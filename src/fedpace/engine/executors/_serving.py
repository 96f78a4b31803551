"""The other side of the pipe: what a worker process does."""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import Connection
from time import perf_counter

import torch
from torch import Tensor

from fedpace.core import Tensors
from fedpace.engine.executors._child import begin_child
from fedpace.engine.executors._messages import Answer, Answers, Order, Orders, unpacked
from fedpace.engine.executors._rows import Row, Rows
from fedpace.engine.worker import Worker

SEND_AFTER = 0.02  # seconds of work after which answers are sent: messages of tiny turns would cost more than these


def serve(
    pipe: Connection, worker: Worker, place: torch.device, server: Rows, rows: Rows, begun: Tensor, number: int
) -> None:
    """Main loop of the worker process of this ``number``. It counts turns where the server can see it."""
    begin_child()
    worker.move(place)
    seen, start, extras = begun.numpy(), server[0], Tensors()
    with suppress(EOFError, OSError):  # the server is gone
        while True:
            orders: Orders = pipe.recv()
            extras = extras if orders.extras is None else unpacked(orders.extras)
            answers, since = [], perf_counter()
            for order in orders.turns:
                seen[number] += 1
                answers.append(_answer(worker, order, start, extras, rows[order.row]))
                if (now := perf_counter()) - since > SEND_AFTER:
                    pipe.send(Answers(answers, now - since))
                    answers, since = [], now
            if answers:
                pipe.send(Answers(answers, perf_counter() - since))


def _answer(worker: Worker, order: Order, start: Row, extras: Tensors, row: Row) -> Answer:
    worker.model.lend(row.vector)
    return Answer.split(worker.answer(order.opened(), start.vector, start.buffers, extras), row)

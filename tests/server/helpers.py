"""Servers of a few coordinates, and clients that say what a test tells them to."""

import torch

from fedpace.core import Buffers, Layout, Update
from fedpace.server import AskProbes, Round, Schedule, Server

LAYOUT = Layout(("weight", "bias"), ((2, 2), (2,)))
THETA = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0, -6.0])


def buffers(floats=(), integers=()):
    return Buffers(torch.tensor(floats, dtype=torch.float32), torch.tensor(integers, dtype=torch.int64))


def server(schedule=None, vector=THETA, layout=LAYOUT, held=None, **options):
    return Server(layout, vector, held or buffers(), schedule or Schedule(), **options)


def updates(rows, examples=None, held=None):
    """One update per row; the i-th client's loss is i."""
    rows = torch.as_tensor(rows, dtype=torch.float32)
    examples = examples or [10] * len(rows)
    held = held or [None] * len(rows)
    return [
        Update(i, row.clone(), n, {"loss": float(i)}, own)
        for i, (row, n, own) in enumerate(zip(rows, examples, held, strict=True))
    ]


def exchange(to, rows, how=None, **parts):
    """The first exchange of a stage (or of the base) with a client per row."""
    return to.exchange((how or to.schedule.base).exchanges[0], updates(rows, **parts), len(rows))


def replied(talk, reply):
    """Let ``reply`` answer every question of a generator; what it ends with."""
    try:
        asked = next(talk)
        while True:
            asked = talk.send(reply(asked))
    except StopIteration as end:
        return end.value


def play_round(to, number=0, clients=2, fails=(), **options):
    """A round in which every client says 1 everywhere, except those that fail; its report and its questions."""
    under_way = Round(to, number, range(clients), 0, **options)
    asked = []
    for question in under_way:
        asked.append(question)
        size = len(question.vector)
        if isinstance(question, AskProbes):
            size = question.search.sketch or size
        each = [
            Update(client, failure="broken") if client in fails else Update(client, torch.ones(size), 1, {"loss": 1.0})
            for client in question.clients
        ]
        question.answer(each * (len(question.paths) if isinstance(question, AskProbes) else 1))
    return under_way.report, asked


def columns(*columns):
    """A matrix of updates from its coordinates: what all clients say about the first, about the second, …"""
    return torch.tensor(columns, dtype=torch.float32).T.contiguous()

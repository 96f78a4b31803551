"""Servers of a few coordinates, and clients that say what a test tells them to."""

import torch

from fedpace.core import Buffers, Layout, Update
from fedpace.server import Schedule, Server

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


def exchange(to, rows, stage=None, **parts):
    """One exchange with a client per row."""
    return to.exchange(stage or to.schedule.base, updates(rows, **parts), len(rows))


def columns(*columns):
    """A matrix of updates from its coordinates: what all clients say about the first, about the second, …"""
    return torch.tensor(columns, dtype=torch.float32).T.contiguous()

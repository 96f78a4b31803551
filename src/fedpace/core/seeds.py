"""Named seed streams: every random decision has a name, and its randomness depends on nothing else.

A stream is addressed by the run's seed and a path of names, for example ``(seed, "client", round, client_id)``. Two
streams with different names are independent; the same name gives the same numbers on every process and machine.
"""

from __future__ import annotations

import json
import secrets
from functools import cache
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch

from fedpace.core.devices import HOST

Randomness = Literal["seeded", "secret"]
"""Numbers that follow from a run's seed, or such that nobody can repeat."""


def seed_of(randomness: Randomness, seed: int) -> int:
    """The ``seed``, or one from the operating system."""
    return seed if randomness == "seeded" else secrets.randbits(62)


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream ``names`` of the run ``seed``.

    >>> derive(0, "cohort", 3) == derive(0, "cohort", 3)
    True
    >>> derive(0, "cohort", 3) == derive(0, "cohort", 4)
    False
    """
    path = ", ".join([str(name) if isinstance(name, int) else _quoted(name) for name in (seed, *names)])
    return int.from_bytes(blake2b(f"[{path}]".encode(), digest_size=8).digest(), "big") >> 1


@cache
def _quoted(name: str) -> str:
    """A name as in JSON: that tells 1 from "1", and ("a", "b") from ("a/b",). An encoder costs more than the seed."""
    return json.dumps(name)


def numpy_stream(seed: int, *names: str | int) -> np.random.Generator:
    """NumPy generator of a named stream."""
    return np.random.default_rng(derive(seed, *names))


def torch_stream(seed: int, *names: str | int) -> torch.Generator:
    """Torch generator of a named stream, always on the CPU so that every device draws the same numbers."""
    return torch.Generator(HOST).manual_seed(derive(seed, *names))

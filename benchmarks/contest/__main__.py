"""One process of a contestant: ``python -m benchmarks.contest MODULE PIPE``, started by ``benchmarks/peers.py``."""

from __future__ import annotations

import sys
from importlib import import_module
from multiprocessing.connection import Connection

from benchmarks.contest.gate import PipeGate


def main() -> None:
    """Take the job from the pipe, and do rounds until no more are wanted."""
    module, descriptor = sys.argv[1:]
    contestant = import_module(module)
    pipe = Connection(int(descriptor))
    gate = PipeGate(pipe)
    try:
        contestant.run(pipe.recv(), gate)
    except BaseException:  # how a framework passes on that it was finished is its own
        if not gate.finished:
            raise


if __name__ == "__main__":
    main()

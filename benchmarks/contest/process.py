"""A contestant that is up: its processes, and the pipes by which they are told to do a round."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from time import perf_counter

from benchmarks.contest.environment import ROOT
from benchmarks.contest.gate import Answer
from benchmarks.contest.setups import Job

PATIENCE = 900.0  # seconds for a round
QUIET = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TQDM_DISABLE": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONWARNINGS": "ignore",
    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
}


@dataclass(frozen=True)
class Contestant:
    """Who takes part: the file that runs it, and the peer that must be installed."""

    label: str
    module: str
    option: str = ""
    peer: str | None = None
    ranked: bool = False  # whether each of several workers is a process that takes the same orders


class Failed(Exception):  # noqa: N818  # it is told as a reason
    """A contestant ended; the last line of what it said."""


class Running:
    """One contestant, brought up and waiting for its first round."""

    def __init__(self, contestant: Contestant, job: Job, python: str) -> None:
        self._log = job.folder / f"{contestant.module}-{contestant.option}-{job.workers}.log"
        ranks = job.workers if contestant.ranked else 1
        together = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(ranks)}
        self._processes, self._pipes = [], []
        begun = perf_counter()
        for rank in range(ranks):
            ours, theirs = Pipe()
            own = {**together, "RANK": str(rank), "TORCHELASTIC_RUN_ID": "peers"} if ranks > 1 else {}
            module = f"benchmarks.contest.{contestant.module}"
            command = [python, "-m", "benchmarks.contest", module, str(theirs.fileno())]
            with self._log.open("a") as log:
                process = subprocess.Popen(
                    command, stdout=log, stderr=log, pass_fds=[theirs.fileno()], env={**os.environ, **QUIET, **own}
                )
            theirs.close()
            ours.send(replace(job, option=contestant.option, rank=rank))
            self._processes.append(process)
            self._pipes.append(ours)
        try:
            self._answers()
        except Failed:
            self.stop()
            raise
        self.start_up = perf_counter() - begun
        self.memory = 0.0

    def round(self) -> float:
        """Seconds that a round took."""
        for pipe in self._pipes:
            pipe.send(True)
        answers = self._answers()
        self.memory = sum(answer.memory for answer in answers)
        return max(answer.seconds for answer in answers)

    def _answers(self) -> list[Answer]:
        answers = []
        for pipe in self._pipes:
            try:
                if not pipe.poll(PATIENCE):
                    raise Failed(f"no answer for {PATIENCE:.0f} s")
                answers.append(pipe.recv())
            except (EOFError, OSError):
                said = self._log.read_text(errors="replace").strip().splitlines()
                raise Failed(said[-1] if said else "it ended without a word") from None
        return answers

    def stop(self) -> None:
        """Ask the processes to end, and end those that do not."""
        for pipe in self._pipes:
            with suppress(OSError):  # it has ended
                pipe.send(False)
        for process in self._processes:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

"""The run folder: everything that a run leaves behind, readable without this library and without pickle."""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from safetensors.torch import save

from fedpace.core import Durability, RoundRecord, RunFolderError, Tensors, Writer, digest, writing
from fedpace.engine.checkpoint import Checkpoints, Place
from fedpace.engine.description import Upgrade, check_same, read_run, relevant
from fedpace.engine.rounds import Rounds
from fedpace.engine.states import ClientStates

log = logging.getLogger("fedpace")


class RunFolder:
    """``run.json`` (config, versions, machine), ``rounds.jsonl``, ``checkpoint/``, ``model.safetensors``.

    Where clients keep something from round to round, it lies in ``clients/``. The ``durability`` says what finished
    rounds survive. A checkpoint belongs to the run and to the history before it; a run goes on where all of them agree.
    """

    def __init__(self, path: Path, durability: Durability = "process") -> None:
        self.path = path
        self._writer = Writer(durability)
        self._model = path / "model.safetensors"
        self._run = ""  # digest of what was to be run
        self._rounds = Rounds(path / "rounds.jsonl", self._writer)
        self._checkpoints = Checkpoints(path / "checkpoint", self._writer)
        self.states = ClientStates(path / "clients", self._writer)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Within this context no other process may work on this run: two would spoil it."""
        with writing(self.path):
            self._writer.make_folder(self.path)
            lock = (self.path / ".lock").open("a")
        with lock:
            if fcntl is not None:
                try:
                    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock's, workers do not inherit it
                except BlockingIOError:
                    raise RunFolderError(f"{self.path}: another process is at work on this run") from None
                except OSError:  # a file system that knows no locks
                    pass
            with writing(self.path):
                self._writer.clear(self.path)
                self._writer.clear(self.path / "checkpoint")
            yield

    @property
    def begun(self) -> bool:
        """Whether there is a run."""
        return (self.path / "run.json").exists()

    def create(self, description: dict[str, Any]) -> None:
        """Begin a new run; a folder that holds one already, or a part of one, is refused."""
        if self.begun:
            raise RunFolderError(f"{self.path}: already holds a run; add --resume to go on, or choose another --out")
        for part in ("checkpoint", "clients", "model.safetensors", "rounds.jsonl"):
            found = self.path / part
            if found.is_dir() or (found.is_file() and found.stat().st_size):  # empty rounds are from a kill right here
                raise RunFolderError(f"{self.path}: holds {part}, but no run.json to go with it; choose another --out")
        with writing(self.path):
            self._writer.make_folder(self.path)
            self._rounds.begin()
            self.write_json("run.json", {**description, "versions": _versions(), "machine": _machine()})
        self._run = _identity(read_run(self.path))

    def check(self, description: dict[str, Any], upgrade: Upgrade = dict) -> None:
        """Refuse to go on with the run in this folder if it is another one."""
        check_same(self.path, read_run(self.path), description, upgrade)

    def write_round(self, record: RoundRecord, state: Tensors) -> None:
        """Write the line, then the checkpoint: a line without a checkpoint is done again, never the reverse."""
        self._rounds.append(record)
        past = self._rounds.past(self._rounds.count)
        assert past is not None  # it has just been written
        self._checkpoints.write(Place(self._run, self._rounds.count, past), state)

    def go_on(self) -> tuple[list[RoundRecord], Tensors | None]:
        """The rounds that need not be done again, and the state after them; nothing if all have to."""
        run = read_run(self.path)
        self._run = _identity(run)
        self._rounds.read()
        found = self._checkpoints.last(self._run, self._rounds.past, self.states.holds)
        count, state = (0, None) if found is None else (found[0].rounds, found[1])
        if found is None and self._rounds.count:
            log.warning("%s: no checkpoint is left; the run begins again", self.path)
        with writing(self.path):
            if (run.pop("finished", None) or {}).get("rounds") != count:  # till the end nobody may take it for finished
                self._writer.remove(self._model)
                self.write_json("run.json", run)
            self._checkpoints.drop_after(count)
            return self._rounds.keep(count), state

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file."""
        self._writer.write(self.path / name, (json.dumps(content, indent=2, default=str) + "\n").encode())

    def finish(self, state: Tensors, warnings: list[str]) -> None:
        """Save the final model, and what only the end of a run can say."""
        model = save(state)
        history = self._rounds.past(self._rounds.count)
        finished = {"rounds": self._rounds.count, "history": history, "model": digest(model)}
        with writing(self.path, "finished rounds are kept"):
            self.write_json("run.json", {**read_run(self.path), "warnings": warnings, "finished": finished})
            self._writer.write(self._model, model)

    @property
    def complete(self) -> bool:
        """Whether the run was finished."""
        return self._model.is_file()


def _identity(run: dict[str, Any]) -> str:
    """Digest of all on which the rounds of a run depend, as it was when the run began."""
    parts = [relevant(run["config"]), *(run.get(key) for key in ("seed", "data", "parameters"))]
    return digest(json.dumps(parts, sort_keys=True))


def _versions() -> dict[str, str]:
    names = ("fedpace", "torch", "numpy", "scipy", "scikit-learn", "pydantic", "safetensors", "pyarrow", "pillow")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _machine() -> dict[str, str | int | None]:
    return {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()}

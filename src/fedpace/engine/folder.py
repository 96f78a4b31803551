"""The run folder: everything that a run leaves behind, readable without this library and without pickle."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from safetensors.torch import save_file
from torch import Tensor

from fedpace.core import RoundRecord, RunFolderError, refuse_import_paths, written_aside
from fedpace.engine.checkpoint import Checkpoints
from fedpace.engine.states import ClientStates
from fedpace.tasks import ACCURACY, Metric

# Settings that do not change results, so a resumed run may change them.
IRRELEVANT = ("executor", "track", "method", "kind", "description", "tunable")


Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


class RunFolder:
    """``run.json`` (config, versions, machine), ``rounds.jsonl``, ``checkpoint/``, ``model.safetensors``.

    Where clients keep something from round to round, it lies in ``clients/``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoint")
        self.states = ClientStates(path / "clients")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Within this context no other process may work on this run: two would spoil it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a")
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be written ({error.strerror})") from None
        with lock:
            if fcntl is not None:
                try:
                    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock's, workers do not inherit it
                except BlockingIOError:
                    raise RunFolderError(f"{self.path}: another process is at work on this run") from None
                except OSError:  # a file system that knows no locks
                    pass
            yield

    def create(self, description: dict[str, Any]) -> None:
        """Begin a new run; a folder that holds one already is refused."""
        if (self.path / "run.json").exists():
            raise RunFolderError(f"{self.path}: already holds a run; add --resume to go on, or choose another --out")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_json("run.json", {**description, "versions": _versions(), "machine": _machine()})
            self.rounds_file.touch()
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be written ({error.strerror})") from None

    def resume(self, description: dict[str, Any], upgrade: Upgrade = dict) -> None:
        """Go on with the run in this folder; one with another config is refused.

        ``upgrade`` completes the config of an older version with the settings that are new since then.
        """
        run = read_run(self.path)
        if run.get("data", description["data"]) != description["data"]:
            raise RunFolderError(f"{self.path}: holds a run on other data; choose another --out")
        relevant = {key: value for key, value in run["config"].items() if key not in IRRELEVANT}
        wanted = _flat(description["config"])
        known = {key: value for key, value in _flat(relevant).items() if value != wanted.get(key)}
        refuse_import_paths(known, str(self.path / "run.json"))  # code of the run that goes on is the user's own
        found = _flat(upgrade(relevant))
        for key in sorted(found.keys() | wanted.keys()):
            if key.split(".")[0] not in IRRELEVANT and found.get(key) != wanted.get(key):
                raise RunFolderError(
                    f"{self.path}: holds a run with {key} = {found.get(key)!r}, this one has {wanted.get(key)!r}; "
                    "choose another --out"
                )

    @property
    def rounds_file(self) -> Path:
        """One line of JSON per round."""
        return self.path / "rounds.jsonl"

    def append(self, record: RoundRecord) -> None:
        """Write a round's line."""
        try:
            with self.rounds_file.open("a") as file:
                file.write(record.to_json() + "\n")
        except OSError as error:
            raise RunFolderError(f"{self.rounds_file}: cannot be written ({error.strerror})") from error

    def keep_rounds_before(self, number: int) -> list[RoundRecord]:
        """Drop what was recorded of rounds that will be done again; return the rest."""
        kept = [record for record in read_rounds(self.path) if record.round < number]
        with written_aside(self.rounds_file) as aside:
            aside.write_text("".join(record.to_json() + "\n" for record in kept))
        return kept

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file."""
        with written_aside(self.path / name) as aside:
            aside.write_text(json.dumps(content, indent=2, default=str) + "\n")

    def finish(self, state: dict[str, Tensor], warnings: list[str]) -> None:
        """Save the final model, and the warnings that only the end of a run can give."""
        self.write_json("run.json", {**read_run(self.path), "warnings": warnings})
        with written_aside(self.path / "model.safetensors") as aside:
            save_file(state, str(aside))

    @property
    def complete(self) -> bool:
        """Whether the run was finished."""
        return (self.path / "model.safetensors").exists()


def read_run(path: Path) -> dict[str, Any]:
    """``run.json`` of a run folder."""
    try:
        description: dict[str, Any] = json.loads((path / "run.json").read_text())
        return description
    except FileNotFoundError:
        raise RunFolderError(f"{path}: is not a run folder (no run.json)") from None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path / 'run.json'}: cannot be read ({error})") from None


def read_metric(run: dict[str, Any]) -> Metric:
    """What a run is judged by, from its ``run.json``; older runs knew accuracy only."""
    return Metric(**run["metric"]) if "metric" in run else ACCURACY


def read_rounds(path: Path) -> list[RoundRecord]:
    """The rounds of a run folder; a last line that a kill cut short is ignored."""
    records: list[RoundRecord] = []
    file = path / "rounds.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(RoundRecord.from_json(line))
        except ValueError as error:
            if number < len(lines):
                raise RunFolderError(f"{file}: line {number} is damaged ({error})") from None
    return records


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


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat

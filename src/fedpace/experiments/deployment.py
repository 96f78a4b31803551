"""A run on a SuperLink: submit it as a Flower app, then wait and watch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from fedpace.core import ClientError, RunFolderError, one_line
from fedpace.engine import Listener, read_rounds
from fedpace.experiments.config import RunConfig
from fedpace.experiments.flower_app import write_app
from fedpace.experiments.run import Result

POLL = 2.0  # seconds


def deploy(
    config: RunConfig,
    preset: str,
    settings: dict[str, Any],
    superlink: str,
    out: Path,
    *,
    resume: bool = False,
    timeout: float = 600.0,
    listeners: Sequence[Listener] = (),
) -> Result:
    """Run a ``config``, which is ``preset`` with ``settings``, on a SuperLink that the ``flwr`` command knows by name.

    Blocks until the run ends. A node has ``timeout`` seconds to answer. The run folder ``out`` is written by the
    ServerApp, so it lies on the SuperLink's machine. Where that is this one, rounds are reported to the listeners.
    """
    if not resume and (out / "run.json").exists():
        raise RunFolderError(f"{out}: already holds a run; add --resume to go on, or choose another --out")
    with TemporaryDirectory() as folder:
        app = write_app(Path(folder) / "fedpace-run", config, preset, settings, out.resolve(), timeout)
        run_id = _flwr("run", str(app), superlink)["run-id"]
    heard = _Heard(config, out, listeners)
    status = "pending"
    while not status.startswith("finished"):
        sleep(POLL)
        heard.news()
        runs = _flwr("list", superlink, "--run-id", run_id)["runs"]
        if not runs:
            raise ClientError(f"{superlink} no longer knows run {run_id}; go on with --resume")
        status, details = runs[0]["status"], runs[0]["status-details"]
    heard.news()
    if status != "finished:completed":
        raise ClientError(
            f"run {run_id} on {superlink} ended as '{status}' ({details}); see: flwr log {run_id} {superlink}"
        )
    return Result.read(out)


class _Heard:
    """Tells listeners of rounds as they appear in the run folder."""

    def __init__(self, config: RunConfig, out: Path, listeners: Sequence[Listener]) -> None:
        self._out, self._listeners = out, listeners
        self._seen = self._rounds()
        for listener in listeners:
            listener.started(config.model_dump(mode="json"), config.rounds, self._seen)

    def _rounds(self) -> int:
        return len(read_rounds(self._out)) if (self._out / "run.json").exists() else 0

    def news(self) -> None:
        for record in read_rounds(self._out)[self._seen :] if self._rounds() > self._seen else ():
            self._seen += 1
            for listener in self._listeners:
                listener.finished_round(record)


def _flwr(*arguments: str) -> dict[str, Any]:
    """What the flwr command answers; it says in its JSON, not by its exit code, whether it worked."""
    command = [str(Path(sys.executable).parent / "flwr"), *arguments, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        raise ClientError(f"flwr {arguments[0]}: {one_line(done.stderr or done.stdout)}") from None
    if not answer.get("success"):
        raise ClientError(f"flwr {arguments[0]}: {one_line(answer.get('error-message'))}")
    return answer

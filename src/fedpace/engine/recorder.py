"""Writes a run into its folder, as a listener: what it has heard of is safe on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from fedpace.core import RoundRecord, Tensors
from fedpace.engine.description import Upgrade
from fedpace.engine.events import Listener
from fedpace.engine.folder import RunFolder


class Recorded(Protocol):
    """What a recorder asks of a run."""

    warnings: list[str]

    def state(self) -> Tensors:
        """Everything that the next round depends on."""

    def restore(self, state: Tensors) -> None:
        """Go back to such a state."""

    def final_model(self) -> Tensors:
        """The trained model."""


class Recorder(Listener):
    """Each finished round is a line of ``rounds.jsonl`` and a checkpoint; the end of the run is the trained model."""

    def __init__(self, folder: RunFolder, run: Recorded) -> None:
        self._folder, self._run = folder, run

    def open(self, description: dict[str, Any], upgrade: Upgrade, *, resume: bool) -> list[RoundRecord]:
        """Begin a run, or go on with the one in the folder; the rounds that are done."""
        if not (resume and self._folder.begun):
            self._folder.create(description)
            return []
        self._folder.check(description, upgrade)
        records, state = self._folder.go_on()
        if state is not None:
            self._run.restore(state)
        return records

    def finished_round(self, record: RoundRecord) -> None:
        """Write the round, and the state after it."""
        self._folder.write_round(record, self._run.state())

    def ended(self, folder: Path | None) -> None:
        """Write the trained model, and the warnings that only the end of a run can give."""
        self._folder.finish(self._run.final_model(), self._run.warnings)

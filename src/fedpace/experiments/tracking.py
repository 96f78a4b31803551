"""Live tracking with TensorBoard or MLflow, behind the ``track`` extra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpace.core import ConfigError, RoundRecord, one_line, writing
from fedpace.engine import Listener


def trackers(names: Iterable[str], folder: Path | None) -> list[Listener]:
    """The listeners behind the names; a missing package is one line that says what to install."""
    kinds = {"tensorboard": TensorBoard, "mlflow": MLflow}
    try:
        return [kinds[name](folder) for name in names]
    except ImportError as error:
        raise ConfigError(f"track: {error.name} is not installed; pip install 'fedpace[track]'") from None


def scalars(record: RoundRecord) -> dict[str, float]:
    """The numbers of a record, with dotted names: what a tracker draws.

    >>> found = scalars(RoundRecord(round=3, metrics={"accuracy": 0.5}, cohort=[0, 1]))
    >>> found["accuracy"], found["seconds.local"], "cohort" in found, "round" in found
    (0.5, 0.0, False, False)
    """
    table = {**asdict(record), **record.metrics}
    return _numbers({key: value for key, value in table.items() if key not in ("round", "version", "metrics")})


def _numbers(table: Mapping[Any, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{name}": number for name, number in _numbers(value).items()}
        elif isinstance(value, int | float):
            found[str(key)] = float(value)
    return found


class TensorBoard(Listener):
    """Writes event files into the run folder (``tensorboard --logdir FOLDER``)."""

    def __init__(self, folder: Path | None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # an optional dependency

        self._open, self._folder = SummaryWriter, (folder or Path("runs")) / "tensorboard"

    def started(self, config: dict[str, Any], rounds: int, first_round: int) -> None:
        """Open the event file; not before, so that a run that cannot begin leaves none."""
        with writing(self._folder):
            self._writer = self._open(str(self._folder))

    def finished_round(self, record: RoundRecord) -> None:
        """Write the round's numbers."""
        for name, value in scalars(record).items():
            self._writer.add_scalar(name.replace(".", "/"), value, record.round)

    def failed(self) -> None:
        """Flush what there is."""
        self._writer.close()

    def ended(self, folder: Path | None) -> None:
        """Flush."""
        self._writer.close()


class MLflow(Listener):
    """Logs to the tracking server that ``MLFLOW_TRACKING_URI`` names."""

    def __init__(self, folder: Path | None) -> None:
        import mlflow  # an optional dependency

        self._mlflow = mlflow
        self._name = folder.name if folder is not None else None

    def started(self, config: dict[str, Any], rounds: int, first_round: int) -> None:
        """Open a run and log its settings."""
        try:
            self._mlflow.start_run(run_name=self._name)
        except self._mlflow.MlflowException as error:
            reason = one_line(error)
            raise ConfigError(f"track: MLflow cannot log to {self._mlflow.get_tracking_uri()} ({reason})") from error
        self._mlflow.log_params({key: str(value)[:500] for key, value in config.items()})

    def finished_round(self, record: RoundRecord) -> None:
        """Log the round's numbers."""
        self._mlflow.log_metrics(scalars(record), step=record.round)

    def failed(self) -> None:
        """Close the run as one that failed."""
        self._mlflow.end_run("FAILED")

    def ended(self, folder: Path | None) -> None:
        """Close the run."""
        self._mlflow.end_run()

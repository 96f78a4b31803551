"""What a run left behind, for those who only read it: they need no torch."""

from __future__ import annotations

from pathlib import Path

from fedpace.core import RoundRecord, RunFolderError, digest
from fedpace.engine.description import read_run
from fedpace.engine.rounds import past_of, read_lines


def read_rounds(path: Path) -> list[RoundRecord]:
    """The rounds of a run folder; none before the run begins. A last line that a kill cut short is ignored."""
    if not (path / "run.json").exists():
        return []
    run, file = read_run(path), path / "rounds.jsonl"
    lines = read_lines(file)
    finished = run.get("finished")
    if finished is not None and finished["history"] != past_of(lines):
        raise RunFolderError(f"{file}: is not what this run wrote in {finished['rounds']} rounds; put it back")
    clients = run.get("clients")  # unknown in a run of an older version
    for number, (_, record) in enumerate(lines):
        strange = max([*record.cohort, *record.client_metrics, -1])
        if clients is not None and strange >= clients:
            raise RunFolderError(f"{file}: line {number + 1} is damaged (client {strange} of {clients})")
    return [record for _, record in lines]


def read_model(path: Path) -> bytes:
    """The trained model of a finished run, as safetensors; one that the run did not end with is refused."""
    file, finished = path / "model.safetensors", read_run(path).get("finished")
    try:
        model = file.read_bytes()
    except OSError as error:
        raise RunFolderError(f"{file}: cannot be read ({error.strerror})") from None
    if finished is not None and finished["model"] != digest(model):
        raise RunFolderError(f"{file}: is not the model that this run ended with; put it back")
    return model

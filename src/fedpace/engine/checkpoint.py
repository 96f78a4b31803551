"""Checkpoints: complete or absent, never half; the one before the last is kept in case the last is damaged."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedpace.core import RunFolderError, Tensors, Writer, devices, digest, one_line, parse_json, writing

log = logging.getLogger("fedpace")
KEPT = 2
VERSION = 2
_TENSORS, _LABEL = "state.safetensors", "state.json"


@dataclass(frozen=True)
class Place:
    """Where a checkpoint was made: in which run, after how many rounds, and with which history."""

    run: str
    rounds: int
    past: str


@dataclass(frozen=True)
class _Label:
    """What is written beside the tensors; the ``digest`` is that of the place and of all that the tensors are."""

    version: int
    place: Place
    digest: str


class Checkpoints:
    """Folders ``round-00012/`` with ``state.safetensors`` and ``state.json``, each written aside and then renamed.

    One digest ties the tensors to the run, the round and the history before it. A checkpoint that is torn or altered is
    passed over for the one before it; so is one whose history is not there. One of another run is refused.
    """

    def __init__(self, folder: Path, writer: Writer) -> None:
        self._folder, self._writer = folder, writer

    def write(self, place: Place, tensors: Tensors) -> None:
        """Save the state at a place. On failure the earlier checkpoints are intact."""
        number = place.rounds - 1
        tensors = {name: devices.to_host(tensor).contiguous() for name, tensor in tensors.items()}
        label = _Label(VERSION, place, _digest(place, tensors))
        with writing(f"{self._folder}: checkpoint of round {number}", "the earlier one is intact"):
            with self._writer.new_folder(self._path(number)) as aside:
                self._writer.save_new(aside / _TENSORS, tensors)
                self._writer.write_new(aside / _LABEL, json.dumps(asdict(label)).encode())
            for old in self._rounds()[KEPT:]:
                self._writer.remove(self._path(old))

    def last(self, run: str, past: Callable[[int], str | None], whole: Callable[[Tensors], bool]) -> _Found | None:
        """The newest checkpoint of a ``run`` whose history is the ``past``, and that ``whole`` accepts."""
        strange: Path | None = None
        for path, place, tensors in self._readable():
            if place.run != run:
                raise RunFolderError(f"{path}: is a checkpoint of another run; remove it, or choose another --out")
            if place.past != past(place.rounds):
                strange = path
                log.warning("%s does not belong to these lines of rounds.jsonl; trying the one before it", path)
            elif not whole(tensors):
                log.warning("%s is damaged (the states of its clients are not there); trying the one before it", path)
            else:
                return place, tensors
        if strange is not None:
            raise RunFolderError(
                f"{strange}: does not belong to the lines of rounds.jsonl, of which some were lost or altered; "
                f"put them back, or remove {self._folder} to begin again"
            )
        return None

    def drop_after(self, rounds: int) -> None:
        """Remove checkpoints of rounds that will be done again."""
        for number in self._rounds():
            if number >= rounds:
                self._writer.remove(self._path(number))

    def _rounds(self) -> list[int]:
        """Numbers of the rounds that have a checkpoint, newest first."""
        found = (re.fullmatch(r"round-(\d{5,})", path.name) for path in self._folder.glob("round-*"))
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"round-{number:05d}"

    def _readable(self) -> Iterator[tuple[Path, Place, Tensors]]:
        for number in self._rounds():
            path = self._path(number)
            try:
                label, tensors = _label(path / _LABEL), load_file(path / _TENSORS)
                if (label.place.rounds, label.digest) != (number + 1, _digest(label.place, tensors)):
                    raise ValueError("the digest does not match")
            except (OSError, ValueError, SafetensorError) as error:
                log.warning("%s is damaged (%s); trying the one before it", path, one_line(error))
            else:
                yield path, label.place, tensors


_Found = tuple[Place, Tensors]


def _label(file: Path) -> _Label:
    table: Any = parse_json(file.read_bytes())
    if isinstance(table, dict) and ("sha256" in table or table.get("version", VERSION) != VERSION):
        raise RunFolderError(
            f"{file}: expected a checkpoint of version {VERSION}, found one of another version of fedpace; finish the "
            "run with that version, or choose another --out"
        )
    try:
        return TypeAdapter(_Label).validate_python(table)
    except ValidationError as error:
        raise ValueError(f"{_LABEL}: {error.errors()[0]['msg'].lower()}") from None


def _digest(place: Place, tensors: Tensors) -> str:
    """Of everything, read where it is: it costs as much time as the writing of the tensors, and copies nothing."""
    names = sorted(tensors)
    kinds = (f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}" for name in names)
    memory = (devices.to_numpy(tensors[name].reshape(-1).view(torch.uint8)).data for name in names)
    return digest(str(VERSION), place.run, str(place.rounds), place.past, *kinds, *memory)

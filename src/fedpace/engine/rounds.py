"""The history of a run: one line of JSON for each finished round."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from fedpace.core import RoundRecord, RunFolderError, Writer, one_line, writing

Line = tuple[bytes, RoundRecord]


class Rounds:
    """The file ``rounds.jsonl`` as it is written, and a digest of all of it up to any round."""

    def __init__(self, file: Path, writer: Writer) -> None:
        self._file, self._writer = file, writer
        self._past = [_empty()]  # [n]: of the first n lines

    def begin(self) -> None:
        """Make an empty file."""
        self._writer.write(self._file, b"")

    def append(self, record: RoundRecord) -> None:
        """Write a round's line."""
        line = record.to_json().encode() + b"\n"
        with writing(self._file):
            self._writer.append(self._file, line)
        self._past.append(_continued(self._past[-1], line))

    def read(self) -> None:
        """Take up the history that is there; one that is damaged is refused."""
        self._past = [_empty()]
        for line, _ in read_lines(self._file):
            self._past.append(_continued(self._past[-1], line))

    def past(self, count: int) -> str | None:
        """Digest of the first ``count`` rounds; nothing if there are not so many."""
        return self._past[count].hexdigest() if count < len(self._past) else None

    @property
    def count(self) -> int:
        """How many rounds are finished."""
        return len(self._past) - 1

    def keep(self, count: int) -> list[RoundRecord]:
        """Drop all but the first ``count`` rounds, which will be done again; those that are left."""
        lines = read_lines(self._file)[:count] if self._file.exists() else []
        kept = b"".join(line for line, _ in lines)
        with writing(self._file):
            if not self._file.exists() or self._file.read_bytes() != kept:
                self._writer.write(self._file, kept)
        del self._past[count + 1 :]
        return [record for _, record in lines]


def read_lines(file: Path) -> list[Line]:
    """The lines of a history; a last one that a kill cut short is left out, anything else that is wrong is refused."""
    try:
        *lines, rest = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise RunFolderError(f"{file}: expected the history of a run, found no such file") from None
    except OSError as error:
        raise RunFolderError(f"{file}: cannot be read ({error.strerror})") from None
    found = [(line + b"\n", _record(file, line, number)) for number, line in enumerate(lines)]
    with suppress(RunFolderError):
        return [*found, (rest + b"\n", _record(file, rest, len(lines)))]
    return found


def _record(file: Path, line: bytes, number: int) -> RoundRecord:
    try:
        record = RoundRecord.from_json(line.decode())
    except ValueError as error:
        raise RunFolderError(f"{file}: line {number + 1} is damaged ({one_line(error)})") from None
    if record.round != number:
        reason = f"expected round {number}, found round {record.round}: a line is lost or doubled"
        raise RunFolderError(f"{file}: line {number + 1} is damaged ({reason})")
    return record


def past_of(lines: Iterable[Line]) -> str:
    """Digest of a history: that of the file's bytes."""
    return _continued(_empty(), b"".join(line for line, _ in lines)).hexdigest()


def _empty() -> blake2b:
    return blake2b(digest_size=16)


def _continued(past: blake2b, line: bytes) -> blake2b:
    longer = past.copy()
    longer.update(line)
    return longer

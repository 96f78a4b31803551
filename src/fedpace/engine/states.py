"""What clients keep between their turns: in a run folder on disk, otherwise in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedpace.core import RunFolderError, Tensors, Writer, devices, one_line, writing
from fedpace.engine.checkpoint import KEPT

_LIST, _OLD_LIST = "clients.list", "clients.states"  # what a checkpoint holds now, and what it held once
_TOGETHER = 10_000  # clients whose files lie in one folder
_ROW = np.dtype("<i8")  # client, round and checksum are one each

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class _Outdated:
    """A client's state after round ``number``, in the place of which there is another one ``since`` a later round."""

    since: int
    client: int
    number: int


class ClientStates:
    """Client → tensors that it keeps (SCAFFOLD's control variate, buffers that never leave it).

    With a folder each state is a file ``00012-00003.safetensors``: client 12 after round 3. Nothing is overwritten, so
    the states of an earlier checkpoint stay whole until that checkpoint is gone. Every state has a row in
    ``list.bin``, with its checksum, and a checkpoint says how many of the rows were there: a round writes as much as
    its clients keep, however many took part before.
    """

    def __init__(self, folder: Path | None = None, writer: Writer = Writer()) -> None:  # noqa: B008  # it has no state
        self._folder, self._writer = folder, writer
        self._memory: dict[int, Tensors] = {}  # used without a folder
        self._last: dict[int, int] = {}  # client → the round after which it kept something last
        self._outdated: deque[_Outdated] = deque()
        self._new: dict[int, tuple[int, int]] = {}  # client → round and checksum, not listed yet
        self._rows, self._checksum = 0, 0  # of the list
        self._begun = b""  # of the list of an earlier process
        self._writes_all = True  # not only what is new: rows of rounds that are done again may stand in the file

    def of(self, client: int) -> Tensors:
        """What a client kept last; nothing at its first turn."""
        if self._folder is None or client not in self._last:
            return self._memory.get(client, {})
        path = self._file(client, self._last[client])
        try:
            return load(path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise RunFolderError(f"{path}: what client {client} keeps cannot be read ({one_line(error)})") from None

    def keep(self, client: int, number: int, state: Tensors) -> None:
        """Take a copy of what a client wants to keep after round ``number``."""
        if self._folder is None:
            self._memory[client] = {name: devices.to_host(tensor).clone() for name, tensor in state.items()}
            return
        data = save({name: devices.to_host(tensor).contiguous() for name, tensor in state.items()})
        path = self._path(client, number)
        with writing(f"{self._folder}: the state of client {client}", "the last checkpoint is intact"):
            self._writer.make_folder(path.parent)
            self._writer.write_new(path, data)
            self._remove_outdated(number)
        before = self._last.get(client, number)
        if before != number:  # a second exchange of the round has written over what the first one wrote
            self._outdated.append(_Outdated(number, client, before))
        self._last[client] = number
        self._new[client] = (number, crc32(data))

    def _remove_outdated(self, number: int) -> None:
        """Remove the states to which no checkpoint refers any more."""
        while self._outdated and self._outdated[0].since <= number - KEPT:
            old = self._outdated.popleft()
            self._writer.remove(self._file(old.client, old.number))

    def index(self) -> dict[str, Tensor]:
        """For a checkpoint: how long the list is, to which new states are added, and its checksum."""
        if self._new:
            assert self._folder is not None  # in memory nothing is listed
            rows = [(client, *kept) for client, kept in sorted(self._new.items())]
            self._append(np.array(rows, _ROW))
            self._new = {}
        return {_LIST: torch.tensor([self._rows, self._checksum])} if self._rows else {}

    def _append(self, rows: Rows) -> None:
        data = rows.tobytes()
        with writing(self._list, "the last checkpoint is intact"):
            if self._writes_all:
                self._writer.write(self._list, self._begun + data)
            else:
                self._writer.append(self._list, data)
        self._begun, self._writes_all = b"", False
        self._rows, self._checksum = self._rows + len(rows), crc32(data, self._checksum)

    def holds(self, tensors: Tensors) -> bool:
        """Whether every file that a checkpoint lists is there and whole."""
        listed = self._listed(tensors)
        if listed is None:
            return False
        files = ((self._file(client, number), checksum) for client, number, checksum in _last_of_each(listed))
        return all(path.is_file() and crc32(path.read_bytes()) == checksum for path, checksum in files)

    def restore(self, tensors: Tensors) -> None:
        """Go back to the states of a checkpoint; older files are remembered only to be removed in their time."""
        listed = self._listed(tensors)
        assert listed is not None  # it holds
        self._begun = listed.tobytes()
        self._rows, self._checksum = len(listed), crc32(self._begun)
        self._last = {client: number for client, number, _ in _last_of_each(listed)}
        older = (
            _Outdated(self._last[client], client, number)
            for client, number in self._files()
            if number < self._last.get(client, 0)
        )
        self._outdated = deque(sorted(older, key=lambda old: old.since))

    def _listed(self, tensors: Tensors) -> Rows | None:
        """The rows of the list that belong to a checkpoint; ``None`` if these are not there."""
        if _OLD_LIST in tensors:
            return tensors[_OLD_LIST].numpy()
        count, checksum = tensors.get(_LIST, torch.zeros(2, dtype=torch.int64)).tolist()
        size = 3 * _ROW.itemsize * count
        data = self._list.read_bytes()[:size] if count and self._list.is_file() else b""
        return np.frombuffer(data, _ROW).reshape(-1, 3) if (len(data), crc32(data)) == (size, checksum) else None

    def _files(self) -> Iterator[tuple[int, int]]:
        """Client and round of each file."""
        assert self._folder is not None
        for path in self._folder.rglob("*-*.safetensors"):
            client, _, number = path.stem.partition("-")
            if client.isdecimal() and number.isdecimal():
                yield int(client), int(number)

    @property
    def _list(self) -> Path:
        assert self._folder is not None
        return self._folder / "list.bin"

    def _path(self, client: int, number: int) -> Path:
        """Where a state is written; those of the first clients need no folder below the folder."""
        assert self._folder is not None
        group = client // _TOGETHER
        folder = self._folder / f"{group:03d}" if group else self._folder
        return folder / f"{client:05d}-{number:05d}.safetensors"

    def _file(self, client: int, number: int) -> Path:
        """Where a state is: earlier versions wrote all of them into one folder."""
        assert self._folder is not None
        path = self._path(client, number)
        once = self._folder / path.name
        return once if not path.exists() and once.exists() else path


def _last_of_each(rows: Rows) -> Iterator[tuple[int, int, int]]:
    """The last row of each client."""
    _, from_end = np.unique(rows[::-1, 0], return_index=True)
    for client, number, checksum in rows[len(rows) - 1 - from_end]:
        yield int(client), int(number), int(checksum)

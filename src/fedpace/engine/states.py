"""What clients keep between their turns: in a run folder on disk, otherwise in memory."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedpace.core import RunFolderError, Tensors, Writer, devices, one_line, writing
from fedpace.engine.checkpoint import KEPT

_INDEX = "clients.states"


class ClientStates:
    """Client → tensors that it keeps (SCAFFOLD's control variate, buffers that never leave it).

    With a folder each state is a file ``00012-00003.safetensors``: client 12 after round 3. Nothing is overwritten, so
    the states of an earlier checkpoint stay whole until that checkpoint is gone. A checkpoint holds the list of files
    that belong to it, with their checksums.
    """

    def __init__(self, folder: Path | None = None, writer: Writer = Writer()) -> None:  # noqa: B008  # it has no state
        self._folder, self._writer = folder, writer
        self._memory: dict[int, Tensors] = {}  # used without a folder
        self._files: dict[int, list[tuple[int, int]]] = {}  # client → rounds and checksums, oldest first

    def of(self, client: int) -> Tensors:
        """What a client kept last; nothing at its first turn."""
        if self._folder is None or client not in self._files:
            return self._memory.get(client, {})
        path = self._path(client, self._files[client][-1][0])
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
        files = [file for file in self._files.get(client, []) if file[0] < number]  # a second exchange of the round
        with writing(f"{self._folder}: the state of client {client}", "the last checkpoint is intact"):
            self._writer.make_folder(self._folder)
            self._writer.write_new(self._path(client, number), data)
            while len(files) > 1 and files[1][0] <= number - KEPT:  # no checkpoint refers to it any more
                self._writer.remove(self._path(client, files.pop(0)[0]))
        self._files[client] = [*files, (number, crc32(data))]

    def index(self) -> dict[str, Tensor]:
        """For a checkpoint: client, round and checksum of each state, or without a folder nothing."""
        rows = [(client, *files[-1]) for client, files in sorted(self._files.items())]
        return {_INDEX: torch.tensor(rows)} if rows else {}

    def holds(self, tensors: Tensors) -> bool:
        """Whether every file that a checkpoint lists is there and whole."""
        paths = [(self._path(client, number), checksum) for client, number, checksum in _rows(tensors)]
        return all(path.is_file() and crc32(path.read_bytes()) == checksum for path, checksum in paths)

    def restore(self, tensors: Tensors) -> None:
        """Go back to the states of a checkpoint; older files are remembered only to be removed in their time."""
        for client, number, checksum in _rows(tensors):
            names = (path.stem.partition("-")[2] for path in self._path(client, 0).parent.glob(f"{client:05d}-*"))
            rounds = sorted(int(name) for name in names if name.isdecimal())
            self._files[client] = [*((older, 0) for older in rounds if older < number), (number, checksum)]

    def _path(self, client: int, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{client:05d}-{number:05d}.safetensors"


def _rows(tensors: Tensors) -> list[tuple[int, int, int]]:
    return [tuple(row) for row in tensors[_INDEX].tolist()] if _INDEX in tensors else []

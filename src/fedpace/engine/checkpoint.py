"""Checkpoints: complete or absent, never half; the one before the last is kept in case the last is damaged."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from fedpace.core import RunFolderError, devices, folder_written_aside

log = logging.getLogger("fedpace")
KEPT = 2


class Checkpoints:
    """Folders ``round-00012/`` with ``state.safetensors`` and ``state.json``, each written aside and then renamed.

    The JSON holds the digest of the tensors, so a torn or altered file is noticed and the previous checkpoint taken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, number: int, tensors: dict[str, Tensor]) -> None:
        """Save the state after round ``number``. On failure the earlier checkpoints are intact."""
        target = self._folder / f"round-{number:05d}"
        try:
            with folder_written_aside(target) as aside:
                data = save({name: devices.to_host(tensor).contiguous() for name, tensor in tensors.items()})
                (aside / "state.safetensors").write_bytes(data)
                description = {"round": number, "sha256": sha256(data).hexdigest()}
                (aside / "state.json").write_text(json.dumps(description))
        except OSError as error:
            raise RunFolderError(
                f"{self._folder}: checkpoint of round {number} could not be written ({os.strerror(error.errno or 0)}); "
                f"the earlier one is intact{advice(error)}"
            ) from error
        for old in self._complete()[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)

    def _complete(self) -> list[Path]:
        """Checkpoint folders, newest first."""
        return sorted(self._folder.glob("round-*"), reverse=True)

    def _readable(self) -> Iterator[tuple[int, dict[str, Tensor]]]:
        for folder in self._complete():
            try:
                description = json.loads((folder / "state.json").read_text())
                data = (folder / "state.safetensors").read_bytes()
                if sha256(data).hexdigest() != description["sha256"]:
                    raise ValueError("the digest does not match")
                yield int(description["round"]), load(data)
            except (OSError, ValueError, KeyError) as error:
                log.warning("%s is damaged (%s); trying the one before it", folder, error)

    def last(self, whole: Callable[[dict[str, Tensor]], bool] = bool) -> tuple[int, dict[str, Tensor]] | None:
        """Round and state of the newest checkpoint that can be read and that ``whole`` accepts."""
        return next((found for found in self._readable() if whole(found[1])), None)


def advice(error: OSError) -> str:
    """What helps against an error of the file system, if anything."""
    return "; free some space and use --resume" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""

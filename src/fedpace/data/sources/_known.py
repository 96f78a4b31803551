"""Image data sets with a name, found on disk or fetched from the hub."""

from __future__ import annotations

import os
from abc import ABC
from pathlib import Path
from typing import ClassVar

from fedpace.core import DataError
from fedpace.data.data import Data
from fedpace.data.sources._cache import cache_folder
from fedpace.data.sources._hub import download
from fedpace.data.sources._source import ImageSource
from fedpace.data.sources.parquet import find_splits, read


def folders(name: str) -> list[Path]:
    """Where a data set of this name is looked for; the last one is where downloads go."""
    given = os.environ.get("FEDPACE_DATA")
    roots = [Path(given)] if given else []
    return [root / name for root in (*roots, Path("data"), cache_folder() / "data")]


def known_file(name: str, file: str) -> Path:
    """The ``file`` of a data set of this name, where it is found first."""
    files = [folder / file for folder in folders(name)]
    found = next((path for path in files if path.is_file()), None)
    if found is None:
        raise DataError(
            f"data '{name}': expected one of {', '.join(map(str, files))}, found none; set FEDPACE_DATA to the folder "
            f"that holds '{name}'"
        )
    return found


class KnownImages(ImageSource, ABC):
    """A data set in the hub's parquet layout, in a folder that bears its registered name.

    It is looked for under ``$FEDPACE_DATA``, ``./data`` and the user cache, then downloaded with the ``hub`` extra.
    """

    classes: ClassVar[tuple[str, ...]]
    repository: ClassVar[str]

    def load(self) -> Data:
        """Find, fetch if needed, and read."""
        return read(self.name, self.splits(), self.size, self.classes)

    def splits(self) -> list[list[Path]]:
        """The files of the training set and, if there is one, of the test set."""
        return self._find() or self._fetch()

    def _find(self) -> list[list[Path]]:
        return next((splits for folder in folders(self.name) if (splits := find_splits(folder))), [])

    def _fetch(self) -> list[list[Path]]:
        try:
            download(self.repository, folders(self.name)[-1])
        except ImportError:
            tried = ", ".join(map(str, folders(self.name)))
            raise DataError(
                f"data '{self.name}': no train.parquet in {tried}; set FEDPACE_DATA to the folder that holds "
                f"'{self.name}', or pip install 'fedpace[hub]' to download {self.repository}"
            ) from None
        return self._find()

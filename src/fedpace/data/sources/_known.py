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

    def _folders(self) -> list[Path]:
        given = os.environ.get("FEDPACE_DATA")
        roots = [Path(given)] if given else []
        return [root / self.name for root in (*roots, Path("data"), cache_folder() / "data")]

    def _find(self) -> list[list[Path]]:
        return next((splits for folder in self._folders() if (splits := find_splits(folder))), [])

    def _fetch(self) -> list[list[Path]]:
        try:
            download(self.repository, self._folders()[-1])
        except ImportError:
            raise DataError(
                f"data '{self.name}': no train.parquet in {', '.join(map(str, self._folders()))}; set FEDPACE_DATA to "
                f"the folder that holds '{self.name}', or pip install 'fedpace[hub]' to download {self.repository}"
            ) from None
        return self._find()

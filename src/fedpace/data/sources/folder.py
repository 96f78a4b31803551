"""Folders of image files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpace.core import DataError
from fedpace.data._encode import encode
from fedpace.data.data import Data
from fedpace.data.examples import Examples
from fedpace.data.sources._cache import cached
from fedpace.data.sources._images import decode_all
from fedpace.data.sources._source import ImageSource, sources

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@sources.register("folder")
class Folder(ImageSource):
    """Image files in ``path/class_name/``, or in ``path/train/class_name/`` and ``path/test/class_name/``.

    Parameters: ``path``; ``size`` to resize to, needed if the images differ in size.
    """

    path: Path

    def load(self) -> Data:
        """Read and decode all images."""
        roots = [self.path / split for split in ("train", "test") if (self.path / split).is_dir()]
        splits = [_image_files(root) for root in (roots if self.path / "train" in roots else [self.path])]
        labels, classes = encode("classes", [np.array([file.parent.name for file in files]) for files in splits])
        return Data(
            self.path.name,
            *(Examples(self._images(files), indices, classes) for files, indices in zip(splits, labels, strict=True)),
        )

    def _images(self, files: list[Path]) -> np.ndarray:
        return cached(files, self.size, lambda: decode_all(((str(f), f) for f in files), len(files), self.size))


def _image_files(root: Path) -> list[Path]:
    files = sorted(file for file in root.glob("*/*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise DataError(f"{root}: expected images in class_name/image.png, found none; see also 'parquet'")
    return files

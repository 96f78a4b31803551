"""Download from the Hugging Face hub."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from fedpace.core import DataError, one_line


def download(repository: str, folder: Path) -> None:
    """Fetch every split of ``repository`` into ``folder`` as ``<split>.parquet``.

    Raises ImportError if the package ``datasets`` is not installed.
    """
    datasets = import_module("datasets")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as temporary:
            whole = Path(temporary) / folder.name  # renamed when complete, so that half a download is never read
            whole.mkdir()
            for split, rows in datasets.load_dataset(repository).items():
                rows.to_parquet(str(whole / f"{split}.parquet"))
            os.replace(whole, folder)
    except Exception as error:  # the hub's client raises errors of several libraries
        reason = one_line(error)
        raise DataError(f"hub repository '{repository}': cannot be stored in {folder} ({reason}); try again") from None

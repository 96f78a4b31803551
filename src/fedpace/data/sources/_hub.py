"""Download from the Hugging Face hub."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from fedpace.core import DataError, folder_written_aside, one_line


def download(repository: str, folder: Path) -> None:
    """Fetch every split of ``repository`` into ``folder`` as ``<split>.parquet``.

    Raises ImportError if the package ``datasets`` is not installed.
    """
    datasets = import_module("datasets")
    try:
        with folder_written_aside(folder) as aside:  # so that half a download is never read
            for split, rows in datasets.load_dataset(repository).items():
                rows.to_parquet(str(aside / f"{split}.parquet"))
    except Exception as error:  # the hub's client raises errors of several libraries
        reason = one_line(error)
        raise DataError(f"hub repository '{repository}': cannot be stored in {folder} ({reason}); try again") from None

"""How much data may take: a small file of a stranger's must not fill the memory."""

from __future__ import annotations

import os
from pathlib import Path

from fedpace.core import DataError

FREE = 2**28  # bytes that any file may become
FOLD = 200  # times its size that a larger one may: photographs become 10 times theirs, drawings 100 times
MOST_PIXELS = 2**26  # of one image, which is decoded before it is resized
MOST_CLASSES = 100_000  # that integers stand for; ImageNet's largest version has 21,841
MOST_COLUMNS = 50_000  # of a table: each takes several kilobytes, however short its name
_LONGEST_HEADER = 2**24  # bytes of a first line that are read to count columns
VARIABLE = "FEDPACE_UNPACKED"


def check_unpacked(where: str, stored: int, unpacked: int) -> None:
    """Fail if ``stored`` bytes are about to become far more ``unpacked`` ones than real data do.

    >>> check_unpacked("faces.parquet", stored=1_000_000, unpacked=100_000_000)
    >>> check_unpacked("bomb.parquet", stored=2_700, unpacked=4_400_000_000)
    Traceback (most recent call last):
    ...
    fedpace.core.errors.DataError: bomb.parquet: expected at most 268 MB in a file of 0 MB, found 4400 MB once it is \
    unpacked; if that is right, set FEDPACE_UNPACKED=4400000000
    """
    allowed = max(_free(), FOLD * stored)
    if unpacked > allowed:
        raise DataError(
            f"{where}: expected at most {allowed / 1e6:.0f} MB in a file of {stored / 1e6:.0f} MB, found "
            f"{unpacked / 1e6:.0f} MB once it is unpacked; if that is right, set {VARIABLE}={unpacked}"
        )


def check_header(path: Path) -> None:
    """Fail if the first line of a CSV file names too many columns."""
    with path.open("rb") as file:
        check_columns(path, 1 + file.readline(_LONGEST_HEADER).count(b","))


def check_columns(path: Path, count: int) -> None:
    """Fail if a table has too many columns."""
    if count > MOST_COLUMNS:
        raise DataError(f"{path}: expected at most {MOST_COLUMNS} columns, found {count}; leave some out")


def _free() -> int:
    given = os.environ.get(VARIABLE, "")
    if given and not given.isdecimal():
        raise DataError(f"{VARIABLE}: expected a number of bytes, found '{given}'")
    return int(given or FREE)

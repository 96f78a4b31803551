"""Text in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from fedpace.core import DataError, did_you_mean
from fedpace.data._encode import encode
from fedpace.data._limits import check_header
from fedpace.data._parquet import DAMAGED, read_columns
from fedpace.data.data import Data
from fedpace.data.examples import Column
from fedpace.data.sources._source import sources
from fedpace.data.sources._text import TextSource

TABLES = (".csv", ".parquet")


@sources.register("text")
class Text(TextSource):
    """A text file, or a CSV or parquet file with a text in each row, cut into windows of tokens.

    Parameters: ``path``; for tables ``column``, that of the texts ("text" unless it is given), and perhaps ``by``, the
    column that says whose text a row is; ``tokenizer``: "characters" or a JSON file of the library ``tokenizers``;
    ``length`` of a window in tokens.
    """

    path: Path
    column: str | None = None
    by: str | None = None

    def load(self) -> Data:
        """Read and cut into windows."""
        if self.path.suffix not in TABLES:
            if given := self.column or self.by:
                raise DataError(f"{self.path}: expected a table ({' or '.join(TABLES)}) with a column '{given}'")
            return self.windows(self.path.stem, [read_text(self.path)], {})
        column = self.column or "text"
        table = _table(self.path, [column, *([self.by] if self.by else [])])
        columns = {self.by: _owners(self.path, self.by, table[self.by])} if self.by else {}
        return self.windows(self.path.stem, table[column], columns)


def read_text(path: Path) -> str:
    """A whole file of text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"byte {error.start} is none of UTF-8"
        raise DataError(f"{path}: expected a text in UTF-8, but it cannot be read ({reason})") from None


def _table(path: Path, names: list[str]) -> dict[str, list[str]]:
    """Columns of text by name; where a row has none, the text is empty."""
    try:
        table = read_columns(path) if path.suffix == ".parquet" else _csv(path, names)
        for name in names:
            if name not in table.column_names:
                raise DataError(f"{path}: unknown column '{name}'; {did_you_mean(name, table.column_names)}")
            if table.column_names.count(name) > 1:
                raise DataError(f"{path}: expected one column '{name}', found {table.column_names.count(name)}")
        return {name: table[name].cast(pa.string()).fill_null("").to_pylist() for name in names}
    except DAMAGED as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: expected a table with texts, but it cannot be read ({reason})") from None


def _csv(path: Path, names: list[str]) -> pa.Table:
    """Read in one block, because a text may be longer than the usual ones; numbers are text too."""
    check_header(path)
    return csv.read_csv(
        path,
        csv.ReadOptions(block_size=min(path.stat().st_size + 1, 2**31 - 1)),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )


def _owners(path: Path, column: str, values: list[str]) -> Column:
    if "" in values:
        raise DataError(
            f"{path}: expected a name in each row of column '{column}', found none in row {values.index('')}"
        )
    (numbers,), names = encode(f"{path}: column '{column}'", [np.array(values)])
    return Column(numbers, names)

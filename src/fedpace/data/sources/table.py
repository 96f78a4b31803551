"""Tables: CSV and parquet files, and frames that the user already has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv, types
from pydantic import ValidationError

from fedpace.core import ConfigError, DataError, Settings, did_you_mean, first_error, one_line
from fedpace.data._columns import as_codes, as_numbers, is_readable, is_text, plain
from fedpace.data._limits import check_header
from fedpace.data._parquet import DAMAGED, read_columns
from fedpace.data.data import Data
from fedpace.data.examples import Array, Column, Examples
from fedpace.data.sources._source import Source, sources
from fedpace.data.sources.parquet import IMAGES
from fedpace.data.table import Schema, Unseen

Frame = Any
"""A DataFrame of pandas or a table of pyarrow; neither can be a type here."""

MOST_CLASSES = 20  # of whole numbers, unless the user says that they are classes
MOST_VALUES = 1_000  # of a category: each becomes a column
MOST_CLIENTS = 10_000  # by a column of numbers: more of them are measurements


class Reading(Settings):
    """Which columns of a table are learnt, and from which others; :class:`Table` describes the parameters."""

    target: str
    kind: Literal["auto", "classes", "numbers"] = "auto"
    leave_out: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    unseen: Unseen = "missing"

    def data(self, name: str, table: pa.Table) -> Data:
        """The rows of ``table`` as examples; in an error it is called ``name``."""
        try:
            return Data(name, self._examples(table))
        except (DataError, pa.ArrowException) as error:
            raise DataError(f"table '{name}': {error}") from None

    def _examples(self, table: pa.Table) -> Examples:
        self._check(table)
        others = [name for name in table.column_names if name != self.target]
        columns = {name: _column(name, table[name]) for name in others if self._can_deal(name, table[name])}
        inputs: dict[str, Array] = {}
        categories = {}
        for name in others:
            if name in self.leave_out:
                continue
            column = plain(name, table[name])
            if name in self.categories or is_text(column.type) or types.is_boolean(column.type):
                codes, categories[name] = as_codes(name, column)
                self._check_category(name, categories[name], column.type)
                inputs[name] = codes[:, None]
            else:
                inputs[name] = as_numbers(name, column)[:, None]
        targets, classes = self._targets(plain(self.target, table[self.target]))
        return Examples(inputs, targets, classes, columns=columns, schema=Schema(categories, self.unseen))

    def _can_deal(self, name: str, column: pa.ChunkedArray) -> bool:
        """Whether each value of the column can be a client."""
        if not is_readable(column.type):
            return False
        column = plain(name, column)
        few = name in self.leave_out and pc.count_distinct(column).as_py() <= MOST_CLIENTS
        return few or is_text(column.type)

    def _check(self, table: pa.Table) -> None:
        names = table.column_names
        chosen = (self.target, *self.leave_out, *self.categories)
        for name in chosen:
            if name not in names:
                raise DataError(f"unknown column '{name}'; {did_you_mean(name, names)}")
            if chosen.count(name) > 1:
                raise DataError(f"column '{name}' is named twice: expected target, leave_out and categories to differ")
        for name in names:
            if names.count(name) > 1:
                raise DataError(f"expected columns of different names, found '{name}' twice")
        if not len(table):
            raise DataError("expected rows, found none")
        if not set(names) - {self.target, *self.leave_out}:
            raise DataError("expected a column to learn from, found none beside the target and those left out")

    def _check_category(self, name: str, values: tuple[str, ...], kind: pa.DataType) -> None:
        if is_text(kind) and name not in self.categories:
            _refuse_mixed(name, values, "name it in categories")
        if len(values) > MOST_VALUES:
            raise DataError(
                f"column '{name}': expected a category of at most {MOST_VALUES} different values, found {len(values)}; "
                "name it in leave_out"
            )

    def _targets(self, column: pa.ChunkedArray) -> tuple[Array, tuple[str, ...]]:
        if column.null_count:
            rows = f"{column.null_count} row{'s' if column.null_count > 1 else ''}"
            raise DataError(
                f"expected a value of '{self.target}' in each row, found {rows} without; leave these rows out"
            )
        if self.kind == "numbers" or (self.kind == "auto" and not _are_classes(column)):
            return as_numbers(self.target, column), ()
        codes, names = as_codes(self.target, column)
        if self.kind == "auto" and is_text(column.type):
            _refuse_mixed(self.target, names, "set kind = 'classes'")
        return codes, names


@sources.register("table")
class Table(Source, Reading):
    r"""A table in a CSV file with a header, or in parquet: numbers, categories (text, booleans) and missing values.

    Empty cells of a CSV file are missing, and so are NA, NaN and null. Every column is an input, except the ``target``
    and those that are left out. The partition ``by`` deals by any column of text, and by one that is left out; a column
    of text by which clients differ (a hospital) stays an input unless ``leave_out`` names it.

    Parameters: ``path`` (.csv or .parquet); ``target``, the column to learn; ``kind`` of the target, "classes" or
    "numbers" ("auto": text, booleans and at most 20 different whole numbers are classes); ``leave_out``, columns that
    are no inputs; ``categories``, columns of numbers that only stand for names; ``unseen``: what becomes of a test
    example's value that no training client has, "missing" or "refuse".

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "patients.csv"
    ...     _ = file.write_text("hospital,age,sex,ill\nwest,40,f,1\nwest,,m,0\neast,60,f,0\n")
    ...     data = Table(path=file, target="ill", leave_out=("hospital",)).load()
    >>> data
    Data('patients': 3 training examples, no test set, 2 classes, 2 columns)
    >>> data.partition("by", column="hospital", held_out="east")
    Federation('patients/by': 1 clients with 2 examples, 1 test examples, 2 classes, shape (4,))
    """

    path: Path

    def load(self) -> Data:
        """Read the file."""
        return self.data(self.path.stem, read_table(self.path))


def read_table(path: Path) -> pa.Table:
    """All of a CSV or parquet file."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: expected a file that ends in {' or '.join(READERS)}, found '{path.suffix}'")
    try:
        return reader(path)
    except DAMAGED as error:
        reason = one_line(error)[:200]
        raise DataError(f"{path}: expected a complete {path.suffix} file, but it cannot be read ({reason})") from None


def _read_csv(path: Path) -> pa.Table:
    check_header(path)
    return csv.read_csv(path, convert_options=csv.ConvertOptions(strings_can_be_null=True))


READERS: dict[str, Callable[[Path], pa.Table]] = {".csv": _read_csv, ".parquet": read_columns}


def is_parquet_table(path: Path) -> bool:
    """Whether a file is parquet, but without a column of images."""
    if not path.is_file() or path.suffix.lower() != ".parquet":
        return False
    try:
        return not set(IMAGES) & set(pq.read_schema(path).names)
    except DAMAGED:
        return True  # reading all of it says what is wrong


def is_frame(value: object) -> bool:
    """Whether something is a DataFrame of pandas, which need not be installed, or a table of pyarrow."""
    pandas = type(value).__module__.partition(".")[0] == "pandas" and type(value).__name__ == "DataFrame"
    return pandas or isinstance(value, pa.Table)


def from_frame(frame: Frame, parameters: Mapping[str, Any]) -> Data:
    """Data of a frame; ``parameters`` are those of :class:`Table` without its path."""
    try:
        reading = Reading(**parameters)
    except ValidationError as error:
        raise ConfigError(f"table: {first_error(Reading, error)}") from None
    try:
        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"table: expected columns of one kind each, found others ({error})") from None
    return reading.data("table", table)


def _are_classes(column: pa.ChunkedArray) -> bool:
    if types.is_integer(column.type):
        return bool(pc.count_distinct(column).as_py() <= MOST_CLASSES)
    return is_text(column.type) or bool(types.is_boolean(column.type))


def _column(name: str, column: pa.ChunkedArray) -> Column:
    """Where examples come from; those that do not say come from "missing"."""
    codes, names = as_codes(name, column)
    if not (codes < 0).any():
        return Column(codes, names)
    names = names if "missing" in names else (*names, "missing")
    return Column(np.where(codes < 0, names.index("missing"), codes), names)


def _refuse_mixed(name: str, values: tuple[str, ...], remedy: str) -> None:
    """Text in a column of numbers is most often a mark for missing, such as "?"."""
    strange = [value for value in values if not _is_number(value)]
    if strange and 2 * len(strange) <= len(values):
        raise DataError(
            f"column '{name}': expected numbers or text, found both: {len(values) - len(strange)} numbers and "
            f"'{strange[0]}'; leave cells without a number empty, or {remedy}"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

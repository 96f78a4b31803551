"""Tables as arrays of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from fedpace.core import DataError, Settings, did_you_mean, first_error
from fedpace.data._columns import as_codes, as_numbers
from fedpace.data._features import Category, Number
from fedpace.data.examples import Array, Examples, Indices
from fedpace.data.table import Schema, Unseen


class Encoding(Settings):
    """How a table becomes float32 inputs (n × d), as the training examples of the clients say, and nobody else's.

    Numbers have their mean subtracted and variance 1; a missing one is the mean, and where clients miss some, a column
    of 0 and 1 says which. Categories have a column of 0 and 1 for each value that clients have, and one for missing if
    clients miss some. ``unseen`` says what becomes of other values.

    >>> import pyarrow as pa
    >>> from fedpace.data import load
    >>> table = pa.table({"age": [40, 60, None, 50], "sex": ["f", "m", "f", "m"], "ill": [True, False, True, False]})
    >>> encoding = load(table, target="ill").partition("iid", clients=1, test_share=0.25, seed=2).encoding
    >>> encoding.columns
    ('age', 'age missing', 'sex=f', 'sex=m')
    >>> encoding.encode({"age": [50, None], "sex": ["m", "f"]}).tolist()
    [[0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]
    """

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]
    unseen: Unseen = "missing"

    @classmethod
    def fit(cls, examples: Examples, rows: Indices) -> Encoding:
        """The encoding of a table, of which ``rows`` are the training examples."""
        inputs, schema = _table(examples)
        own = {name: column[rows, 0] for name, column in inputs.items()}
        return cls(
            numbers=tuple(Number.fit(name, own[name]) for name in own if name not in schema.categories),
            categories=tuple(Category.fit(name, own[name], names) for name, names in schema.categories.items()),
            unseen=schema.unseen,
        )

    @classmethod
    def from_json(cls, content: Any) -> Encoding:
        """What :meth:`to_json` wrote."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise DataError(f"encoding: {first_error(cls, error)}") from None

    def to_json(self) -> dict[str, Any]:
        """All of it, for a file."""
        return self.model_dump(mode="json")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the d inputs."""
        features: tuple[Number | Category, ...] = (*self.numbers, *self.categories)
        return tuple(column for feature in features for column in feature.columns)

    def encode(self, rows: Mapping[str, Any]) -> Array:
        """Inputs for a model (n × d) of new rows: the values (a list or an array) of each column of the table.

        Further columns do not matter. None and NaN are missing.
        """
        inputs: dict[str, Array] = {}
        names = {}
        for number in self.numbers:
            inputs[number.name] = as_numbers(number.name, _column(rows, number.name))[:, None]
        for category in self.categories:
            codes, names[category.name] = as_codes(category.name, _column(rows, category.name))
            inputs[category.name] = codes[:, None]
        lengths = {name: len(column) for name, column in inputs.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"encode: expected as many values in each column, found {lengths}")
        Schema(names).check(inputs)
        self._unseen(inputs, names, "row")
        return self._matrix(inputs, names)

    def encoded(self, examples: Examples) -> Examples:
        """The table as float32 inputs."""
        inputs, schema = _table(examples)
        return replace(examples, inputs=self._matrix(inputs, schema.categories), schema=None)

    def notes(self, examples: Examples, tests: Indices) -> tuple[str, ...]:
        """A line for each column in which some of the ``tests`` have a value that no training client has."""
        inputs, schema = _table(examples)
        own = {name: column[tests] for name, column in inputs.items()}
        lines = self._unseen(own, schema.categories, "test example")
        return tuple(f"{line}: counted as missing (all zeros)" for line in lines)

    def _unseen(self, inputs: Mapping[str, Array], names: Mapping[str, tuple[str, ...]], what: str) -> list[str]:
        lines = []
        for category in self.categories:
            count = int(category.unseen(inputs[category.name], names[category.name]).sum())
            have = f"{what}s have" if count > 1 else f"{what} has"
            if count:
                lines.append(f"{count} {have} a value of '{category.name}' that no training client has")
        if lines and self.unseen == "refuse":
            raise DataError(f"{lines[0]}; use unseen = 'missing', or leave the column out")
        return lines

    def _matrix(self, inputs: Mapping[str, Array], names: Mapping[str, tuple[str, ...]]) -> Array:
        matrix = np.zeros((len(next(iter(inputs.values()))), len(self.columns)), np.float32)
        start = 0
        for number in self.numbers:
            number.write(matrix[:, start:], inputs[number.name][:, 0])
            start += len(number.columns)
        for category in self.categories:
            category.write(matrix[:, start:], inputs[category.name][:, 0], names[category.name])
            start += len(category.columns)
        return matrix


def _table(examples: Examples) -> tuple[Mapping[str, Array], Schema]:
    if examples.schema is None or not isinstance(examples.inputs, Mapping):
        raise DataError("encoding: expected a data set with a schema, found one without")
    # All of them are arrays.
    columns = {name: column for name, column in examples.inputs.items() if isinstance(column, np.ndarray)}
    return columns, examples.schema


def _column(rows: Mapping[str, Any], name: str) -> pa.ChunkedArray:
    if name not in rows:
        raise DataError(f"encode: expected a column '{name}', found none; {did_you_mean(name, rows)}")
    try:
        return pa.chunked_array([pa.array(rows[name], from_pandas=True)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"column '{name}': expected values of one kind, found others ({error})") from None

"""Examples with their targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedpace.core import DataError, did_you_mean
from fedpace.data._names import listed
from fedpace.data.ragged import Ragged
from fedpace.data.table import Schema

Array = NDArray[Any]
Rows = Array | Ragged
Arrays = Rows | Mapping[str, Rows]
Indices = NDArray[np.int64]
Shape = tuple[int, ...] | dict[str, tuple[int, ...]]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Column:
    """A name for each example, such as its hospital: ``values`` index ``names``."""

    values: Indices
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples with their targets, resident or memory-mapped.

    ``inputs`` are uint8 images (n × height × width × channels), float32 arrays (n × anything) that are taken as they
    are, int64 tokens, which stay integers, or several of these by name. ``targets`` are one class per example, which
    index ``classes``; or, where there are no classes, float32 numbers (one or a row per example), or int64 rows of
    tokens, of which ``vocabulary`` names each. Rows that differ in length are a :class:`Ragged`. ``domains``, where the
    data have them, index ``domain_names``; further ``columns`` say where an example comes from. With a ``schema``,
    inputs by name are the columns of a table.

    >>> Examples(np.zeros((2, 8, 8, 1), np.uint8), np.array([0, 1]), ("cat", "dog")).shape
    (1, 8, 8)
    """

    inputs: Arrays
    targets: Rows
    classes: tuple[str, ...] = ()
    domains: Indices | None = None
    domain_names: tuple[str, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)
    vocabulary: tuple[str, ...] = ()
    schema: Schema | None = None

    def __post_init__(self) -> None:
        for name, array in self._named_inputs().items():
            _check_input(name, array)
        if len(lengths := {len(array) for array in self._named_inputs().values()}) > 1:
            raise DataError(f"inputs: expected as many examples of each, found {listed(sorted(lengths))}")
        if self.schema is not None:
            self.schema.check(self._named_inputs())
        if self.classes:
            self._check_indices("labels", self.labels, self.classes)
        else:
            self._check_numbers()
        if self.domains is not None:
            self._check_indices("domains", self.domains, self.domain_names)
        elif self.domain_names:
            raise DataError(f"domains: expected one per example ({len(self)}), found none beside their names")
        for name, column in self.columns.items():
            self._check_indices(f"column '{name}'", column.values, column.names)

    def _named_inputs(self) -> Mapping[str, Rows]:
        return self.inputs if isinstance(self.inputs, Mapping) else {"inputs": self.inputs}

    def _check_indices(self, what: str, values: Indices, names: tuple[str, ...]) -> None:
        if values.shape != (len(self),):
            raise DataError(f"{what}: expected one per example ({len(self)}), found an array of shape {values.shape}")
        if len(values) and (values.min() < 0 or values.max() >= len(names)):
            raise DataError(
                f"{what} out of range: expected 0 to {len(names) - 1}, found {values.min()} to {values.max()}; "
                "number them from 0 and name all of them"
            )

    def _check_numbers(self) -> None:
        kind = self.targets.dtype
        if len(self.targets) != len(self) or kind not in (np.float32, np.int64):
            raise DataError(
                f"targets: expected float32 numbers or int64 tokens for each of {len(self)} examples, found {kind} of "
                f"shape {self.targets.shape}"
            )
        numbers = self.targets.flat if isinstance(self.targets, Ragged) else self.targets
        if kind == np.float32 and not np.isfinite(numbers).all():
            raise DataError("targets: expected numbers, found NaN or infinity; leave these examples out")

    def __len__(self) -> int:
        return len(next(iter(self._named_inputs().values())))

    @property
    def labels(self) -> Indices:
        """The targets where they are classes; other data cannot be dealt by class."""
        if not self.classes:
            raise DataError("the targets are no classes: deal the examples with 'iid', 'quantity' or 'by'")
        return cast(Indices, self.targets)

    @property
    def outputs(self) -> int:
        """How many outputs a model needs: one per class, per number, or per token of the vocabulary."""
        if self.classes or self.vocabulary:
            return len(self.classes or self.vocabulary)
        return int(np.prod(self.targets.shape[1:], dtype=int))

    @property
    def shape(self) -> Shape:
        """One example's shape as a model sees it: channels first for images; of several inputs, each one's.

        Of rows that differ in length it is the longest one's.
        """
        return per_input(_shape, self.inputs)

    @property
    def form(self) -> dict[str, Any]:
        """What two data sets must have in common for one model; rows of different length have no shape in common."""
        return {
            "classes": self.classes,
            "shape": per_input(_form, self.inputs),
            "shape of targets": () if self.classes else _form(self.targets),
            "vocabulary": self.vocabulary,
            "schema": () if self.schema is None else tuple(self.schema.categories.items()),
        }

    def column(self, name: str) -> Column:
        """Where examples come from; an unknown name is an error that names the nearest one."""
        known = dict(self.columns)
        if self.domains is not None:
            known.setdefault("domain", Column(self.domains, self.domain_names))
        if name not in known:
            raise DataError(f"unknown column '{name}'; {did_you_mean(name, known)}")
        return known[name]

    def by_class(self, rng: np.random.Generator) -> list[Indices]:
        """The indices of each class, shuffled."""
        labels = self.labels
        return [rng.permutation(np.flatnonzero(labels == label)) for label in range(len(self.classes))]

    def take(self, indices: Indices) -> Examples:
        """A copy of the examples at ``indices``."""
        return replace(
            self,
            inputs=taken(self.inputs, indices),
            targets=self.targets[indices],
            domains=None if self.domains is None else self.domains[indices],
            columns={name: Column(column.values[indices], column.names) for name, column in self.columns.items()},
        )

    def joined(self, *others: Examples) -> Examples:
        """A copy of these examples followed by those of ``others``."""
        for other in others:
            mine, theirs = self._joins(), other._joins()
            for what in mine:
                if mine[what] != theirs[what]:
                    raise DataError(
                        f"data sets cannot be merged: they differ in {what}: {_briefly(mine[what])} and "
                        f"{_briefly(theirs[what])}"
                    )
        parts = (self, *others)
        inputs = {name: _joined([part._named_inputs()[name] for part in parts]) for name in self._named_inputs()}
        domains = [part.domains for part in parts if part.domains is not None]  # all or none, by their names
        return replace(
            self,
            inputs=inputs if isinstance(self.inputs, Mapping) else inputs["inputs"],
            targets=_joined([part.targets for part in parts]),
            domains=np.concatenate(domains) if domains else None,
            columns={
                name: Column(np.concatenate([part.columns[name].values for part in parts]), column.names)
                for name, column in self.columns.items()
            },
        )

    def _joins(self) -> dict[str, Any]:
        """What two data sets must have in common to be one."""
        columns = {name: column.names for name, column in self.columns.items()}
        return {**self.form, "domain_names": self.domain_names, "columns": columns}


def taken(inputs: Arrays, indices: Indices) -> Arrays:
    """Some examples of one input or of several; always a copy."""
    return per_input(lambda rows: rows[indices], inputs)


def per_input(function: Callable[[Rows], T], inputs: Arrays) -> T | dict[str, T]:
    """What ``function`` makes of the input, or of each of several by name."""
    if isinstance(inputs, Mapping):
        return {name: function(rows) for name, rows in inputs.items()}
    return function(inputs)


def kind_of_inputs(inputs: Arrays) -> str:
    """What a model is given, in words."""
    if isinstance(inputs, Mapping):
        return f"{len(inputs)} inputs"
    return "uint8 images" if inputs.dtype == np.uint8 else f"{inputs.dtype} arrays"


def _briefly(trait: Any) -> str:
    """Names, of many the first ones; anything else as it is."""
    return listed(trait) if isinstance(trait, tuple) else str(trait)


def _joined(parts: list[Rows]) -> Rows:
    if isinstance(parts[0], Ragged):
        return Ragged.concatenate(cast(list[Ragged], parts))
    return np.concatenate(cast(list[Array], parts))


def _check_input(name: str, array: Rows) -> None:
    images = array.dtype == np.uint8 and array.ndim == 4
    numbers = array.dtype in (np.float32, np.int64) and array.ndim > 1
    if not (images or numbers):
        raise DataError(
            f"{name}: expected uint8 images (n × height × width × channels), or float32 or int64 arrays (n × ...), "
            f"found {array.dtype} of shape {array.shape}; convert them with astype or reshape"
        )


def _shape(array: Rows) -> tuple[int, ...]:
    if array.dtype != np.uint8:
        return array.shape[1:]
    height, width, channels = array.shape[1:]
    return channels, height, width


def _form(array: Rows) -> tuple[int | str, ...]:
    return ("any length",) if isinstance(array, Ragged) else _shape(array)

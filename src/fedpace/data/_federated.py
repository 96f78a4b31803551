"""A federation of data sets that clients bring themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedpace.core import DataError
from fedpace.data._natural import natural, whole
from fedpace.data.data import Data
from fedpace.data.dataset import Dataset
from fedpace.data.federation import Federation


def federated(
    name: str, clients: Mapping[str, Data], test: Data | None, test_share: float | None, seed: int
) -> Federation:
    """Clients whose data agree in shape and kind. Classes are matched by their names: a client may lack some."""
    brought = {f"client '{client}'": data for client, data in clients.items()}
    if any(data.train.schema is not None for data in clients.values()):
        raise DataError(
            "tables of several clients: load them as one with a column that says whose a row is, deal it 'by'"
        )
    if test is not None:
        brought["the test set"] = test
    _check_alike({who: data.train for who, data in brought.items()})
    classes = tuple(dict.fromkeys(name for data in brought.values() for name in data.train.classes))
    return natural(
        name,
        {client: whole(_with_classes(data.train, classes)) for client, data in clients.items()},
        {client: whole(_with_classes(data.test, classes)) for client, data in clients.items() if data.test is not None},
        None if test is None else whole(_with_classes(test.test or test.train, classes)),
        test_share,
        seed,
    )


def _check_alike(datasets: Mapping[str, Dataset]) -> None:
    """The first who differs from the first of all is an error."""
    if not datasets:
        return
    (first, model), *others = ((who, _traits(dataset)) for who, dataset in datasets.items())
    for other, traits in others:
        for what in model:
            if traits[what] != model[what]:
                raise DataError(f"{other}: expected {what} {model[what]}, as {first} has, found {traits[what]}")


def _traits(dataset: Dataset) -> dict[str, str]:
    """What all clients must have in common, in words."""
    inputs = dataset.inputs if isinstance(dataset.inputs, Mapping) else {"": dataset.inputs}
    types = ", ".join(f"{name} {array.dtype}".strip() for name, array in inputs.items())
    traits = {"examples of shape": str(dataset.form["shape"]), "inputs of type": types}
    if dataset.classes:
        numbered = dataset.classes == tuple(map(str, range(len(dataset.classes))))
        return {**traits, "targets that are": "numbered classes" if numbered else "classes with names"}
    kind = f"{dataset.targets.dtype} of shape {dataset.form['shape of targets']}"
    return {**traits, "targets that are": kind, "a vocabulary of": " ".join(map(repr, dataset.vocabulary))}


def _with_classes(dataset: Dataset, classes: tuple[str, ...]) -> Dataset:
    """The same examples among the classes of everyone. Where they come from is no longer asked."""
    targets = dataset.targets
    if dataset.classes != classes:
        targets = np.array([classes.index(name) for name in dataset.classes])[dataset.labels]
    nowhere: dict[str, Any] = {"domains": None, "domain_names": (), "columns": {}}
    return replace(dataset, targets=targets, classes=classes, **nowhere)

"""A federation of data sets that clients bring themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedpace.core import DataError
from fedpace.data._natural import natural, whole
from fedpace.data.data import Data
from fedpace.data.examples import Examples
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


def _check_alike(by_owner: Mapping[str, Examples]) -> None:
    """The first who differs from the first of all is an error."""
    if not by_owner:
        return
    (first, model), *others = ((who, _traits(examples)) for who, examples in by_owner.items())
    for other, traits in others:
        for what in model:
            if traits[what] != model[what]:
                raise DataError(f"{other}: expected {what} {model[what]}, as {first} has, found {traits[what]}")


def _traits(examples: Examples) -> dict[str, str]:
    """What all clients must have in common, in words."""
    inputs = examples.inputs if isinstance(examples.inputs, Mapping) else {"": examples.inputs}
    types = ", ".join(f"{name} {array.dtype}".strip() for name, array in inputs.items())
    traits = {"examples of shape": str(examples.form["shape"]), "inputs of type": types}
    if examples.classes:
        numbered = examples.classes == tuple(map(str, range(len(examples.classes))))
        return {**traits, "targets that are": "numbered classes" if numbered else "classes with names"}
    kind = f"{examples.targets.dtype} of shape {examples.form['shape of targets']}"
    return {**traits, "targets that are": kind, "a vocabulary of": " ".join(map(repr, examples.vocabulary))}


def _with_classes(examples: Examples, classes: tuple[str, ...]) -> Examples:
    """The same examples among the classes of everyone. Where they come from is no longer asked."""
    targets = examples.targets
    if examples.classes != classes:
        targets = np.array([classes.index(name) for name in examples.classes])[examples.labels]
    nowhere: dict[str, Any] = {"domains": None, "domain_names": (), "columns": {}}
    return replace(examples, targets=targets, classes=classes, **nowhere)

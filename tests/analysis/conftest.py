"""Synthetic histories with round numbers, so that every expected value can be computed by hand."""

import json

import pytest

from fedpace.core import RoundRecord


def make_record(number, accuracy=None, **given):
    """A round, in the words of the first version of records, which knew accuracy only."""
    table = {
        "round": number,
        "stage": "fedavg",
        "cohort": [0, 1, 2],
        "accuracy": accuracy,
        "similarity": None,
        "agreement": None,
        "search": None,
        "pruned": 0.0,
        "dropped": [],
        "bytes_up": 100,
        "bytes_down": 200,
        "seconds": {"local": 1.5, "evaluate": 0.5},
        **given,
    }
    return RoundRecord.from_json(json.dumps(table))


@pytest.fixture
def record():
    """Builds one round's record."""
    return make_record


@pytest.fixture
def curve():
    """Builds a history from its accuracies."""
    return lambda accuracies: [make_record(number, accuracy) for number, accuracy in enumerate(accuracies)]


@pytest.fixture
def staged():
    """Twelve rounds: fedavg 0-1, anneal 2-4, fedavg 5, dampen 6-9, prune 10-11."""
    stages = ["fedavg"] * 2 + ["anneal"] * 3 + ["fedavg"] + ["dampen"] * 4 + ["prune"] * 2
    kinds = {"fedavg": "update", "anneal": "probe", "dampen": "gradient", "prune": "gradient"}
    return [
        make_record(
            number,
            accuracy=None if number == 3 else 0.1 + 0.02 * number,
            stage=stage,
            similarity=None if number == 7 else {"kind": kinds[stage], "mean": 0.1 - 0.02 * number},
            # N = 3 clients, twenty coordinates: weight agrees more from round to round, bias never
            agreement={"layers": {"conv.weight": [0, 20 - number, 0, number], "conv.bias": [0, 4, 0, 0]}}
            if stage in ("dampen", "prune")
            else None,
            search={"accepted": False, "candidates": 8} if stage == "anneal" else None,
            pruned=0.05 if stage == "prune" else 0.0,
            dropped=[{"client": 2, "reason": "NaN in [update]"}] if number in (1, 2, 3, 7) else [],
        )
        for number, stage in enumerate(stages)
    ]

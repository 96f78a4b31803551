"""A run of very many clients, of whom few take part: nothing of it grows with those who do not."""

import gc
import tracemalloc

import numpy as np
import pytest

from fedpace.attacks import LabelFlip, SignFlip
from fedpace.data import Hands, load
from fedpace.engine import Attackers, Cohort, Measuring, Serial, train
from fedpace.methods import Scaffold
from fedpace.models import build
from fedpace.server import Schedule
from tests.engine import small

MANY, COHORT, ROUNDS = 200_000, 5, 3


@pytest.fixture(scope="module")
def federation():
    inputs, labels = np.random.default_rng(0).random((2 * MANY, 2), np.float32), np.arange(2 * MANY) % 3
    return load((inputs, labels), test=(inputs[:9], labels[:9])).partition(Hands(np.arange(0, 2 * MANY + 1, 2)))


def run(federation, folder=None, inputs=(2,), **changes):
    plan = {"schedule": Schedule(), "local": Scaffold(max_steps=1), "rounds": ROUNDS, "cohort": Cohort(number=COHORT)}
    plan |= {"measuring": Measuring(per_client=1), "executor": Serial(), **changes}
    return train(build("linear", inputs, len(federation.classes), 0), federation, small.plan(**plan), folder=folder)


def test_a_run_keeps_nothing_of_clients_that_take_no_part(federation, tmp_path):
    run(load("digits").partition("iid", clients=9), tmp_path / "before", inputs=(1, 8, 8))  # imports what a run needs
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    records = run(federation, tmp_path / "run").records
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    gc.collect()
    assert peak < 12e6  # blocks of clients; an object for each of all would be more
    assert len(gc.get_objects()) - objects < 5000
    kept = {client for record in records for client in record.cohort}
    files = list((tmp_path / "run" / "clients").rglob("*.safetensors"))
    assert len(files) == len(kept) == COHORT * ROUNDS
    assert sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file()) < 100_000


@pytest.mark.parametrize("attack", [SignFlip(), LabelFlip()])
def test_attackers_among_very_many_clients_lie(federation, tmp_path, attack):
    attackers = Attackers.among(MANY, 0.01, attack, seed=0)
    lying = attackers.poisoned(federation)
    honest, false = (run(data, attackers=who).records for data, who in ((federation, None), (lying, attackers)))
    assert [record.cohort for record in honest] == [record.cohort for record in false]
    run(federation, tmp_path, attackers=attackers, rounds=1)
    assert (tmp_path / "run.json").stat().st_size < 5000  # 2,000 attackers are not named

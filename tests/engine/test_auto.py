"""The executor that is found to be the fastest."""

import pytest
import torch

from fedpace.core import derive
from fedpace.engine import Auto, Processes, Serial, Turn, Vectorised, Worker, read_run
from fedpace.engine.executors import auto
from fedpace.engine.stopwatch import Stopwatch
from fedpace.methods import FedALA, LocalSGD
from tests.engine import small
from tests.engine.test_vectorised import SGD, SIZES, federation, mlp, run
from tests.records import untimed


def timed(monkeypatch, *means):
    """As if a client took these seconds with the usual executor, and with the other one."""
    given = iter(means)

    class Known(Stopwatch):
        def __init__(self):
            super().__init__()
            self.known = next(given)

        @property
        def mean(self):
            return self.known

    monkeypatch.setattr(auto, "Stopwatch", Known)


@pytest.mark.parametrize(
    ("means", "note"),
    [
        ((0.5, 0.001), "chose vectorised, because a client took 1 ms and not 5e+02 ms"),
        ((0.002, 0.1), "chose serial, because a client took 2 ms and not 1e+02 ms"),
    ],
)
def test_the_faster_one_is_chosen_and_the_run_folder_says_so(means, note, monkeypatch, tmp_path):
    timed(monkeypatch, *means)
    outcome = run(Auto(workers=1), LocalSGD(**SGD), folder=tmp_path / "run")
    assert outcome.warnings == [f"executor 'auto': {note}"]
    assert read_run(tmp_path / "run")["warnings"] == outcome.warnings
    alone = run(Serial(), LocalSGD(**SGD))
    torch.testing.assert_close(small.weights(outcome.module), small.weights(alone.module), rtol=1e-4, atol=1e-5)


def test_it_is_chosen_in_the_first_round_and_then_does_everything(monkeypatch):
    timed(monkeypatch, 0.5, 0.001)
    data, local, done = federation(), LocalSGD(**SGD), []
    answers = Worker.answers

    def counted(self, turns, *asked):
        done.append(len(turns))
        return answers(self, turns, *asked)

    monkeypatch.setattr(Worker, "answers", counted)
    turns = [Turn(client, local.work(), derive(0, client)) for client in range(len(SIZES))]
    start = Worker(mlp(), data).model
    with Auto(workers=1).start(mlp(), data) as execution:
        execution.prepare(local)
        for _ in range(2):
            clients = [update.client for update in execution.run(turns, start.vector, start.buffers)]
            assert clients == list(range(len(SIZES)))
    assert done == [len(SIZES) - 1, len(SIZES)]  # one of them was the other's


@pytest.mark.parametrize(
    ("local", "module", "reason"),
    [
        (FedALA(**SGD), mlp, "turns of 'fedala' are more than plain steps in float32"),
        (
            LocalSGD(**SGD),
            small.module,
            "layer 'features.0.1' (BatchNorm2d) cannot train many clients as one computation: it changes its buffer "
            "'running_mean' in training",
        ),
    ],
    ids=["method", "model"],
)
def test_what_cannot_train_together_is_done_by_processes_to_the_bit(local, module, reason):
    outcome = run(Auto(workers=2), local, module=module(), rounds=2)
    expected = run(Serial(), local, module=module(), rounds=2)
    assert outcome.warnings == [f"executor 'auto': chose processes, because {reason}"]
    assert torch.equal(small.weights(outcome.module), small.weights(expected.module))
    assert untimed(outcome.records) == untimed(expected.records)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Serial(), Serial()),
        (Vectorised(memory=7), Vectorised(memory=7)),
        (Auto(), Auto(workers=1)),
        (Processes(), Serial()),
        (Processes(turn_timeout=9), Processes(turn_timeout=9, workers=1)),
    ],
)
def test_beside_other_runs_each_executor_keeps_to_one_core(given, expected):
    assert given.on_one_core() == expected

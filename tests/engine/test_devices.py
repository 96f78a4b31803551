"""Workers on devices that only tests have, and which process takes which of them."""

import pytest
import torch
from torch import nn

from fedpace.core import FlatModule, devices
from fedpace.engine import Processes, Serial, Turn, Worker
from fedpace.engine.executors import processes
from fedpace.engine.executors._messages import Answer
from fedpace.engine.executors._rows import Rows
from fedpace.methods import LocalSGD
from tests.elsewhere import AWAY, HOST, Elsewhere, place
from tests.engine import small


@pytest.fixture
def started(monkeypatch):
    """How a context is made, and the arguments of processes that would have been started."""
    seen = {"methods": [], "places": []}

    class Context:
        def __init__(self, method):
            seen["methods"].append(method)

        def Pipe(self):  # noqa: N802  # multiprocessing's name
            return Pipe(), Pipe()

        def Process(self, target, args, **_):  # noqa: N802
            seen["places"].append(args[2])
            return Process()

    monkeypatch.setattr(processes.mp, "get_context", Context)
    return seen


class Pipe:
    def close(self):
        pass


class Process(Pipe):
    start = terminate = kill = join = Pipe.close


def starts(executor, device):
    executor.start(small.module(), small.federation(), device=device).close()


@pytest.mark.parametrize(
    ("workers", "expected"),
    [(None, ["cuda:0", "cuda:1"]), (3, ["cuda:0", "cuda:1", "cuda:0"]), (2, ["cuda:0", "cuda:1"])],
)
def test_workers_are_spawned_and_dealt_over_the_gpus(workers, expected, started, monkeypatch):
    monkeypatch.setattr(devices, "here", lambda: ["cuda:0", "cuda:1", "cpu"])
    starts(Processes(workers=workers), "cuda")
    assert started["methods"] == ["spawn"]
    assert [str(device) for device in started["places"]] == expected


def test_workers_may_share_the_gpu_that_is_named(started, monkeypatch):
    monkeypatch.setattr(devices, "here", lambda: ["cuda:0", "cuda:1", "cpu"])
    starts(Processes(workers=2), "cuda:1")
    assert [str(device) for device in started["places"]] == ["cuda:1", "cuda:1"]


def test_on_the_cpu_workers_are_forked_as_ever(started, monkeypatch):
    monkeypatch.setattr(processes, "can_fork", lambda: True)
    starts(Processes(workers=2), "cpu")
    assert (started["methods"], started["places"]) == (["fork"], [HOST, HOST])


def test_a_worker_answers_where_its_model_lies():
    worker = Worker(small.module(), small.federation())
    vector, buffers = worker.model.vector.clone(), worker.model.buffers.clone()
    turn = Turn(0, LocalSGD(max_steps=2).work(), seed=1, keeps_buffers=True)
    expected = small.copied(worker.answer(turn, vector, buffers, {}))
    with Elsewhere():
        worker.move(AWAY)
        assert {place(tensor) for tensor in worker.model.module.state_dict().values()} == {AWAY}
        answer = worker.answer(turn, vector, buffers, {"pace": torch.ones(len(vector))})
        assert answer.failure is None
        assert {place(answer.vector), *map(place, answer.state.values())} == {AWAY}
        row = Rows.like(Worker(small.module(), small.federation()), 1)[0]
        found = Answer.split(answer, row).joined(row)
        assert {place(found.vector), *map(place, found.state.values())} == {HOST}
        torch.testing.assert_close(found.vector, expected.vector)
        torch.testing.assert_close(found.state, expected.state)
        assert place(answer.to(HOST).vector) == HOST


def test_a_worker_that_is_where_it_should_be_does_not_move():
    worker = Worker(small.module(), small.federation())
    model = worker.model
    worker.move(HOST)
    assert worker.model is model


def test_a_resident_module_is_taken_along():
    """Views, gradients and tied parameters are what they are on the CPU; a module that lies elsewhere comes back."""
    layer = nn.Linear(3, 3)
    tied = nn.Sequential(layer, nn.BatchNorm1d(3), layer)
    with Elsewhere():
        flat = FlatModule(tied, device=AWAY)
        assert flat.device == AWAY
        places = {place(tensor) for tensor in (flat.vector, flat.gradient, flat.buffers.floats, flat.buffers.integers)}
        assert places == {AWAY}
        flat.module(torch.ones(4, 3).to(AWAY)).sum().backward()
        assert flat.gradient.any()
        flat.vector.zero_()
        assert not layer.weight.any()
        assert flat.module[0].weight is flat.module[2].weight
        back = FlatModule(tied)
        assert place(back.vector) == place(layer.weight) == HOST


def test_serial_aggregates_on_the_host_where_the_device_has_no_double_precision(monkeypatch):
    monkeypatch.setattr(devices, "here", lambda: ["mps", "cuda:0", "cpu"])
    with Elsewhere():
        for name, expected in (("mps", HOST), ("cuda", AWAY), ("cpu", HOST)):
            assert Serial().start(small.module(), small.federation(), device=name).device == expected

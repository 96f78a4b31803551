import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedpace.client import ClientWork
from fedpace.core import ClientError, Dropped, Update
from fedpace.engine import Processes, Serial, train
from fedpace.engine.worker import Turn, Worker
from fedpace.methods import LocalSGD
from tests.engine import small
from tests.processes import alive, has_proc, until
from tests.records import untimed


@pytest.fixture(scope="module")
def reference():
    return train(small.module(), small.federation(), small.plan(executor=Serial()))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_processes_give_bitwise_the_model_of_serial(reference, workers):
    outcome = train(small.module(), small.federation(), small.plan(executor=Processes(workers=workers)))
    assert torch.equal(small.weights(outcome.module), small.weights(reference.module))
    assert untimed(outcome.records) == untimed(reference.records)


def test_spawned_workers_agree_too(reference, monkeypatch):
    monkeypatch.setattr(sys.modules[Processes.__module__], "can_fork", lambda: False)
    outcome = train(small.module(), small.federation(), small.plan(executor=Processes(workers=2)))
    assert torch.equal(small.weights(outcome.module), small.weights(reference.module))


def test_serial_leaves_the_callers_random_numbers_and_threads_alone():
    torch.manual_seed(1)
    threads = torch.get_num_threads()
    expected = torch.rand(3)
    torch.manual_seed(1)
    train(small.module(), small.federation(), small.plan(executor=Serial(), rounds=5))
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


class Slow(ClientWork):
    """Answers after a time that falls with the client's number, so that later clients are ready first."""

    def __call__(self, vector, shard, context):
        time.sleep(0.05 * (4 - context.client))
        return Update(context.client, vector + context.client, len(shard), {"pid": os.getpid()})


def test_answers_come_in_the_order_of_the_tasks_and_rows_are_reused():
    federation, vector = small.federation(), torch.zeros(Worker(small.module(), small.federation()).model.layout.size)
    buffers = Worker(small.module(), federation).model.buffers
    turns = [Turn(client, Slow(), 0) for client in range(5)]
    with Processes(workers=2).start(small.module(), federation) as execution:
        for _ in range(2):
            answers = [small.copied(update) for update in execution.run(turns, vector, buffers)]
            assert [update.client for update in answers] == [0, 1, 2, 3, 4]
            assert [update.vector[0].item() for update in answers] == [0, 1, 2, 3, 4]
    assert len({update.metrics["pid"] for update in answers}) == 2


class KilledOnce(LocalSGD):
    """Trains, but the worker that first comes to a client is killed in the middle of its work."""

    marks: Path

    def turn(self, vector, shard, context):
        mark = self.marks / f"{context.client}"
        if context.client in (1, 3) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().turn(vector, shard, context)


def test_a_killed_worker_is_replaced_and_the_result_is_bitwise_the_same(reference, tmp_path):
    plan = small.plan(executor=Processes(workers=2), local=KilledOnce(max_steps=2, marks=tmp_path))
    outcome = train(small.module(), small.federation(), plan)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]
    assert torch.equal(small.weights(outcome.module), small.weights(reference.module))
    assert all(record.dropped == [] for record in outcome.records)


class AlwaysKilled(LocalSGD):
    """Client 1 kills every worker that tries it."""

    def turn(self, vector, shard, context):
        if context.client == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().turn(vector, shard, context)


def test_a_client_that_kills_every_worker_is_dropped_and_named():
    plan = small.plan(executor=Processes(workers=2), local=AlwaysKilled(max_steps=1), rounds=5)
    record = train(small.module(), small.federation(), plan).records[0]
    assert [drop.client for drop in record.dropped] == [1]
    assert "died 3 times" in record.dropped[0].reason


class StoppedOnce(LocalSGD):
    """Trains, but the worker that first comes to client 1 is stopped in the middle of its work."""

    mark: Path

    def turn(self, vector, shard, context):
        if context.client == 1 and not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().turn(vector, shard, context)


@has_proc
def test_a_stopped_worker_is_replaced_and_the_result_is_bitwise_the_same(reference, tmp_path):
    mark = tmp_path / "worker"
    plan = small.plan(executor=Processes(workers=2, turn_timeout=3), local=StoppedOnce(max_steps=2, mark=mark))
    outcome = train(small.module(), small.federation(), plan)
    assert torch.equal(small.weights(outcome.module), small.weights(reference.module))
    assert all(record.dropped == [] for record in outcome.records)
    assert not alive(int(mark.read_text()))


class Hangs(ClientWork):
    """Client 1 does not answer before a file is there."""

    until: Path = Path("never")

    def __call__(self, vector, shard, context):
        while context.client == 1 and not self.until.exists():
            time.sleep(0.02)
        return Update(context.client, vector, len(shard))


def asked(execution, turns):
    start = Worker(small.module(), small.federation()).model
    return [(update.client, update.failure) for update in execution.run(turns, start.vector, start.buffers)]


def test_a_client_that_hangs_twice_is_dropped_and_named():
    with Processes(workers=2, turn_timeout=1).start(small.module(), small.federation()) as execution:
        found = asked(execution, [Turn(client, Hangs(), 0) for client in range(3)])
    assert found == [(0, None), (1, "took longer than 1 s"), (2, None)]


def test_a_worker_that_is_stopped_while_it_is_told_something_long_is_replaced():
    long = {"long": torch.zeros(1_000_000)}  # more than a pipe holds, so that sending waits for the receiver
    with Processes(workers=1, turn_timeout=1).start(small.module(), small.federation()) as execution:
        os.kill(execution._processes[0].process.pid, signal.SIGSTOP)
        assert asked(execution, [Turn(0, Hangs(), 0, extras=long)]) == [(0, None)]


def test_without_a_time_limit_a_line_tells_of_a_silent_client(monkeypatch, tmp_path):
    module, said = sys.modules[Processes.__module__], []

    def warning(*words):
        said.append(words[0] % words[1:])
        (tmp_path / "told").touch()

    monkeypatch.setattr(module.log, "warning", warning)
    with Processes(workers=1).start(small.module(), small.federation()) as execution:
        (worker,) = execution._processes
        worker.patience = 0.1
        assert asked(execution, [Turn(1, Hangs(until=tmp_path / "told"), 0)]) == [(1, None)]
    assert said[0].startswith(f"client 1: no answer from its worker (process {worker.process.pid}) for")


def test_stopped_workers_end_with_their_run():
    with Processes(workers=2).start(small.module(), small.federation()) as execution:
        for worker in execution._processes:
            os.kill(worker.process.pid, signal.SIGSTOP)
    assert not any(worker.process.is_alive() for worker in execution._processes)


class Raises(LocalSGD):
    """Some clients fail."""

    failing: tuple[int, ...]

    def turn(self, vector, shard, context):
        if context.client in self.failing:
            raise RuntimeError("no such\nfile")
        return super().turn(vector, shard, context)


@pytest.mark.parametrize("executor", [Serial(), Processes(workers=2)], ids=["serial", "processes"])
def test_a_failing_client_is_dropped_and_the_round_goes_on(executor):
    plan = small.plan(executor=executor, local=Raises(max_steps=1, failing=(2,)), rounds=5)
    record = train(small.module(), small.federation(), plan).records[0]
    assert record.dropped == [Dropped(2, "RuntimeError: no such file")]
    assert record.train_loss > 0


def test_if_every_client_fails_the_run_stops_with_the_reason():
    plan = small.plan(executor=Serial(), local=Raises(failing=(0, 1, 2, 3, 4)), rounds=5)
    with pytest.raises(ClientError, match="every client failed in round 0; the first one with RuntimeError: no such"):
        train(small.module(), small.federation(), plan)


class Shaped(LocalSGD):
    """A client that sends a vector of the wrong length."""

    def turn(self, vector, shard, context):
        update = super().turn(vector, shard, context)
        if context.client == 0:
            update.vector = torch.zeros(7)
        return update


@pytest.mark.parametrize("executor", [Serial(), Processes(workers=2)], ids=["serial", "processes"])
def test_a_wrong_shape_is_dropped(executor):
    plan = small.plan(executor=executor, local=Shaped(max_steps=1), rounds=5)
    record = train(small.module(), small.federation(), plan).records[0]
    assert [drop.client for drop in record.dropped] == [0]
    assert "wrong shape" in record.dropped[0].reason


def test_no_worker_outlives_its_run():
    before = set(multiprocessing.active_children())
    train(small.module(), small.federation(), small.plan(executor=Processes(workers=2), rounds=5))
    assert set(multiprocessing.active_children()) <= before


def test_shared_memory_does_not_grow_with_the_number_of_clients():
    few = Processes(workers=2).start(small.module(), small.federation(3))
    many = Processes(workers=2).start(small.module(), small.federation(20))
    with few, many:
        assert len(few._rows) == len(many._rows) == 4


KILLED = """
import os, signal, time
from fedpace.engine import Processes
from tests.engine import small
from tests.records import untimed
from fedpace.core import Dropped

execution = Processes(workers=2).start(small.module(), small.federation())
print(*(worker.process.pid for worker in execution._processes), flush=True)
for worker in execution._processes:
    os.write(worker.pipe.fileno(), bytes([0, 0, 0, 9]))  # announces nine bytes, none of which will come
time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


@has_proc
def test_workers_of_a_server_that_was_killed_in_the_middle_of_a_message_end():
    root = Path(__file__).parents[2]
    found = subprocess.run([sys.executable, "-c", KILLED], cwd=root, stdout=subprocess.PIPE, text=True, timeout=60)
    assert found.returncode == -signal.SIGKILL
    workers = [int(pid) for pid in found.stdout.split()]
    assert len(workers) == 2
    assert until(lambda: not any(map(alive, workers)))

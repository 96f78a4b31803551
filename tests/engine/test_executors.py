import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from fedpace.client import ClientWork
from fedpace.core import ClientError, Dropped, Update
from fedpace.engine import Processes, Serial, train
from fedpace.engine.executors._rows import rows_for
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
        assert len(few._rows) == len(many._rows)


@pytest.mark.parametrize(("width", "expected"), [(1, 64), (100_000, 9), (1_000_000, 6)])
def test_rows_are_many_for_small_models_and_few_for_large_ones(width, expected):
    """Of 4 bytes a number: at most 32 a worker and 32 MB, but two a worker and two more."""
    worker = Worker(nn.Linear(9, width, bias=False), small.federation())
    assert rows_for(worker, workers=2) == expected


class Marks(ClientWork):
    """Leaves a mark for each turn that it does; the worker that first comes to client 3 is killed."""

    marks: Path

    def __call__(self, vector, shard, context):
        done = self.marks / f"{context.client}"
        done.write_text(done.read_text() + "x" if done.exists() else "x")
        if context.client == 3 and done.read_text() == "x":
            time.sleep(0.1)  # so that the turns before it are answered
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.03)
        return Update(context.client, vector + context.client, len(shard))


def test_of_a_lot_of_turns_only_those_that_were_not_answered_are_done_again(tmp_path):
    turns = [Turn(client, Marks(marks=tmp_path), 0) for client in range(6)]
    start = Worker(small.module(), small.federation(6)).model
    with Processes(workers=1).start(small.module(), small.federation(6)) as execution:
        found = [update.vector[0].item() for update in execution.run(turns, start.vector * 0, start.buffers)]
    assert found == [0, 1, 2, 3, 4, 5]
    assert [(tmp_path / f"{client}").read_text() for client in range(6)] == ["x", "x", "x", "xx", "x", "x"]


class Steady(ClientWork):
    """Takes a while, though never long."""

    def __call__(self, vector, shard, context):
        time.sleep(0.3)
        return Update(context.client, vector, len(shard))


def test_the_time_limit_is_that_of_one_turn_whatever_else_its_worker_has_to_do():
    with Processes(workers=1, turn_timeout=1).start(small.module(), small.federation()) as execution:
        assert asked(execution, [Turn(client, Steady(), 0) for client in range(5)]) == [(c, None) for c in range(5)]


class Remembers(ClientWork):
    """Keeps and sends along more than a pipe holds."""

    def __call__(self, vector, shard, context):
        kept = context.state["long"] + 1
        return Update(
            context.client, vector, len(shard), extras={"sent": kept + context.extras["all"]}, state={"long": kept}
        )


def test_what_is_longer_than_a_pipe_travels_both_ways_while_workers_are_busy():
    """A worker that sends does not listen: whoever sent it something long meanwhile would wait for ever."""
    start = Worker(small.module(), small.federation()).model
    turns = [Turn(c % 5, Remembers(), 0, state={"long": torch.full((300_000,), float(c))}) for c in range(12)]
    with Processes(workers=2).start(small.module(), small.federation()) as execution:
        extras = {"all": torch.ones(300_000)}
        found = [
            (update.state["long"][-1].item(), update.extras["sent"][-1].item())
            for update in execution.run(turns, start.vector, start.buffers, extras)
        ]
    assert found == [(c + 1, c + 2) for c in range(12)]


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

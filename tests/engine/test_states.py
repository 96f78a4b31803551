"""What clients keep survives interruption, in every executor, and is thrown away with what the server dropped."""

from zlib import crc32

import pytest
import torch
from safetensors.torch import save

from fedpace.core import RunFolderError, Update
from fedpace.engine import Cohort, Listener, Processes, Serial, train
from fedpace.engine.states import ClientStates
from fedpace.methods import LocalSGD, Scaffold
from fedpace.server import Guard, Schedule
from tests.engine import small
from tests.engine.faults import counted

SCAFFOLD = Scaffold(max_steps=2, lr=0.05)


def run(folder=None, resume=False, listeners=(), **changes):
    settings = {"schedule": Schedule(), "local": SCAFFOLD, "cohort": Cohort(number=3), "executor": Serial()}
    plan = small.plan(**{**settings, **changes})
    return train(small.module(), small.federation(), plan, folder=folder, resume=resume, listeners=listeners)


def state(value):
    return {"control": torch.full((3,), float(value))}


@pytest.fixture(params=["memory", "disk"])
def states(request, tmp_path):
    return ClientStates(tmp_path if request.param == "disk" else None)


def test_a_client_finds_what_it_kept_last(states):
    assert states.of(7) == {}
    for number in range(4):
        states.keep(7, number, state(number))
        assert torch.equal(states.of(7)["control"], state(number)["control"])
    assert states.of(8) == {}


def test_what_is_kept_is_a_copy(states):
    mine = state(1)
    states.keep(0, 0, mine)
    mine["control"].zero_()
    assert torch.equal(states.of(0)["control"], state(1)["control"])


def test_files_last_as_long_as_a_checkpoint_refers_to_them(tmp_path):
    states = ClientStates(tmp_path)
    indices = []
    for number in range(6):
        states.keep(0, number, state(number))
        if number == 0:
            states.keep(1, number, state(100))  # takes part only once
        indices.append(states.index())
        for earlier in indices[-2:]:
            assert states.holds(earlier)
    assert not states.holds(indices[0])
    assert len(list(tmp_path.glob("*.safetensors"))) <= 4


def test_going_back_to_a_checkpoint_goes_back_to_its_states(tmp_path):
    states = ClientStates(tmp_path)
    states.keep(0, 0, state(0))
    index = states.index()
    states.keep(0, 1, state(1))
    fresh = ClientStates(tmp_path)
    fresh.restore(index)
    assert torch.equal(fresh.of(0)["control"], state(0)["control"])
    for number in range(1, 6):
        fresh.keep(0, number, state(number))
    assert len(list(tmp_path.glob("*.safetensors"))) <= 3  # what was there before is cleared away too


def test_a_damaged_file_is_noticed(tmp_path):
    states = ClientStates(tmp_path)
    states.keep(0, 0, state(0))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert not states.holds(states.index())
    file.unlink()
    assert not states.holds(states.index())


def test_a_checkpoint_says_as_much_of_many_clients_as_of_few(tmp_path):
    states, sizes = ClientStates(tmp_path), []
    for number in range(20):
        for client in range(10 * number, 10 * number + 10):
            states.keep(client, number, state(client))
        with counted() as operations:
            index = states.index()
        assert len(operations) <= 2  # the first time, the list is written aside and renamed
        sizes.append([tensor.numel() for tensor in index.values()])
        assert (tmp_path / "list.bin").stat().st_size == 24 * 10 * (number + 1)
    assert sizes == [[2]] * 20
    assert states.holds(index)


def test_rows_of_rounds_that_are_done_again_are_not_in_the_list(tmp_path):
    states, indices = ClientStates(tmp_path), []
    for number in range(4):
        states.keep(number, number, state(number))
        indices.append(states.index())
    fresh = ClientStates(tmp_path)
    fresh.restore(indices[1])
    assert fresh.of(2) == {}
    fresh.keep(7, 2, state(7))
    again = fresh.index()
    last = ClientStates(tmp_path)
    assert last.holds(again)
    last.restore(again)
    assert [bool(last.of(client)) for client in (0, 1, 2, 3, 7)] == [True, True, False, False, True]
    anew = ClientStates(tmp_path)  # no checkpoint was left
    anew.keep(5, 0, state(5))
    assert ClientStates(tmp_path).holds(anew.index())


def test_a_torn_list_is_noticed_and_what_was_there_before_is_whole(tmp_path):
    states, indices = ClientStates(tmp_path), []
    for number in range(2):
        states.keep(number, number, state(number))
        indices.append(states.index())
    file = tmp_path / "list.bin"
    file.write_bytes(file.read_bytes()[:-5])
    assert [states.holds(index) for index in indices] == [True, False]
    file.unlink()
    assert [states.holds(index) for index in indices] == [False, False]


@pytest.mark.parametrize("client", [3, 123_456])
def test_the_states_of_earlier_versions_are_found(tmp_path, client):
    """One folder for all files, and in a checkpoint a row for each client."""
    data = save(state(1))
    (tmp_path / f"{client:05d}-00004.safetensors").write_bytes(data)
    index = {"clients.states": torch.tensor([[client, 4, crc32(data)]])}
    states = ClientStates(tmp_path)
    assert states.holds(index)
    states.restore(index)
    assert torch.equal(states.of(client)["control"], state(1)["control"])
    states.keep(client, 5, state(2))
    states.keep(9, 7, state(3))
    assert not (tmp_path / f"{client:05d}-00004.safetensors").exists()
    assert ClientStates(tmp_path).holds(states.index())
    assert torch.equal(states.of(client)["control"], state(2)["control"])


def test_files_of_very_many_clients_do_not_lie_in_one_folder(tmp_path):
    states = ClientStates(tmp_path)
    for client in (5, 10_000, 999_999):
        states.keep(client, 3, state(client))
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.safetensors")}
    expected = ("00005-00003", "001/10000-00003", "099/999999-00003")
    assert found == {f"{name}.safetensors" for name in expected}
    fresh = ClientStates(tmp_path)
    fresh.restore(states.index())
    assert torch.equal(fresh.of(999_999)["control"], state(999_999)["control"])


def test_a_full_disk_is_one_line(tmp_path):
    (tmp_path / "clients").write_text("a file where a folder should be")
    with pytest.raises(RunFolderError, match=r"state of client 3: cannot be written .*; the last checkpoint is intact"):
        ClientStates(tmp_path / "clients").keep(3, 0, state(0))


@pytest.fixture(scope="module")
def uninterrupted():
    return run()


def test_every_executor_gives_bitwise_the_same(uninterrupted, tmp_path):
    for executor, folder in (
        (Processes(workers=2), None),
        (Serial(), tmp_path / "serial"),
        (Processes(), tmp_path / "p"),
    ):
        other = run(folder, executor=executor)
        assert torch.equal(small.weights(other.module), small.weights(uninterrupted.module))


def test_controls_change_the_result(uninterrupted):
    plain = run(local=LocalSGD(max_steps=2, lr=0.05, optimizer="sgd", weight_decay=0))
    assert not torch.equal(small.weights(plain.module), small.weights(uninterrupted.module))


@pytest.mark.parametrize("damaged", [False, True])
def test_resume_is_bitwise_even_from_the_checkpoint_before_the_last(uninterrupted, tmp_path, damaged):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listeners=[Stop()])
    if damaged:
        newest = max((tmp_path / "clients").glob("*.safetensors"), key=lambda path: path.stem.split("-")[1])
        newest.write_bytes(b"torn")
    resumed = run(tmp_path, resume=True)
    assert torch.equal(small.weights(resumed.module), small.weights(uninterrupted.module))


def test_traffic_counts_a_second_vector_each_way(uninterrupted):
    plain = run(local=LocalSGD(max_steps=1), rounds=1).records[0]
    size = sum(p.numel() for p in small.module().parameters())
    first = uninterrupted.records[0]
    assert first.bytes_up - plain.bytes_up == first.bytes_down - plain.bytes_down == 3 * 4 * size


class Faulty(Scaffold):
    """Client 2 sends controls that nobody can use."""

    fault: str

    def turn(self, vector, shard, context):
        if context.client == 2:  # what it kept was thrown away with its update: it has what clients begin with
            assert not any(bool(kept.any()) for kept in context.state.values())
        update = super().turn(vector, shard, context)
        if context.client != 2:
            return update
        control = {"nan": update.extras["control"] * torch.nan, "shape": torch.zeros(3)}[self.fault]
        return Update(
            2, update.vector, update.examples, update.metrics, extras={"control": control}, state=update.state
        )


@pytest.mark.parametrize(("fault", "reason"), [("nan", "not finite"), ("shape", "does not fit")])
def test_a_client_with_unusable_extras_is_dropped_and_keeps_nothing(fault, reason):
    records = run(local=Faulty(fault=fault, max_steps=1), cohort=Cohort(), rounds=5).records
    for record in records:
        assert [dropped.client for dropped in record.dropped] == [2]
        assert reason in record.dropped[0].reason


def test_zero_coord_mends_extras_too():
    guard = Guard(nonfinite="zero_coord")
    assert run(local=Mended(max_steps=1), cohort=Cohort(), rounds=2, guard=guard).records[1].dropped == []


class Mended(Scaffold):
    """Client 2 sends controls that are not finite."""

    def turn(self, vector, shard, context):
        assert bool(context.extras["control"].isfinite().all())
        update = super().turn(vector, shard, context)
        if context.client == 2:
            update.extras["control"][:] = torch.inf
        return update

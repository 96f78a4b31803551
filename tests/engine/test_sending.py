"""What arrives of clients' vectors in each format, what their clients keep, and what no format is for."""

import pytest
import torch
from safetensors.torch import load_file

from fedpace.aggregation import Dampened, Mean
from fedpace.attacks import Gaussian
from fedpace.core import ConfigError, Update, parse
from fedpace.engine import Attackers, Cohort, Listener, Processes, Serial, Turn, Worker, train
from fedpace.engine.executors import executors
from fedpace.engine.sending import RESIDUAL, opened
from fedpace.methods import LocalSGD, Scaffold
from fedpace.models import build
from fedpace.server import Exchange, Guard, Pace, Privacy, Pruning, Schedule, Stage
from fedpace.server.clipping import Fixed
from fedpace.wire import BF16, Float32, Int8, Signs
from tests.elsewhere import AWAY, Elsewhere, place
from tests.engine import small
from tests.records import untimed
from tests.stages import stage_with

FORMATS = [BF16(), Int8(), Int8(residual="lost"), Signs(block=64)]
every_format = pytest.mark.parametrize("wire", FORMATS, ids=repr)
GRADIENTS = Stage(name="both", exchanges=(Exchange(sends="gradient", rule=Dampened()), Exchange()))


def linear():
    return build("linear", (1, 8, 8), 10, 0)


def run(folder=None, resume=False, listeners=(), **changes):
    settings = {"schedule": Schedule(), "executor": Serial(), "rounds": 3}
    plan = small.plan(**{**settings, **changes})
    return train(linear(), small.federation(), plan, folder=folder, resume=resume, listeners=listeners)


def same(a, b):
    return torch.equal(small.weights(a.module), small.weights(b.module)) and untimed(a.records) == untimed(b.records)


@every_format
def test_processes_give_bitwise_the_run_of_serial(wire):
    settings = {"schedule": Schedule(base=GRADIENTS), "rounds": 2}
    serial, spread = (run(wire=wire, executor=each, **settings) for each in (Serial(), Processes(workers=2)))
    assert same(serial, spread)
    assert not same(serial, run(**settings))


def test_what_loses_nothing_changes_nothing():
    assert same(run(wire=Float32()), run())


class Stop(Listener):
    """Interrupts a run after two rounds."""

    def finished_round(self, record):
        if record.round == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("local", [LocalSGD(max_steps=2), Scaffold(max_steps=2, lr=0.05)], ids=["sgd", "scaffold"])
def test_a_run_with_residuals_resumes_bitwise(tmp_path, local):
    settings = {"wire": Signs(), "local": local, "cohort": Cohort(number=3), "rounds": 4}
    whole = run(**settings)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", listeners=[Stop()], **settings)
    assert same(whole, run(tmp_path / "run", resume=True, **settings))


def test_another_format_is_another_run(tmp_path):
    run(tmp_path / "run", config={"wire": {"name": "int8"}})
    with pytest.raises(Exception, match=r"holds a run with wire.name = 'int8', this one has 'signs'"):
        run(tmp_path / "run", resume=True, config={"wire": {"name": "signs"}})


class Sends(LocalSGD):
    """Sends what a test says, and keeps a counter."""

    rows: tuple[tuple[float, ...], ...]

    def turn(self, vector, shard, context):
        turns = context.state.get("turns", torch.zeros(1))
        row = torch.tensor(self.rows[int(turns) % len(self.rows)])
        state = {"turns": turns + 1} if len(self.rows) > 1 else None
        return Update(context.client, row, len(shard), {"loss": 1.0}, state=state)


def turns_of(rows, wire, seed=0, extras=None):
    """What arrives turn after turn, and what is kept in the end."""
    worker = Worker(linear(), small.federation())
    start, state, arrived = torch.zeros(len(rows[0])), {}, []
    for number in range(len(rows) if len(rows) > 1 else 6):
        turn = Turn(0, Sends(rows=rows).work(), seed + number, state=state, wire=wire)
        update = worker.answer(turn, start, worker.model.buffers, extras or {})
        assert update.failure is None
        read = opened(wire, update.encoded, len(start), None if extras is None else extras["pace"] == 0)
        torch.testing.assert_close(read, update.vector, atol=0, rtol=0, equal_nan=True)
        arrived.append(update.vector.clone())
        state = update.state if update.state is not None else state
    return torch.stack(arrived), state


ROWS = tuple(tuple(row) for row in torch.randn(7, 40, generator=torch.Generator().manual_seed(1)).tolist())


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=["a method with a state", "a method without one"])
@pytest.mark.parametrize("wire", [BF16(), Int8(block=7), Signs(block=16)], ids=repr)
def test_what_was_lost_is_added_to_the_next_vector(wire, rows):
    arrived, state = turns_of(rows, wire)
    (left,) = (tensor for name, tensor in state.items() if name.startswith(RESIDUAL))
    meant = torch.tensor(rows).expand(len(arrived), -1).sum(dim=0)
    torch.testing.assert_close(arrived.sum(dim=0) + left, meant, atol=1e-5, rtol=1e-5)
    assert left.any()
    assert ("turns" in state) == (len(rows) > 1)


def test_a_residual_that_is_lost_leaves_no_state():
    arrived, state = turns_of(ROWS[:1], Int8(residual="lost"))
    assert state == {}
    assert all(torch.equal(row, arrived[0]) for row in arrived)


def test_values_that_are_not_finite_do_not_stay_in_the_residual():
    broken = ((1.0, float("nan"), -2.0), (1.0, 2.0, 4.0))
    arrived, state = turns_of(broken, Int8())
    assert not arrived[0].isfinite().any()
    assert state[f"{RESIDUAL}turn"].isfinite().all()
    torch.testing.assert_close(arrived[1], torch.tensor(broken[1]), atol=0.05, rtol=0)


@pytest.mark.parametrize("wire", [Float32(), BF16(), Int8(), Signs()], ids=repr)
def test_frozen_coordinates_do_not_travel(wire):
    pace = torch.ones(40)
    pace[5:25] = 0
    arrived, _ = turns_of(ROWS, wire, extras={"pace": pace})
    assert not arrived[:, 5:25].any()
    assert arrived[:, :5].any()
    worker = Worker(linear(), small.federation())
    turn = Turn(0, Sends(rows=ROWS).work(), 0, wire=wire)
    assert len(worker.answer(turn, torch.zeros(40), worker.model.buffers, {"pace": pace}).encoded) == wire.bytes_for(20)


def test_updates_and_gradients_have_residuals_of_their_own(tmp_path):
    run(tmp_path / "run", wire=Int8(), schedule=Schedule(base=GRADIENTS), rounds=1)
    files = sorted((tmp_path / "run" / "clients").glob("*.safetensors"))
    assert len(files) == 5
    assert set(load_file(files[0])) == {f"{RESIDUAL}turn", f"{RESIDUAL}gradient"}


class Spoils(LocalSGD):
    """Client 1 sends NaN."""

    def turn(self, vector, shard, context):
        update = super().turn(vector, shard, context)
        if context.client == 1:
            update.vector[0] = float("nan")
        return update


@pytest.mark.parametrize("executor", [Serial(), Processes(workers=2)], ids=["serial", "processes"])
@every_format
def test_a_client_that_diverged_is_dropped_and_named_whatever_the_format(wire, executor, tmp_path):
    outcome = run(tmp_path / "run", wire=wire, local=Spoils(max_steps=1), executor=executor, rounds=2)
    assert [[(each.client, each.reason) for each in record.dropped] for record in outcome.records] == [
        [(1, "not finite")]
    ] * 2
    kept = {path.name[:5] for path in (tmp_path / "run").glob("clients/*.safetensors")}
    assert kept == ({"00000", "00002", "00003", "00004"} if wire.keeps_residual else set())


def test_nothing_is_measured_or_probed_with_a_residual():
    seen = []

    class Spy(Serial):
        def start(self, *args, **options):
            execution = super().start(*args, **options)
            whole = execution.run

            def spied(turns, *model):
                seen.extend((turn.work.registered_name(), f"{RESIDUAL}turn" in turn.state) for turn in turns)
                return whole(turns, *model)

            execution.run = spied
            return execution

    run(wire=Int8(), executor=Spy(), schedule=small.every_stage(), rounds=small.ROUNDS)
    assert {name for name, _ in seen} == {"turn", "gradient", "probe", "evaluation"}
    assert {name for name, has in seen if has} == {"turn", "gradient"}


def test_bytes_are_those_of_the_format():
    def sent(**changes):
        records = run(**changes).records
        assert len({record.bytes_down for record in records}) == 1
        (up,) = {record.bytes_up for record in records}
        return up

    model = Worker(linear(), small.federation()).model
    statistics = len(model.buffers.floats) + len(model.buffers.integers)
    for wire in (Float32(), *FORMATS):
        assert sent(wire=wire) == 5 * (wire.bytes_for(len(model.vector)) + 4 * statistics)


class Look(Mean):
    """Keeps what arrives of each client."""

    seen: list[torch.Tensor]

    def start(self, size, clients, dtype=torch.float32):
        stream = super().start(size, clients, dtype)
        take = stream.add

        def add(update, weight=1.0):
            self.seen.append(update.clone())
            take(update, weight)

        stream.add = add
        return stream


def arrived_of(**changes):
    """The vectors of a round, in one block of signs."""
    seen = []
    rule = Look.model_construct(seen=seen)
    run(wire=Signs(block=10**9), schedule=Schedule(base=stage_with(rule=rule)), rounds=1, **changes)
    assert len(seen) == 5
    return seen


@pytest.mark.parametrize("executor", executors.names())
def test_whatever_the_executor_signs_and_a_scale_arrive(executor):
    for update in arrived_of(executor=parse(executors, executor)):
        assert len(update.abs().unique()) == 1
        assert update.any()


def test_attackers_send_what_the_format_carries():
    """Of noise of any size no more arrives than signs and a scale."""
    for update in arrived_of(attackers=Attackers(frozenset({0, 1}), Gaussian(), seed=0)):
        assert len(update.abs().unique()) == 1


def test_a_turn_on_another_device_arrives_there():
    worker = Worker(linear(), small.federation())
    turn = Turn(0, LocalSGD(max_steps=1).work(), 0, wire=Int8())
    expected = worker.answer(turn, worker.model.vector.clone(), worker.model.buffers, {}).vector.clone()
    with Elsewhere():
        vector, buffers = worker.model.vector.clone(), worker.model.buffers
        worker.move(AWAY)
        worker.model.vector.copy_(vector)
        update = worker.answer(turn, vector, buffers, {"pace": torch.ones(len(vector))})
        assert update.failure is None
        assert place(update.vector) == place(update.state[f"{RESIDUAL}turn"]) == AWAY
        assert update.vector.shape == expected.shape


PRIVATE = {"guard": Guard(clip=Fixed()), "cohort": Cohort(number=3)}
UNIFORM = Schedule(base=Stage(exchanges=(Exchange(weights="uniform"),)))
COUNTS = Schedule(
    stages=(stage_with(name="prune", first=1, sends="gradient", rule=Dampened(), counts=True, prunes=True),),
    pruning=Pruning(threshold=0.3),
)


def private(sampling):
    return Privacy(noise=1.0, delta=1e-3, sampling=sampling)


def test_pruning_needs_zeros_that_signs_do_not_have():
    with pytest.raises(ConfigError, match="stage 'prune' counts conflict where a client moved, and wire = 'signs'"):
        run(wire=Signs(), schedule=COUNTS)
    assert len(run(wire=Int8(), schedule=COUNTS).records) == 3


def test_residuals_and_fixed_private_cohorts_do_not_go_together():
    pytest.importorskip("dp_accounting")
    with pytest.raises(ConfigError, match=r"privacy: with wire = 'int8' a client sends what it lost in earlier rounds"):
        run(wire=Int8(), privacy=private("fixed"), schedule=UNIFORM, **PRIVATE)
    for wire, sampling in ((Int8(residual="lost"), "fixed"), (Int8(), "poisson")):
        records = run(wire=wire, privacy=private(sampling), schedule=UNIFORM, **PRIVATE).records
        assert all(record.epsilon > 0 for record in records)


def test_the_guard_bounds_what_arrives():
    """A vector of signs may be longer than what it stands for; noise is for what the guard has clipped."""
    pytest.importorskip("dp_accounting")
    clip = Guard(clip=Fixed(norm=1e-3))
    records = run(wire=Signs(), privacy=private("poisson"), schedule=UNIFORM, guard=clip).records
    assert all(len(record.shortened) == record.used > 0 for record in records if record.cohort)
    assert any(record.cohort for record in records)


def test_a_pace_works_with_any_format():
    paced = Schedule(base=stage_with(name="pace", pace=Pace()))
    outcomes = [run(wire=wire, schedule=paced) for wire in (Float32(), Signs())]
    assert all(record.train_loss is not None for outcome in outcomes for record in outcome.records)
    assert outcomes[0].records[2].bytes_up > 25 * outcomes[1].records[2].bytes_up

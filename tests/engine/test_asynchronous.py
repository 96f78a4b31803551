"""Who is under way when, without any training; then whole runs of clients that do not wait for one another."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import load_file

from fedpace.aggregation import Masked, Mean
from fedpace.attacks import SignFlip
from fedpace.core import ConfigError, derive
from fedpace.data import load
from fedpace.engine import (
    Asynchronous,
    Attackers,
    Cohort,
    EqualSpeeds,
    Listener,
    LognormalSpeeds,
    Measuring,
    Processes,
    Serial,
    Simulation,
    SpeedsByExamples,
    Step,
    read_rounds,
    train,
)
from fedpace.methods import FedPAC, FedRep, LocalSGD, Scaffold
from fedpace.server import Annealing, Exchange, Freezing, Guard, Pace, Privacy, Pruning, Schedule, Stage
from tests.engine import small
from tests.records import untimed
from tests.stages import stage_with

STEPS = 12


class Watched(Simulation):
    """Notes who is under way, and how many wait in the buffer, whenever time is about to pass."""

    def __init__(self, settings, durations, seed):
        super().__init__(settings, len(durations), durations.__getitem__, seed)
        self.settings, self.durations, self.moments = settings, durations, []

    def _begin(self, number, waiting):
        begun = super()._begin(number, waiting)
        self.moments.append(([one.client for one in self._queue], set(waiting)))
        return begun


def simulation(durations, buffer, concurrency, seed=0):
    return Watched(Asynchronous(buffer=buffer, concurrency=concurrency), durations, seed)


def steps(simulated, number=STEPS):
    """One after another, so that one can look at the simulation after each."""
    return (simulated.step(each) for each in range(number))


@st.composite
def simulations(draw):
    """With so many clients that there is always one that neither works nor waits, and with fewer."""
    buffer = draw(st.integers(1, 4))
    concurrency = draw(st.integers(buffer, 6))
    clients = draw(st.integers(concurrency, concurrency + buffer + 3))
    durations = draw(st.lists(st.floats(0.1, 3.0), min_size=clients, max_size=clients))
    return simulation(durations, buffer, concurrency, draw(st.integers(0, 3)))


@given(simulations())
def test_exactly_as_many_are_under_way_as_there_should_be(simulated):
    """Each of them once; fewer only where nobody is left who neither works nor waits."""
    clients, concurrency = len(simulated.durations), simulated.settings.concurrency
    assert len(list(steps(simulated))) == STEPS
    assert simulated.moments
    for working, waiting in simulated.moments:
        assert len(working) == len(set(working)) == min(concurrency, clients - len(waiting))
        assert not waiting.intersection(working)
        assert len(waiting) < simulated.settings.buffer


@given(simulations())
def test_who_arrives_was_under_way_and_nobody_is_lost(simulated):
    before = set()
    for step in steps(simulated):
        assert len(step.arrived) == simulated.settings.buffer
        assert sorted([*before, *step.begun]) == sorted([*simulated.clients, *step.arrived])
        before = simulated.clients


@given(simulations())
def test_staleness_counts_the_steps_since_a_client_began(simulated):
    began = {}
    for step in steps(simulated):
        began |= dict.fromkeys(step.begun, step.number)
        assert step.arrived == {client: began[client] for client in step.arrived}
        assert step.staleness == {client: step.number - began[client] for client in step.arrived}
        assert step.cohort == sorted(step.arrived, key=lambda client: (began[client], client))
        assert [client for _, group in step.groups() for client in group] == step.cohort
        assert all(began[client] == round_ for round_, group in step.groups() for client in group)


@given(simulations())
def test_only_versions_in_which_somebody_began_are_needed(simulated):
    began = {}
    for step in steps(simulated):
        began |= dict.fromkeys(step.begun, step.number)
        assert simulated.under_way == {began[client] for client in simulated.clients}
        assert len(simulated.under_way) <= simulated.settings.concurrency


@given(simulations())
def test_a_client_takes_as_long_as_it_takes(simulated):
    """Between a client's arrivals lie at least as many turns as there are times."""
    found = list(steps(simulated))
    times = [step.time for step in found]
    assert times == sorted(times)
    for client, duration in enumerate(simulated.durations):
        arrivals = [step.time for step in found if client in step.arrived]
        assert all(later >= number * duration - 1e-9 for number, later in enumerate(arrivals, start=1))


def test_a_course_that_can_be_followed_by_hand():
    """Three of three clients, who take 1, 2 and 5; whoever waits in the buffer is not asked again before the step."""
    found = list(steps(simulation([1.0, 2.0, 5.0], buffer=2, concurrency=3), 4))
    assert found == [
        Step(0, {0: 0, 1: 0}, [0, 1, 2], 2.0),  # client 0 arrives at 1 and waits
        Step(1, {0: 1, 1: 1}, [0, 1], 4.0),  # at 3 and at 4
        Step(2, {2: 0, 0: 2}, [0, 1], 5.0),  # both at 5
        Step(3, {1: 2, 0: 3}, [0, 2], 6.0),  # both at 6
    ]
    assert found[2].staleness == {2: 2, 0: 0}


def test_equal_durations_and_a_whole_buffer_are_synchronous_rounds():
    for step in steps(simulation([1.0] * 9, buffer=4, concurrency=4, seed=5)):
        assert step.cohort == list(step.begun) == Cohort(number=4).sample(9, seed=5, round_number=step.number)
        assert set(step.staleness.values()) == {0}
        assert step.time == step.number + 1


def test_with_equal_durations_staleness_is_concurrency_by_buffer():
    """Three buffers full of clients arrive at once: the last one is two steps old."""
    found = list(steps(simulation([1.0] * 30, buffer=4, concurrency=12), 6))
    assert [set(step.staleness.values()) for step in found] == [{0}, {1}, {2}, {0}, {1}, {2}]
    assert [step.time for step in found] == [1, 1, 1, 2, 2, 2]


@given(simulations(), st.integers(0, STEPS))
def test_a_simulation_goes_on_from_its_state(simulated, stop):
    whole, half, other = (Watched(simulated.settings, simulated.durations, 7) for _ in range(3))
    expected = list(steps(whole))
    assert list(steps(half, stop)) == expected[:stop]
    other.load_state(half.state())
    assert [other.step(number) for number in range(stop, STEPS)] == expected[stop:]


def test_who_is_drawn_follows_from_the_seed():
    durations = [1.0 + 0.1 * client for client in range(20)]
    first, again, other = (list(steps(simulation(durations, 3, 6, seed))) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert {client for step in steps(simulation(durations, 3, 6), 60) for client in step.cohort} == set(range(20))


def test_a_million_clients_cost_no_more_than_those_under_way():
    asked = []

    def duration(client):
        asked.append(client)
        return 1.0 + client % 7

    found = list(steps(Simulation(Asynchronous(buffer=3, concurrency=6), 10**6, duration, 0), 20))
    assert len(asked) == sum(len(step.begun) for step in found) < 100
    assert len({client for step in found for client in step.cohort}) == 60, "hardly anybody is drawn twice"


# Whole runs.


def run(folder=None, resume=False, listeners=(), clients=8, module=None, federation=None, **changes):
    settings = {
        "schedule": Schedule(),
        "rounds": 6,
        "seed": 3,
        "executor": Serial(),
        "speeds": LognormalSpeeds(sigma=1),
    }
    settings |= {"asynchronous": Asynchronous(buffer=2, concurrency=5), "local": LocalSGD(max_steps=1, batch=8)}
    settings |= {"measuring": Measuring(per_client=0)}
    plan = small.plan(**{**settings, **changes})
    federation = federation or small.federation(clients)
    return train(module or small.module(), federation, plan, folder=folder, resume=resume, listeners=listeners)


def durations(clients):
    found = LognormalSpeeds(sigma=1).of(LocalSGD(), small.federation(clients).clients, 3)
    return [found(client) for client in range(clients)]


def named(changes):
    """What a case is called."""
    return ", ".join(changes) if isinstance(changes, dict) else ""


def same(one, other):
    return torch.equal(small.weights(one.module), small.weights(other.module))


def test_rounds_are_those_of_the_simulation_and_say_so():
    records = run().records
    for record, step in zip(records, steps(simulation(durations(8), 2, 5, 3)), strict=False):
        assert (record.cohort, record.time, record.staleness) == (step.cohort, step.time, step.staleness)
        assert record.bytes_down == record.bytes_up // 2 * len(step.begun), "θ goes to those who begin"
        assert record.used == 2
    assert max(max(record.staleness.values()) for record in records) > 1


@pytest.mark.parametrize("clients", [5, 8])
@pytest.mark.parametrize(
    "changes", [{}, {"local": Scaffold(max_steps=2)}, {"schedule": Schedule(base=stage_with(pace=Pace()))}], ids=named
)
def test_with_equal_speeds_and_a_buffer_for_all_it_is_synchronous_fedavg_bitwise(clients, changes):
    """Be they all clients, or some of them that are drawn."""
    equal = {"speeds": EqualSpeeds(), "clients": clients, "rounds": 3, **changes}
    buffered = run(asynchronous=Asynchronous(buffer=5, concurrency=5), **equal)
    synchronous = run(asynchronous=None, cohort=Cohort(number=5), **equal)
    assert same(buffered, synchronous)
    unstale = [replace(record, staleness={}) for record in buffered.records]
    assert untimed(unstale) == untimed(synchronous.records)
    assert [record.time for record in synchronous.records] == [1, 2, 3]


def test_processes_give_bitwise_the_run_of_serial():
    serial = run(local=Scaffold(max_steps=1))
    for workers in (1, 3):
        spread = run(local=Scaffold(max_steps=1), executor=Processes(workers=workers))
        assert same(serial, spread)
        assert untimed(serial.records) == untimed(spread.records)


SEEN = []


class Sees:
    """Notes what a client was sent."""

    def turn(self, vector, shard, context):
        extras = {name: tensor.clone() for name, tensor in context.extras.items()}
        SEEN.append((context.client, context.seed, vector.clone(), extras))
        return super().turn(vector, shard, context)


class SeesControl(Sees, Scaffold):
    """The server's control goes to all clients."""


class SeesHead(Sees, FedPAC):
    """Prototypes go to all clients, a head to each that took part."""


def personal(clients=8):
    return load("digits").partition("iid", clients=clients, seed=0, test_share=0.3, limit=40)


@pytest.mark.parametrize(("local", "names"), [(SeesControl, {"control"}), (SeesHead, {"head", "prototypes"})])
def test_clients_train_from_what_the_server_sent_when_they_began(tmp_path, local, names):
    class Keep(Listener):
        def finished_round(self, record):
            states.append(load_file(tmp_path / f"checkpoint/round-{record.round:05d}/state.safetensors"))

    SEEN.clear()
    states = []
    method = local(max_steps=1, batch=8)
    records = run(tmp_path, local=method, listeners=[Keep()], federation=personal(), rounds=10).records
    turns = iter(SEEN)
    for record in records:
        for client, staleness in record.staleness.items():
            began = record.round - staleness
            who, seed, vector, extras = next(turns)
            assert (who, seed) == (client, derive(3, "client", began, client, 0))
            if began:
                state = states[began - 1]
                assert torch.equal(vector, state["vector"])
                for name in ("control", "prototypes", f"head.{client}"):
                    sent, held = extras.get(name.partition(".")[0]), state.get(f"memory.{name}")
                    assert (sent is None) == (held is None)
                    assert sent is None or torch.equal(sent.nan_to_num(), held.nan_to_num())
    assert list(turns) == []
    assert set().union(*(extras for *_, extras in SEEN)) == names


def test_a_version_is_kept_as_long_as_somebody_under_way_began_there(tmp_path):
    class Keep(Listener):
        def finished_round(self, record):
            state = load_file(tmp_path / f"checkpoint/round-{record.round:05d}/state.safetensors")
            kept.append({int(name.split(".")[1]) for name in state if name.startswith("versions.")})

    kept = []
    run(tmp_path, listeners=[Keep()])
    simulated = simulation(durations(8), 2, 5, 3)
    for versions, _ in zip(kept, steps(simulated), strict=False):
        assert versions == simulated.under_way


def test_old_updates_count_for_less():
    """By a mean of which each client's share is known."""
    flat = run(asynchronous=Asynchronous(buffer=2, concurrency=5, staleness="constant"))
    default = run()
    steep = run(asynchronous=Asynchronous(buffer=2, concurrency=5, staleness={"name": "polynomial", "a": 0.5}))
    assert same(default, steep)
    assert not same(default, flat)
    first_old = next(r.round for r in flat.records if len(set(r.staleness.values())) > 1)
    losses = [[record.metrics["loss"] for record in one.records] for one in (flat, default)]
    assert losses[0][:first_old] == losses[1][:first_old], "among updates that are equally old nothing changes"
    assert losses[0][first_old] != losses[1][first_old]


PERSONAL = {"personal": FedRep(max_steps=1), "own extras": FedPAC(max_steps=1)}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"local": Scaffold(max_steps=1)},
        {"schedule": Schedule(base=stage_with(rule=Masked(), pace=Pace()))},
        {"schedule": Schedule(base=stage_with(counts=True, prunes=True), pruning=Pruning(threshold=0.6))},
        {"schedule": Schedule(base=stage_with(sends="gradient"))},
        {"buffers": "local"},
        {"guard": Guard(clip={"name": "adaptive", "first": 0.1}, growth=1.0)},
        {"speeds": SpeedsByExamples()},
        {"local": PERSONAL["personal"]},
        {"local": PERSONAL["own extras"]},
    ],
    ids=named,
)
def test_what_can_be_combined_resumes_bitwise(tmp_path, changes):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 2:
                raise KeyboardInterrupt

    if changes.get("local") in PERSONAL.values():
        changes = changes | {"federation": personal()}
    whole = run(**changes)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listeners=[Stop()], **changes)
    resumed = run(tmp_path, resume=True, **changes)
    assert same(resumed, whole)
    assert untimed(read_rounds(tmp_path)) == untimed(whole.records)


def test_attackers_forge_what_arrives():
    federation = small.federation(8)
    attackers = Attackers.among(8, 0.25, SignFlip(), 3)
    assert not same(run(attackers=attackers, federation=federation), run(federation=federation))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speeds": None}, "asynchronous: who arrives when follows from speeds; expected speeds = 'lognormal'"),
        ({"cohort": Cohort(number=2)}, "asynchronous: .* expected no cohort beside it"),
        ({"clients": 4}, r"asynchronous\.concurrency: 5 clients are to train at a time, but there are only 4"),
        ({"guard": Guard(max_share=0.6)}, r"asynchronous: .* guard\.max_share"),
        ({"privacy": Privacy(noise=1.0, delta=1e-3)}, "asynchronous: privacy is accounted for clients that"),
        (
            {"schedule": Schedule(base=stage_with(search=Annealing()))},
            "asynchronous: stage 'fedavg' searches where clients are at one θ",
        ),
        (
            {"schedule": Schedule(base=stage_with(pace=Pace(), freezes=Freezing(share=0.5, per_round=0.1)))},
            "asynchronous: stage 'fedavg' freezes",
        ),
        ({"schedule": Schedule(base=Stage(exchanges=(Exchange(), Exchange())))}, "stage 'fedavg' asks it twice"),
        (
            {"schedule": Schedule(stages=(stage_with(name="dampen", first=1, sends="gradient"),))},
            "updates or gradients, not both; stages ask for 'fedavg' updates, 'dampen' gradients$",
        ),
    ],
    ids=named,
)
def test_what_cannot_be_combined_is_refused_in_one_line(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()


def test_a_buffer_larger_than_the_number_of_clients_under_way_is_refused():
    with pytest.raises(ValidationError, match="buffer = 6 above concurrency = 5 would wait"):
        Asynchronous(buffer=6, concurrency=5)


def test_fewer_clients_than_wait_and_work_are_told_of():
    assert run(clients=6).warnings == []
    message = "asynchronous: of 5 clients, as few as 4 train where 1 wait in the buffer, not 5"
    assert [warning[: len(message)] for warning in run(clients=5).warnings] == [message]


def test_time_of_synchronous_rounds_is_that_of_the_slowest_client(tmp_path):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 1:
                raise KeyboardInterrupt

    twice = Schedule(base=Stage(exchanges=(Exchange(), Exchange(rule=Mean()))))
    together = {"asynchronous": None, "cohort": Cohort(number=3), "schedule": twice, "rounds": 4}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listeners=[Stop()], **together)
    records = run(tmp_path, resume=True, **together).records
    slowest = [2 * max(durations(8)[client] for client in record.cohort) for record in records]
    assert [record.time for record in records] == pytest.approx([sum(slowest[: i + 1]) for i in range(4)])
    assert all(record.staleness == {} for record in records)
    assert [record.time for record in run(speeds=None, **together).records] == [None] * 4


def test_a_search_has_no_virtual_time():
    searching = Schedule(base=stage_with(name="anneal", search=Annealing()))
    with pytest.raises(ConfigError, match=r"^speeds: .* the probes of stage 'anneal' have none; expected no search"):
        run(asynchronous=None, schedule=searching)

"""A run on Flower's messages is the run of our own engine, to the bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr")

from flwr.app import Error, Message

from fedpace.core import ClientError, ConfigError
from fedpace.engine import Listener
from fedpace.experiments.engines import node_of, run_on, run_on_grid
from fedpace.experiments.presets import load_config
from fedpace.experiments.run import Result, execute
from fedpace.flower import InProcessGrid, OnGrid, client_app
from fedpace.flower.execution import WHO
from tests.methods.bench import METHODS
from tests.records import untimed

FAST = {"data.source": "digits", "model": "linear", "rounds": 3, "local.max_steps": 3, "executor": "serial"}
PERSONAL = {"model": "small_cnn", "data.partition.clients": 4, "data.partition.limit": 40}


def config(preset, **changes):
    settings = FAST | {key.replace("__", "."): value for key, value in changes.items()}
    return load_config(preset, settings)


def toml(value):
    """As it is typed after --set."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def equal(a, b):
    pairs = zip(a.module.state_dict().values(), b.module.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def same_records(a, b):
    return untimed(a.records) == untimed(b.records)


BOUNDS = {
    "guard.max_share": 0.4,
    "guard.growth": 1.0,
    "attackers": 0.4,
    "attack": "false_examples",
}


@pytest.mark.parametrize("clip", [{"name": "adaptive", "first": 1e-3}, "quantile"], ids=str)
def test_bounds_are_bitwise_the_same_on_every_engine(clip):
    chosen = load_config("fedavg", {**FAST, **BOUNDS, "guard.clip": clip})
    workers = load_config("fedavg", {**FAST, **BOUNDS, "guard.clip": clip, "executor": "processes"})
    local, spread, flower = run_on("local", chosen), run_on("local", workers), run_on("flower-inprocess", chosen)
    assert equal(local, spread)
    assert equal(local, flower)
    assert same_records(local, spread)
    assert same_records(local, flower)
    assert any(record.shortened for record in local.records)
    assert any(record.capped for record in local.records)


@pytest.mark.parametrize("preset", ["gma", "scaffold", "fedpac"])
def test_asynchronous_runs_are_bitwise_the_same_on_every_engine(preset):
    """FedPAC sends each client something of its own, which must be that of when it began."""
    settings = {"asynchronous.buffer": 2, "asynchronous.concurrency": 4, "speeds": {"name": "lognormal", "sigma": 1.0}}
    settings |= {"data.partition.clients": 6, "rounds": 5}
    settings |= PERSONAL | {"data.partition.clients": 6} if preset == "fedpac" else {}
    chosen = load_config(preset, {**FAST, **settings})
    spread = run_on("local", load_config(preset, {**FAST, **settings, "executor": "processes"}))
    local, flower = run_on("local", chosen), run_on("flower-inprocess", chosen)
    assert equal(local, spread)
    assert same_records(local, spread)
    assert same_records(local, flower)
    assert preset == "fedpac" or equal(local, flower)  # whose heads stay on the nodes
    assert max(max(record.staleness.values()) for record in local.records) > 1


def test_asynchronous_rounds_have_no_secure_sums():
    settings = {"asynchronous.buffer": 3, "asynchronous.concurrency": 3, "speeds": "equal", "secure": True}
    with pytest.raises(ConfigError, match=r"^asynchronous: .*; expected no secure$"):
        run_on("flower-inprocess", config("fedavg", **settings))


@pytest.mark.parametrize("rule", ["mean", "masked"])
def test_private_runs_are_bitwise_the_same_on_every_engine(rule):
    """Rounds without clients included."""
    private = {"privacy": {"noise": 0.1, "delta": 1e-3}, "guard.clip": "adaptive", "cohort.fraction": 0.3}
    chosen = load_config("fedavg", {**FAST, **private, "aggregate.weights": "uniform", "aggregate.rule": rule})
    local, flower = run_on("local", chosen), run_on("flower-inprocess", chosen)
    assert equal(local, flower)
    assert same_records(local, flower)
    assert not all(record.cohort for record in local.records)


@pytest.mark.parametrize("preset", ["fedpace", "fedgga", "fedpace-authors-run", "gma", "fedadam", "scaffold"])
def test_ten_rounds_are_bitwise_those_of_the_local_engine(preset):
    chosen = load_config(preset, {key: value for key, value in FAST.items() if key != "rounds"}).shortened(10)
    local, flower = run_on("local", chosen), run_on("flower-inprocess", chosen)
    assert equal(local, flower)
    assert same_records(local, flower)


@pytest.mark.parametrize("preset", METHODS)
def test_personal_methods_are_bitwise_those_of_the_local_engine(preset):
    chosen = load_config(preset, FAST | PERSONAL)
    assert same_records(run_on("local", chosen), run_on("flower-inprocess", chosen))


@pytest.fixture
def kinds(tmp_path):
    """A table with gaps and categories, whose clients are its hospitals, and a text whose last window is shorter."""
    rows = "".join(f"{'nsw'[i % 3]},{i % 7 or ''},{'abc'[i * i % 3]},{(i * 37 % 11) / 7}\n" for i in range(90))
    (tmp_path / "patients.csv").write_text("hospital,age,kind,outcome\n" + rows)
    (tmp_path / "novel.txt").write_text("the quick brown fox jumps over the lazy dog, and so it goes. " * 20 + "end")
    return {
        "table": {
            "data.source": str(tmp_path / "patients.csv"),
            "data.options": {"target": "outcome", "leave_out": ["hospital"]},
            "data.partition": {"name": "by", "column": "hospital", "test_share": 0.25},
            "model": "mlp",
        },
        "text": {
            "data.source": str(tmp_path / "novel.txt"),
            "data.options": {"length": 17},
            "data.partition": {"name": "iid", "clients": 3},
            "model": {"name": "tiny_transformer", "width": 16, "layers": 1},
        },
    }


@pytest.mark.parametrize("preset", ["fedpace", "fedrep"])
@pytest.mark.parametrize("kind", ["table", "text"])
def test_tables_and_texts_are_bitwise_equal_on_every_engine(kinds, kind, preset, tmp_path):
    settings = {**kinds[kind], "rounds": 3, "local.max_steps": 3, "measuring.per_client": 5}
    if preset == "fedrep":
        settings["data.partition"] = {**settings["data.partition"], "test_share": 0.25}
    serial, processes = (load_config(preset, settings | {"executor": name}) for name in ("serial", "processes"))
    local = run_on("local", serial)
    assert next(iter(local.records[-1].metrics)) == {"table": "R²", "text": "accuracy"}[kind]
    for other in (run_on("local", processes), run_on("flower-inprocess", serial)):
        assert equal(local, other)
        assert same_records(local, other)


def grid_of(chosen):
    app = client_app(lambda context: node_of(chosen))
    return InProcessGrid(app, chosen.data.partition.clients)


def test_personal_state_stays_on_its_node_and_never_travels():
    chosen = load_config("fedrep", FAST | PERSONAL)
    seen = []

    class Eavesdropper(InProcessGrid):
        def replies(self, message):
            replies = super().replies(message)
            seen.extend(each.content for each in [message, *replies])
            return replies

    grid = Eavesdropper(client_app(lambda context: node_of(chosen)), 4)
    run_on_grid(chosen, grid)
    layout = node_of(chosen).worker.model.layout
    sizes = {
        array.numpy().size for content in seen for record in content.array_records.values() for array in record.values()
    }
    assert layout.shared.size in sizes
    assert not {layout.size, layout.own.size} & sizes
    for context in grid.contexts.values():
        kept = [record for name, record in context.state.array_records.items() if name.startswith("kept-")]
        assert 1 <= len(kept) <= 2
        assert all(layout.own.size in {array.numpy().size for array in record.values()} for record in kept)


class Stop(Listener):
    """Interrupts a run after two rounds."""

    def finished_round(self, record):
        if record.round == 1:
            raise KeyboardInterrupt


def test_run_is_resumed_on_flower_where_it_stopped_on_flower(tmp_path):
    """States stay with the nodes; a round that was interrupted after clients had trained is done again."""
    chosen = config("scaffold", rounds=4)
    whole = run_on("local", chosen)
    grid = grid_of(chosen)
    with pytest.raises(KeyboardInterrupt):
        run_on_grid(chosen, grid, out=tmp_path / "run", listeners=[Stop()])
    resumed = run_on_grid(chosen, grid, out=tmp_path / "run", resume=True)
    assert equal(whole, resumed)


@pytest.mark.parametrize("keep", [True, False])
def test_run_is_resumed_on_nodes_that_flower_made_forget(keep, tmp_path, caplog):
    chosen = config("scaffold", rounds=4)
    whole = run_on("local", chosen)

    def fresh_grid():
        grid = grid_of(chosen)
        for client, context in enumerate(grid.contexts.values()):
            if keep:
                context.node_config["keep"] = str(tmp_path / f"node{client}")
        return grid

    with pytest.raises(KeyboardInterrupt):
        run_on_grid(chosen, fresh_grid(), out=tmp_path / "run", listeners=[Stop()])
    resumed = run_on_grid(chosen, fresh_grid(), out=tmp_path / "run", resume=True)
    assert equal(whole, resumed) == keep
    assert ("has lost what it kept" in caplog.text) != keep


class Faulty(InProcessGrid):
    """Nodes that fail when asked to work, in some way."""

    def __init__(self, chosen, fault, clients=(1,)):
        super().__init__(client_app(lambda context: node_of(chosen)), chosen.data.partition.clients)
        self.fault, self.clients = fault, clients

    def replies(self, message):
        client = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
        if message.metadata.message_type == WHO or client not in self.clients:
            yield from super().replies(message)
        elif self.fault == "error":
            yield Message(Error(1, "its disk\nis full"), reply_to=message)
        elif self.fault == "gone":
            found = Message(Error(1, "Node Unavailable"), reply_to=message)
            found.metadata.__dict__["_src_node_id"] = 1  # the SuperLink replies in its place
            yield found
        elif self.fault == "nonsense":
            yield Message(message.content, reply_to=message)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("error", "its disk is full"),
        ("gone", "its node failed: Node Unavailable"),
        ("silence", "no answer within 600 s"),
        ("nonsense", "its answer cannot be read"),
    ],
)
def test_node_that_fails_is_a_client_that_failed(fault, reason):
    chosen = config("fedavg", measuring__per_client=0)
    result = run_on_grid(chosen, Faulty(chosen, fault))
    assert len(result.records) == 3
    for record in result.records:
        (dropped,) = record.dropped
        assert dropped.client == 1
        assert reason in dropped.reason


class Stuck(InProcessGrid):
    """While a node is ``stuck``, its answers wait: as those of a SuperNode do that answers one message late."""

    stuck, waited_for = None, 0

    def push_messages(self, messages):
        messages = list(messages)
        doubts = len(messages) == 1  # the question that nobody waits for
        self.waited_for += not doubts and self.stuck in [message.metadata.dst_node_id for message in messages]
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        free = [name for name in message_ids if self._sent[name].metadata.dst_node_id != self.stuck]
        return super().pull_messages(free)


def client_1(grid):
    return next(node for node, context in grid.contexts.items() if context.node_config["partition-id"] == 1)


def test_silent_node_is_waited_for_once_and_back_when_it_answers(caplog):
    chosen = config("fedavg", rounds=6, measuring__per_client=0)
    grid = Stuck(client_app(lambda context: node_of(chosen)), 3)

    class Stick(Listener):
        def finished_round(self, record):
            grid.stuck = client_1(grid) if record.round in range(3) else None

    result = run_on_grid(chosen, grid, listeners=[Stick()])
    reasons = [[dropped.reason for dropped in record.dropped] for record in result.records]
    assert reasons == [[], ["no answer within 600 s"], ["no node answers for it"], ["no node answers for it"], [], []]
    assert grid.waited_for == 1
    assert f"node {client_1(grid)}: no answer within 600 s; left out until it answers" in caplog.text


def test_node_that_is_silent_from_the_start_is_waited_for_once(caplog):
    chosen = config("fedavg", measuring__per_client=0)
    grid = Stuck(client_app(lambda context: node_of(chosen)), 3)
    grid.stuck = client_1(grid)
    result = execute(chosen, executor=OnGrid(grid=grid, wait=0))
    assert [[dropped.client for dropped in record.dropped] for record in result.records] == [[1]] * 3
    assert grid.waited_for == 1
    assert "clients without a node: [1]" in caplog.text


@pytest.mark.parametrize("answer", ["error", "nonsense"])
def test_node_that_cannot_say_which_client_it_is_stays_out(answer, caplog):
    chosen = config("fedavg", measuring__per_client=0)

    class Confused(InProcessGrid):
        def _answer(self, message):
            if message.metadata.dst_node_id != client_1(self):
                return super()._answer(message)
            return Message(Error(1, "its disk\nis full") if answer == "error" else message.content, reply_to=message)

    grid = Confused(client_app(lambda context: node_of(chosen)), 3)
    result = execute(chosen, executor=OnGrid(grid=grid, wait=0))
    assert [[dropped.client for dropped in record.dropped] for record in result.records] == [[1]] * 3
    assert f"node {client_1(grid)} does not say which client it is: " in caplog.text


def test_every_node_failing_ends_the_run_with_the_reason():
    chosen = config("fedavg", measuring__per_client=0)
    with pytest.raises(ClientError, match=r"every client failed in round 0; .*its disk is full"):
        run_on_grid(chosen, Faulty(chosen, "error", clients=range(3)))


def test_missing_node_is_left_out_until_it_connects(caplog):
    chosen = config("fedavg", rounds=2, measuring__per_client=0)
    grid = grid_of(chosen)
    (node, context) = next((n, c) for n, c in grid.contexts.items() if c.node_config["partition-id"] == 2)
    del grid.contexts[node]

    class Return(Listener):
        def finished_round(self, record):
            grid.contexts[node + 1] = context  # under another id

    result = execute(chosen, executor=OnGrid(grid=grid, wait=0), listeners=[Return()])
    assert "clients without a node: [2]" in caplog.text
    assert [len(record.dropped) for record in result.records] == [1, 0]
    assert result.records[0].dropped[0].reason == "no node answers for it"


def test_nodes_of_no_client_are_asked_once(caplog):
    chosen = config("fedavg", measuring__per_client=0)
    grid = InProcessGrid(client_app(lambda context: node_of(chosen)), 5)  # two more than the run has clients
    result = run_on_grid(chosen, grid)
    assert [record.dropped for record in result.records] == [[], [], []]
    assert sorted(record.message for record in caplog.records) == [
        "a node is client 3 of 3: left out",
        "a node is client 4 of 3: left out",
    ]


def test_second_node_of_a_client_takes_the_place_of_the_first(caplog):
    chosen = config("fedavg", rounds=2, measuring__per_client=0)
    grid = grid_of(chosen)
    first = client_1(grid)
    grid.contexts[max(grid.contexts) + 1] = grid.contexts[first]

    class Lose(Listener):
        def finished_round(self, record):
            grid.contexts.pop(first, None)

    result = run_on_grid(chosen, grid, listeners=[Lose()])
    assert [record.dropped for record in result.records] == [[], []]
    assert caplog.text.count("two nodes are client 1: the second one is left out") == 1


def test_no_node_at_all_is_an_error_after_a_bounded_wait():
    chosen = config("fedavg")
    grid = grid_of(chosen)
    grid.contexts.clear()
    with pytest.raises(ClientError, match="no node of any client is connected after 0"):
        OnGrid(grid=grid, wait=0).start(torch.nn.Linear(64, 10), node_of(chosen).worker._federation)


def test_nodes_load_data_and_model_by_name():
    with pytest.raises(ConfigError, match="nodes load data and model by their names"):
        run_on("flower-inprocess", config("fedavg"), model=torch.nn.Linear(64, 10))


def test_simulation_without_ray_says_what_to_install(monkeypatch):
    monkeypatch.setattr("fedpace.experiments.engines.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs Ray: pip install 'flwr\[simulation\]'"):
        run_on("flower-simulation", config("fedavg"))


@pytest.mark.parametrize("kind", ["table", "text"])
def test_simulation_on_ray_is_bitwise_the_local_engine(kind, kinds, tmp_path):
    """In a process of its own, because Ray leaves processes and files open."""
    pytest.importorskip("ray")
    chosen = {**FAST, **kinds[kind], "wire": {"table": "int8", "text": "signs"}[kind]}
    settings = [part for key, value in chosen.items() for part in ("--set", f"{key}={toml(value)}")]
    command = [
        str(Path(sys.executable).parent / "fedpace"),
        "run",
        "fedpace",
        *settings,
        "--out",
        str(tmp_path / "run"),
    ]
    ended = subprocess.run(
        [*command, "--engine", "flower-simulation"], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    local = run_on("local", load_config("fedpace", chosen))
    assert same_records(local, Result.read(tmp_path / "run"))
    found = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(tensor, found[name]) for name, tensor in local.module.state_dict().items())

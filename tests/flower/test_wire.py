"""Formats on Flower's messages: bytes travel, the run is that of our own engine, strange bytes drop their sender."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message

from fedpace.core import ConfigError
from fedpace.engine import Listener
from fedpace.experiments.engines import node_of, run_on, run_on_grid
from fedpace.experiments.presets import load_config
from fedpace.experiments.run import execute
from fedpace.flower import InProcessGrid, OnGrid, client_app
from fedpace.flower.execution import WHO
from fedpace.wire import wires
from tests.records import untimed

from .hostile import Hostile, claimed, copied, filled, header, spoiled

FAST = {"data.source": "digits", "model": "linear", "rounds": 3, "local.max_steps": 3, "executor": "serial"}
FAST |= {"measuring.per_client": 10}
LOSSY = ["bf16", "int8", {"name": "signs", "block": 64}, {"name": "int8", "residual": "lost"}]
TRAINED = 650  # parameters of the model


def config(preset="fedavg", **changes):
    return load_config(preset, FAST | {key.replace("__", "."): value for key, value in changes.items()})


def same(a, b):
    pairs = zip(a.module.state_dict().values(), b.module.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs) and untimed(a.records) == untimed(b.records)


@pytest.mark.parametrize("wire", LOSSY, ids=str)
@pytest.mark.parametrize("preset", ["fedavg", "scaffold", "fedsgd"])
def test_every_engine_gives_bitwise_the_same_run(preset, wire):
    chosen = config(preset, wire=wire)
    local = run_on("local", chosen)
    assert same(local, run_on("flower-inprocess", chosen))
    assert not same(local, run_on("local", config(preset)))


@pytest.mark.parametrize("wire", ["float32", "int8", "signs"])
def test_searches_paces_and_freezing_work_with_every_format(wire):
    """The whole of FedPACE; in its last rounds most coordinates are frozen, of which nothing travels."""
    chosen = load_config("fedpace", {**FAST, "rounds": 50, "wire": wire}).shortened(8)
    local = run_on("local", chosen)
    assert same(local, run_on("flower-inprocess", chosen))
    assert local.records[-1].frozen > 0.5
    assert local.records[-1].bytes_up < local.records[0].bytes_up


def test_clients_that_do_not_wait_keep_their_residuals(tmp_path):
    settings = {"asynchronous.buffer": 2, "asynchronous.concurrency": 4, "speeds": {"name": "lognormal", "sigma": 1.0}}
    settings |= {"data.partition": {"name": "iid", "clients": 5}, "rounds": 6, "wire": "signs"}
    chosen = load_config("fedavg", FAST | settings)
    local = run_on("local", chosen)
    assert same(local, run_on("flower-inprocess", chosen))
    assert any(age for record in local.records for age in record.staleness.values())
    with pytest.raises(KeyboardInterrupt):
        run_on("local", chosen, out=tmp_path / "run", listeners=[Stop()])
    assert same(local, run_on("local", chosen, out=tmp_path / "run", resume=True))


@pytest.mark.parametrize("wire", ["int8", "signs"])
def test_personal_models_are_bitwise_those_of_the_local_engine(wire):
    changes = {"model": "small_cnn", "data.partition.clients": 3, "data.partition.limit": 40}
    chosen = load_config("fedrep", {**FAST, **changes, "wire": wire})
    assert untimed(run_on("local", chosen).records) == untimed(run_on("flower-inprocess", chosen).records)


def grid_of(chosen, kind=InProcessGrid, **options):
    return kind(client_app(lambda context: node_of(chosen)), chosen.data.partition.clients, **options)


@pytest.mark.parametrize("wire", [*wires.names(), {"name": "signs", "block": 64}], ids=str)
def test_what_travels_is_what_is_counted(wire):
    chosen, seen = config(wire=wire, measuring__per_client=0), []

    class Eavesdropper(InProcessGrid):
        def replies(self, message):
            replies = super().replies(message)
            if message.metadata.message_type != WHO:
                seen.extend(array.numpy() for each in replies for array in each.content["arrays"].values())
            return replies

    result = run_on_grid(chosen, grid_of(chosen, Eavesdropper))
    assert sum(array.nbytes for array in seen) == sum(record.bytes_up for record in result.records)
    assert {array.nbytes for array in seen if array.size} == {chosen.wire.bytes_for(TRAINED)}


class Stop(Listener):
    """Interrupts a run after two rounds."""

    def finished_round(self, record):
        if record.round == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("keep", [True, False])
def test_residuals_stay_on_their_nodes_and_survive_as_far_as_these_keep_them(keep, tmp_path, caplog):
    chosen = config(rounds=4, wire="signs")
    whole = run_on("local", chosen)

    def fresh_grid():
        grid = grid_of(chosen)
        for client, context in enumerate(grid.contexts.values()):
            if keep:
                context.node_config["keep"] = str(tmp_path / f"node{client}")
        return grid

    first = fresh_grid()
    with pytest.raises(KeyboardInterrupt):
        run_on_grid(chosen, first, out=tmp_path / "run", listeners=[Stop()])
    for context in first.contexts.values():
        kept = [record for name, record in context.state.array_records.items() if name.startswith("kept-")]
        assert [list(record) for record in kept] == [["residual.turn"]] * 2
    resumed = run_on_grid(chosen, fresh_grid(), out=tmp_path / "run", resume=True)
    assert same(whole, resumed) == keep
    assert ("has lost what it kept" in caplog.text) != keep


SIZE = wires.get("int8")().bytes_for(TRAINED)


def nan_scale(message, reply):
    """Bytes as they should be, but for a scale that is no number."""
    content = copied(reply.content)
    for name, record in content.array_records.items():
        data = record["0.encoded"].numpy().copy()
        data[:4] = np.frombuffer(np.float32("nan").tobytes(), np.uint8)
        content[name] = ArrayRecord({**record, "0.encoded": Array(data)})
    return [Message(content, reply_to=message)]


def renamed(name, array):
    """Another array instead of the bytes."""

    def fault(message, reply):
        content = copied(reply.content)
        content["arrays"] = ArrayRecord({name: array})
        return [Message(content, reply_to=message)]

    return fault


def sent(array):
    """In the place of the bytes, which come first."""
    return spoiled(array, 0, everything=False)


STRANGE = {
    "too short": (sent(filled((SIZE - 1,), "uint8", 1)), f"expected {SIZE} bytes of 'int8' for 650 coordinates"),
    "too long": (sent(filled((SIZE + 1,), "uint8", 1)), f"expected {SIZE} bytes of 'int8' for 650 coordinates"),
    "a matrix": (sent(filled((1, SIZE), "uint8", 1)), f"expected {SIZE} bytes of 'int8' for 650 coordinates"),
    "nothing": (sent(filled((0,), "uint8", 1)), f"expected {SIZE} bytes of 'int8' for 650 coordinates"),
    "no bytes": (sent(filled((SIZE,), "int8", 1)), "expected uint8, found int8"),
    "10^15 bytes": (sent(claimed(header((10**15,), "|u1"))), "expected 1000000000000000 numbers"),
    "no header": (sent(claimed(b"\x93NUMPY\x01\x00\xff\xff")), "its answer cannot be read"),
    "scales of 10^27": (sent(filled((SIZE,), "uint8", 108)), "expected values of at most 1e+15"),
    "a scale of NaN": (nan_scale, "not finite"),
    "the vector itself": (renamed("0.vector", filled((TRAINED,), "float32", 1)), "expected the bytes of a vector"),
    "none of both": (renamed("0.extras.x", filled((TRAINED,), "float32", 1)), "empty"),
}


@pytest.mark.parametrize(("wrong", "reason"), STRANGE.values(), ids=STRANGE)
def test_a_node_that_sends_strange_bytes_is_dropped_by_name(wrong, reason):
    chosen = config(wire="int8", rounds=2, measuring__per_client=0)
    grid = grid_of(chosen, Hostile, faults=[wrong], spared=(WHO,))
    result = execute(chosen, executor=OnGrid(grid=grid, wait=0))
    for record in result.records:
        assert [(each.client, reason in each.reason) for each in record.dropped] == [(0, True)], record.dropped
        assert record.used == 2


def test_bytes_that_nobody_asked_for_are_no_vector():
    wrong = renamed("0.encoded", filled((SIZE,), "uint8", 1))
    chosen = config(rounds=2, measuring__per_client=0)
    result = execute(chosen, executor=OnGrid(grid=grid_of(chosen, Hostile, faults=[wrong], spared=(WHO,)), wait=0))
    for record in result.records:
        assert [each.client for each in record.dropped] == [0]
        assert "expected 2600 bytes of 'float32'" in record.dropped[0].reason


@pytest.mark.parametrize("wire", ["bf16", "int8", "signs"])
def test_secure_sums_round_by_themselves(wire):
    chosen = config(secure=True, wire=wire)
    with pytest.raises(ConfigError, match=rf"^secure: clients add up .*; expected wire = 'float32', found '{wire}'$"):
        run_on("flower-inprocess", chosen)

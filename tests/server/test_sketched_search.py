"""A search on sketches of gradients: as good, and cheaper to send."""

import pytest
import torch
from pydantic import ValidationError

from fedpace.client import Probe
from fedpace.core import Layout, sketch
from fedpace.experiments.presets import load_config
from fedpace.experiments.run import execute
from fedpace.server import Annealing, Schedule
from tests.client.helpers import Bench, plain, shard
from tests.stages import stage_with

from .helpers import play_round, server

SIZE = 200


def run(size, executor="serial", **more):
    settings = {"data.source": "digits", "model": "linear", "rounds": 4, "local.max_steps": 3, "anneal.k": 3}
    settings |= {"anneal.first": 1, "anneal.last": 2, "anneal.perturbation.rho": 0.01, "executor": executor, **more}
    return execute(load_config("fedgga", settings | ({} if size is None else {"anneal.sketch": size})))


def test_a_run_works_with_and_without_and_sends_less():
    whole, short = run(None), run(SIZE)
    for one, other in zip(whole.records, short.records, strict=True):
        assert one.dropped == other.dropped == []
        assert (one.search is None) == (other.search is None)
        if one.search is None:
            assert one.bytes_up == other.bytes_up
        else:
            saved = 4 * (650 - SIZE) * 4 * len(one.cohort)  # θ and three candidates
            assert one.bytes_up - other.bytes_up == saved
            assert one.bytes_down == other.bytes_down
    first, sketched = whole.records[1].search, short.records[1].search
    assert sketched.sim0 == pytest.approx(first.sim0, abs=5 / SIZE**0.5)
    assert sketched.sim0 != first.sim0
    assert sketched.loss0 == first.loss0


def test_processes_send_the_same_sketches():
    serial, processes = run(SIZE), run(SIZE, {"name": "processes", "workers": 2})
    for one, other in zip(serial.module.parameters(), processes.module.parameters(), strict=True):
        assert torch.equal(one, other)
    assert serial.records[1].search == processes.records[1].search


def test_a_probe_sends_the_sketch_of_its_gradient():
    bench, data = Bench(plain()), shard()
    whole = bench.run(Probe(path=(1,)), data)
    update = Probe(path=(1,), sketch=4)(bench.vector, data, bench.context())
    assert update.vector is None
    assert torch.equal(Probe.opened(update).vector, sketch(whole.vector, 4))
    assert update.metrics == whole.metrics
    assert torch.equal(Probe.opened(whole).vector, whole.vector)


def test_the_bytes_of_a_search_follow_the_sketch():
    layout = Layout(("all",), ((1000,),))
    schedules = [Schedule(base=stage_with(search=Annealing(k=2, sketch=size))) for size in (None, 64)]
    up = [play_round(server(schedule, torch.zeros(1000), layout))[0].bytes_up for schedule in schedules]
    assert up[0] - up[1] == 2 * 4 * 3 * (1000 - 64)


def test_whole_gradients_cannot_be_added_from_sketches():
    with pytest.raises(ValidationError, match="adds whole gradients: expected no sketch, found 64"):
        Annealing(sketch=64, after={"lr": 0.1})


@pytest.mark.parametrize("size", [0, 1, -5])
def test_a_sketch_has_some_dimensions(size):
    with pytest.raises(ValidationError):
        Annealing(sketch=size)

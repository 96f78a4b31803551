"""What every personalised method owes, whichever it is."""

import copy
import re
from math import isfinite

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedpace.aggregation import ConflictFree
from fedpace.core import ConfigError, ModelError
from fedpace.data import load
from fedpace.engine import Cohort, Listener, Processes, read_run
from fedpace.experiments import load_config
from fedpace.methods import methods
from fedpace.server import Annealing, Schedule
from tests.client.helpers import shard
from tests.engine import small
from tests.stages import stage_with

from .bench import METHODS, STEPS, Client, federation, run

LINEAR = nn.Linear(5, 3)  # nothing but a head
every = pytest.mark.parametrize("name", METHODS)
sharing = pytest.mark.parametrize("name", [name for name in METHODS if name != "local_only"])


def method(name, **changes):
    return methods.get(name)(**{**STEPS, "max_steps": 2, **changes})


def copied(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.fixture(scope="module")
def runs():
    """One uninterrupted run per method, made when it is first asked for."""
    made = {}
    return lambda name: made.setdefault(name, run(method(name)))


@every
def test_only_what_is_shared_is_sent(runs, name):
    client = Client(method(name))
    update, server_side = client.turn(), client.method.server_side(client.layout, 1)
    assert update.vector.shape == (client.layout.shared.size,)
    assert {key: tuple(t.shape) for key, t in update.extras.items()} == (server_side.expects if server_side else {})
    module = client.method.prepare(small.module(), seed=0)
    layout, server_side = client.method.layout(module), client.method.server_side(client.method.layout(module), 3)
    extras = sum(torch.Size(shape).numel() for shape in server_side.expects.values()) if server_side else 0
    assert runs(name).records[0].bytes_up == 4 * 2 * (layout.shared.size + extras)
    trained, initial = dict(runs(name).module.named_parameters()), dict(module.named_parameters())
    changed = {key for key in layout.names if not torch.equal(trained[key], initial[key])}
    assert changed == set(layout.shared.names)  # the server never saw anybody's personal tensors


@every
def test_what_is_kept_is_finite_and_never_changed_in_place(name):
    client = Client(method(name))
    for seed in range(3):
        given, before, server = client.state, copied(client.state), client.vector.clone()
        update = client.turn(seed)
        client.vector += update.vector
        assert all(bool(tensor.isfinite().all()) for tensor in (update.state or {}).values())
        assert same(given, before)
        assert torch.equal(client.vector, server + update.vector)
    before, vector, buffers = copied(client.state), client.vector.clone(), client.buffers.clone()
    client.measured(shard(20, seed=1))
    assert same(client.state, before)
    assert torch.equal(client.vector, vector)
    assert torch.equal(client.buffers.floats, buffers.floats)


@sharing
def test_one_client_alone_finds_its_own_model_again(name):
    client = Client(method(name))
    update, layout, trained = client.turn(), client.layout, client.model.vector
    torch.testing.assert_close(client.vector + update.vector, layout.take_shared(trained))
    assert bool(update.vector.any())
    if layout.personal:
        assert torch.equal(update.state["personal"], layout.take(trained, layout.own))


@sharing
def test_the_seed_alone_decides(name):
    one, two = Client(method(name)), Client(method(name))
    Client(method(name)).turn(seed=1)
    for client in (one, two):
        client.first = client.turn(seed=5)
        client.vector += client.first.vector
        client.second = client.turn(seed=6)
    two.measured(shard(20, seed=1))
    for a, b in ((one.first, two.first), (one.second, two.second)):
        assert torch.equal(a.vector, b.vector)
        assert a.metrics == b.metrics
    test = shard(30, seed=1)
    assert one.measured(test, seed=8) == two.measured(test, seed=8)
    assert not torch.equal(Client(method(name)).turn(seed=9).vector, one.first.vector)


@every
def test_what_the_resident_model_did_before_leaves_no_trace(name):
    """It served another client: its values, gradients and statistics are of no concern to this one."""
    fresh, used = Client(method(name)), Client(method(name))
    for client in (fresh, used):
        client.vector += client.turn().vector
    for tensor in (used.model.vector, used.model.gradient, used.model.buffers.floats):
        tensor.fill_(3.0)
    assert used.measured(shard(30, seed=1)) == fresh.measured(shard(30, seed=1))
    used.model.vector.fill_(3.0)
    assert torch.equal(used.turn().vector, fresh.turn().vector)
    assert same(used.state, fresh.state)


@every
def test_every_client_is_measured_on_its_own_test(runs, name):
    sizes = [len(test) for test in federation().client_tests]
    for record in runs(name).records:
        shares = record.client_headlines
        assert set(shares) == {0, 1, 2}
        assert record.clients_on == "test"
        mean = sum(shares[i] * size for i, size in enumerate(sizes)) / sum(sizes)
        assert record.headline == pytest.approx(mean)
        assert 0 < record.metrics["loss"] < 100
        assert record.dropped == []


def measurements(outcome):
    return [(r.metrics, r.client_metrics, r.train_loss, r.bytes_up) for r in outcome.records]


@every
def test_processes_give_bitwise_the_same(runs, name):
    other = run(method(name), executor=Processes(workers=2))
    assert measurements(other) == measurements(runs(name))
    assert torch.equal(small.weights(other.module), small.weights(runs(name).module))


@every
def test_resume_is_bitwise(runs, tmp_path, name):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(method(name), tmp_path, listeners=[Stop()])
    resumed = run(method(name), tmp_path, resume=True)
    assert measurements(resumed) == measurements(runs(name))
    assert torch.equal(small.weights(resumed.module), small.weights(runs(name).module))
    states = [load_file(path) for path in (tmp_path / "clients").glob("*.safetensors")]
    assert states
    assert all(bool(tensor.isfinite().all()) for state in states for tensor in state.values())


@sharing
def test_any_rule_aggregates_what_is_shared(runs, name):
    outcome = run(method(name), schedule=Schedule(base=stage_with(rule=ConflictFree())))
    assert outcome.records[0].diagnostics["worst_mix"]
    assert outcome.records[0].client_headlines.keys() == runs(name).records[0].client_headlines.keys()
    assert not torch.equal(small.weights(outcome.module), small.weights(runs(name).module))


@every
def test_a_client_is_measured_before_it_joins_and_trains_afterwards(tmp_path, name):
    outcome = run(method(name), tmp_path, cohort=Cohort(late=1, joins=2))
    assert [record.cohort for record in outcome.records] == [[0, 1], [0, 1], [0, 1, 2]]
    assert all(record.client_headlines.keys() == {0, 1, 2} for record in outcome.records)
    never = run(method(name), cohort=Cohort(late=1))
    assert measurements(never)[:2] == measurements(outcome)[:2]
    assert never.records[2].cohort == [0, 1]
    assert read_run(tmp_path)["clients"] == 3


@sharing
def test_a_model_of_which_nothing_would_be_shared_is_refused(name):
    try:
        shared, refusal = Client(method(name), copy.deepcopy(LINEAR)).layout.shared.names, ""
    except ModelError as error:
        shared, refusal = (), str(error)
    assert shared or re.fullmatch(rf".*'{name}' .*expected .*, found .*", refusal)  # one line


@every
def test_clients_without_tests_of_their_own_are_refused(name):
    with pytest.raises(ConfigError, match=rf"^'{name}' gives .*: expected data.partition.test_share above 0, found 0$"):
        run(method(name), data=small.federation(3))


@every
def test_clients_of_one_class_are_worth_a_warning(runs, name):
    narrow = load("digits").partition("pathological", clients=10, classes_per_client=1, seed=0)
    outcome = run(method(name), data=narrow, rounds=1)
    assert outcome.warnings == [
        "10 of 10 clients train on one class only: to answer it always is all that their models can learn"
    ]
    assert outcome.records[0].dropped == []
    assert isfinite(outcome.records[0].metrics["loss"])
    assert runs(name).warnings == []


@every
@pytest.mark.parametrize(
    "stage",
    [stage_with(name="whole", sends="gradient"), stage_with(name="whole", search=Annealing(k=1))],
    ids=["gradient", "search"],
)
def test_gradients_and_searches_need_a_model_without_personal_parts(name, stage):
    module = method(name).prepare(small.module(), seed=0)
    personal = method(name).layout(module).personal
    if not personal:
        assert run(method(name), schedule=Schedule(base=stage), rounds=1).records[0].headline > 0
        return
    named = ", ".join(sorted(personal))
    with pytest.raises(ConfigError, match=rf"^stage 'whole' asks for gradients .* '{name}' {named} never leave"):
        run(method(name), schedule=Schedule(base=stage))


@every
def test_the_preset_has_the_numbers_of_pfllib(name):
    config = load_config(name)
    assert isinstance(config.local, methods.get(name))
    assert (config.local.optimizer, config.local.lr, config.local.momentum) == ("sgd", 0.005, 0.0)
    assert (config.local.weight_decay, config.local.batch, config.local.epochs) == (0.0, 10, 1)
    assert config.local.max_steps is None or config.local.max_steps >= 10_000
    assert (config.buffers, config.aggregate.weights, config.data.partition.name) == ("local", "samples", "practical")

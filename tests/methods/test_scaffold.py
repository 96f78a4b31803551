"""SCAFFOLD against its formulas, over whole rounds with a server."""

import pytest
import torch
from pydantic import ValidationError

from fedpace.client import Gradient
from fedpace.core import Buffers, Layout
from fedpace.methods import LocalSGD, Scaffold
from fedpace.server import Schedule, Server
from tests.client.helpers import Bench, normed, plain, shard, shards

STEPS = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "batch": 8, "max_steps": 5}


def test_the_first_round_is_local_training_bitwise():
    bench, own = Bench(plain()), shard()
    assert torch.equal(bench.run(Scaffold(**STEPS), own).vector, bench.run(LocalSGD(**STEPS), own).vector)


def test_a_step_is_corrected_by_the_difference_of_the_controls():
    bench, own = Bench(plain()), shard()
    common, kept = (torch.randn(len(bench.vector), generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    one_step = {**STEPS, "max_steps": 1}
    free = bench.run(LocalSGD(**one_step), own).vector
    corrected = bench.run(Scaffold(**one_step), own, extras={"control": common}, state={"control": kept}).vector
    torch.testing.assert_close(corrected, free - 0.1 * (common - kept))


def test_option_two_takes_the_new_control_from_the_way_gone():
    """With one step it is the gradient that was seen, whatever the controls were before."""
    bench, own = Bench(plain()), shard()
    common, kept = (torch.randn(len(bench.vector), generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    one_step = {**STEPS, "max_steps": 1}
    gradient = -bench.run(Gradient(batch=8, max_steps=1), own).vector
    update = bench.run(Scaffold(**one_step), own, extras={"control": common}, state={"control": kept})
    torch.testing.assert_close(update.state["control"], gradient, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(update.extras["control"], update.state["control"] - kept)
    several = bench.run(Scaffold(**STEPS), own, extras={"control": common}, state={"control": kept})
    torch.testing.assert_close(several.state["control"], kept - common - several.vector / (5 * 0.1))


def test_option_one_takes_the_gradient_at_the_start_and_allows_momentum():
    bench, own = Bench(normed()), shard()
    work = Scaffold(option="I", momentum=0.9, **STEPS)
    update = bench.run(work, own)
    expected = -bench.run(Gradient(batch=8, max_steps=5), own).vector
    torch.testing.assert_close(update.state["control"], expected)
    trained = bench.run(LocalSGD(momentum=0.9, **STEPS), own)
    assert torch.equal(update.vector, trained.vector)
    assert torch.equal(update.buffers.floats, trained.buffers.floats)  # of training, not of the pass after it


@pytest.mark.parametrize("option", ["I", "II"])
def test_the_servers_control_is_the_mean_of_all_clients_controls(option):
    """Whoever took part so far; those who never did count with zero."""
    bench, own, work = Bench(plain()), shards(24, 30, 40), Scaffold(option=option, **STEPS)
    layout = Layout.of(bench.module)
    none = Buffers(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    server = Server(layout, bench.vector, none, Schedule(), server_side=work.server_side(layout, 3))
    kept = {}
    (asked,) = server.schedule.base.exchanges
    for cohort in ([0, 1], [1, 2], [0]):
        extras = server.extras(asked)
        bench.vector = server.vector.clone()
        answers = [bench.run(work, own[i], client=i, extras=extras, state=kept.get(i)) for i in cohort]
        server.exchange(asked, answers, len(cohort), lambda update: kept.__setitem__(update.client, update.state))
        expected = sum(state["control"] for state in kept.values()) / 3
        torch.testing.assert_close(server.extras(asked)["control"], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [({"momentum": 0.9}, "momentum = 0.9"), ({"optimizer": "adam"}, "adam"), ({"clip": 1.0}, "clipping")],
)
def test_option_two_refuses_steps_that_are_no_gradients(wrong, found):
    with pytest.raises(ValidationError, match=rf"which is wrong with {found}: expected optimizer = 'sgd'"):
        Scaffold(**{**STEPS, **wrong})
    Scaffold(**{**STEPS, **wrong, "option": "I"})

"""Noise on sums: how much of it, on what, and what is refused."""

from math import sqrt

import pytest
import torch
from pydantic import ValidationError

from fedpace.aggregation import Dampened, Elected, Masked, Sums
from fedpace.core import ConfigError, Layout, ServerSide, Update
from fedpace.server import Collected, Guard, Pace, Privacy, PrivateRound, Pruning, Round, Schedule, Secure
from fedpace.server.annealing import Annealing
from tests.server.helpers import LAYOUT, THETA, buffers, server, updates
from tests.stages import stage_with

BIG = Layout(("weight",), ((200, 200),))
UNIFORM = {"weights": "uniform"}
FIXED = Guard(clip={"name": "fixed", "norm": 2.0})
ADAPTIVE = Guard(clip={"name": "adaptive", "first": 2.0, "rate": 0.5})


def private(noise=1.0, clients=3.0, seed=0, **settings):
    return PrivateRound(Privacy(noise=noise, delta=1e-5, **settings), clients, seed)


def step(to, rows, how, number=0, **parts):
    """One private exchange."""
    (exchange,) = to.schedule.base.exchanges
    return to.exchange_private(
        exchange, updates(rows, **parts), len(rows), private=how, generator=how.generator(number, 0)
    )


def noisy_server(guard=FIXED, layout=LAYOUT, vector=THETA, **stage):
    return server(Schedule(base=stage_with(**{**UNIFORM, **stage})), vector, layout, guard=guard)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 3.0}, "an epsilon means nothing without a delta"),
        ({"noise": 1.0}, "an epsilon means nothing without a delta"),
        ({"delta": 1e-5}, "expected either noise or the epsilon of the whole run"),
        ({"delta": 1e-5, "noise": 1.0, "epsilon": 1.0}, "and not both"),
        ({"delta": 1.0, "noise": 1.0}, "delta"),
        ({"delta": 1e-5, "noise": 0.0}, "noise"),
    ],
)
def test_incomplete_settings_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Privacy(**settings)


@pytest.mark.parametrize(("adaptive", "signed"), [(False, False), (True, False), (False, True), (True, True)])
def test_what_a_round_adds_up_shares_the_noise(adaptive, signed):
    """Gaussian sums over the same clients tell together as much as one with 1/z² = Σ 1/zᵢ²."""
    settings = Privacy(noise=1.3, delta=1e-5, signs=0.3, count_noise=4.0)
    found = settings.multipliers(50, adaptive=adaptive, signed=signed)
    of_count = 0 if found.count is None else (2 * found.count) ** -2
    of_signs = 0 if found.signs is None else found.signs**-2
    assert found.updates**-2 + of_signs + of_count == pytest.approx(1.3**-2)
    assert (found.count is not None, found.signs is not None) == (adaptive, signed)
    if signed:
        assert of_signs == pytest.approx(0.3 * (1.3**-2 - of_count))


def test_alone_updates_have_all_of_the_noise():
    assert Privacy(noise=1.3, delta=1e-5).multipliers(50, adaptive=False, signed=False).updates == pytest.approx(1.3)


def test_a_count_with_little_noise_tells_more_than_is_allowed():
    little = Privacy(noise=4.0, delta=1e-5, count_noise=2.0)
    with pytest.raises(ConfigError, match=r"expected count_noise above 2, or clip = 'fixed'"):
        little.multipliers(50, adaptive=True, signed=False)
    few = Privacy(noise=4.0, delta=1e-5).multipliers(3, adaptive=True, signed=False)
    assert few.count == 4.0  # by default never too little


@pytest.mark.parametrize("clients", [2.0, 5.0])
def test_noise_has_the_deviation_that_hides_a_client(clients):
    """Nobody moved: what is left is noise, z · C on the sum, divided by the expected number of clients."""
    to = noisy_server(layout=BIG, vector=torch.zeros(40_000))
    step(to, torch.zeros(3, 40_000), private(0.7, clients))
    assert float(to.vector.std()) == pytest.approx(0.7 * 2.0 / clients, rel=0.03)
    assert abs(float(to.vector.mean())) < 0.02


def test_almost_without_noise_it_is_the_mean_of_clipped_updates():
    to, plain = noisy_server(), noisy_server()
    rows = torch.tensor([[9.0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, -1, 0, 0, 1]])
    step(to, rows, private(1e-6))
    plain.exchange(plain.schedule.base.exchanges[0], updates(rows), 3)
    assert torch.allclose(to.vector, plain.vector, atol=1e-4)


def test_a_sum_is_divided_by_the_expected_number_and_not_by_who_came():
    rows = torch.tensor([[1.0, 0, 0, 0, 0, 0]])
    to = noisy_server()
    step(to, rows, private(1e-6, clients=4.0))
    assert (to.vector - THETA).tolist() == pytest.approx([0.25, 0, 0, 0, 0, 0], abs=1e-4)


@pytest.mark.parametrize("guard", [FIXED, ADAPTIVE])
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_one_client_more_moves_the_model_no_further_than_its_bound(guard, weights):
    """Whatever it sends, and however many examples it claims."""
    guard = guard.model_copy(update={"max_examples": 20})
    rows = torch.tensor([[1.0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [5e6, -7e6, 3e6, 0, 1, 1]])
    examples = [10, 20, 10**9]
    with_it, without = (noisy_server(guard, weights=weights) for _ in range(2))
    step(with_it, rows, private(clients=3.0), examples=examples)
    step(without, rows[:2], private(clients=3.0), examples=examples[:2])
    assert float((with_it.vector - without.vector).norm()) <= 2.0 / 3 * 1.0001
    assert float((with_it.vector - without.vector).norm()) == pytest.approx(2.0 / 3, rel=1e-3)


def test_capped_samples_weigh_in_units_of_the_cap():
    guard = FIXED.model_copy(update={"max_examples": 20})
    to = noisy_server(guard, weights="samples")
    step(to, torch.eye(6)[:3], private(1e-6), examples=[5, 20, 99])
    assert (to.vector - THETA).tolist() == pytest.approx([0.25 / 3, 1 / 3, 1 / 3, 0, 0, 0], abs=1e-4)


def test_that_nobody_answered_is_not_told_either():
    to = noisy_server()
    report = step(to, torch.zeros(0, 6), private())
    assert report.used == 0
    assert not torch.equal(to.vector, THETA)


def test_noise_is_that_of_its_round_and_seed():
    found = {}
    for seed, number in ((0, 0), (0, 1), (1, 0), (0, 0)):
        to = noisy_server()
        step(to, torch.zeros(3, 6), private(seed=seed), number)
        found.setdefault((seed, number), []).append(to.vector)
    assert torch.equal(*found[0, 0])
    assert not torch.equal(found[0, 0][0], found[0, 1][0])
    assert not torch.equal(found[0, 0][0], found[1, 0][0])


def test_signs_have_the_deviation_that_hides_a_client():
    """A client's signs are a vector of length √d; sums are whole numbers, and none larger than there are clients."""
    how = private(0.01, clients=10_000.0, signs=0.5)
    noise = how.settings.multipliers(how.clients, adaptive=False, signed=True)
    total = torch.zeros(40_000)
    sums = how.noisy(total, torch.full_like(total, 7), 2.0, noise, how.generator(0))
    assert float(sums.signs.double().mean()) == pytest.approx(7, abs=0.1)
    assert float(sums.signs.double().std()) == pytest.approx(0.01 * sqrt(2) * sqrt(40_000), rel=0.03)
    few = private(5.0, clients=3.0)
    loud = few.noisy(total, total, 2.0, few.settings.multipliers(3, adaptive=False, signed=True), few.generator(0))
    assert isinstance(loud, Sums)
    assert (loud.signs.dtype, int(loud.signs.max()), int(loud.signs.min())) == (torch.int8, 3, -3)


@pytest.mark.parametrize("rule", [Masked(tau=0.9), Dampened()])
def test_almost_without_noise_signs_are_those_of_the_clients(rule):
    rows = torch.tensor([[1.0, 1, 0.1, 0, 0, 1], [1, -1, 0.1, 0, 0, 1], [1, 1, -0.1, 0, 0, -1]])
    to, plain = noisy_server(rule=rule), noisy_server(rule=rule)
    step(to, rows, private(1e-6))
    plain.exchange(plain.schedule.base.exchanges[0], updates(rows), 3)
    assert torch.allclose(to.vector, plain.vector, atol=1e-4)


def test_pruning_counts_noisy_signs():
    stage = stage_with(counts=True, prunes=True, **UNIFORM)
    schedule = Schedule(base=stage, pruning=Pruning(threshold=0.5))
    pruned = []
    for seed in range(2):
        to = server(schedule, torch.ones(40_000), BIG, guard=FIXED)
        step(to, torch.ones(3, 40_000), private(0.01, seed=seed))
        pruned.append(to.pruner.mask)
    assert 0.05 < float(pruned[0].float().mean()) < 0.5  # all clients agree everywhere: this is noise
    assert not torch.equal(*pruned)


def test_an_adaptive_bound_learns_from_a_noisy_count():
    rows = torch.tensor([[1.0, 0, 0, 0, 0, 0], [1.5, 0, 0, 0, 0, 0], [1.6, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0]])
    exact, noisy = noisy_server(ADAPTIVE), noisy_server(ADAPTIVE)
    step(exact, rows, private(1e-6, clients=4.0, count_noise=1e-3))
    step(noisy, rows, private(1.0, clients=4.0, count_noise=2.0))
    assert step(exact, rows, private(1e-6, clients=4.0, count_noise=1e-3)).bounded.bound == pytest.approx(
        2.0 * 2.718281828 ** (-0.5 * (3 / 4 - 0.5)), rel=1e-3
    )
    assert step(noisy, rows, private()).bounded.bound != pytest.approx(2.0 * 2.718281828 ** (-0.5 * (3 / 4 - 0.5)))


def test_a_count_of_fewer_clients_than_expected_says_nothing_of_who_is_missing():
    """Each client changes the count, less one half of the clients, by one half: nobody counts as half a client."""
    how = private(clients=10.0)
    assert how.noisy_share(0, 0, 0.0, how.generator(0)) == 0.5
    assert how.noisy_share(10, 10, 0.0, how.generator(0)) == 1.0
    assert how.noisy_share(3, 10, 0.0, how.generator(0)) == pytest.approx(0.3)
    shares = [how.noisy_share(5, 10, 2.0, how.generator(i)) for i in range(2000)]
    assert float(torch.tensor(shares).std()) == pytest.approx(0.2, rel=0.1)


def test_randomness_is_the_runs_or_nobodys():
    assert Privacy(noise=1.0, delta=1e-5).seed(7) == 7
    secret = Privacy(noise=1.0, delta=1e-5, randomness="secret")
    assert len({secret.seed(7) for _ in range(5)}) == 5


class Side(ServerSide):
    def learn(self, update):
        pass


@pytest.mark.parametrize(
    ("stage", "options", "message"),
    [
        ({}, {"guard": Guard()}, "noise protects only what is bounded; expected guard.clip = 'fixed' or 'adaptive'"),
        (
            {},
            {"guard": Guard(clip="quantile")},
            "the bound of guard.clip = 'quantile' follows from the updates themselves",
        ),
        ({}, {"guard": FIXED.model_copy(update={"max_share": 0.5})}, "guard.max_share lets a client change how much"),
        ({"weights": "samples"}, {}, "weights by samples have no bound; expected guard.max_examples"),
        ({"rule": Elected()}, {}, "rule 'elected' needs each client's own update; rules that work: .*mean"),
        (
            {"rule": Masked(agreement_weights="samples")},
            {},
            "no noise is added to sums of votes; expected a rule that needs none",
        ),
        ({"pace": Pace()}, {}, "no noise is added to sums of sizes; expected a rule that needs none, and no pace"),
        ({"search": Annealing()}, {}, "a search looks at each client's own gradient"),
        ({}, {"server_side": Side({}, {})}, "the server's side of this method learns from each update alone"),
        ({}, {"held": buffers((1.0,))}, "BatchNorm statistics would travel without noise.*found 'weighted_mean'"),
        ({}, {"ruled": Layout(LAYOUT.names[:1], LAYOUT.shapes[:1])}, "expected one weighting of the whole model"),
    ],
)
def test_what_has_no_bound_is_refused_in_one_line(stage, options, message):
    schedule = Schedule(base=stage_with(**{**UNIFORM, **stage}))
    with pytest.raises(ConfigError, match=f"^privacy.*{message}") as caught:
        server(schedule, **{"guard": FIXED, **options}).check_private()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("stage", "secure", "message"),
    [
        ({}, Secure(), "within secure sums by clients; expected norm"),
        ({"rule": Dampened()}, Secure(norm=1.0), "no noise is added to sums of signs"),
        ({"weights": "samples"}, Secure(norm=1.0), "within secure sums clients count alike"),
    ],
)
def test_what_has_no_bound_within_secure_sums_is_refused_in_one_line(stage, secure, message):
    schedule = Schedule(base=stage_with(**{**UNIFORM, **stage}))
    with pytest.raises(ConfigError, match=f"^privacy.*{message}"):
        server(schedule).check_private(secure)


def test_within_secure_sums_clients_add_the_noise():
    """So much each that the least number of them adds up to z · C; the server divides by the expected number."""
    how = PrivateRound(Privacy(noise=1.5, delta=1e-5), 4.0, 0, norm=2.0, adding=9)
    assert how.noise_of_each == pytest.approx(1.5 * 2.0 / 3)
    to = noisy_server(Guard())
    collected = Collected([Update(0), Update(1)], Sums(torch.ones(6), None, 2, 2.0))
    report = to.exchange_sums(to.schedule.base.exchanges[0], collected, 4, private=how)
    assert (to.vector - THETA).tolist() == pytest.approx([0.25] * 6)
    assert report.used == 2


def test_clients_of_a_private_round_are_asked_to_add_noise():
    how = PrivateRound(Privacy(noise=1.0, delta=1e-5), 4.0, 0, norm=2.0, adding=4)
    question = next(iter(Round(noisy_server(Guard()), 0, range(4), 0, secure=True, private=how)))
    assert question.weighing.noise == pytest.approx(1.0)


@pytest.mark.parametrize("policy", ["keep_server", "local"])
def test_statistics_that_stay_where_they_are_are_no_obstacle(policy):
    schedule = Schedule(base=stage_with(**UNIFORM))
    server(schedule, held=buffers((1.0,)), guard=FIXED, buffer_policy=policy).check_private()

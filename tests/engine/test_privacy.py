"""What a run's models tell, and private runs."""

import sys
from math import exp, log, sqrt

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from fedpace.aggregation import Dampened
from fedpace.core import ConfigError
from fedpace.data import load
from fedpace.engine import Cohort, Listener, Measuring, Processes, Serial, read_rounds, read_run, train
from fedpace.engine.privacy import Ledger, LocalLedger
from fedpace.methods import LocalSGD, Scaffold
from fedpace.models import build
from fedpace.server import Annealing, Guard, Privacy, Schedule, Secure
from tests.engine import small
from tests.records import untimed
from tests.stages import stage_with

ROUNDS = 4
ALL = Cohort()
MEAN = Schedule(base=stage_with(weights="uniform"))
TWICE = Schedule(base=stage_with().model_copy(update={"exchanges": stage_with().exchanges * 2}))
PRIVATE = Privacy(noise=1.0, delta=1e-3)


def ledger(cohort=ALL, clients=100, schedule=MEAN, **settings):
    return Ledger(Privacy(**{"noise": 1.0, "delta": 1e-5, **settings}), cohort, clients, schedule)


def exact_gaussian(noise, delta):
    """ε of the Gaussian mechanism to the last digit (Balle and Wang, 2018)."""

    def excess(epsilon):
        a, b = 1 / (2 * noise), epsilon * noise
        return norm.cdf(a - b) - exp(epsilon) * norm.cdf(-a - b) - delta

    return brentq(excess, 0, 100)


@pytest.mark.parametrize("noise", [0.8, 2.0, 5.0])
@pytest.mark.parametrize("rounds", [1, 10])
def test_without_sampling_epsilon_is_that_of_the_gaussian_mechanism(noise, rounds):
    """Renyi divergences bound it from above, and closely."""
    exact = exact_gaussian(noise / sqrt(rounds), 1e-5)
    assert exact < ledger(noise=noise).epsilon(rounds) < 1.15 * exact + 0.05


def test_epsilon_of_a_sampled_cohort_is_known():
    """Ten in a hundred clients, noise 1, 50 rounds: the value that TensorFlow Privacy gives."""
    assert ledger(Cohort(fraction=0.1)).epsilon(50) == pytest.approx(5.885, abs=0.02)


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_sampling():
    grown = [ledger(Cohort(fraction=0.1)).epsilon(rounds) for rounds in (1, 5, 50)]
    assert grown == sorted(grown)
    assert ledger(noise=2.0).epsilon(5) < ledger(noise=1.0).epsilon(5)
    assert ledger(Cohort(number=10)).epsilon(5) < ledger(Cohort(number=50)).epsilon(5) < ledger().epsilon(5)


def test_one_client_in_place_of_another_changes_a_sum_twice_as_much():
    fixed, poisson = ledger(noise=2.0, sampling="fixed"), ledger(noise=1.0)
    assert fixed.epsilon(7) == pytest.approx(poisson.epsilon(7))


def test_a_fixed_cohort_is_protected_by_being_drawn():
    some, everybody = (ledger(Cohort(number=number), sampling="fixed", noise=4.0) for number in (10, 100))
    assert some.epsilon(20) < 0.5 * everybody.epsilon(20)


def test_two_exchanges_of_a_round_tell_as_much_as_one_with_less_noise():
    """Not as two rounds, for which clients would be drawn anew."""
    cohort = Cohort(fraction=0.1)
    both, one = ledger(cohort, schedule=TWICE), ledger(cohort, noise=1 / sqrt(2))
    assert both.epsilon(3) == pytest.approx(one.epsilon(3))
    assert both.epsilon(3) > ledger(cohort).epsilon(6)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_noise_follows_from_epsilon(sampling):
    asked = ledger(Cohort(fraction=0.2), noise=None, epsilon=2.0, sampling=sampling)
    found = asked.with_noise(30)
    assert found.epsilon(30) == pytest.approx(2.0, abs=0.02)
    assert found.epsilon(30) <= 2.0
    assert ledger().with_noise(30).privacy.noise == 1.0


def test_an_epsilon_that_is_out_of_reach_is_one_line():
    with pytest.raises(ConfigError, match=r"^privacy: no noise has epsilon = 1e\+06 after 3 rounds$"):
        ledger(noise=None, epsilon=1e6).with_noise(3)


def test_clients_are_drawn_one_by_one_as_many_as_expected_on_average():
    chosen = ledger(Cohort(fraction=0.25), clients=40)
    draws = [chosen.sample(number, seed=0) for number in range(400)]
    sizes = [len(draw) for draw in draws]
    assert chosen.clients(0) == 10
    assert np.mean(sizes) == pytest.approx(10, abs=0.6)
    assert np.var(sizes) == pytest.approx(40 * 0.25 * 0.75, rel=0.25)  # a binomial number, not a fixed one
    assert np.bincount(np.concatenate(draws), minlength=40).min() > 60
    assert draws[3] == chosen.sample(3, seed=0) != chosen.sample(3, seed=1)
    assert all(draw == sorted(set(draw)) for draw in draws)


def test_a_number_of_clients_is_expected_or_fixed():
    cohort = Cohort(number=4, late=10)
    assert ledger(cohort, clients=30).clients(0) == pytest.approx(4)
    assert {len(ledger(cohort, clients=30, sampling="fixed").sample(number, 0)) for number in range(9)} == {4}
    assert max(max(ledger(cohort, clients=30).sample(number, 0), default=0) for number in range(50)) < 20


def test_within_secure_sums_the_noise_of_those_that_must_be_left_is_enough():
    how = ledger(Cohort(number=8), sampling="fixed").private(0, 0, Secure(threshold=0.75, norm=2.0))
    assert (how.clients, how.adding, how.norm) == (8, 6, 2.0)
    assert ledger().private(0, 0).norm == 0


def test_a_delta_that_gives_a_client_away_is_warned_of():
    assert ledger(clients=100, delta=0.009).check() == []
    (warning,) = ledger(clients=100, delta=0.01).check()
    assert warning == (
        "privacy: with delta = 0.01 all may be told of one of 100 clients; expected less than 1/100 = 0.01"
    )


def test_noise_that_no_accountant_can_account_for_is_one_line():
    with pytest.raises(
        ConfigError, match=r"^privacy: with so little noise no ε can be told: expected 0.05, found 0.01$"
    ):
        ledger(noise=0.01).check()


def test_without_the_accountant_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.rdp", None)
    with pytest.raises(ConfigError, match=r"^privacy: needs dp-accounting; pip install 'fedpace\[dp\]'$"):
        ledger().epsilon(1)


def run(folder=None, resume=False, listeners=(), model="linear", **changes):
    federation = load("digits").partition("iid", clients=12, seed=0)
    settings = {
        "executor": Serial(),
        "rounds": ROUNDS,
        "schedule": MEAN,
        "cohort": Cohort(fraction=0.4),
        "privacy": PRIVATE,
        "guard": Guard(clip={"name": "adaptive"}),
        "local": LocalSGD(max_steps=2, lr=0.01),
        "measuring": Measuring(per_client=0),
    }
    module = build(model, (1, 8, 8), 10, 0)
    plan = small.plan(**{**settings, **changes})
    return train(module, federation, plan, folder=folder, resume=resume, listeners=listeners)


@pytest.fixture(scope="module")
def uninterrupted():
    return run()


def test_each_round_says_what_was_told_up_to_now(uninterrupted):
    known = Ledger(PRIVATE, Cohort(fraction=0.4), 12, MEAN)
    assert [record.epsilon for record in uninterrupted.records] == [known.epsilon(n + 1) for n in range(ROUNDS)]
    assert len({len(record.cohort) for record in uninterrupted.records}) > 1


def test_workers_make_no_difference(uninterrupted):
    spread = run(executor=Processes(workers=2))
    assert torch.equal(small.weights(spread.module), small.weights(uninterrupted.module))
    assert untimed(spread.records) == untimed(uninterrupted.records)


def test_an_interrupted_private_run_resumes_bitwise(tmp_path, uninterrupted):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listeners=[Stop()])
    resumed = run(tmp_path, resume=True)
    assert torch.equal(small.weights(resumed.module), small.weights(uninterrupted.module))
    assert untimed(read_rounds(tmp_path)) == untimed(uninterrupted.records)


def test_a_round_without_clients_is_a_round_like_others():
    rare, spread = (run(cohort=Cohort(number=1), rounds=8, executor=how) for how in (Serial(), Processes(workers=2)))
    assert untimed(rare.records) == untimed(spread.records)
    empty = [record for record in rare.records if not record.cohort]
    assert empty
    assert [record.epsilon for record in rare.records] == sorted(record.epsilon for record in rare.records)
    assert all((record.used, record.train_loss, record.similarity) == (0, None, None) for record in empty)


def test_sign_rules_are_private_too():
    dampened = run(schedule=Schedule(base=stage_with(rule=Dampened(), weights="uniform")))
    assert all(0 <= record.agreement.mean <= 1 for record in dampened.records if record.cohort)
    assert not torch.equal(small.weights(dampened.module), small.weights(run().module))


def test_noise_from_epsilon_is_in_the_folder(tmp_path):
    outcome = run(tmp_path, privacy=Privacy(epsilon=4.0, delta=1e-3))
    assert outcome.records[-1].epsilon == pytest.approx(4.0, abs=0.05)
    told = read_run(tmp_path)["privacy"]
    assert told["noise"] > 0.3
    assert told["epsilon"] == outcome.records[-1].epsilon


def test_secret_randomness_repeats_nothing():
    secret = PRIVATE.model_copy(update={"randomness": "secret"})
    first, second = (run(privacy=secret, cohort=ALL) for _ in range(2))
    assert not torch.equal(small.weights(first.module), small.weights(second.module))


def test_a_run_that_is_not_private_says_so(tmp_path):
    plain = run(tmp_path, privacy=None)
    assert all(record.epsilon is None for record in plain.records)
    assert "privacy" not in read_run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"guard": Guard()}, "noise protects only what is bounded"),
        ({"privacy": Privacy(noise=9.0, delta=1e-3, count_noise=1.0)}, "expected count_noise above 4.5"),
        ({"schedule": Schedule()}, "weights by samples have no bound"),
    ],
)
def test_what_is_not_private_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=f"^privacy.*{message}"):
        run(tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()


def test_with_little_noise_and_many_clients_a_private_run_learns():
    known = run(rounds=30, cohort=ALL, privacy=Privacy(noise=0.05, delta=1e-3))
    assert known.records[-1].headline > 0.6
    assert log(known.records[-1].epsilon) > 3


STEPS = {"noise": 1.0, "delta": 1e-3}


def told(*cohorts, clients=3, **settings):
    """What clients with 96 examples each told after these rounds."""
    federation = load("digits").partition("iid", clients=clients, seed=0, limit=288)
    local = LocalSGD(**{"batch": 32, "epochs": 2, "private": STEPS, **settings})
    found = LocalLedger(local, federation.clients, MEAN)
    for number, cohort in enumerate(cohorts):
        found.add(cohort, number)
    return found.epsilon


def test_a_pass_over_a_clients_examples_is_one_gaussian_mechanism():
    """However many steps it has; the client that told most counts."""
    for passes, found in (
        (1, told([0, 1], epochs=1)),
        (1, told([0], [1], epochs=1)),
        (2, told([0], [0], epochs=1)),
        (2, told([0])),
        (1, told([0], max_steps=2)),
        (2, told([0], max_steps=4)),  # the second pass was begun
        (6, told([0, 1], [2], [1, 2], [1])),
    ):
        assert found == pytest.approx(told(*[[0]] * passes, epochs=1)), passes
        exact = exact_gaussian(1.0 / sqrt(passes), 1e-3)
        assert exact < found < 1.2 * exact


def test_without_private_steps_nothing_is_told_of_what_examples_tell():
    assert told([0], private=None) is None
    assert told() == pytest.approx(0, abs=1e-2)


@pytest.mark.parametrize("delta", [1e-3, 0.1])
def test_a_delta_that_gives_an_example_away_is_warned_of(delta):
    federation = load("digits").partition("iid", clients=2, seed=0, limit=100)
    steps = LocalSGD(private={"noise": 1.0, "delta": delta})
    told = LocalLedger(steps, federation.clients, MEAN).check()
    warning = (
        "local.private: with delta = 0.1 all may be told of one of a client's 50 examples; expected less than 1/50"
    )
    assert [text.removesuffix(" = 0.02") for text in told] == ([warning] if delta == 0.1 else [])


PRIVATE_STEPS = {
    "privacy": None,
    "guard": Guard(),
    "local": LocalSGD(max_steps=2, batch=64, epochs=1, private={"noise": 0.5, "delta": 1e-3}),
}


def test_each_round_says_what_clients_told_of_an_example(tmp_path):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 1:
                raise KeyboardInterrupt

    whole = run(**PRIVATE_STEPS)
    spent = [record.local_epsilon for record in whole.records]
    assert 0 < spent[0] <= spent[-1]
    assert spent == sorted(spent)
    assert all(record.epsilon is None and record.train_loss is None for record in whole.records)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listeners=[Stop()], **PRIVATE_STEPS)
    run(tmp_path, resume=True, **PRIVATE_STEPS)
    assert untimed(read_rounds(tmp_path)) == untimed(whole.records)
    spread = run(**PRIVATE_STEPS, executor=Processes(workers=2))
    assert torch.equal(small.weights(spread.module), small.weights(whole.module))


def test_both_kinds_of_privacy_go_together():
    both = run(local=PRIVATE_STEPS["local"])
    assert all(record.epsilon > 0 < record.local_epsilon for record in both.records)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local": Scaffold(private=STEPS)}, "'scaffold' uses examples for more .*; methods that work: proximal, sgd"),
        ({"local": LocalSGD(private=STEPS, precision="bf16")}, "expected precision = 'float32', found 'bf16'"),
        ({"schedule": Schedule(base=stage_with(sends="gradient"))}, "stage 'fedavg' asks clients for gradients"),
        ({"schedule": Schedule(base=stage_with(search=Annealing()))}, "stage 'fedavg' asks clients for gradients"),
        ({"model": "small_cnn"}, "BatchNorm mixes the examples of a batch"),
    ],
)
def test_steps_that_tell_more_of_an_example_are_refused(changes, message):
    model = changes.pop("model", "linear")
    with pytest.raises(ConfigError, match=f"^local.private: {message}"):
        run(model=model, **{**PRIVATE_STEPS, **changes})

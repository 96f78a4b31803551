"""The attack on logits alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.analysis.membership import Evidence, Lira, LossThreshold, OfflineLira, attacked, membership_attack
from fedpace.core import ConfigError

counts = st.integers(20, 200)
seeds = st.integers(0, 1000)


def logits(count, seed, shift=0.0, scale=1.0):
    return np.random.default_rng(seed).normal(shift, scale, (count, 4))


def away_from_half(attack):
    return (attack.accuracy - 0.5) / attack.error


@given(counts, counts, seeds)
def test_what_differs_is_found(members, others, seed):
    attack = membership_attack(logits(members, 1, shift=20), logits(others, 2), seed=seed)
    assert (attack.accuracy, attack.error, attack.auc) == (1, 0, 1)
    assert attack.examples == min(members, others)


def test_what_does_not_differ_is_not_found():
    """The attacker is tested on what it has not seen; on its own half it would do better than chance."""
    attacks = [membership_attack(logits(30, 2 * seed), logits(30, 2 * seed + 1)) for seed in range(100)]
    assert np.mean([attack.accuracy for attack in attacks]) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(100 * 30))
    assert np.mean([attack.auc for attack in attacks]) == pytest.approx(0.5, abs=0.04)
    large = membership_attack(logits(4000, 1), logits(4000, 2))
    assert abs(away_from_half(large)) < 4


def test_a_small_difference_is_measured():
    """Two normal densities one deviation apart: the best classifier is right with Φ(1/2), the AUC is Φ(1/√2)."""
    shift = np.array([1, 0, 0, 0])
    attack = membership_attack(logits(5000, 1) + shift, logits(5000, 2))
    assert attack.accuracy == pytest.approx(0.6915, abs=4 * attack.error)
    assert attack.auc == pytest.approx(0.7602, abs=0.02)


@pytest.mark.parametrize(("members", "others"), [(4000, 200), (200, 4000)])
def test_equal_numbers_are_drawn(members, others):
    """With all of them, always saying the commoner kind would be right 95 times in a hundred."""
    attack = membership_attack(logits(members, 1), logits(others, 2))
    assert attack.examples == 200
    assert attack.error == pytest.approx(np.sqrt(attack.accuracy * (1 - attack.accuracy) / 200))
    assert abs(away_from_half(attack)) < 4


def test_the_whole_of_the_larger_set_is_drawn_from():
    """A set whose first rows differ from its other ones: taking those would be found out."""
    members = np.concatenate([logits(200, 1, shift=20), logits(20_000, 2)])
    assert membership_attack(members, logits(200, 3)).accuracy < 0.7


def test_a_seed_fixes_the_attack():
    members, others = logits(300, 1, shift=0.3), logits(200, 2)
    attacks = [membership_attack(members, others, seed=seed) for seed in (0, 0, 1)]
    assert attacks[0] == attacks[1] != attacks[2]


def test_the_order_of_rows_is_only_another_draw():
    """Rows that are sorted, as those of clients are, must not put different rows into the two halves."""
    members, others = np.sort(logits(2000, 1, shift=0.5), axis=0), np.sort(logits(2000, 2), axis=0)
    shuffled = np.random.default_rng(3).permutation(members)
    here, there = membership_attack(members, others), membership_attack(shuffled, others)
    assert here.accuracy == pytest.approx(there.accuracy, abs=4 * (here.error + there.error))


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_scale_of_logits_does_not_matter(factor):
    members, others = logits(300, 1, shift=0.3), logits(300, 2)
    scales = np.array([1, factor, 1, 1])
    scaled = membership_attack(members * scales + 5, others * scales + 5)
    assert scaled.accuracy == pytest.approx(membership_attack(members, others).accuracy, abs=0.01)


def test_tensors_are_arrays_too():
    members, others = logits(50, 1, shift=1).astype(np.float32), logits(50, 2).astype(np.float32)
    tensors = torch.from_numpy(members), torch.from_numpy(others)
    assert membership_attack(*tensors) == membership_attack(members, others)


@pytest.mark.parametrize(("members", "others"), [(19, 100), (100, 19), (0, 0)])
def test_too_few_examples_are_one_line(members, others):
    with pytest.raises(ConfigError, match=f"at least 20 members and 20 others, found {members} and {others}"):
        membership_attack(logits(members, 1), logits(others, 2))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_one_line(value):
    broken = logits(50, 1)
    broken[7, 2] = value
    for pair in ((broken, logits(50, 2)), (logits(50, 2), broken)):
        with pytest.raises(ConfigError, match="expected finite logits, found NaN or infinity"):
            membership_attack(*pair)


def confidences(count, seed, gain=0.0, shadows=8):
    """What models say that are surer by ``gain`` of examples that they saw; examples differ in difficulty by more."""
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0, 5, count)
    inside = rng.permuted(np.tile([False, True], (count, shadows // 2)), axis=1)
    answers = difficulty[:, None] + gain * inside + rng.normal(size=inside.shape)
    return difficulty + rng.normal(size=count), answers, inside


def evidence(count, seed, *, member, gain):
    own, answers, inside = confidences(count, seed, gain)
    own = own + gain * member
    return Evidence(own[:, None], -own, own, answers, inside)


@pytest.mark.parametrize("adversary", [Lira(), OfflineLira()])
def test_shadow_models_tell_what_is_difficult_from_what_was_not_seen(adversary):
    """Of examples that differ in difficulty by five times more than members gain, a threshold on the loss finds few."""
    members, others = evidence(2000, 1, member=True, gain=2), evidence(2000, 2, member=False, gain=2)
    found, plain = (attacked(by, members, others) for by in (adversary, LossThreshold()))
    assert found.auc > 0.85 > 0.65 > plain.auc > 0.5
    assert found.hits > 4 * plain.hits
    assert found.accuracy > plain.accuracy + 4 * plain.error


@pytest.mark.parametrize("adversary", [Lira(), OfflineLira(), LossThreshold()])
def test_where_members_gain_nothing_there_is_nothing_to_find(adversary):
    members, others = evidence(4000, 1, member=True, gain=0), evidence(4000, 2, member=False, gain=0)
    found = attacked(adversary, members, others)
    assert abs(away_from_half(found)) < 4
    assert abs(found.auc - 0.5) < 4 * found.auc_error
    assert abs(found.hits - 0.01) < 4 * np.sqrt(2 * 0.01 / 2000)


def test_the_ratio_is_that_of_two_normal_densities():
    found = Lira().ratio(
        Evidence(
            np.zeros((2, 1)),
            confidences=np.array([1.0, 4.0]),
            shadows=np.array([[0.0, 2.0, 3.0, 5.0], [3.0, 5.0, 0.0, 2.0]]),
            inside=np.array([[False, False, True, True], [True, True, False, False]]),
        )
    )
    deviation = np.sqrt(2)  # of two values that are 2 apart
    assert found == pytest.approx([-(3**2) / 2 / deviation**2, 3**2 / 2 / deviation**2])


def test_the_errors_are_those_of_repeated_draws():
    shift = np.array([1, 0, 0, 0])
    attacks = [membership_attack(logits(100, 2 * s) + shift, logits(100, 2 * s + 1)) for s in range(200)]
    for value, error in (("accuracy", "error"), ("auc", "auc_error")):
        spread = np.std([getattr(attack, value) for attack in attacks])
        assert spread == pytest.approx(np.mean([getattr(attack, error) for attack in attacks]), rel=0.25)

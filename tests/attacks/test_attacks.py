"""What holds for every attack, and what each of them is about."""

import numpy as np
import pytest
import torch

from fedpace.attacks import ALIE, AgainstSigns, Backdoor, FalseExamples, LabelFlip, MinMax, MinSum, Silence, attacks
from fedpace.core import DataError
from fedpace.data import Examples

NAMES = attacks.names()


def updates(clients=6, size=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator) + torch.randn(clients, size, generator=generator)


def forged(attack, honest, own, seed=3):
    return attack.forged(honest, own, torch.Generator().manual_seed(seed))


def images(number=12, classes=4):
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 200, (number, 8, 8, 1), np.uint8)
    return Examples(inputs, np.arange(number) % classes, tuple(map(str, range(classes))))


@pytest.mark.parametrize("name", NAMES)
def test_attackers_send_finite_rows_of_their_own_and_touch_no_others(name):
    honest, own = updates(), updates(2, seed=1)
    kept = honest.clone(), own.clone()
    rows = forged(attacks.get(name)(), honest, own)
    assert rows.shape == own.shape
    assert rows.isfinite().all()
    assert torch.equal(honest, kept[0])
    assert torch.equal(own, kept[1])
    assert torch.equal(rows, forged(attacks.get(name)(), honest, own))
    rows[0] += 1  # each row is a tensor of its own
    assert torch.equal(honest, kept[0])


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_on_one_honest_client_with_equal_or_zero_updates_stays_finite(name):
    for honest in (updates(1), torch.zeros(3, 5), torch.ones(3, 5)):
        assert forged(attacks.get(name)(), honest, honest[:1].clone()).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_falsifies_something(name):
    attack, honest, own, examples = attacks.get(name)(), updates(), updates(2, seed=1), images()
    false_data = attack.poisoned(examples) is not examples
    false_updates = not torch.equal(forged(attack, honest, own), own)
    assert false_data or false_updates or attack.claimed(10) != 10


def test_a_little_is_within_the_spread_of_the_honest():
    honest = updates(8)
    row = forged(ALIE(), honest, honest[:3])[0]
    inside = (row >= honest.min(0).values) & (row <= honest.max(0).values)
    assert inside.float().mean() > 0.95
    assert (row <= honest.mean(0) + 1e-6).all()


@pytest.mark.parametrize("direction", ["deviation", "mean", "sign"])
def test_who_goes_furthest_stays_just_within_the_bound(direction):
    honest = updates(7)
    between = torch.cdist(honest.double(), honest.double()) ** 2
    row = forged(MinMax(direction=direction), honest, honest[:1])
    reached = (torch.cdist(row.double(), honest.double()) ** 2).max()
    assert reached == pytest.approx(between.max().item(), rel=1e-3)
    row = forged(MinSum(direction=direction), honest, honest[:1])
    reached = (torch.cdist(row.double(), honest.double()) ** 2).sum()
    assert reached == pytest.approx(between.sum(1).max().item(), rel=1e-3)


def test_votes_against_the_majority_lower_every_agreement():
    honest = updates(5)
    rows = forged(AgainstSigns(), honest, honest[:2])
    before = torch.sign(honest).sum(0)
    after = torch.sign(torch.cat([honest, rows])).sum(0)
    assert torch.equal(after, before - 2 * before.sign())


def test_only_what_the_victim_alone_knows_is_outvoted():
    crowd = torch.ones(4, 6)
    victim = torch.tensor([[1.0, 1.0, 1.0, -1.0, -1.0, -1.0]])
    row = forged(Silence(), torch.cat([crowd, victim]), crowd[:1])[0]
    assert torch.sign(row).tolist() == [1.0] * 6
    assert (row[3:] > row[:3].max() - 1e-6).all() or (row[3:] >= 0.6).all()


def test_false_labels_and_a_false_number():
    examples = images()
    flipped = LabelFlip().poisoned(examples)
    assert (flipped.labels + examples.labels == 3).all()
    assert FalseExamples(factor=100).claimed(7) == 700


def test_a_backdoor_marks_images_and_wants_its_answer():
    examples = images()
    poisoned = Backdoor(target=1, every=3).poisoned(examples)
    assert (poisoned.labels[::3] == 1).all()
    assert (poisoned.inputs[::3, -2:, -2:] == 255).all()
    untouched = np.arange(len(examples)) % 3 != 0
    assert np.array_equal(poisoned.inputs[untouched], examples.inputs[untouched])
    assert np.array_equal(poisoned.labels[untouched], examples.labels[untouched])
    goal = Backdoor(target=1).goal(examples)
    assert len(goal) == 9
    assert (goal.labels == 1).all()
    assert (goal.inputs[:, -2:, -2:] == 255).all()


def test_what_needs_classes_or_images_says_so():
    numbers = Examples(np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32))
    with pytest.raises(DataError, match="attack 'label_flip': expected classes"):
        LabelFlip().poisoned(numbers)
    vectors = Examples(np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1]), ("a", "b"))
    with pytest.raises(DataError, match="expected uint8 images"):
        Backdoor().poisoned(vectors)
    with pytest.raises(DataError, match="expected a class below 4, found 7"):
        Backdoor(target=7).poisoned(images())

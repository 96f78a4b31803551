import numpy as np

from fedpace.data import load
from fedpace.data.sources.digits import grey_digits


def test_digits_are_split_by_class_the_same_way_every_time():
    one, two = load("digits"), load("digits")
    assert np.array_equal(one.test.inputs, two.test.inputs)
    assert len(one.train) + len(one.test) == 1797
    assert np.abs(np.bincount(one.test.labels) / np.bincount(one.train.labels) - 0.25).max() < 0.02
    assert one.train.inputs.min() == 0
    assert one.train.inputs.max() == 255


def test_digits_do_not_share_examples_between_train_and_test():
    data = load("digits")
    everything = np.concatenate([data.train.inputs, data.test.inputs]).reshape(1797, -1)
    from sklearn.datasets import load_digits

    original = np.rint(load_digits().data * 255 / 16)
    assert np.array_equal(np.sort(everything.sum(axis=1)), np.sort(original.sum(axis=1)))


def test_digits_are_those_that_scikit_learn_loads():
    from sklearn.datasets import load_digits

    images, labels = grey_digits()
    assert np.array_equal(images[..., 0], np.rint(load_digits().images * 255 / 16))
    assert np.array_equal(labels, load_digits().target)


def test_domains_differ_visibly_and_are_of_equal_size():
    data = load("digit_domains").train
    assert data.domain_names == ("plain", "inverted", "rotated", "striped")
    assert np.ptp(np.bincount(data.domains)) <= 1
    plain, inverted, rotated, striped = (data.inputs[data.domains == d].mean(axis=0)[..., 0] for d in range(4))
    assert np.abs(plain - (255 - inverted)).mean() < 10
    assert np.abs(plain - np.rot90(rotated, -1)).mean() < 10
    for other in (inverted, rotated, striped):
        assert np.abs(plain - other).mean() > 25


def test_each_domain_has_all_classes():
    data = load("digit_domains").train
    assert all(len(set(data.labels[data.domains == domain])) == 10 for domain in range(4))

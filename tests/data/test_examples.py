import numpy as np
import pytest

from fedpace.core import DataError
from fedpace.data import Examples

from .helpers import toy


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [(np.zeros((2, 5, 6, 3), np.uint8), (3, 5, 6)), (np.zeros((2, 7), np.float32), (7,))],
)
def test_shape_is_what_a_model_sees(inputs, shape):
    assert Examples(inputs, np.array([0, 1]), ("a", "b")).shape == shape


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (np.zeros((2, 8, 8), np.uint8), [0, 1], r"found uint8 of shape \(2, 8, 8\)"),
        (np.zeros((2, 8), np.float64), [0, 1], "found float64"),
        (np.zeros((2, 8), np.float32), [0, 1, 1], r"one per example \(2\)"),
        (np.zeros((2, 8), np.float32), [0, 2], "labels out of range: expected 0 to 1, found 0 to 2"),
        (np.zeros((2, 8), np.float32), [-1, 0], "labels out of range: .* found -1 to 0"),
    ],
)
def test_what_does_not_fit_is_an_error(inputs, labels, message):
    with pytest.raises(DataError, match=message):
        Examples(inputs, np.array(labels), ("a", "b"))


def test_domains_are_checked_too():
    with pytest.raises(DataError, match="domains out of range"):
        toy([0, 1], domains=np.array([0, 1]), domain_names=("photo",))


def test_joined_keeps_order_labels_and_domains():
    one = toy([0, 1], domains=np.array([0, 0]), domain_names=("photo", "sketch"))
    two = toy([1], classes=2, domains=np.array([1]), domain_names=("photo", "sketch"))
    both = one.joined(two)
    assert both.inputs[:, 0].tolist() == [0, 1, 0]
    assert both.labels.tolist() == [0, 1, 1]
    assert both.domains.tolist() == [0, 0, 1]


def named(*names):
    return toy([0, 1], domains=np.zeros(2, int), domain_names=names)


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        (toy([0, 1]), toy([0, 1, 2]), "they differ in classes: 0, 1 and 0, 1, 2"),
        (named("photo"), toy([0, 1]), "they differ in domain_names: photo and none"),
        (toy([0, 1]), named("photo"), "they differ in domain_names: none and photo"),
        (named(*"abcdefgh"), named("z"), "domain_names: a, b, c, d, e and 3 more and z"),
        (toy([0, 1]), Examples(np.zeros((1, 2, 3), np.float32), np.array([0]), ("0", "1")), "shape: 1 and 2, 3"),
    ],
)
def test_joined_refuses_what_differs(one, two, message):
    with pytest.raises(DataError, match=message):
        one.joined(two)


def test_names_of_domains_without_domains_are_refused():
    with pytest.raises(DataError, match=r"domains: expected one per example \(2\), found none beside their names"):
        toy([0, 1], domain_names=("photo", "sketch"))

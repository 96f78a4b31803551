import colorsys

import numpy as np
import pytest

from fedpace.data import Coloured, Population, load
from fedpace.data.shifts import Colouring
from fedpace.data.shifts._noise import noise

N = 20_000


def population(clients, classes=10):
    return Population(clients, classes, seed=5)


def hue(pixel):
    return colorsys.rgb_to_hsv(*(pixel / 255))[0]


def around(one, other):
    """Distance on the colour circle."""
    return abs((one - other + 0.5) % 1 - 0.5)


def same(one, other):
    """Not by chance: np.isclose would allow differences of 1e-5, which random hues do reach."""
    return np.abs(one - other) < 1e-12


@pytest.mark.parametrize("clients", [3, 10])
def test_a_digit_has_the_hue_of_its_client(clients):
    white = np.full((10, 1, 1, 1), 255, np.uint8)
    for client in range(clients):
        seen = Coloured(q=1).for_client(client, population(clients))(white, np.arange(10), np.arange(10))
        offset = (client + 0.5) / (clients + 1)
        for digit in range(10):
            assert around(hue(seen[digit, 0, 0]), digit / 10 + offset) < 0.003  # 8 bits


def test_the_colour_multiplies_the_grey():
    greys = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    orange = Colouring(offset=1 / 12, q=1, saturation=1, classes=10, seed=0)(greys, np.array([0]), np.array([0]))
    assert np.array_equal(orange[..., 0], greys[..., 0])
    assert np.abs(orange[..., 1] - greys[..., 0] / 2).max() <= 0.51
    assert not orange[..., 2].any()


@pytest.mark.parametrize(("saturation", "blue"), [(0.0, 255), (0.4, 153), (1.0, 0)])
def test_saturation_mixes_with_white(saturation, blue):
    white = np.full((1, 1, 1, 1), 255, np.uint8)
    red = Colouring(offset=0, q=1, saturation=saturation, classes=10, seed=0)(white, np.array([0]), np.array([7]))
    assert red.ravel().tolist() == [255, blue, blue]


def test_labels_are_spread_over_the_circle_however_many_classes_there_are():
    colouring = Coloured(q=1).for_client(0, population(3, classes=62))
    hues = colouring.hues(np.arange(62), np.arange(62))
    assert np.allclose((hues - hues[0]) % 1, np.arange(62) / 62)


@pytest.mark.parametrize("q", [0.0, 0.3, 0.9, 1.0])
def test_a_colour_follows_the_label_with_probability_q(q):
    colouring = Coloured(q=q).for_client(1, population(4))
    labels = np.arange(N) % 10
    by_label = (labels / 10 + colouring.offset) % 1
    follows = same(colouring.hues(labels, np.arange(N)), by_label)
    assert abs(follows.mean() - q) < 4 * np.sqrt(q * (1 - q) / N) + 1e-9
    other = colouring.hues(labels, np.arange(N))[~follows]
    if len(other):
        counts = np.histogram(other, bins=10, range=(0, 1))[0]
        assert np.abs(counts / len(other) - 0.1).max() < 5 * np.sqrt(0.09 / len(other))


def test_what_follows_does_not_depend_on_client_or_label():
    labels = np.arange(N) % 10
    follows = np.stack(
        [
            same(made.hues(labels, np.arange(N)), (labels / 10 + made.offset) % 1)
            for made in (Coloured(q=0.5).for_client(client, population(4)) for client in range(4))
        ]
    )
    assert (follows == follows[0]).all()
    assert np.abs([follows[0][labels == label].mean() - 0.5 for label in range(10)]).max() < 0.06


def offsets(clients, **parameters):
    shift = Coloured(**parameters)
    own = [shift.for_client(client, population(clients)).offset for client in range(clients)]
    return np.array(own), shift.for_test(population(clients)).offset


@pytest.mark.parametrize("clients", [1, 2, 10, 500])
def test_dense_offsets_and_that_of_the_test_set(clients):
    own, test = offsets(clients)
    assert np.allclose(own, (np.arange(clients) + 0.5) / (clients + 1))
    assert test == (clients + 0.5) / (clients + 1)


@pytest.mark.parametrize("clients", [10, 11, 500])
def test_spaced_offsets_keep_their_distance_from_the_test_set(clients):
    own, test = offsets(clients, offsets="spaced")
    assert around(own, test).min() == pytest.approx(0.1)
    steps = np.diff(np.unwrap(own, period=1))
    assert np.allclose(steps, 0.8 / (clients - 1))


@pytest.mark.parametrize("clients", [1, 3, 9])
def test_few_clients_are_far_enough_as_they_are(clients):
    assert np.allclose(offsets(clients, offsets="spaced")[0], offsets(clients)[0])


def test_the_colours_of_the_test_set():
    labels, indices = np.arange(N) % 10, np.arange(N)
    white = np.full((N, 1, 1, 1), 255, np.uint8)
    unseen, chance, grey = (
        Coloured(test=test).for_test(population(10)) for test in ("unseen_map", "random_colour", "grey")
    )
    expected = (labels / 10 + 10.5 / 11) % 1
    assert same(unseen.hues(labels, indices), expected).mean() == pytest.approx(0.9, abs=0.01)
    assert same(chance.hues(labels, indices), expected).mean() < 0.001
    assert np.ptp([chance.hues(labels, indices)[labels == label].mean() for label in range(10)]) < 0.06
    assert (grey(white, labels, indices) == 255).all()


def test_noise_is_uniform_and_independent_of_its_neighbours_names_and_seeds():
    values = noise(np.arange(N), 0, "a")
    assert ((values >= 0) & (values < 1)).all()
    assert abs(np.histogram(values, bins=20, range=(0, 1))[0] - N / 20).max() < 5 * np.sqrt(N / 20)
    for other in (noise(np.arange(1, N + 1), 0, "a"), noise(np.arange(N), 0, "b"), noise(np.arange(N), 1, "a")):
        assert abs(np.corrcoef(values, other)[0, 1]) < 4 / np.sqrt(N)


def test_colours_of_real_digits_tell_the_label_within_a_client_only():
    federation = load("digits").partition("iid", clients=4, shift={"name": "coloured", "q": 1})
    shard = federation.clients[2]
    images, labels = shard.arrays(slice(None))
    brightest = images.reshape(len(images), -1, 3)[
        np.arange(len(images)), images.max(-1).reshape(len(images), -1).argmax(1)
    ]
    found = np.array([hue(pixel) for pixel in brightest])
    assert around(found, labels / 10 + 2.5 / 5).max() < 0.01
    assert around(found, labels / 10 + 4.5 / 5).min() > 0.3

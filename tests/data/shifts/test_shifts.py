"""Properties that every shift has, over the registry, and what a federation does with a shift."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch

from fedpace.core import ConfigError, DataError, PartitionError
from fedpace.data import Data, Examples, Federation, Mechanism, Population, Rotated, Shard, Shift, load, shifts

from ..helpers import toy

POPULATION = Population(clients=5, classes=10, seed=3)
EVERY = pytest.mark.parametrize("name", shifts.names())


def batch(n=12, side=9, channels=1, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, side, side, channels), dtype=np.uint8)
    return images, rng.integers(0, 10, n), rng.permutation(1000)[:n]


def mechanisms(name, population=POPULATION):
    shift = shifts.get(name)()
    return [shift.for_client(client, population) for client in range(population.clients)], shift.for_test(population)


@EVERY
def test_the_result_has_the_shape_that_was_announced_and_the_input_is_left_alone(name):
    for channels in shifts.get(name).channels:
        images, labels, indices = batch(channels=channels)
        before = images.copy()
        images.flags.writeable = False  # as the memory of a mapped file
        for mechanism in (mechanisms(name)[0][0], mechanisms(name)[1]):
            shifted = mechanism(images, labels, indices)
            assert shifted.dtype == np.uint8
            channels_after, *sides = mechanism.shape((channels, 9, 9))
            assert shifted.shape == (12, *sides, channels_after)
        assert np.array_equal(images, before)


@EVERY
def test_an_example_looks_the_same_in_every_batch_and_after_pickling(name):
    images, labels, indices = batch()
    for mechanism in (mechanisms(name)[0][2], mechanisms(name)[1]):
        whole = mechanism(images, labels, indices)
        again = pickle.loads(pickle.dumps(mechanism))
        assert again == mechanism
        order = np.random.default_rng(1).permutation(len(images))
        assert np.array_equal(again(images[order], labels[order], indices[order]), whole[order])
        assert np.array_equal(mechanism(images[3:4], labels[3:4], indices[3:4]), whole[3:4])


@EVERY
@pytest.mark.parametrize("clients", [1, 2, 10, 100])
def test_no_two_clients_have_the_same_mechanism_and_none_has_that_of_the_test_set(name, clients):
    own, unseen = mechanisms(name, dataclasses.replace(POPULATION, clients=clients))
    assert len({repr(mechanism) for mechanism in (*own, unseen)}) == clients + 1
    images, labels, indices = batch(n=200, side=28)
    tested = unseen(images, labels, indices)
    assert all(not np.array_equal(mechanism(images, labels, indices), tested) for mechanism in own)


@EVERY
def test_every_shift_says_what_its_parameters_are(name):
    cls = shifts.get(name)
    described = cls.__doc__.split("Parameters:")[1]
    assert all(f"``{field}``" in described for field in cls.model_fields)
    assert cls.registered_name() == name


@EVERY
def test_data_that_are_no_images_are_refused_in_one_line(name):
    message = rf"shift '{name}': expected uint8 images with .* channel\(s\), found float32 arrays"
    with pytest.raises(DataError, match=message) as caught:
        Data("toy", toy([0, 1] * 10), toy([0, 1])).partition("iid", clients=2, shift=name)
    assert "\n" not in str(caught.value)


def test_colours_are_not_coloured():
    images = Examples(np.zeros((20, 8, 8, 3), np.uint8), np.arange(20) % 2, ("a", "b"))
    with pytest.raises(DataError, match=r"shift 'coloured': expected uint8 images with 1 channel\(s\), found 3"):
        Data("rgb", images, images).partition("iid", clients=2, shift="coloured")
    assert Data("rgb", images, images).partition("iid", clients=2, shift="rotated").shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        ("colored", r"unknown shift 'colored'; did you mean 'coloured'\?"),
        ({"name": "coloured", "q": 1.5}, "shift 'coloured': q: input should be less than or equal to 1, found 1.5"),
        ({"name": "coloured", "offset": 1}, r"unknown key 'offset'; did you mean 'offsets'\?"),
        ({"name": "rotated", "angles": [1]}, "shift 'rotated': angles.1: field required"),
        ({"q": 0.5}, "shift: expected a name or a table with 'name'"),
    ],
)
def test_a_wrong_shift_is_one_line(shift, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load("digits").partition("iid", shift=shift)
    assert "\n" not in str(caught.value)


@EVERY
@pytest.mark.parametrize(
    ("source", "partition"),
    [
        ("digits", {"name": "iid", "clients": 4}),
        ("digits", {"name": "shards", "clients": 5, "classes_per_client": 2}),
        ("digits", {"name": "practical", "clients": 4, "alpha": 0.5}),
        ("digit_domains", {"name": "leave_one_domain_out"}),
    ],
)
def test_any_partition_goes_with_any_shift(name, source, partition):
    """Label skew stays as it is, each client and its tests have its mechanism, and the test set has the unseen one."""
    data = load(source)
    plain, shifted = (data.partition(partition, seed=2, shift=shift) for shift in (None, name))
    assert np.array_equal(plain.counts(), shifted.counts())
    assert shifted.name == f"{plain.name}/{name}"
    assert (shifted.client_tests is None) == (plain.client_tests is None)
    for client, (before, after) in enumerate(zip(plain.clients, shifted.clients, strict=True)):
        assert np.array_equal(before.indices, after.indices)
        assert before.pool is after.pool  # no copy of the data
        if shifted.client_tests is not None:
            assert shifted.client_tests[client].mechanism == after.mechanism
    own = [shard.mechanism for shard in shifted.clients]
    assert len({*own, shifted.test.mechanism}) == len(own) + 1
    inputs, labels = shifted.clients[0].batch(slice(0, 32))
    assert inputs.shape[1:] == shifted.shape
    assert torch.equal(labels, plain.clients[0].batch(slice(0, 32))[1])


def test_a_batch_is_shifted_normalised_and_channels_last():
    shard = load("digits").partition("iid", clients=2, shift="coloured").clients[1]
    positions = torch.tensor([5, 0, 9])
    indices = shard.indices[positions]
    images = shard.pool.inputs[indices]
    expected = shard.mechanism(images, shard.pool.labels[indices], indices)
    inputs, labels = shard.batch(positions)
    torch.testing.assert_close(inputs, torch.tensor(expected).permute(0, 3, 1, 2) / 127.5 - 1)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(labels, shard.labels[positions])


def test_the_same_seed_gives_the_same_colours_and_another_one_others():
    digits = load("digits")
    one, two, other = (digits.partition("iid", seed=seed, shift="coloured") for seed in (1, 1, 2))
    assert torch.equal(one.test.batch(slice(None))[0], two.test.batch(slice(None))[0])
    assert not torch.equal(one.test.batch(slice(None))[0], other.test.batch(slice(None))[0])


def test_a_fingerprint_tells_shifts_apart():
    digits = load("digits")
    choices = [
        None,
        "coloured",
        {"name": "coloured", "q": 0.8},
        {"name": "coloured", "saturation": 0.5},
        {"name": "coloured", "test": "grey"},
        {"name": "coloured", "test": "random_colour"},
        "rotated",
        {"name": "rotated", "angles": [-60, 61]},
        {"name": "rotated", "test_angle": 120},
    ]
    found = [digits.partition("iid", shift=shift).fingerprint() for shift in choices]
    assert len(set(found)) == len(choices)
    assert digits.partition("iid", shift="coloured").fingerprint() == found[1]


def test_the_fingerprint_of_what_is_not_shifted_is_that_of_older_versions():
    """Runs from before there were shifts go on."""
    assert load("digits").partition("iid", clients=3).fingerprint() == "49c7e81ecc629c2f558be772fb6de7aa"


def test_a_federation_of_the_users_own_may_be_shifted():
    images = Examples(np.full((4, 8, 8, 1), 9, np.uint8), np.array([0, 1, 0, 1]), ("a", "b"))
    shards = Shard(images, np.array([0, 1])), Shard(images, np.array([2]))
    federation = Federation("own", shards, ("x", "y"), Shard(images, np.array([3])))
    assert federation.shifted(Rotated(test_angle=45)).test.mechanism.angle == 45


def test_shards_of_different_shapes_are_refused():
    federation = load("digits").partition("iid", shift="coloured")
    with pytest.raises(PartitionError, match=r"expected examples of one shape, found \(1, 8, 8\), \(3, 8, 8\)"):
        dataclasses.replace(federation, test=dataclasses.replace(federation.test, mechanism=None))


@dataclasses.dataclass(frozen=True)
class Flip(Mechanism):
    times: int

    def __call__(self, images, labels, indices):
        return images[:, :: (-1) ** self.times]  # a view with a negative stride, which torch cannot take


class Flipped(Shift):
    def for_client(self, client, population):
        return Flip(client)

    def for_test(self, population):
        return Flip(population.clients)


def test_a_shift_of_the_users_own_is_imported_by_its_path():
    federation = load("digits").partition("iid", clients=2, shift=f"{__name__}:Flipped")
    plain = load("digits").partition("iid", clients=2)
    seen, upright = (made.clients[1].batch(slice(0, 4))[0] for made in (federation, plain))
    assert torch.equal(seen, upright.flip(2))

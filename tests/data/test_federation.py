import warnings

import numpy as np
import pytest
import torch

from fedpace.core import PartitionError
from fedpace.data import Examples, Federation, Shard

from .helpers import toy


def federation(*indices, examples=None, **parts):
    examples = examples or toy([0, 1, 0, 1, 2, 2])
    clients = tuple(Shard(examples, np.array(i, dtype=np.int64)) for i in indices)
    names = tuple(map(str, range(len(clients))))
    return Federation("toy", clients, names, Shard(examples, np.arange(2)), **parts)


@pytest.fixture
def images(tmp_path):
    """Memory-mapped and read-only, as the cache returns them."""
    array = np.random.default_rng(0).integers(0, 256, (10, 6, 5, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", array)
    return Examples(np.load(tmp_path / "images.npy", mmap_mode="r"), np.arange(10) % 3, ("a", "b", "c"))


@pytest.mark.parametrize("positions", [torch.tensor([2, 0]), np.array([2, 0]), slice(2, None, -2)])
def test_batch_is_normalised_and_channels_last(images, positions):
    shard = Shard(images, np.array([7, 3, 9]))
    inputs, labels = shard.batch(positions)
    expected = (torch.tensor(images.inputs[[9, 7]]).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    torch.testing.assert_close(inputs, expected)
    assert inputs.dtype == torch.float32
    assert inputs.shape == (2, 3, 6, 5)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert labels.tolist() == [0, 1]


def test_batch_may_be_written_to(images):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns about read-only memory
        Shard(images, np.arange(10)).batch(slice(None))[0].zero_()
    assert images.inputs.any()


def test_floats_are_taken_as_they_are():
    inputs, _ = Shard(toy([0, 1, 1]), np.array([2, 1])).batch(torch.tensor([0, 1]))
    assert inputs.tolist() == [[2.0], [1.0]]


def test_counts_are_clients_by_classes():
    made = federation([0, 1, 2], [4, 5])
    assert made.counts().tolist() == [[2, 1, 0], [0, 0, 2]]
    assert len(made) == 2
    assert made.shape == (1,)
    assert "2 clients with 5 examples" in repr(made)
    assert "<th>1</th><td>0</td><td>0</td><td>2</td>" in made._repr_html_()


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (([0, 1], []), "client '1' has no training examples; use fewer clients"),
        (([0, 1], [1, 2]), "example 1 is used 2 times"),
        (([0, 6],), "expected 0 to 5, found 0 to 6"),
        ((), "at least one client"),
    ],
)
def test_a_wrong_split_is_an_error(indices, message):
    with pytest.raises(PartitionError, match=message):
        federation(*indices)


def test_clients_may_have_data_sets_of_their_own():
    shards = tuple(Shard(toy([0, 1]), np.arange(2)) for _ in range(2))
    assert Federation("own", shards, ("a", "b"), shards[0]).counts().tolist() == [[1, 1], [1, 1]]


def test_client_tests_must_match_the_clients():
    with pytest.raises(PartitionError, match="2 clients, 2 names and 1 tests"):
        federation([0], [1], client_tests=(Shard(toy([0]), np.arange(1)),))


def test_a_client_without_tests_is_named():
    tests = (Shard(toy([0]), np.arange(1)), Shard(toy([0]), np.arange(0)))
    with pytest.raises(PartitionError, match=r"^client '1' has no test examples; use fewer clients or a larger test_"):
        federation([0], [1], client_tests=tests)

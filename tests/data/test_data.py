import numpy as np
import pytest

from fedpace.core import ConfigError, DataError, PartitionError
from fedpace.data import Assignment, Data, Iid, Partition, load

from .helpers import toy


def test_same_seed_same_split_and_another_seed_another():
    digits = load("digits")
    one, two, other = (digits.partition(seed=seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a.indices, b.indices) for a, b in zip(one.clients, two.clients, strict=True))
    assert not np.array_equal(one.counts(), other.counts())


def test_a_missing_test_set_is_held_out_by_class_and_does_not_depend_on_the_seed():
    data = Data("toy", toy(np.repeat([0, 1], [50, 10])))
    one, two = (data.partition("iid", clients=2, seed=seed) for seed in (0, 1))
    assert one.test.class_counts().tolist() == [10, 2]
    assert one.counts().sum(axis=0).tolist() == [40, 8]
    assert np.array_equal(one.test.batch(slice(None))[0], two.test.batch(slice(None))[0])
    seen = np.concatenate([shard.batch(slice(None))[0] for shard in (*one.clients, one.test)])
    assert sorted(seen[:, 0]) == list(range(60))


def test_too_few_examples_to_hold_out():
    with pytest.raises(DataError, match="2 examples are too few to hold out"):
        Data("toy", toy([0, 1])).partition("iid", clients=1)


def test_train_and_test_must_have_the_same_classes():
    with pytest.raises(DataError, match="train and test differ in classes"):
        Data("toy", toy([0, 1]), toy([0, 1, 2]))


@pytest.mark.parametrize("partition", [Iid(clients=4), {"name": "iid", "clients": 4}])
def test_a_partition_may_be_an_object_or_a_table(partition):
    assert len(load("digits").partition(partition)) == 4


@pytest.mark.parametrize(
    ("partition", "parameters", "message"),
    [
        ("dirichlett", {}, "unknown partition 'dirichlett'; did you mean 'dirichlet'?"),
        ("dirichlet", {"alpha": 0}, "partition 'dirichlet': alpha: input should be greater than 0, found 0"),
        ("dirichlet", {"alfa": 1}, "unknown key 'alfa'; did you mean 'alpha'?"),
        (Iid(), {"clients": 4}, r"expected a name beside parameters \['clients'\]"),
    ],
)
def test_a_wrong_partition_is_one_line(partition, parameters, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load("digits").partition(partition, **parameters)
    assert "\n" not in str(caught.value)


def test_a_partition_of_everything_must_bring_a_test_set():
    class Forgetful(Partition):
        pool = "all"

        def assign(self, examples, rng):
            return Assignment([np.arange(len(examples))])

    with pytest.raises(PartitionError, match="must bring held_out or a test_share"):
        load("digits").partition(Forgetful())

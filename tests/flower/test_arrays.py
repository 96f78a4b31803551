"""Arrays are read where they lie, and are what Flower itself would read."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array

from fedpace.flower._arrays import values

SHAPES = [(), (0,), (3,), (2, 3, 4)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_those_that_flower_reads(shape, dtype):
    array = Array(np.arange(int(np.prod(shape))).reshape(shape).astype(dtype))
    np.testing.assert_array_equal(values(array), array.numpy(), strict=True)


def test_columns_first():
    array = Array(np.asfortranarray(np.arange(12.0).reshape(3, 4)))
    np.testing.assert_array_equal(values(array), array.numpy(), strict=True)


def test_nothing_is_copied():
    array = Array(np.arange(1000.0))
    assert np.shares_memory(values(array), np.frombuffer(array.data, np.uint8))


@pytest.mark.parametrize(
    "damaged", [b"", b"\x93NUMPY", Array(np.arange(9.0)).data[:-1], b"\x93NUMPY\x01\x00\x05\x00{'a'}"]
)
def test_damaged_data_is_unreadable(damaged):
    array = Array(np.arange(9.0))
    array.data = damaged
    with pytest.raises((ValueError, EOFError)):
        values(array)

"""Properties that every format inherits by being registered, and how wrong each may be."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpace.core import ConfigError, parse
from fedpace.wire import BF16, Float32, Int8, Signs, wires

FORMATS = [
    *(wires.get(name)() for name in wires.names()),
    Int8(block=3),
    Int8(block=10**12),
    Signs(block=1),
    Signs(block=5),
    Signs(block=10**12),
]
every_format = pytest.mark.parametrize("wire", FORMATS, ids=str)
sizes = st.integers(0, 40)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = arrays(np.float32, sizes, elements=floats).map(torch.from_numpy)
common = arrays(np.float32, sizes, elements=st.floats(-100, 100, width=32)).map(torch.from_numpy)


def arrived(wire, vector, seed=0):
    return wire.read(wire.encode(vector, seed), len(vector))


@every_format
@given(vector=vectors)
def test_what_is_finite_arrives_finite_and_whole(wire, vector):
    before = vector.clone()
    found = arrived(wire, vector)
    assert (found.shape, found.dtype) == (vector.shape, torch.float32)
    assert found.isfinite().all()
    assert torch.equal(vector, before)


@every_format
@given(size=sizes)
def test_nothing_arrives_as_nothing(wire, size):
    assert not arrived(wire, torch.zeros(size)).any()


@every_format
@given(vector=common)
def test_zero_arrives_as_zero_where_a_format_says_so(wire, vector):
    if wire.tells_zero:
        assert not arrived(wire, vector)[vector == 0].any()


@every_format
@given(vector=common)
def test_a_format_needs_the_bytes_that_it_says(wire, vector):
    data = wire.encode(vector, 0)
    assert (data.dtype, data.dim(), len(data)) == (torch.uint8, 1, wire.bytes_for(len(vector)))


@every_format
@given(vector=common, seed=st.integers(0, 3))
def test_the_same_vector_and_seed_give_the_same_bytes(wire, vector, seed):
    assert torch.equal(wire.encode(vector, seed), wire.encode(vector.clone(), seed))


@every_format
@given(vector=common)
def test_no_sign_is_turned(wire, vector):
    assert (arrived(wire, vector) * vector >= 0).all()


@every_format
@given(rows=arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 20)), elements=st.floats(-9, 9, width=32)))
def test_what_is_lost_is_sent_later(wire, rows):
    """All that was sent and what is left are all that there was."""
    left, total = torch.zeros(rows.shape[1]), torch.zeros(rows.shape[1])
    for row in torch.from_numpy(rows):
        wanted = row + left
        found = arrived(wire, wanted)
        left, total = wanted - found, total + found
        assert left.norm() <= wanted.norm() * (1 + 1e-6)  # never more than there was, or residuals would grow
    torch.testing.assert_close(total + left, torch.from_numpy(rows).sum(dim=0), atol=1e-4, rtol=1e-5)


@every_format
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_does_not_arrive_finite(wire, wrong):
    vector = torch.ones(7)
    vector[4] = wrong
    found = arrived(wire, vector)
    assert isinstance(wire, BF16) or not found[4].isfinite()
    assert not (found.abs() <= 1e15).all()  # which the server's guard would let pass


@every_format
@given(size=sizes, data=st.data())
def test_any_bits_are_numbers_and_any_other_length_is_refused(wire, size, data):
    expected = wire.bytes_for(size)
    bits = data.draw(arrays(np.uint8, expected, elements=st.integers(0, 255)))
    assert wire.read(torch.from_numpy(bits.copy()), size).shape == (size,)
    found = data.draw(st.integers(0, 2 * expected + 1).filter(lambda length: length != expected))
    with pytest.raises(ValueError, match=f"expected {expected} bytes of '{wire.name}' for {size} coordinates"):
        wire.read(torch.zeros(found, dtype=torch.uint8), size)


@given(vector=vectors)
def test_float32_loses_nothing(vector):
    assert torch.equal(arrived(Float32(), vector).view(torch.int32), vector.view(torch.int32))


@given(vector=common)
def test_bf16_is_wrong_by_a_256th(vector):
    assert ((arrived(BF16(), vector) - vector).abs() <= vector.abs() / 256 + 1e-40).all()


def test_bf16_rounds_ties_to_even():
    ties = torch.tensor([1 + 1 / 256, 1 + 3 / 256, -1 - 1 / 256])
    assert arrived(BF16(), ties).tolist() == [1.0, 1 + 4 / 256, -1.0]


def of_blocks(vector, block, function):
    """For each coordinate, what a function says of its block."""
    return torch.cat([function(part).expand(len(part)) for part in vector.split(block)]) if len(vector) else vector


@pytest.mark.parametrize("block", [1, 3, 1024])
@given(vector=common)
def test_int8_is_wrong_by_half_a_step(block, vector):
    step = of_blocks(vector, block, lambda part: part.abs().max() / 127)
    assert ((arrived(Int8(block=block), vector) - vector).abs() <= step * 0.50001 + 1e-40).all()


@pytest.mark.parametrize("block", [1, 3, 1024])
@given(vector=common)
def test_signs_are_as_large_as_their_block_in_the_mean(block, vector):
    mean = of_blocks(vector, block, lambda part: part.abs().double().mean().float())
    found = arrived(Signs(block=block), vector)
    torch.testing.assert_close(found.abs(), mean)
    moved = vector != 0
    assert torch.equal(found.sign()[moved & (mean > 0)], vector.sign()[moved & (mean > 0)])


def test_clients_do_not_agree_on_the_signs_of_zeros():
    """A majority of them is chance, and no client's zeros have one sign."""
    vector = torch.zeros(2000)
    vector[0] = 1.0
    signs = torch.stack([arrived(Signs(block=10**6), vector, seed)[1:].sign() for seed in range(4)])
    assert (signs.mean(dim=1).abs() < 0.1).all()
    assert 0.05 < (signs.sum(dim=0).abs() == 4).float().mean() < 0.2  # 1/8 by chance


def test_residuals_are_kept_unless_somebody_says_otherwise():
    assert [parse(wires, name).keeps_residual for name in ("float32", "bf16", "int8", "signs")] == [False, *[True] * 3]
    assert not parse(wires, {"name": "int8", "residual": "lost"}).keeps_residual


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("int4", "unknown wire 'int4'; "),
        ({"name": "int8", "block": 0}, "wire 'int8': block: input should be greater than or equal to 1, found 0"),
        ({"name": "bf16", "block": 8}, "wire 'bf16': unknown key 'block'"),
        ({"name": "float32", "residual": "kept"}, "wire 'float32': unknown key 'residual'"),
    ],
)
def test_what_is_no_format_is_one_line(value, message):
    with pytest.raises(ConfigError, match=message):
        parse(wires, value)

"""Every rule where compiled loops cannot read: with array operations on the CPU, and on a device of its own."""

import pytest
import torch
from hypothesis import given

from fedpace.aggregation import MagnitudeAgreement, Rows, SignSum, _signs, gram, length
from fedpace.core import devices
from tests.aggregation.inputs import FAMILIES, make, weighted
from tests.aggregation.properties import assert_close, filled, tolerance
from tests.aggregation.test_properties import RULES, bearable, title
from tests.elsewhere import AWAY, Elsewhere, place


@pytest.fixture
def arrays(monkeypatch):
    """Lets the code believe that tensors of the CPU lie elsewhere."""
    return lambda: monkeypatch.setattr(devices, "on_cpu", lambda tensor: False)


def by_arrays(function):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "on_cpu", lambda tensor: False)
        return function()


@pytest.mark.parametrize("rule", RULES, ids=title)
@given(case=weighted())
def test_array_operations_agree_with_compiled_loops(rule, case):
    updates, weights = bearable(rule, case[0]), case[1]
    expected = rule(updates, weights)
    assert_close(by_arrays(lambda: rule(updates, weights)), expected, tolerance(rule, updates, weights))


@pytest.mark.parametrize("rule", RULES, ids=title)
@given(case=weighted())
def test_array_operations_count_the_same(rule, case):
    """Sign sums, histograms and what is reported of them are integers: no tolerance."""
    updates, weights = case

    def counted():
        stream = filled(rule, updates, weights)
        split = stream.split()
        seen = None if stream.signs is None else (stream.signs.sum.tolist(), stream.signs.histogram())
        shares = ("majority_mismatch", "below_tau", "contested")
        return seen, [stream.diagnostics[name] for name in shares if name in stream.diagnostics], split[1]

    (seen, shares, mask), (same, others, mask_too) = counted(), by_arrays(counted)
    assert same == seen
    assert others == shares
    assert (mask is None) == (mask_too is None)
    if mask is not None:
        torch.testing.assert_close(mask_too, mask)


@pytest.mark.parametrize("rule", RULES, ids=title)
def test_a_rule_stays_on_the_device_of_its_updates(rule):
    updates, weights = make("normal", 5, 700), torch.tensor([1.0, 2.0, 0.0, 4.0, 5.0])
    expected = rule(updates, weights)
    with Elsewhere():
        found = rule(updates.to(AWAY), weights)
        assert place(found) == AWAY
        assert_close(found.to("cpu"), expected, tolerance(rule, updates, weights))


@pytest.mark.parametrize("rule", RULES, ids=title)
def test_a_stream_stays_on_the_device_where_it_was_started(rule):
    updates = make("lattice", 4, 50)
    with Elsewhere():
        with devices.placed(AWAY):
            stream = rule.start(50, 4)
        for update in updates.to(AWAY):
            stream.add(update)
        if stream.signs is not None:
            assert sum(stream.signs.histogram()) == 50
        whole, mask = stream.split()
        assert {place(tensor) for tensor in (whole, mask) if tensor is not None} == {AWAY}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 511, 512, 513, 2000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gram_by_array_operations(arrays, family, size, dtype):
    rows = make(family, 5, size, dtype=dtype)
    for part in (slice(None), slice(size // 3, size)):
        exact = rows[:, part].double() @ rows[:, part].double().T
        lengths = exact.diagonal().sqrt()
        arrays()
        assert ((gram(rows, part) - exact).abs() <= 1e-6 * torch.outer(lengths, lengths)).all()


@pytest.mark.parametrize("clients", [1, 127, 128, 300])
def test_signs_by_array_operations(arrays, clients):
    updates = make("sparse", clients, 20)
    arrays()
    signs, totals = SignSum(20, clients), torch.zeros(20)
    for update in updates:
        signs.add_with(update, 2.0, totals)
    assert signs.sum.tolist() == torch.sign(updates).sum(dim=0).int().tolist()
    assert signs.clients == clients
    torch.testing.assert_close(totals, 2 * updates.sum(dim=0))


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_length_by_array_operations(arrays, size, monkeypatch):
    vector = torch.full((size,), 1e15)
    expected = length(vector)
    monkeypatch.setattr(_signs, "BLOCK", 7)
    arrays()
    assert length(vector) == pytest.approx(expected)


def test_rows_of_another_device_are_not_reused():
    with Elsewhere():
        here, there = Rows(4, 2), Rows(4, 2)
        with devices.placed(AWAY):
            away, away_too = Rows(4, 2), Rows(4, 2)
        away.add(torch.ones(4).to(AWAY))
        here.reuse(away)
        assert place(here.lend()) == torch.device("cpu")
        there.reuse(here)
        assert there.lend().data_ptr() == here.lend().data_ptr()
        away_too.reuse(away)
        assert place(away_too.lend()) == AWAY


def test_agreement_by_magnitude_elsewhere():
    updates = make("normal", 3, 30)
    expected = MagnitudeAgreement(30)
    with Elsewhere():
        with devices.placed(AWAY):
            found = MagnitudeAgreement(30)
        for update in updates:
            expected.add(update)
            found.add(update.to(AWAY))
        for one, other in zip(found.finish(), expected.finish(), strict=True):
            torch.testing.assert_close(one.to("cpu"), other)


def test_on_a_device_a_mistake_is_an_error():
    """The fixture itself: what would fail on a GPU fails here."""
    with Elsewhere():
        away = torch.ones(3).to(AWAY)
        assert (away.device, (away + 1).device, away[1:].sum().item()) == (AWAY, AWAY, 2.0)
        with pytest.raises(RuntimeError, match="same device"):
            away + torch.ones(3)
        with pytest.raises(TypeError, match="numpy"):
            away.numpy()
        assert away.to("cpu").numpy().tolist() == [1, 1, 1]

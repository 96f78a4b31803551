"""How far the clients of a round agree."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import Dampened, Mean, Rows
from fedpace.core import Layout, Update
from fedpace.server import Exchange
from fedpace.server.monitor import Monitor
from tests.stages import stage_with

from .helpers import exchange, server

LAYOUT = Layout(("a.weight", "a.bias", "b.weight"), ((4, 3), (4,), (2, 4)))


def rows(clients, seed=0):
    found = torch.randn(clients, LAYOUT.size, generator=torch.Generator().manual_seed(seed))
    found[:, 3] = 0  # a coordinate that nobody moves
    return found


def watch(updates, clients=None, **options):
    monitor = Monitor(LAYOUT, clients or len(updates), "update", None, **options)
    for update in updates:
        monitor.add(update)
    return monitor


def numpy_cosines(updates):
    wide = updates.double().numpy()
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return unit @ unit.T


@given(st.integers(2, 12), st.integers(0, 1000))
def test_similarity_is_the_cosine_of_pairs(clients, seed):
    updates = rows(clients, seed)
    found, expected = watch(updates).similarity(), numpy_cosines(updates)
    pairs = expected[np.triu_indices(clients, 1)]
    assert found.kind == "update"
    assert found.mean == pytest.approx(pairs.mean(), abs=1e-7)  # a Gram of blocks in single precision
    assert found.min == pytest.approx(pairs.min(), abs=1e-7)  # a Gram of blocks in single precision
    np.testing.assert_allclose(found.matrix, expected, atol=5.1e-5)  # rounded to four places


def test_opposite_and_silent_clients():
    updates = torch.zeros(3, LAYOUT.size)
    updates[0], updates[1] = 1.0, -2.0
    assert watch(updates).similarity().matrix == [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("clients", [0, 1])
def test_no_pair_no_similarity(clients):
    assert watch(rows(clients), clients=3).similarity() is None


@pytest.mark.parametrize(("clients", "options", "kept"), [(40, {}, 32), (140, {}, 32), (9, {"pairwise": 5}, 5)])
def test_only_so_many_rows_are_kept(clients, options, kept):
    updates = rows(clients)
    monitor = watch(updates, **options)
    found = monitor.similarity()
    assert len(found.matrix) == len(monitor.rows.matrix) == kept
    assert found.mean == watch(updates[:kept]).similarity().mean
    assert len(monitor.agreement().histogram) == clients + 1  # signs are counted of all


@pytest.mark.parametrize("pairwise", [0, 1])
def test_cosines_may_be_left_out(pairwise):
    report = exchange(server(pairwise=pairwise), torch.ones(3, 6))
    assert report.similarity is None
    assert report.agreement.histogram == [0, 0, 0, 6]


@given(st.integers(1, 9), st.integers(0, 1000))
def test_histograms_account_for_every_coordinate(clients, seed):
    updates = rows(clients, seed)
    found = watch(updates).agreement()
    counts = updates.sign().sum(0).abs()
    for name, part in LAYOUT.slices.items():
        expected = [int((counts[part] == k).sum()) for k in range(clients + 1)]
        assert found.layers[name] == expected
        assert sum(expected) == part.stop - part.start
    assert list(found.layers) == list(LAYOUT.names)
    assert sum(found.histogram) == LAYOUT.size
    assert found.histogram == [int((counts == k).sum()) for k in range(clients + 1)]
    assert found.mean == pytest.approx(float(counts.mean()) / clients)


def test_no_client_no_agreement():
    assert watch(rows(0), clients=3).agreement() is None


@pytest.mark.parametrize("rule", [Mean(), Dampened()], ids=repr)
@pytest.mark.parametrize("sends", ["update", "gradient"])
def test_the_servers_report_does_not_depend_on_who_counts_signs(rule, sends):
    """A rule that counts signs lends its count to the monitor; nobody counts twice."""
    here = server(layout=LAYOUT, vector=torch.zeros(LAYOUT.size))
    updates = rows(5)
    report = exchange(here, updates, stage_with(rule=rule, sends=sends))
    assert report.agreement == watch(updates).agreement()
    assert report.similarity == replace(watch(updates).similarity(), kind=sends)


def test_rows_are_owned():
    """Executors overwrite an answer's tensors when the next is asked for."""
    updates = rows(4)
    reused = torch.empty(LAYOUT.size)

    def answers():
        for i, row in enumerate(updates):
            yield Update(i, reused.copy_(row), 10, {"loss": 0.0})

    one, two = (server(layout=LAYOUT, vector=torch.zeros(LAYOUT.size)) for _ in range(2))
    lent = one.exchange(Exchange(), answers(), 4)
    owned = exchange(two, updates, stage_with())
    assert lent.similarity == owned.similarity
    assert lent.agreement == owned.agreement
    assert torch.equal(one.vector, two.vector)


@pytest.mark.parametrize("pairwise", [0, 2, 3, 9])
def test_rows_that_the_rule_keeps_are_looked_at_and_not_kept_again(pairwise):
    updates = rows(5, seed=1)
    kept = Rows(updates.shape[1], 5)
    monitor = Monitor(LAYOUT, 5, "update", None, pairwise, kept)
    for update in updates:
        kept.add(update)
        monitor.add(update)
    assert kept.clients == 5
    found, expected = monitor.similarity(), watch(updates[:pairwise]).similarity()
    assert (found is None) == (expected is None) == (pairwise < 2)
    if found is not None:
        np.testing.assert_allclose(found.matrix, expected.matrix, atol=1e-4)  # rounded to four places
        assert found.mean == pytest.approx(expected.mean, abs=1e-6)

"""How much one client may count."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from fedpace.aggregation import length
from fedpace.core import ConfigError, RoundRecord, Update
from fedpace.server import Exchange, Fixed, Guard, Quantile, Schedule, Stage
from fedpace.server.bounds import largest_weight

from .helpers import THETA, buffers, play_round, server, updates

SHARES = st.floats(0.05, 1)
EXAMPLES = st.lists(st.integers(1, 10**13), min_size=1, max_size=12)


@given(EXAMPLES, SHARES)
def test_no_client_has_more_than_its_share(examples, share):
    most = largest_weight(examples, share)
    left = [min(each, most) for each in examples]
    if share * len(examples) >= 1:
        assert max(left) <= share * sum(left) * (1 + 1e-6)
    else:
        assert most == 1, "nobody can have less than an equal share"


@given(EXAMPLES, SHARES)
def test_no_cap_is_lower_than_needed(examples, share):
    most = largest_weight(examples, share)
    if most < max(examples):
        assert most + 1 > share * sum(min(each, most + 1) for each in examples)


def test_one_client_that_claims_a_trillion_examples_does_not_own_the_model():
    rows, examples = [[1.0] * 6, [1.0] * 6, [-9.0] * 6], [30, 20, 10**12]
    owned, kept = server(), server(guard=Guard(max_share=0.5))
    owned.exchange(Exchange(), updates(rows, examples), 3)
    report = kept.exchange(Exchange(), updates(rows, examples), 3)
    torch.testing.assert_close(owned.vector, THETA - 9)
    torch.testing.assert_close(kept.vector, THETA + (1 - 9) / 2)
    assert report.bounded.capped == [2]


def test_statistics_of_a_capped_client_count_as_little():
    here = server(guard=Guard(max_examples=10), held=buffers([0.0]))
    sent = updates(torch.zeros(2, 6), [10, 10**12], [buffers([1.0]), buffers([3.0])])
    here.exchange(Exchange(), sent, 2)
    assert here.buffers.floats.tolist() == [2.0]


def test_a_declaration_may_grow_by_a_factor_since_the_first():
    here, rows = server(guard=Guard(growth=2.0)), [[1.0] * 6, [-1.0] * 6]
    capped = [
        here.exchange(Exchange(), updates(rows, [10, declared]), 2).bounded.capped for declared in (10, 15, 20, 40, 70)
    ]
    assert capped == [[], [], [], [1], [1]]  # compared with the first: no client creeps up round by round
    torch.testing.assert_close(here.vector, THETA + sum((10 - n) / (10 + n) for n in (10, 15, 20, 20, 20)))


def test_what_was_declared_outlives_a_checkpoint_whatever_a_client_is_called():
    node = 2**64 - 3  # Flower's ids are unsigned
    here, later = (server(guard=Guard(growth=1.0)) for _ in range(2))
    here.exchange(Exchange(), [Update(node, torch.ones(6), 5), Update(0, torch.ones(6), 5)], 2)
    later.load_state(load(save(here.state())))
    report = later.exchange(Exchange(), [Update(node, torch.ones(6), 6), Update(0, torch.ones(6), 5)], 2)
    assert report.bounded.capped == [node]


def test_all_bounds_together_are_the_order_of_the_guard():
    """Declarations first, then the share of what is left of them."""
    here = server(guard=Guard(growth=2.0, max_examples=100, max_share=0.5))
    here.exchange(Exchange(), updates([[0.0] * 6] * 3, [10, 20, 40]), 3)
    report = here.exchange(Exchange(), updates([[1.0] * 6, [1.0] * 6, [-1.0] * 6], [10, 20, 10**9]), 3)
    assert report.bounded.capped == [2]
    torch.testing.assert_close(here.vector, THETA)  # 10 and 20 against 30, not against 80


def answers_in_one_memory(rows, examples):
    """As executors hand them over: the next answer overwrites the last."""
    memory = torch.empty(6)
    for client, (row, n) in enumerate(zip(rows, examples, strict=True)):
        memory.copy_(row)
        yield Update(client, memory, n)
    memory.fill_(torch.nan)


@pytest.mark.parametrize("guard", [Guard(clip=Quantile()), Guard(max_share=0.4), Guard(clip=Fixed(norm=2.0))], ids=repr)
def test_bounds_own_what_they_keep(guard):
    rows, examples = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), [1, 2, 3, 50]
    owned, overwritten = server(guard=guard), server(guard=guard)
    first = owned.exchange(Exchange(), updates(rows, examples), 4)
    second = overwritten.exchange(Exchange(), answers_in_one_memory(rows, examples), 4)
    assert torch.equal(owned.vector, overwritten.vector)
    assert first.bounded == second.bounded


def test_a_dropped_client_has_no_part_in_bounds():
    here = server(guard=Guard(clip=Quantile(), max_share=0.5))
    sent = [*updates([[1.0] * 6, [2.0] * 6], [1, 1]), Update(7, torch.full((6,), torch.nan), 10**12)]
    report = here.exchange(Exchange(), sent, 3)
    assert report.bounded.bound == pytest.approx(1.5 * 6**0.5)
    assert (report.used, report.bounded.capped) == (2, [])


def test_a_guard_without_bounds_remembers_nothing():
    here = server(guard=Guard())
    here.exchange(Exchange(), updates([[1.0] * 6]), 1)
    assert not [name for name in here.state() if name.startswith("guard.")]


def test_a_round_says_who_reached_a_bound_in_any_of_its_exchanges():
    both = (Exchange(sends="gradient"), Exchange())
    report, _ = play_round(server(Schedule(base=Stage(exchanges=both)), guard=Guard(clip=Fixed(norm=1.0))))
    assert (report.shortened, report.bound, report.capped) == ([0, 1], 1.0, [])
    record = RoundRecord(**vars(report))
    assert RoundRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("share", "clients", "refused"), [(0.2, 4, True), (0.2, 5, False), (1 / 3, 3, False), (None, 1, False)]
)
def test_a_share_that_a_cohort_cannot_have_is_refused(share, clients, refused):
    guard = Guard(max_share=share)
    if refused:
        with pytest.raises(ConfigError, match=r"^guard.max_share: .* 0.2 of 4 clients .* expected at least 0.25$"):
            guard.check_cohort(clients)
    else:
        guard.check_cohort(clients)


def test_length_neither_overflows_nor_vanishes():
    assert length(torch.tensor([3e38, 3e38])) == pytest.approx(3e38 * 2**0.5)
    assert length(torch.tensor([3e-38, 4e-38])) == pytest.approx(5e-38)
    assert length(torch.zeros(0)) == 0

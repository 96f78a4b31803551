"""A rule for a part of the model, and the mean for the rest."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.aggregation import ConflictFree, Masked, Mean, rules
from fedpace.core import Layout
from fedpace.server import Schedule, ServerSGD
from fedpace.server.parts import Parts
from tests.stages import altered, stage_with

from .helpers import exchange, server

LAYOUT = Layout(("a", "b", "c", "d"), ((2, 3), (3,), (4,), (1,)))
EXAMPLES = [10, 30, 20, 5, 15]


def rows(clients=5, size=LAYOUT.size, seed=0):
    return torch.randn(clients, size, generator=torch.Generator().manual_seed(seed))


def part(*names):
    return LAYOUT.with_personal(lambda name: name not in names).shared


def filled(rule, ruled, sent, weights):
    parts = Parts(rule, LAYOUT, ruled, len(sent))
    for row, weight, examples in zip(sent, weights, EXAMPLES, strict=True):
        parts.add(row, weight, examples)
    return parts


def plain(rule, sent, weights, layout=LAYOUT):
    """The rule's own stream, which is told where the tensors lie."""
    stream = rule.start(layout.size, len(sent))
    stream.tensors = tuple(layout.slices.values())
    for row, weight in zip(sent, weights, strict=True):
        stream.add(row, weight)
    return stream


@pytest.mark.parametrize("name", rules.names())
def test_where_everything_is_ruled_it_is_the_rules_own_stream_bitwise(name):
    rule, sent = rules.get(name)(), rows()
    parts, stream = filled(rule, LAYOUT, sent, EXAMPLES), plain(rule, sent, EXAMPLES)
    assert (parts.signs is None) == (stream.signs is None)
    assert torch.equal(parts.finish(), stream.finish())
    assert parts.diagnostics == stream.diagnostics
    both = zip(filled(rule, LAYOUT, sent, EXAMPLES).split(), plain(rule, sent, EXAMPLES).split(), strict=True)
    assert all(one is two is None or torch.equal(one, two) for one, two in both)


class Owned(Mean):
    """Notes where the updates lie that it is given, and where its answer lies."""

    def start(self, size, clients, dtype=torch.float32):
        stream = super().start(size, clients, dtype)
        add, finish = stream.add, stream.finish
        stream.given, stream.answers = [], []
        stream.add = lambda update, weight: (stream.given.append(update.data_ptr()), add(update, weight))
        stream.finish = lambda: stream.answers.append(finish()) or stream.answers[-1]
        return stream


def test_where_everything_is_ruled_nothing_is_copied():
    sent = rows()
    parts = filled(Owned(), LAYOUT, sent, EXAMPLES)
    assert parts._stream.given == [row.data_ptr() for row in sent]
    assert parts.finish() is parts._stream.answers[0]


@given(st.sampled_from(rules.names()), st.sets(st.sampled_from(LAYOUT.names), min_size=1), st.integers(0, 1000))
def test_the_rule_sees_its_part_alone_and_the_rest_is_averaged_by_samples(name, names, seed):
    rule, sent, ruled = rules.get(name)(), rows(seed=seed), part(*names)
    found = filled(rule, ruled, sent, [1.0] * 5).finish()
    expected = torch.tensor(EXAMPLES, dtype=torch.float32) @ sent / sum(EXAMPLES)
    inside = [LAYOUT.take(row, ruled) for row in sent]
    LAYOUT.put(expected, plain(rule, inside, [1.0] * 5, ruled).finish(), ruled)
    torch.testing.assert_close(found, expected)


def test_each_tensor_on_its_own_if_the_rule_wants_it():
    sent, rule = rows(), ConflictFree(granularity="tensor")
    found = filled(rule, LAYOUT, sent, [1.0] * 5).finish()
    for name, here in LAYOUT.slices.items():
        torch.testing.assert_close(found[here], ConflictFree()(sent[:, here]), msg=name)
    assert not torch.allclose(found, ConflictFree()(sent))


def test_a_mask_lets_the_rest_pass():
    sent, rule, ruled = rows(), Masked(tau=0.9), part("b", "d")
    unmasked, mask = filled(rule, ruled, sent, [1.0] * 5).split()
    expected, agreement = torch.ones(LAYOUT.size), sent.sign().sum(0).abs() / 5
    LAYOUT.put(expected, LAYOUT.take(agreement, ruled), ruled)
    torch.testing.assert_close(mask, expected)
    assert not torch.equal(mask, torch.ones(LAYOUT.size))
    torch.testing.assert_close(unmasked * mask, filled(rule, ruled, sent, [1.0] * 5).finish())


@pytest.mark.parametrize("mask_at", ["pre", "post"])
def test_a_server_with_momentum_masks_its_part_and_steps_freely_in_the_rest(mask_at):
    stage = stage_with(rule=Masked(tau=0.9), weights="samples", mask_at=mask_at, optimizer=ServerSGD(momentum=0.5))
    unmasked = altered(stage, rule=Mean())
    whole, split, free = (
        server(Schedule(base=s), torch.zeros(LAYOUT.size), LAYOUT, ruled=ruled)
        for s, ruled in ((stage, None), (stage, part("a")), (unmasked, None))
    )
    for seed in range(3):
        for here in (whole, split, free):
            exchange(here, rows(seed=seed), examples=EXAMPLES)
    inside = LAYOUT.slices["a"]
    assert torch.equal(split.vector[inside], whole.vector[inside])
    assert torch.equal(split.vector[inside.stop :], free.vector[inside.stop :])
    assert not torch.equal(split.vector, whole.vector)
    assert not torch.equal(split.vector, free.vector)


@pytest.mark.parametrize("ruled", [None, part("a")])
def test_agreement_is_reported_of_the_whole_model(ruled):
    here = server(Schedule(base=stage_with(rule="dampened")), torch.zeros(LAYOUT.size), LAYOUT, ruled=ruled)
    report = exchange(here, rows(), examples=EXAMPLES)
    assert sum(report.agreement.histogram) == LAYOUT.size
    assert list(report.agreement.layers) == list(LAYOUT.names)


def test_a_client_that_is_dropped_counts_nowhere():
    sent = rows()
    sent[2, 0] = torch.nan  # in the ruled part
    sent[4, 7] = torch.nan  # in the rest
    here = server(Schedule(base=stage_with(weights="uniform")), torch.zeros(LAYOUT.size), LAYOUT, ruled=part("a"))
    assert [dropped.client for dropped in exchange(here, sent, examples=EXAMPLES).dropped] == [2, 4]
    kept = torch.tensor([0, 1, 3])
    shares = torch.tensor(EXAMPLES)[kept] / 45
    torch.testing.assert_close(here.vector[:6], sent[kept, :6].mean(0))
    torch.testing.assert_close(here.vector[6:], shares @ sent[kept, 6:])

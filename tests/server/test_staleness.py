import pytest
import torch

from fedpace.core import parse
from fedpace.server import Exchange, staleness_weights

from .helpers import buffers, server, updates


@pytest.mark.parametrize("name", staleness_weights.names())
def test_new_updates_count_whole_and_older_ones_never_more(name):
    weights = [parse(staleness_weights, name).weight(steps) for steps in range(20)]
    assert weights[0] == 1
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] > 0


def test_weights_of_the_papers():
    polynomial, hinge = (parse(staleness_weights, name) for name in ("polynomial", "hinge"))
    assert [polynomial.weight(steps) for steps in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [hinge.weight(steps) for steps in (4, 5, 6)] == pytest.approx([1, 1 / 11, 1 / 21])


@pytest.mark.parametrize(("weights", "share"), [("samples", 30 / (30 + 0.25 * 20)), ("uniform", 1 / 1.25)])
def test_a_discount_multiplies_an_updates_weight(weights, share):
    """A new client says 1 and an old one 0, of parameters and of statistics, which are averaged by samples."""
    to = server(vector=torch.zeros(6), held=buffers([5.0], [7]))
    found = updates([[1.0] * 6, [0.0] * 6], examples=[30, 20], held=[buffers([1.0], [8]), buffers([0.0], [9])])
    found[1].discount = 0.25
    to.exchange(Exchange(weights=weights), found, 2)
    assert to.vector.tolist() == pytest.approx([share] * 6)
    assert to.buffers.floats.tolist() == pytest.approx([30 / 35])

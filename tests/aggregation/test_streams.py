"""What a stream keeps, and what callers are told when weights do not fit."""

import pytest
import torch

from fedpace.aggregation import AndMask, Dampened, Harmonised, Masked, Mean, Shrunk
from fedpace.core import ConfigError
from tests.aggregation.inputs import make
from tests.aggregation.properties import filled, stream


def held(thing, seen):
    """Bytes of the distinct tensor storages that are reachable from an object."""
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        storage = thing.untyped_storage()
        return 0 if storage.data_ptr() in seen else seen.add(storage.data_ptr()) or storage.nbytes()
    if isinstance(thing, dict):
        return sum(held(value, seen) for value in thing.values())
    if isinstance(thing, list | tuple | set):
        return sum(held(value, seen) for value in thing)
    return held(vars(thing), seen) if hasattr(thing, "__dict__") else 0


def bytes_after(rule, clients, size=1000):
    found = rule.start(size, clients)
    for update in make("normal", clients, size):
        found.add(update)
    return held(found, set())


@pytest.mark.parametrize("rule", [Mean(), Dampened(), Masked(), AndMask(rescale="surviving_share")], ids=repr)
@pytest.mark.parametrize("clients", [1, 3, 50, 200])
def test_memory_does_not_grow_with_clients(rule, clients):
    assert 1000 * 4 <= bytes_after(rule, clients) <= 2 * 1000 * 4


@pytest.mark.parametrize("clients", [1, 3, 50, 200])
def test_votes_by_samples_need_a_double_vector_more(clients):
    by_heads, by_samples = Masked(), Masked(agreement_weights="samples")
    assert bytes_after(by_samples, clients) == bytes_after(by_heads, clients) + 1000 * 8


def test_only_rules_with_a_mask_split_it_off():
    updates = torch.tensor([[3.0, 1.0], [3.0, 1.0], [3.0, -5.0]])
    masks = {}
    for rule in (Mean(), Harmonised(), Dampened(), AndMask(), Shrunk()):
        unmasked, mask = filled(rule, updates).split()
        masks[rule.name] = mask if mask is None else mask.tolist()
        assert mask is None or torch.equal(unmasked, Mean()(updates))
    assert masks["mean"] is None
    assert masks["harmonised"] is None
    assert masks["dampened"] == pytest.approx([1, 1 / 3])
    assert masks["and_mask"] == [1, 0]
    assert masks["shrunk"] == pytest.approx([2 / 3, 2 / 3])


def test_mean_holds_one_vector():
    assert bytes_after(Mean(), clients=20) == 1000 * 4


def test_the_measure_sees_rows():
    assert bytes_after(Harmonised(), clients=20) >= 20 * 1000 * 4


def test_weights_count():
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert Mean()(updates, torch.tensor([3.0, 1.0])).tolist() == [0.75, 0.25]
    assert Mean()(updates, torch.tensor([0.0, 2.0])).tolist() == [0.0, 1.0]
    assert Mean()(updates, torch.tensor([2.0, 0.0])).tolist() == [1.0, 0.0]


def test_a_client_without_weight_before_one_with_weight_leaves_no_trace():
    updates = torch.tensor([[1e30], [-1e30], [1.0], [3.0]])
    assert Mean()(updates, torch.tensor([0.0, 0.0, 1.0, 1.0])).tolist() == [2.0]


def test_a_client_without_weight_still_counts_its_sign():
    updates = torch.tensor([[1.0], [-1.0], [-1.0]])
    assert Dampened()(updates, torch.tensor([1.0, 0.0, 0.0])).item() == pytest.approx(1 / 3)


def test_only_sign_rules_offer_signs():
    updates = make("normal", clients=3, size=4)
    assert stream(Mean(), updates)[0].signs is None
    assert stream(Dampened(), updates)[0].signs.clients == 3


@pytest.mark.parametrize(
    "weights",
    [
        [1.0],
        [1.0, 1.0, 1.0],
        [1.0, -1.0],
        [float("nan"), 1.0],
        [float("nan"), -1.0],
        [float("inf"), 1.0],
        [[1.0], [1.0]],
        1.0,
    ],
    ids=str,
)
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ConfigError, match=r"^weights: expected 2 finite values"):
        Mean()(torch.ones(2, 3), torch.tensor(weights))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), ()])
def test_updates_must_be_a_matrix(shape):
    with pytest.raises(ConfigError, match="a row per client, found shape"):
        Mean()(torch.ones(shape))

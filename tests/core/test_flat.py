import pickle
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedpace.core import Buffers, FlatModule


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 8), nn.Linear(8, 3)
        )
        with torch.no_grad():
            module[1].running_mean.normal_()
            module[1].running_var.uniform_(0.5, 2)
    return module


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 1, 6, 6, generator=generator), torch.randint(0, 3, (5,), generator=generator)


def step_backward(module, seed=0):
    images, labels = batch(seed)
    F.cross_entropy(module(images), labels).backward()


@pytest.fixture
def original():
    return network()


@pytest.fixture
def flat(original):
    return FlatModule(deepcopy(original))


def flatten(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


def test_values_are_taken_over(original, flat):
    assert torch.equal(flat.vector, flatten(original.parameters()))
    assert torch.equal(flat.buffers.floats, flatten([original[1].running_mean, original[1].running_var]))
    assert flat.buffers.integers.tolist() == [0]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_forward_is_that_of_the_module(original, flat, mode):
    images, _ = batch()
    getattr(original, mode)()
    getattr(flat.module, mode)()
    assert torch.equal(flat.module(images), original(images))


def test_backward_accumulates_into_the_gradient(original, flat):
    for seed in (0, 1):  # the second adds to the first
        step_backward(original, seed)
        step_backward(flat.module, seed)
        assert torch.equal(flat.gradient, flatten(p.grad for p in original.parameters()))
    assert flat.gradient.abs().max() > 0


def test_writing_the_vector_changes_the_module(flat):
    flat.vector.zero_()
    images, _ = batch()
    assert torch.equal(flat.module(images), torch.zeros(5, 3))


def test_an_optimiser_steps_the_vector(flat):
    before = flat.vector.clone()
    step_backward(flat.module)
    torch.optim.SGD(flat.module.parameters(), lr=0.5).step()
    assert not torch.equal(flat.vector, before)
    torch.testing.assert_close(flat.vector, before - 0.5 * flat.gradient)


def test_buffers_are_views(flat):
    normalisation = flat.module[1]
    flat.buffers.floats.copy_(torch.arange(8.0))
    flat.buffers.integers.fill_(7)
    assert normalisation.running_mean.tolist() == [0, 1, 2, 3]
    assert normalisation.running_var.tolist() == [4, 5, 6, 7]
    assert normalisation.num_batches_tracked.item() == 7


def test_training_moves_the_buffers_in_place(original, flat):
    images, _ = batch()
    for module in (original, flat.module):
        module.train()
        module(images)
    assert torch.equal(flat.buffers.floats, flatten([original[1].running_mean, original[1].running_var]))
    assert flat.buffers.integers.tolist() == [1]


def test_load_restores_everything(flat):
    vector, buffers = flat.vector.clone(), flat.buffers.clone()
    step_backward(flat.module)
    flat.vector.add_(1)
    flat.module.eval()
    assert not torch.equal(flat.buffers.floats, buffers.floats)
    flat.load(vector, buffers)
    assert torch.equal(flat.vector, vector)
    assert torch.equal(flat.buffers.floats, buffers.floats)
    assert torch.equal(flat.buffers.integers, buffers.integers)
    assert torch.equal(flat.gradient, torch.zeros_like(vector))
    assert all(module.training for module in flat.module.modules())


def test_one_client_leaves_no_trace_in_the_next(flat):
    vector, buffers = flat.vector.clone(), flat.buffers.clone()
    answers = []
    for _ in range(2):
        flat.load(vector, buffers)
        step_backward(flat.module)
        answers.append((flat.gradient.clone(), flat.buffers.clone()))
    (first, first_buffers), (second, second_buffers) = answers
    assert torch.equal(first, second)
    assert torch.equal(first_buffers.floats, second_buffers.floats)
    assert torch.equal(first_buffers.integers, second_buffers.integers)


def test_what_was_loaded_is_not_aliased(flat):
    vector, buffers = flat.vector.clone(), flat.buffers.clone()
    flat.load(vector, buffers)
    flat.vector.fill_(9)
    flat.buffers.floats.fill_(9)
    assert not (vector == 9).any()
    assert not (buffers.floats == 9).any()


def test_state_fits_a_fresh_module(flat):
    step_backward(flat.module)  # moves the buffers too
    flat.vector.add_(0.5)
    fresh = network(seed=1)
    fresh.load_state_dict(flat.state_dict())
    assert torch.equal(flatten(fresh.parameters()), flat.vector)
    assert fresh[1].num_batches_tracked.item() == 1
    images, _ = batch()
    assert torch.equal(fresh.eval()(images), flat.module.eval()(images))


def test_saved_state_is_independent(flat):
    state = flat.state_dict()
    before = {name: tensor.clone() for name, tensor in state.items()}
    flat.vector.fill_(9)
    flat.buffers.floats.fill_(9)
    flat.buffers.integers.fill_(9)
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())
    assert all(t.is_contiguous() and t.untyped_storage().nbytes() == t.nbytes for t in state.values())
    assert not any(t.requires_grad for t in state.values())


def test_loading_a_state_keeps_the_views(flat):
    other = network(seed=1)
    flat.module.load_state_dict(other.state_dict())
    assert torch.equal(flat.vector, flatten(other.parameters()))
    assert torch.equal(flat.buffers.floats, flatten([other[1].running_mean, other[1].running_var]))


def test_integers_stay_integers(original, flat):
    assert flat.buffers.integers.dtype == torch.int64
    assert flat.buffers.floats.dtype == torch.float32
    types = {name: t.dtype for name, t in flat.state_dict().items()}
    assert types == {name: t.dtype for name, t in original.state_dict().items()}


def test_frozen_parameters_stay_outside(original):
    original[0].requires_grad_(False)
    kept = original[0].weight.detach().clone()
    flat = FlatModule(original)
    assert flat.layout.size == len(flat.vector) == sum(p.numel() for p in original.parameters() if p.requires_grad)
    assert not any(name.startswith("0.") for name in flat.layout.names)
    flat.vector.zero_()
    step_backward(flat.module)
    assert torch.equal(original[0].weight, kept)
    assert original[0].weight.grad is None
    assert "0.weight" in flat.state_dict()


def test_tied_parameters_stay_tied():
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    flat = FlatModule(module)
    flat.vector.copy_(torch.tensor([0.0, 1.0, 1.0, 0.0]))
    assert module(torch.tensor([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]  # swapped twice


def test_a_module_without_parameters_or_buffers():
    flat = FlatModule(nn.ReLU())
    assert flat.vector.shape == flat.buffers.floats.shape == flat.buffers.integers.shape == (0,)


class Masking(nn.Module):
    """A boolean buffer, as attention masks are."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("mask", torch.tensor([True, False]))

    def forward(self, x):
        return self.linear(x).masked_fill(self.mask, 0.0)


def test_a_boolean_buffer_still_works_as_a_mask():
    module = Masking()
    expected = module(torch.ones(1, 2))
    assert torch.equal(FlatModule(module).module(torch.ones(1, 2)), expected)


def test_copies_of_buffers_are_independent():
    buffers = Buffers(torch.ones(2), torch.ones(1, dtype=torch.int64))
    copy = buffers.clone()
    copy.floats.zero_()
    copy.integers.zero_()
    assert buffers.floats.tolist() == [1, 1]
    assert buffers.integers.tolist() == [1]
    buffers.copy_(copy)
    copy.floats.fill_(5)
    assert buffers.floats.tolist() == [0, 0]
    assert buffers.integers.tolist() == [0]


@pytest.mark.parametrize("again", [deepcopy, lambda flat: pickle.loads(pickle.dumps(flat))], ids=["copy", "pickle"])
def test_a_copy_is_flat_again(again):
    flat = FlatModule(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    other = again(flat)
    assert torch.equal(other.vector, flat.vector)
    other.module(torch.randn(4, 3)).square().sum().backward()
    assert other.gradient.abs().sum() > 0
    assert flat.gradient.abs().sum() == 0
    assert other.buffers.integers.tolist() == [1]
    assert flat.buffers.integers.tolist() == [0]
    other.vector.zero_()
    assert not any(parameter.any() for parameter in other.module.parameters())

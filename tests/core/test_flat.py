import pickle
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedpace.core import Buffers, FlatModule, call, part


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


def test_an_optimizer_steps_the_vector(flat):
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


class Language(nn.Module):
    """A recurrent network whose output layer may be the transposed embedding."""

    def __init__(self, tied):
        super().__init__()
        self.token = nn.Embedding(7, 4)
        self.recurrent = nn.LSTM(4, 4, num_layers=2, batch_first=True)
        self.head = nn.Linear(4, 7)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, tokens):
        return self.head(self.recurrent(self.token(tokens))[0])


TOKENS = torch.tensor([[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("again", [lambda flat: flat, deepcopy, lambda flat: pickle.loads(pickle.dumps(flat))])
def test_training_moves_an_embedding_and_the_output_layer_tied_to_it(again):
    flat = again(FlatModule(Language(tied=True)))
    module = flat.module
    before = module.token.weight.detach().clone()
    module(TOKENS).square().sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    assert module.head.weight is module.token.weight
    assert not torch.equal(module.token.weight, before)
    assert torch.equal(dict(flat.layout.tensors(flat.vector))["token.weight"], module.head.weight)
    assert "head.weight" not in flat.layout.names
    assert torch.equal(flat.state_dict()["head.weight"], flat.state_dict()["token.weight"])


def test_an_embedding_gets_the_gradient_of_its_tokens_alone():
    flat = FlatModule(Language(tied=False))
    flat.module(TOKENS).square().sum().backward()
    rows = dict(flat.layout.tensors(flat.gradient))["token.weight"].any(dim=1)
    assert rows.tolist() == [True] * 6 + [False]


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_use_the_vector(layer):
    """They keep lists of their own with references to their weights."""
    original = layer(3, 4, num_layers=2, batch_first=True, bidirectional=True)
    flat, texts = FlatModule(deepcopy(original)), torch.randn(2, 5, 3)
    expected, found = original(texts)[0], flat.module(texts)[0]
    assert torch.equal(found, expected)
    expected.square().sum().backward()
    found.square().sum().backward()
    assert torch.equal(flat.gradient, flatten(p.grad for p in original.parameters()))
    assert all(part.any() for _, part in flat.layout.tensors(flat.gradient))
    flat.vector.zero_()
    assert not flat.module(texts)[0].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_trainable_parameters_and_their_statistics_become_float32(dtype):
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(dtype)
    weight = module[0].weight.detach().clone()
    flat = FlatModule(module)
    assert {t.dtype for t in (flat.vector, *module.parameters())} == {torch.float32}
    assert torch.equal(module[0].weight, weight.float())
    assert len(flat.buffers.floats) == 4
    module(torch.randn(4, 3)).sum().backward()
    assert flat.buffers.floats.any()
    assert flat.gradient.dtype == torch.float32


class Looked(nn.Module):
    """A frozen table in half precision, with buffers of its own types, before a layer that is trained."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 3, dtype=torch.bfloat16), requires_grad=False)
        self.register_buffer("scale", torch.rand(3, dtype=torch.float16))
        self.register_buffer("shift", torch.rand(3, dtype=torch.float64))
        self.head = nn.Linear(3, 2)

    def forward(self, rows):
        return self.head(self.table[rows].float() * self.scale + self.shift.float())


def test_frozen_parameters_and_other_buffers_keep_their_types():
    module = Looked()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    flat = FlatModule(module)
    assert flat.layout.names == ("head.weight", "head.bias")
    assert flat.buffers.floats.shape == flat.buffers.integers.shape == (0,)
    module(torch.tensor([0, 4])).sum().backward()
    torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1).step()
    state = flat.state_dict()
    for name in ("table", "scale", "shift"):
        assert state[name].dtype == before[name].dtype
        assert torch.equal(state[name], before[name])
    assert not torch.equal(state["head.weight"], before["head.weight"])


class Pair(nn.Module):
    """Two inputs by name."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 1), nn.Linear(3, 1)

    def forward(self, left, right):
        return self.left(left) + self.right(right)


def test_several_inputs_are_keyword_arguments():
    flat, inputs = FlatModule(Pair()), {"right": torch.ones(4, 3), "left": torch.ones(4, 2)}
    call(flat.module, inputs).sum().backward()
    assert flat.gradient.tolist() == [4.0] * 7
    assert call(flat.module, part(inputs, slice(1, 3))).shape == (2, 1)


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

import pytest
import torch
from torch import nn

from fedpace.core import ConfigError, ModelError
from fedpace.models import SmallCNN, build, head_names, models


def vector(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def own_factory(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))


class Fixed(nn.Module):
    def __init__(self, outputs=10):
        super().__init__()
        self.layer = nn.Linear(64, outputs)

    def forward(self, x):
        return self.layer(x.flatten(1))


@pytest.mark.parametrize("model", ["linear", f"{__name__}:own_factory", own_factory, f"{__name__}:Fixed", Fixed])
def test_names_paths_and_factories(model):
    one, two, other = (build(model, (1, 8, 8), 10, seed) for seed in (1, 1, 2))
    assert torch.equal(vector(one), vector(two))
    assert not torch.equal(vector(one), vector(other))


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    build("small_cnn", (1, 8, 8), 10, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_do_not_depend_on_the_global_generator():
    torch.manual_seed(1)
    one = build("linear", (3,), 2, seed=0)
    torch.manual_seed(2)
    assert torch.equal(vector(one), vector(build("linear", (3,), 2, seed=0)))


def test_a_module_is_copied_with_its_weights_and_mode():
    mine = Fixed().eval()
    built = build(mine, (1, 8, 8), 10, seed=0)
    assert torch.equal(vector(mine), vector(built))
    assert not built.training
    with torch.no_grad():
        built.layer.weight.zero_()
    assert mine.layer.weight.any()


def test_the_check_leaves_batch_statistics_alone():
    module = build("small_cnn", (1, 8, 8), 10, seed=0)
    fresh = SmallCNN((1, 8, 8), 10)
    assert module.training
    assert all(torch.equal(a, b) for a, b in zip(module.buffers(), fresh.buffers(), strict=True))


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("small_cn", ConfigError, "unknown model 'small_cn'; did you mean 'small_cnn'?"),
        ("no.such:thing", ConfigError, "model 'no.such:thing': cannot be imported"),
        (
            Fixed(7),
            ModelError,
            r"model 'Fixed' gives \(2, 7\) for 2 examples of shape \(1, 8, 8\); expected \(2, 10\): its output size",
        ),
        (nn.Linear(3, 10), ModelError, r"model 'Linear' cannot take examples of shape \(1, 8, 8\)"),
        (
            lambda shape: None,
            ModelError,
            r"expected a factory that takes \(shape, classes\) or nothing, found \(shape\)",
        ),
        (lambda: 3, ModelError, "gives a int; expected a torch.nn.Module"),
    ],
)
def test_a_model_that_does_not_fit_is_one_line(model, error, message):
    with pytest.raises(error, match=message) as caught:
        build(model, (1, 8, 8), 10, seed=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", models.names())
def test_the_head_is_the_last_linear_layer(name):
    module = build(name, (3, 32, 32), 10, seed=0)
    assert head_names(module) == ("head.weight", "head.bias")
    assert dict(module.named_parameters())["head.weight"].shape[0] == 10


def test_normalisation_is_no_head():
    assert head_names(nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))) == ("0.weight",)


def test_a_model_without_layers_has_no_head():
    with pytest.raises(ModelError, match="expected a layer with a weight matrix"):
        head_names(nn.ReLU())

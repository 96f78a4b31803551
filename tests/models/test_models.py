from hashlib import blake2b

import pytest
import torch
from torch import nn

from fedpace.core import FlatModule, ModelError
from fedpace.models import CNN4, MLP, LeNet, Linear, ResNet8, ResNet18, SmallCNN, build, head_names, models

IMAGES = [name for name in models.names() if not getattr(models.get(name), "takes_tokens", False)]
NORMALISED = ["small_cnn", "resnet8", "resnet18"]


def digest(module):
    """Names and bits of everything in a module's state."""
    found = blake2b(digest_size=8)
    for name, tensor in module.state_dict().items():
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def kinds(module):
    return {type(part) for part in module.modules()}


@pytest.mark.parametrize(
    ("model", "shape", "size"),
    [
        (SmallCNN, (3, 32, 32), 94_986),
        (LeNet, (1, 28, 28), 61_706),
        (LeNet, (3, 32, 32), 83_126),
        (Linear, (3, 32, 32), 30_730),
        (ResNet18, (3, 32, 32), 11_173_962),
        (ResNet8, (3, 32, 32), 78_042),
        (ResNet8, (1, 28, 28), 77_754),
        (MLP, (30,), 6_794),
    ],
)
def test_number_of_parameters(model, shape, size):
    assert sum(p.numel() for p in model(shape, 10).parameters()) == size


@pytest.mark.parametrize(
    ("shape", "classes", "size"),
    [((3, 32, 32), 100, 924_708), ((1, 28, 28), 10, 582_026), ((3, 64, 64), 102, 5_644_326)],
)
def test_cnn4_has_the_parameters_of_pfllib(shape, classes, size):
    """PFLlib's network takes 1,600, 1,024 and 10,816 features to 512."""
    assert sum(p.numel() for p in CNN4(shape, classes).parameters()) == size


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 17, 20)])
def test_scores_depend_on_every_parameter(name, shape):
    torch.manual_seed(0)
    module = models.get(name)(shape, 7)
    module(torch.randn(8, *shape)).square().sum().backward()
    assert all(p.grad.any() for name, p in module.named_parameters() if name.endswith("weight"))


@pytest.mark.parametrize("name", IMAGES)
def test_channels_last_gives_the_same_scores(name):
    module = models.get(name)((3, 32, 32), 10).eval()
    images = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(module(images), module(images.to(memory_format=torch.channels_last)))


def test_smallest_images():
    assert SmallCNN((1, 8, 8), 10)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert LeNet((1, 12, 12), 10)(torch.zeros(2, 1, 12, 12)).shape == (2, 10)
    assert CNN4((1, 16, 16), 10)(torch.zeros(2, 1, 16, 16)).shape == (2, 10)
    assert ResNet8((2, 8, 8), 10)(torch.zeros(2, 2, 8, 8)).shape == (2, 10)
    assert ResNet18((1, 8, 8), 10)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    with pytest.raises(ModelError, match=r"'small_cnn': .* at least 8 × 8 pixels, found shape \(1, 8, 7\)"):
        SmallCNN((1, 8, 7), 10)
    with pytest.raises(ModelError, match=r"'lenet': .* at least 12 × 12 pixels, found shape \(1, 11, 12\)"):
        LeNet((1, 11, 12), 10)
    with pytest.raises(ModelError, match=r"'cnn4': .* at least 16 × 16 pixels, found shape \(1, 15, 16\)"):
        CNN4((1, 15, 16), 10)
    with pytest.raises(ModelError, match=r"'resnet18': .* at least 8 × 8 pixels, found shape \(3, 7, 8\)"):
        ResNet18((3, 7, 8), 10)
    with pytest.raises(ModelError, match=r"'resnet8': .* found shape \(64,\)"):
        ResNet8((64,), 10)
    with pytest.raises(ModelError, match=r"'lenet': .* found shape \(64,\); .* or use 'mlp' or 'linear'"):
        LeNet((64,), 10)


@pytest.mark.parametrize(("shape", "expected"), [((3, 32, 32), "bf47d25526172dda"), ((1, 8, 8), "7738e42a4e791b33")])
def test_small_cnn_begins_as_it_did_before_it_had_a_norm(shape, expected):
    """Published results depend on these bits; the digests were taken before the option was added."""
    assert digest(build("small_cnn", shape, 10, seed=0)) == expected


@pytest.mark.parametrize(("model", "default"), [(SmallCNN, "batch"), (ResNet8, "group"), (ResNet18, "group")])
def test_the_norm_decides_which_layers_there_are(model, default):
    layers = {"group": nn.GroupNorm, "batch": nn.BatchNorm2d}
    plain, group, batch = model((1, 8, 8), 10), model((1, 8, 8), 10, norm="group"), model((1, 8, 8), 10, norm="batch")
    assert kinds(group) - kinds(batch) == {nn.GroupNorm}
    assert kinds(batch) - kinds(group) == {nn.BatchNorm2d}
    assert layers[default] in kinds(plain)
    assert len(kinds(plain) & set(layers.values())) == 1
    assert [n for n, _ in group.named_parameters()] == [n for n, _ in batch.named_parameters()]
    assert list(group.buffers()) == []
    assert list(batch.buffers()) != []


@pytest.mark.parametrize("model", [SmallCNN, ResNet8])
def test_an_unknown_norm_is_refused(model):
    with pytest.raises(ModelError, match="norm: expected 'group' or 'batch', found 'layer'"):
        model((1, 8, 8), 10, norm="layer")


@pytest.mark.parametrize("name", NORMALISED)
def test_with_group_norm_an_example_does_not_see_its_batch(name):
    images = torch.randn(4, 3, 8, 8)
    group, batch = (build({"name": name, "norm": norm}, (3, 8, 8), 10, seed=0).train() for norm in ("group", "batch"))
    with torch.no_grad():
        torch.testing.assert_close(group(images)[:2], group(images[:2]))
        assert not torch.allclose(batch(images)[:2], batch(images[:2]), atol=1e-3)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("name", NORMALISED)
def test_channels_last_memory_is_kept_to_the_end(name, norm):
    """One layer that falls back would copy every image, forwards and backwards."""
    module = build({"name": name, "norm": norm}, (3, 16, 16), 10, seed=0)
    formats = []

    def look(tensor):
        formats.append(tensor.is_contiguous(memory_format=torch.channels_last))

    for part in module.features.modules():
        part.register_forward_hook(lambda part, inputs, output: look(output))
        if isinstance(part, nn.GroupNorm | nn.BatchNorm2d):
            part.register_full_backward_hook(lambda part, to_inputs, to_outputs: look(to_inputs[0]))
    module(torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last)).sum().backward()
    assert all(formats)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("name", NORMALISED)
def test_parameters_gradients_and_statistics_are_views_of_flat_vectors(name, norm):
    module = build({"name": name, "norm": norm}, (1, 8, 8), 10, seed=0)
    before, images = digest(module), torch.randn(4, 1, 8, 8)
    flat = FlatModule(module)
    assert digest(flat.module) == before
    statistics = flat.buffers.floats.clone()
    flat.module(images).square().sum().backward()
    assert all(part.any() for part_name, part in flat.layout.tensors(flat.gradient) if part_name.endswith("weight"))
    assert torch.equal(flat.buffers.floats, statistics) == (norm == "group")
    flat.vector.zero_()
    assert not any(parameter.any() for parameter in module.parameters())
    assert not module(images).any()


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_lenet_has_a_norm_only_where_one_is_asked_for(norm):
    kinds = {"group": nn.GroupNorm, "batch": nn.BatchNorm2d}
    plain, normed = LeNet((3, 28, 28), 10), LeNet((3, 28, 28), 10, norm=norm)
    assert not any(isinstance(module, tuple(kinds.values())) for module in plain.modules())
    assert sum(isinstance(module, kinds[norm]) for module in normed.modules()) == 2
    assert normed(torch.zeros(2, 3, 28, 28)).shape == (2, 10)


def test_mlp_has_the_layers_that_were_asked_for():
    def widths(module):
        return [layer.out_features for layer in module.modules() if isinstance(layer, nn.Linear)]

    assert widths(MLP((5,), 3)) == [64, 64, 3]
    assert widths(MLP((5,), 3, width=8, depth=3)) == [8, 8, 8, 3]
    assert widths(MLP((5,), 3, depth=0)) == [3]
    assert nn.LayerNorm not in kinds(MLP((5,), 3))
    assert nn.LayerNorm in kinds(MLP((5,), 3, norm="layer"))
    assert head_names(MLP((5,), 3, norm="layer")) == ("head.weight", "head.bias")
    with pytest.raises(ModelError, match="norm: expected 'none' or 'layer', found 'batch'"):
        MLP((5,), 3, norm="batch")


def test_with_layer_norm_mlp_does_not_see_how_large_its_inputs_are():
    module, rows = MLP((5,), 3, depth=1, norm="layer"), torch.randn(4, 5)
    module.features[1].bias.data.zero_()
    torch.testing.assert_close(module(rows), module(100 * rows), atol=1e-3, rtol=1e-3)

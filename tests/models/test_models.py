import pytest
import torch

from fedpace.core import ModelError
from fedpace.models import LeNet, Linear, SmallCNN, models


@pytest.mark.parametrize(
    ("model", "shape", "size"),
    [
        (SmallCNN, (3, 32, 32), 94_986),
        (LeNet, (1, 28, 28), 61_706),
        (LeNet, (3, 32, 32), 83_126),
        (Linear, (3, 32, 32), 30_730),
    ],
)
def test_number_of_parameters(model, shape, size):
    assert sum(p.numel() for p in model(shape, 10).parameters()) == size


@pytest.mark.parametrize("name", models.names())
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 13, 20)])
def test_scores_depend_on_every_parameter(name, shape):
    torch.manual_seed(0)
    module = models.get(name)(shape, 7)
    module(torch.randn(8, *shape)).square().sum().backward()
    assert all(p.grad.any() for name, p in module.named_parameters() if name.endswith("weight"))


@pytest.mark.parametrize("name", models.names())
def test_channels_last_gives_the_same_scores(name):
    module = models.get(name)((3, 32, 32), 10).eval()
    images = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(module(images), module(images.to(memory_format=torch.channels_last)))


def test_smallest_images():
    assert SmallCNN((1, 8, 8), 10)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert LeNet((1, 12, 12), 10)(torch.zeros(2, 1, 12, 12)).shape == (2, 10)
    with pytest.raises(ModelError, match=r"'small_cnn': .* at least 8 × 8 pixels, found shape \(1, 8, 7\)"):
        SmallCNN((1, 8, 7), 10)
    with pytest.raises(ModelError, match=r"'lenet': .* at least 12 × 12 pixels, found shape \(1, 11, 12\)"):
        LeNet((1, 11, 12), 10)
    with pytest.raises(ModelError, match=r"'lenet': .* found shape \(64,\)"):
        LeNet((64,), 10)

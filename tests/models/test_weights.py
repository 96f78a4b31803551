import pytest
import torch
from safetensors.torch import save_file

from fedpace.core import FlatModule, ModelError
from fedpace.models import MLP, build, load_weights, read_weights

SHAPE, CLASSES = (5,), 3


@pytest.fixture
def trained(tmp_path):
    """A folder as a run leaves it, and the model in it."""
    module = build("mlp", SHAPE, CLASSES, seed=7)
    save_file(FlatModule(module).state_dict(), tmp_path / "model.safetensors")
    return tmp_path, module


@pytest.mark.parametrize("file", ["", "model.safetensors"])
def test_a_model_starts_from_weights(trained, file):
    folder, module = trained
    found = build({"name": "mlp", "weights": str(folder / file)}, SHAPE, CLASSES, seed=0)
    rows = torch.randn(4, *SHAPE)
    assert torch.equal(found(rows), module(rows))
    assert not torch.equal(build("mlp", SHAPE, CLASSES, seed=0)(rows), module(rows))


def test_statistics_are_weights_too(tmp_path):
    module = build("small_cnn", (1, 8, 8), 2, seed=0)
    module(torch.randn(4, 1, 8, 8))
    save_file(FlatModule(module).state_dict(), tmp_path / "model.safetensors")
    found = build({"name": "small_cnn", "weights": str(tmp_path)}, (1, 8, 8), 2, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(found.buffers(), module.buffers(), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 8}, r"weights: 'features.1.weight' of MLP: expected shape \(8, 5\), found \(64, 5\)"),
        ({"depth": 3}, "weights: expected 'features.7.weight' of MLP, found none$"),
        ({"depth": 1}, "weights: found 'features.4.bias', which MLP does not have"),
    ],
)
def test_weights_of_another_model_are_one_line(trained, options, message):
    with pytest.raises(ModelError, match=message) as caught:
        build({"name": "mlp", "weights": str(trained[0]), **options}, SHAPE, CLASSES, seed=0)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_almost_right_is_named():
    weights = MLP(SHAPE, CLASSES).state_dict()
    weights["haed.bias"] = weights.pop("head.bias")
    with pytest.raises(ModelError, match=r"expected 'head.bias' of MLP, found none; did you mean 'haed.bias'\?"):
        load_weights(MLP(SHAPE, CLASSES), weights)


@pytest.mark.parametrize("place", ["missing", "folder", "text"])
def test_a_place_without_weights_is_one_line(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(ModelError, match=rf"weights '.*{place}': expected a safetensors file or the folder"):
        read_weights(tmp_path / place)

"""Data sets of PyTorch, and whatever has a length and examples by number."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from fedpace.core import ConfigError, DataError
from fedpace.data import load
from fedpace.experiments import train

LABELS = torch.arange(12) % 3


class Listed(TorchDataset):
    def __init__(self, *examples, classes=None):
        self.examples = examples
        if classes is not None:
            self.classes = classes

    def __getitem__(self, index):
        return self.examples[index]

    def __len__(self):
        return len(self.examples)


class Endless(TorchDataset):
    def __getitem__(self, index):
        return torch.zeros(2), 0


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2), 0

    def __len__(self):
        return 1


def test_float_images_stay_floats_with_channels_first():
    images = torch.rand(12, 3, 4, 5)
    data = load(TensorDataset(images, LABELS), test=TensorDataset(images[:3], LABELS[:3]))
    assert data.name == "TensorDataset"
    assert data.train.inputs.dtype == np.float32
    assert data.train.shape == (3, 4, 5)
    assert np.array_equal(data.train.inputs, images)
    assert np.array_equal(data.train.labels, LABELS)
    assert len(data.test) == 3
    assert torch.equal(data.partition("iid", clients=1).test.batch(slice(None)).inputs, images[:3])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("form", ["tensor", "array", "image"])
def test_uint8_images_are_images_whatever_their_form(form, channels):
    images = np.random.default_rng(0).integers(0, 256, (4, 5, 6, channels), dtype=np.uint8)
    forms = {
        "tensor": lambda image: torch.tensor(image).permute(2, 0, 1),
        "array": lambda image: image,
        "image": lambda image: Image.fromarray(image if channels == 3 else image[..., 0]),
    }
    data = load(Listed(*((forms[form](image), i % 2) for i, image in enumerate(images))))
    assert np.array_equal(data.train.inputs, images)
    assert data.train.shape == (channels, 5, 6)


def test_integers_stay_integers_and_float_targets_are_numbers():
    tokens = torch.arange(24).reshape(12, 2)
    data = load(TensorDataset(tokens, torch.linspace(0, 1, 12)))
    assert data.train.inputs.dtype == np.int64
    assert np.array_equal(data.train.inputs, tokens)
    assert data.train.classes == ()
    assert data.train.targets.dtype == np.float32


@pytest.mark.parametrize("key", ["label", "y"])
def test_examples_that_are_mappings(key):
    examples = [{"text": torch.tensor([i, i]), "age": float(i), key: "ab"[i % 2]} for i in range(4)]
    data = load(Listed(*examples), target=key)
    assert data.train.shape == {"text": (2,), "age": (1,)}
    assert data.train.inputs["age"].tolist() == [[0.0], [1.0], [2.0], [3.0]]
    assert data.train.inputs["text"].dtype == np.int64
    assert data.train.classes == ("a", "b")
    one = load(Listed(*({"x": torch.ones(3), key: 0} for _ in range(2))), target=key)
    assert one.train.shape == (3,)


def test_several_inputs_beside_a_target():
    data = load(Listed(*(({"a": torch.ones(2), "b": torch.ones(3)}, i % 2) for i in range(4))))
    assert data.train.shape == {"a": (2,), "b": (3,)}
    assert len(data.partition("iid", clients=1, test_share=0.5).fingerprint()) == 32


def test_a_subset_and_names_of_classes():
    whole = Listed(*((torch.zeros(2), i % 2) for i in range(6)), classes=["cat", "dog", "fox"])
    assert load(whole).train.classes == ("cat", "dog", "fox")
    assert load(Subset(whole, [0, 2])).train.classes == ("0",)


def test_each_example_is_read_once():
    class Counting(Listed):
        asked = 0

        def __getitem__(self, index):
            self.asked += 1
            return super().__getitem__(index)

    counting = Counting(*((torch.zeros(2), i % 2) for i in range(6)))
    load(counting).partition("iid", clients=2).clients[0].batch(slice(None))
    assert counting.asked == 6


def test_it_can_be_trained_on_directly():
    data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 3)
    result = train(data, model="linear", rounds=1, settings={"executor": "serial", "data.partition": "iid"})
    assert result.config["data"]["source"] == "TensorDataset"


X = torch.zeros(2)


@pytest.mark.parametrize(
    ("source", "parameters", "error", "message"),
    [
        (Endless(), {}, DataError, "Endless: expected a data set with a length and examples by number"),
        (Stream(), {}, DataError, "Stream: expected a data set with a length and examples by number"),
        (DataLoader([1]), {}, DataError, "DataLoader: expected a data set with a length and examples by number"),
        (Listed(X), {}, DataError, r"Listed: example 0: expected a pair \(input, target\) or a mapping, found Tensor"),
        (Listed((X, 0), (X, 0, 1)), {}, DataError, "Listed: example 1: expected a pair .*, found tuple of 3"),
        (Listed(), {}, DataError, "Listed, targets: expected at least one example, found none"),
        (
            Listed((X, 0), (torch.zeros(3), 0)),
            {},
            DataError,
            r"Listed, inputs: expected examples of one shape, \(2,\) as the first, found \(3,\) in example 1; resize",
        ),
        (Listed(({"a": X}, 0), ({"b": X}, 0)), {}, DataError, r"example 1: expected the inputs \['a', 'b'\], found"),
        (Listed({"x": X, "y": 0}), {}, DataError, r"example 0: expected a target under 'label', found \['x', 'y'\]"),
        (Listed((object(), 0)), {}, DataError, "inputs: expected tensors, .*, found object in example 0"),
        (Listed(([[1], [1, 2]], 0)), {}, DataError, "inputs: expected tensors, .*, found list in example 0"),
        (Listed((X, 2), classes=["a", "b"]), {}, DataError, "labels out of range: expected 0 to 1, found 2 to 2"),
        (Listed((X, 0), (X, -1)), {}, DataError, "labels out of range"),
        (TensorDataset(X[:, None], X), {"size": 3}, ConfigError, r"unknown parameters \['size'\]: expected some of"),
    ],
)
def test_anything_wrong_is_one_line(source, parameters, error, message):
    with pytest.raises(error, match=message) as caught:
        load(source, **parameters)
    assert "\n" not in str(caught.value)

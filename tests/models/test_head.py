import pytest
import torch
from torch import nn

from fedpace.core import ConfigError, ModelError
from fedpace.models import ModelConfig, build, head_names, head_part, parse_model


class Net(nn.Module):
    """Two layers for two purposes; the one that comes last is not the classifier."""

    def __init__(self):
        super().__init__()
        self.features = nn.Linear(64, 8)
        self.classifier = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 10))
        self.decoder = nn.Linear(8, 64)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.classifier(self.act(self.features(x.flatten(1))))


class Tied(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.token = nn.Embedding(7, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=bias)
        self.head.weight = self.token.weight


CLASSIFIER = tuple(f"classifier.{part}" for part in ("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"))
NET = f"{__name__}:Net"


def test_normalisation_is_no_head():
    assert head_names(nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))) == ("0.weight",)


def test_the_last_layer_may_be_the_module_itself():
    assert head_names(nn.Linear(2, 2)) == ("weight", "bias")


def test_a_model_without_layers_has_no_head():
    with pytest.raises(ModelError, match="expected a layer with a weight matrix"):
        head_names(nn.ReLU())


def test_a_frozen_layer_may_be_the_head():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
    assert head_names(module) == ("1.weight", "1.bias")


def test_a_named_head_is_all_that_lies_below_the_name():
    assert head_names(Net()) == ("decoder.weight", "decoder.bias")
    assert head_names(Net(), "classifier") == CLASSIFIER
    assert head_names(Net(), "classifier.2") == ("classifier.2.weight", "classifier.2.bias")


@pytest.mark.parametrize(("bias", "expected"), [(True, ("token.weight", "head.bias")), (False, ("token.weight",))])
def test_a_tied_head_is_named_as_the_embedding(bias, expected):
    assert head_part(Tied(bias)) == "head"
    assert head_names(Tied(bias)) == head_names(Tied(bias), "head") == expected


@pytest.mark.parametrize(
    "model", [{"name": NET, "head": "classifier"}, parse_model({"name": NET, "head": "classifier"})]
)
def test_config_names_the_head(model):
    module = build(model, (1, 8, 8), 10, seed=0)
    assert module.fedpace_head == head_part(module) == "classifier"
    assert head_names(module) == CLASSIFIER
    assert head_names(module, "features") == ("features.weight", "features.bias")  # an argument counts more


def test_a_users_module_may_name_its_head():
    mine = Net()
    mine.fedpace_head = "classifier"
    assert head_names(build(mine, (1, 8, 8), 10, seed=0)) == CLASSIFIER


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("clasifier", r"model 'Net': .* found none named 'clasifier'; did you mean 'classifier'\?"),
        ("act", "expected a part with parameters as its head, found none named 'act'"),
        ("", "found none named ''; known: classifier, classifier.0,"),
    ],
)
def test_a_wrong_name_is_one_line_when_the_model_is_built(head, message):
    with pytest.raises(ModelError, match=message) as caught:
        build({"name": NET, "head": head}, (1, 8, 8), 10, seed=0)
    assert "\n" not in str(caught.value)


def test_a_head_is_no_option_and_survives_the_config():
    table = {"name": "resnet8", "norm": "batch", "head": "head"}
    found = parse_model(table)
    assert found == ModelConfig(name="resnet8", options={"norm": "batch"}, head="head")
    assert found.model_dump() == table
    assert parse_model(found.model_dump()) == found
    assert parse_model({"name": "linear", "head": "head"}) == ModelConfig(name="linear", options={}, head="head")
    with pytest.raises(ConfigError, match="model: head: input should be a valid string, found 3"):
        parse_model({"name": "linear", "head": 3})
    assert torch.equal(
        build(table, (1, 8, 8), 10, seed=0).head.weight, build("resnet8", (1, 8, 8), 10, seed=0).head.weight
    )

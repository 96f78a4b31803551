from functools import partial
from itertools import pairwise

import pytest
from torch import nn

from fedpace.core import ConfigError, ModelError
from fedpace.models import Adapter, ModelConfig, ResNet8, build, parse_model

WIDTH = 3


def own_factory(shape, classes, width=8, *, layers: "Unknown" = 1):  # noqa: F821  # annotations are the user's business
    sizes = [shape[0] * shape[1] * shape[2], *[width] * layers, classes]
    return nn.Sequential(nn.Flatten(), *(nn.Linear(*pair) for pair in pairwise(sizes)))


def anything(**options):
    return own_factory((1, 8, 8), 10, **options)


def needs(hidden):
    return own_factory((1, 8, 8), 10, width=hidden)


def norms(module):
    return {type(part) for part in module.modules()} & {nn.GroupNorm, nn.BatchNorm2d}


@pytest.mark.parametrize(
    "table", [{"name": "resnet8", "norm": "batch"}, parse_model({"name": "resnet8", "norm": "batch"})]
)
def test_a_table_is_built_with_its_options(table):
    assert norms(build(table, (1, 8, 8), 10, seed=0)) == {nn.BatchNorm2d}
    assert norms(build("resnet8", (1, 8, 8), 10, seed=0)) == {nn.GroupNorm}


def test_a_class_may_be_given_with_its_options_bound():
    assert norms(build(partial(ResNet8, norm="batch"), (1, 8, 8), 10, seed=0)) == {nn.BatchNorm2d}


@pytest.mark.parametrize(
    ("factory", "options", "width"),
    [
        ("own_factory", {"width": 5}, 5),
        ("own_factory", {"layers": 2}, 8),
        ("anything", {"width": 4}, 4),
        ("needs", {"hidden": 6}, 6),
    ],
)
def test_a_users_factory_gets_its_options_as_keywords(factory, options, width):
    module = build({"name": f"{__name__}:{factory}", **options}, (1, 8, 8), 10, seed=0)
    assert [layer.out_features for layer in module[1:]] == [width] * options.get("layers", 1) + [10]


@pytest.mark.parametrize("value", ["resnet8", {"name": "resnet8"}, ModelConfig(name="resnet8", options={})])
def test_a_model_without_options_is_its_name(value):
    assert parse_model(value) == "resnet8"


def test_a_table_without_a_name_describes_the_default():
    assert parse_model({"norm": "group"}, "small_cnn") == ModelConfig(name="small_cnn", options={"norm": "group"})
    assert parse_model({}, "small_cnn") == "small_cnn"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"name": "resnet8", "nrom": "batch"}, r"model 'resnet8': unknown option 'nrom'; did you mean 'norm'\?"),
        ({"name": "resnet8", "zzz": 1}, "model 'resnet8': unknown option 'zzz'; known: norm"),
        ({"name": "resnet8", "shape": [1]}, "model 'resnet8': unknown option 'shape'; known: norm"),
        ({"name": "resnet8", "norm": "bach"}, r"model 'resnet8': unknown norm 'bach'; did you mean 'batch'\?"),
        ({"name": "small_cnn", "norm": 2}, "model 'small_cnn': unknown norm '2'; known: batch, group"),
        ({"name": "linear", "norm": "batch"}, "model 'linear': unknown option 'norm'; known: none"),
        ({"name": "cnn4", "norm": "batch"}, "model 'cnn4': unknown option 'norm'; known: none"),
        ({"name": "mlp", "width": 0}, "model 'mlp': width: input should be greater than or equal to 1, found 0"),
        ({"name": "mlp", "depth": -1}, "model 'mlp': depth: input should be greater than or equal to 0, found -1"),
        ({"name": "mlp", "norm": "batch"}, "model 'mlp': unknown norm 'batch'; known: layer, none"),
        ({"name": "char_lstm", "hiden": 8}, r"model 'char_lstm': unknown option 'hiden'; did you mean 'hidden'\?"),
        ({"name": "mlp", "weights": 3}, "model: weights: input should be a valid string, found 3"),
        ({"name": "mlp", "adapter": {"rnk": 2}}, r"model: unknown key 'adapter.rnk'; did you mean 'rank'\?"),
        ({"name": "mlp", "adapter": {"rank": 0}}, "model: adapter.rank: input should be greater than or equal to 1"),
        ({"name": "resnet", "norm": "batch"}, r"unknown model 'resnet'; did you mean 'resnet8'\?"),
        ({"name": f"{__name__}:own_factory", "widht": 1}, r"unknown option 'widht'; did you mean 'width'\?"),
        ({"name": f"{__name__}:WIDTH", "width": 1}, "expected a torch.nn.Module or a function that makes one, found 3"),
        ({"name": "no.such:thing", "width": 1}, "model 'no.such:thing': cannot be imported"),
        ({"name": "resnet8", "norm": nn.GroupNorm}, "model: options.norm: input was not a valid JSON value"),
        ({"name": 3}, "model: name: input should be a valid string, found 3"),
        ({"norm": "batch"}, "model: expected a name or a table with 'name', found {'norm': 'batch'}"),
        (3, "model: expected a name or a table with 'name', found 3"),
    ],
)
def test_a_wrong_option_is_one_line(value, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_model(value)
    assert "\n" not in str(caught.value)


def test_a_users_factory_that_cannot_be_called_is_one_line():
    with pytest.raises(ModelError, match=r"takes \(shape, classes\) or nothing, found \(hidden\)"):
        build(f"{__name__}:needs", (1, 8, 8), 10, seed=0)
    with pytest.raises(ConfigError, match=r"expected a torch\.nn\.Module or a function that makes one, found 3"):
        build(f"{__name__}:WIDTH", (1, 8, 8), 10, seed=0)


def test_weights_and_adapter_are_no_options_and_survive_the_config():
    table = {"name": "mlp", "width": 8, "weights": "runs/x", "adapter": {"rank": 2, "targets": ["features.1"]}}
    found = parse_model(table)
    adapter = Adapter(rank=2, targets=("features.1",))
    assert found == ModelConfig(name="mlp", options={"width": 8}, weights="runs/x", adapter=adapter)
    assert found.model_dump(mode="json") == {
        "name": "mlp",
        "width": 8,
        "weights": "runs/x",
        "adapter": {"rank": 2, "alpha": 8.0, "targets": ["features.1"], "train_head": False},
    }
    for mode in ("json", "python"):
        assert parse_model(found.model_dump(mode=mode)) == found
    assert parse_model({"name": "mlp", "adapter": {}}) == ModelConfig(name="mlp", options={}, adapter=Adapter())

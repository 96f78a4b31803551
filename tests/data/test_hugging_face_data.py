"""Data sets of ``datasets`` and clients of ``flwr_datasets``: the real ones where they are installed, and stand-ins."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fedpace import federate
from fedpace.core import ConfigError, DataError
from fedpace.data import Data, Federation, load
from fedpace.experiments import train

from . import datasets_like

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 4, 4, 3), dtype=np.uint8)


@pytest.fixture(params=["stand-ins", "installed"])
def hub(request, monkeypatch):
    """What a test needs of the two libraries."""
    if request.param == "stand-ins":
        return datasets_like
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    datasets, partitioner = pytest.importorskip("datasets"), pytest.importorskip("flwr_datasets.partitioner")

    class FederatedDataset(pytest.importorskip("flwr_datasets").FederatedDataset):
        """One whose splits are there already, as the library's own tests have it."""

        def __init__(self, splits, partitioners):
            super().__init__(dataset="none", partitioners=partitioners, shuffle=False)
            self._dataset, self._dataset_prepared = splits, True
            self._event["load_split"] = dict.fromkeys(splits, True)
            self._event["load_partition"] = dict.fromkeys(partitioners, True)

    names = ["Dataset", "DatasetDict", "Image", "ClassLabel", "Value"]
    found = {name: getattr(datasets, name) for name in names}
    for name in ("IidPartitioner", "NaturalIdPartitioner"):
        found[name] = getattr(partitioner, name)

    def from_dict(columns, features):
        return datasets.Dataset.from_dict(columns, features=datasets.Features(features))

    found |= {"Dataset": SimpleNamespace(from_dict=from_dict), "FederatedDataset": FederatedDataset}
    return SimpleNamespace(**found)


def animals(hub, n=12, start=0):
    """Images of cats and dogs, and who took them."""
    columns = {
        "img": [Image.fromarray(image) for image in PIXELS[start : start + n]],
        "label": [i % 2 for i in range(n)],
        "who": ["xyz"[i % 3] for i in range(n)],
    }
    features = {"img": hub.Image(), "label": hub.ClassLabel(names=["cat", "dog"]), "who": hub.Value("string")}
    return hub.Dataset.from_dict(columns, features)


def people(hub):
    columns = {"age": [30, 40, 50, 60], "height": [1.5, 1.75, 2.0, 1.25], "city": list("abab"), "label": list("xyyx")}
    kinds = {"age": "int64", "height": "float32", "city": "string", "label": "string"}
    return hub.Dataset.from_dict(columns, {name: hub.Value(kind) for name, kind in kinds.items()})


def test_the_only_images_are_the_inputs(hub):
    data = load(animals(hub))
    assert isinstance(data, Data)
    assert np.array_equal(data.train.inputs, PIXELS[:12])
    assert data.train.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 1] * 6
    assert data.test is None


@pytest.mark.parametrize("split", ["test", "validation"])
def test_splits(hub, split):
    data = load(hub.DatasetDict({"train": animals(hub), split: animals(hub, 4, 12)}))
    assert (len(data.train), len(data.test)) == (12, 4)
    assert np.array_equal(data.test.inputs, PIXELS[12:16])
    assert len(load(animals(hub), test=animals(hub, 5)).test) == 5


def test_columns_of_numbers_are_a_table(hub):
    data = load(people(hub))
    assert data.train.inputs.tolist() == [[30, 1.5], [40, 1.75], [50, 2.0], [60, 1.25]]
    assert data.train.inputs.dtype == np.float32
    assert data.train.classes == ("x", "y")
    one = load(people(hub), inputs="age", target="height")
    assert one.train.shape == (1,)
    assert one.train.inputs.dtype == np.int64
    assert one.train.classes == ()


def test_columns_of_several_shapes_are_inputs_by_name(hub):
    columns = {"img": [Image.fromarray(p) for p in PIXELS[:3]], "age": [1.0, 2.0, 3.0], "label": [0, 1, 0]}
    features = {"img": hub.Image(), "age": hub.Value("float32"), "label": hub.Value("int64")}
    data = load(hub.Dataset.from_dict(columns, features), inputs=["img", "age"])
    assert data.train.shape == {"img": (3, 4, 4), "age": (1,)}


def test_partitions_are_clients(hub):
    partitioner = hub.IidPartitioner(3)
    partitioner.dataset = animals(hub)
    federation = load(partitioner)
    assert isinstance(federation, Federation)
    assert federation.client_names == ("0", "1", "2")
    assert [len(client) for client in federation.clients] == [3, 3, 3]
    assert [len(test) for test in federation.client_tests] == [1, 1, 1]
    assert federation.classes == ("cat", "dog")
    partitioner = hub.IidPartitioner(3)
    partitioner.dataset = animals(hub)
    tested = load(partitioner, test=animals(hub, 5, 12))
    assert [len(client) for client in tested.clients] == [4, 4, 4]
    assert len(tested.test) == 5


def test_natural_clients_keep_their_names(hub):
    partitioner = hub.NaturalIdPartitioner(partition_by="who")
    partitioner.dataset = animals(hub)
    assert load(partitioner, test_share=0.5).client_names == ("x", "y", "z")


def test_a_federated_data_set_has_a_test_split_or_one_per_client(hub):
    splits = hub.DatasetDict({"train": animals(hub), "test": animals(hub, 6, 12)})
    federation = load(hub.FederatedDataset(splits, partitioners={"train": hub.IidPartitioner(4)}))
    assert [len(client) for client in federation.clients] == [3, 3, 3, 3]
    assert federation.client_tests is None
    assert np.array_equal(federation.test.arrays(slice(None))[0], PIXELS[12:18])
    partitioners = {"train": hub.IidPartitioner(3), "test": hub.IidPartitioner(3)}
    federation = load(hub.FederatedDataset(splits, partitioners))
    assert [len(test) for test in federation.client_tests] == [2, 2, 2]
    assert len(federation.test) == 6
    alone = load(hub.FederatedDataset(hub.DatasetDict({"train": animals(hub)}), {"train": hub.IidPartitioner(2)}))
    assert len(alone.test) == 4


def test_it_can_be_trained_on_directly(hub):
    partitioner = hub.IidPartitioner(2)
    partitioner.dataset = animals(hub)
    settings = {"executor": "serial", "data.augment": ["flip", {"name": "crop", "padding": 1}]}
    assert len(train(partitioner, model="linear", rounds=1, settings=settings).records) == 1


def test_a_federation_is_no_client(hub):
    partitioner = hub.IidPartitioner(2)
    partitioner.dataset = animals(hub)
    with pytest.raises(DataError, match=r"'0': expected the data of one client, found a federation: Federation\('Iid"):
        federate([partitioner])
    assert len(federate([animals(hub), animals(hub)])) == 2


@pytest.mark.parametrize(
    ("source", "parameters", "error", "message"),
    [
        (lambda hub: people(hub).to_iterable_dataset(), {}, DataError, "expected a data set with a length and columns"),
        (people, {"target": "lable"}, DataError, "expected a column 'lable' as target; did you mean 'label'?"),
        (people, {"inputs": "agee"}, DataError, "inputs: unknown column 'agee'; did you mean 'age'?"),
        (people, {"inputs": ["age", "label"]}, DataError, "inputs: unknown column 'label'"),
        (people, {"inputs": "city"}, DataError, "inputs: expected uint8 images"),
        (
            people,
            {"size": 3},
            ConfigError,
            r"unknown parameters \['size'\]: expected some of \['inputs', 'target'",
        ),
        (lambda hub: hub.DatasetDict({"a": people(hub)}), {}, DataError, r"expected a split 'train', found \['a'\]"),
        (
            lambda hub: hub.Dataset.from_dict(
                {"t": ["x"], "label": ["y"]}, {"t": hub.Value("string"), "label": hub.Value("string")}
            ),
            {},
            DataError,
            r"expected one column of images, or columns of numbers, found t \(Value\); choose with inputs=",
        ),
        (lambda hub: hub.IidPartitioner(2), {}, DataError, "IidPartitioner: expected a partitioner with data, found"),
        (
            lambda hub: hub.FederatedDataset(
                hub.DatasetDict({"train": animals(hub), "test": animals(hub)}),
                {"train": hub.IidPartitioner(3), "test": hub.IidPartitioner(2)},
            ),
            {},
            DataError,
            r"expected as many parts of the test split as clients \(3\), found 2",
        ),
    ],
)
def test_anything_wrong_is_one_line(hub, source, parameters, error, message):
    with pytest.raises(error, match=message) as caught:
        load(source(hub), **parameters)
    assert "\n" not in str(caught.value)

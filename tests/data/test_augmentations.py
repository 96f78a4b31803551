"""Properties that every augmentation has, over the registry, and where augmentations are applied."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpace.client import Gradient
from fedpace.core import ConfigError, DataError, numpy_stream
from fedpace.data import Crop, Data, Flip, augmentations, load, parse_augmentations
from fedpace.experiments import load_config, train
from fedpace.experiments.config import RunConfig
from fedpace.experiments.run import federate
from fedpace.methods import LocalSGD, methods
from tests.client.helpers import Bench, shard
from tests.methods.bench import METHODS, STEPS, Client

from .helpers import toy

EVERY = pytest.mark.parametrize("name", augmentations.names())


def images(n=12, height=9, width=9, channels=1, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, height, width, channels), dtype=np.uint8)


@EVERY
@given(n=st.integers(1, 9), height=st.integers(2, 12), width=st.integers(2, 12), channels=st.sampled_from([1, 3]))
def test_shape_and_type_are_kept_and_the_input_is_left_alone(name, n, height, width, channels):
    batch = images(n, height, width, channels)
    before = batch.copy()
    batch.flags.writeable = False
    found = augmentations.get(name)()(batch, np.random.default_rng(0))
    assert found.dtype == np.uint8
    assert found.shape == before.shape
    assert np.array_equal(batch, before)
    assert not np.shares_memory(found, batch)


@EVERY
@given(seed=st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_batch_and_another_one_another(name, seed):
    augment, batch = augmentations.get(name)(), images(n=32)
    one, two, other = (augment(batch, np.random.default_rng(s)) for s in (seed, seed, seed + 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@EVERY
def test_images_are_changed_differently(name):
    """One image many times over becomes several."""
    found = augmentations.get(name)()(np.repeat(images(1), 64, axis=0), np.random.default_rng(0))
    assert len(np.unique(found.reshape(64, -1), axis=0)) > 1


@EVERY
def test_every_augmentation_says_what_its_parameters_are(name):
    cls = augmentations.get(name)
    described = cls.__doc__.split("Parameters:")[1]
    assert all(f"``{field}``" in described for field in cls.model_fields)
    assert cls.registered_name() == name


def test_a_flip_is_left_to_right():
    batch = images(width=7, channels=3)
    assert np.array_equal(Flip(p=1)(batch, np.random.default_rng(0)), batch[:, :, ::-1])
    assert np.array_equal(Flip(p=0)(batch, np.random.default_rng(0)), batch)
    flipped = Flip()(images(4000, 3, 2), np.random.default_rng(0))
    assert 1900 < (flipped != images(4000, 3, 2)).any(axis=(1, 2, 3)).sum() < 2100


@pytest.mark.parametrize(("border", "mode"), [("zero", "constant"), ("reflect", "reflect")])
def test_a_crop_is_a_window_of_the_padded_image_and_all_windows_occur(border, mode):
    image = images(1, 4, 5, 3)
    padded = np.pad(image[0], ((1, 1), (1, 1), (0, 0)), mode)
    windows = {padded[y : y + 4, x : x + 5].tobytes() for y in range(3) for x in range(3)}
    cropped = Crop(padding=1, border=border)(np.repeat(image, 200, axis=0), np.random.default_rng(0))
    assert {one.tobytes() for one in cropped} == windows


def brighter(inputs, rng):
    """An augmentation of the user's own."""
    return inputs + rng.random(inputs.shape).astype(inputs.dtype) + 1


def mirrored(inputs, rng):
    return inputs[:, ::-1]  # a view with a negative stride, which torch cannot take


def halved(inputs, rng):
    return inputs[: len(inputs) // 2]


def floating(inputs, rng):
    return inputs / 255


def forgetful(inputs, rng):
    inputs[:] = 0


def careless(inputs):
    return inputs


def digits(**parameters):
    return load("digits").partition("iid", clients=2, **parameters)


def test_without_a_generator_batches_are_as_they_are_to_the_bit():
    plain, federation = digits(), digits().augmented("crop", "flip")
    for one, other in zip(plain.clients, federation.clients, strict=True):
        assert torch.equal(one.batch(slice(None)).inputs, other.batch(slice(None)).inputs)
        assert torch.equal(one.batch(slice(None), numpy_stream(0, "x")).inputs, one.batch(slice(None)).inputs)
    assert federation.test.augmentations == ()
    inputs, targets = federation.clients[0].batch(slice(None), numpy_stream(0, "x"))
    assert not torch.equal(inputs, plain.clients[0].batch(slice(None)).inputs)
    assert torch.equal(targets, plain.clients[0].batch(slice(None)).targets)
    assert inputs.is_contiguous(memory_format=torch.channels_last)


def test_tests_of_clients_are_not_augmented():
    federation = digits(test_share=0.25).augmented("flip")
    assert all(shard.augmentations == () for shard in federation.client_tests)


def test_they_are_applied_in_order_to_what_the_client_sees():
    shard = digits(shift="coloured").augmented({"name": "flip", "p": 1}, brighter).clients[1]
    positions = torch.arange(5)
    rng = numpy_stream(3, "one")
    flipped = Flip(p=1)(shard.arrays(positions)[0], rng)
    expected = brighter(flipped, rng)
    assert expected.shape == (5, 8, 8, 3)
    assert np.array_equal(shard.arrays(positions, numpy_stream(3, "one"))[0], expected)


def test_own_functions_may_return_views_and_change_their_batch_but_never_the_data():
    federation = digits().augmented(mirrored)
    plain = digits().clients[0].batch(slice(4)).inputs
    assert torch.equal(federation.clients[0].batch(slice(4), numpy_stream(0, "x")).inputs, plain.flip(2))

    def blacken(inputs, rng):
        inputs[:] = 0
        return inputs

    shard = digits().augmented(blacken).clients[0]
    assert (shard.batch(slice(4), numpy_stream(0, "x")).inputs == -1).all()
    assert torch.equal(shard.batch(slice(4)).inputs, plain)


def test_own_functions_take_inputs_of_any_kind():
    inputs = {"a": np.ones((20, 2)), "b": np.ones((20, 3))}

    def noisy(batch, rng):
        return {name: array + rng.normal(size=array.shape).astype(np.float32) for name, array in batch.items()}

    shard = load((inputs, np.arange(20) % 2)).partition("iid", clients=2).augmented(noisy).clients[0]
    assert shard.batch(slice(3), numpy_stream(0, "x")).inputs["a"].std() > 0
    assert len(shard.pool.inputs) == 2


def bench():
    torch.manual_seed(0)
    return Bench(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))


def test_local_training_augments_and_gradients_do_not():
    plain, flipped, at = digits().clients[0], digits().augmented("flip").clients[0], bench()
    trained, gradients = ([at.run(work(), data).vector for data in (plain, flipped)] for work in (LocalSGD, Gradient))
    assert not torch.equal(*trained)
    assert torch.equal(*gradients)
    assert torch.equal(at.run(LocalSGD(), flipped).vector, trained[1])


def test_batches_for_steps_depend_on_the_seed_of_the_context_alone():
    data, at, work = digits().augmented("crop", "flip").clients[0], bench(), LocalSGD()

    def seen(batches, seed):
        inputs, labels = zip(*batches(data, at.context(seed=seed)), strict=True)
        return torch.cat(inputs), torch.cat(labels)

    (one, order), (same, _), (other, _) = (seen(work.training_batches, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(seen(work.batches, 1)[1], order)  # the same examples, otherwise


@pytest.mark.parametrize("name", METHODS)
def test_personalised_methods_train_on_augmented_batches_and_are_measured_without(name):
    def noisy(inputs, rng):
        return inputs + rng.normal(size=inputs.shape).astype(inputs.dtype)

    plain = shard()
    augmented = dataclasses.replace(plain, augmentations=parse_augmentations(noisy))
    method = methods.get(name)(**STEPS, max_steps=2)
    client = Client(method, training=augmented)
    update, other = client.turn(), Client(method, training=plain).turn()
    assert update.metrics["loss"] != other.metrics["loss"]
    measured = client.measured(plain)
    client.training = plain
    assert client.measured(augmented) == measured


@pytest.mark.parametrize(
    ("given_as", "expected"),
    [
        ("crop", (Crop(),)),
        (["crop", "flip"], (Crop(), Flip())),
        ([{"name": "crop", "padding": 2, "border": "reflect"}], (Crop(padding=2, border="reflect"),)),
        ({"name": "flip", "p": 0.1}, (Flip(p=0.1),)),
        (Flip(), (Flip(),)),
    ],
)
def test_augmentations_are_given_by_name_table_or_object(given_as, expected):
    config = load_config("fedavg", {"data.augment": given_as})
    assert config.data.augment == expected
    assert federate(config).clients[0].augmentations == expected
    assert RunConfig(**config.model_dump(mode="json")) == config


def test_functions_are_written_to_config_as_their_path():
    config = load_config("fedavg", {"data.augment": [brighter, f"{__name__}:mirrored", f"{__name__}:Still"]})
    written = config.model_dump(mode="json")["data"]["augment"]
    assert written == [f"{__name__}:brighter", f"{__name__}:mirrored", {"name": f"{__name__}:Still", "p": 0.5}]
    assert RunConfig(**config.model_dump(mode="json")) == config


class Still(Flip):
    def __call__(self, inputs, rng):
        return inputs


def test_fingerprints_of_what_is_not_augmented_stay_and_others_differ():
    plain = load_config("fedavg")
    assert "data" not in plain.model_dump(exclude_defaults=True)
    choices = [[], ["crop"], ["flip"], ["crop", "flip"], [{"name": "flip", "p": 0.1}], [brighter]]
    configs = [load_config("fedavg", {"data.augment": chosen}) for chosen in choices]
    assert configs[0].fingerprint() == plain.fingerprint()
    assert len({config.fingerprint() for config in configs}) == len(choices)
    federations = [federate(config).fingerprint() for config in configs]
    assert len(set(federations)) == len(choices)
    assert federations[0] == load("digits").partition().fingerprint()


def test_a_function_has_the_same_name_in_every_process():
    """An address would tell equal federations apart."""
    assert repr(parse_augmentations(brighter)) == f"(Own({__name__}:brighter),)"


def test_clients_that_are_given_are_augmented_by_the_config_too():
    config = load_config("fedavg", {"data.augment": "flip"})
    assert federate(config, digits()).clients[0].augmentations == (Flip(),)
    given_ones = digits().augmented("crop")
    assert federate(load_config("fedavg"), given_ones) is given_ones


def test_results_do_not_depend_on_the_executor():
    short = {"local.max_steps": 2, "measuring.per_client": 0, "data.augment": ["crop", "flip"]}
    one, two, plain = (
        train("digits", model="linear", rounds=2, settings=short | more)
        for more in (
            {"executor": "serial"},
            {"executor": {"name": "processes", "workers": 2}},
            {"executor": "serial", "data.augment": []},
        )
    )
    vectors = [torch.nn.utils.parameters_to_vector(result.module.parameters()) for result in (one, two, plain)]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        ("flop", ConfigError, "unknown augmentation 'flop'; did you mean 'flip'?"),
        ({"name": "flip", "p": 2}, ConfigError, "augmentation 'flip': p: input should be less than or equal to 1"),
        ({"name": "crop", "pading": 2}, ConfigError, r"unknown key 'pading'; did you mean 'padding'\?"),
        ({"p": 2}, ConfigError, "augmentation: expected a name or a table with 'name'"),
        ("nowhere:f", ConfigError, "augmentation 'nowhere:f': cannot be imported"),
        (3, ConfigError, "augmentation: expected a name or a table with 'name', found 3"),
        (halved, DataError, r"':?.*halved': expected uint8 of shape \(2, 8, 8, 1\) as it was given, found uint8 of sh"),
        (floating, DataError, r"floating': expected uint8 of shape .*, found float64 of shape \(2, 8, 8, 1\)"),
        (forgetful, DataError, "forgetful': expected uint8 of shape .*, found NoneType"),
        (careless, DataError, "careless': failed with TypeError: careless"),
    ],
)
def test_anything_wrong_is_one_line_before_training(chosen, error, message):
    with pytest.raises(error, match=message) as caught:
        digits().augmented(chosen)
    assert "\n" not in str(caught.value)
    with pytest.raises(error, match=message):
        federate(load_config("fedavg", {"data.augment": [chosen]}))


@EVERY
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (Data("toy", toy([0, 1] * 10)), "float32 arrays"),
        (load(({"a": np.ones((20, 2)), "b": np.ones((20, 2))}, [0, 1] * 10)), "2 inputs"),
    ],
)
def test_data_that_are_no_images_are_refused_before_training(name, data, found):
    with pytest.raises(DataError, match=f"augmentation '{name}': expected uint8 images, found {found}") as caught:
        data.partition("iid", clients=2).augmented(name)
    assert "\n" not in str(caught.value)


def test_none_is_an_empty_list():
    assert parse_augmentations([]) == ()

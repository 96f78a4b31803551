import pytest

from fedpace.core import ConfigError
from fedpace.experiments import load_config, preset_names
from fedpace.experiments.keys import below, elsewhere, explained
from fedpace.experiments.overviews import planned_windows


def test_a_key_says_its_values_its_default_and_what_it_is():
    (k,) = explained("anneal.k")
    assert (k.values, k.default) == ("a whole number at least 0", "8")
    assert "random perturbations" in k.about


def test_limits_belong_to_the_number_and_not_to_its_absence():
    (fraction,) = explained("cohort.fraction")
    assert fraction.values == "a number above 0 at most 1 or not set"


def test_a_parameter_is_explained_for_each_object_that_has_it():
    found = {one.of: one for one in explained("aggregate.rule.tau")}
    assert {"rule 'masked'", "rule 'and_mask'"} <= set(found)
    assert {one.default for one in found.values()} == {"0.4"}
    defaults = {one.of: one.default for one in explained("local.lr")}
    assert (defaults["local 'sgd'"], defaults["local 'scaffold'"]) == ("0.001", "0.01")


def test_a_registry_lists_its_names():
    (rule,) = explained("aggregate.rule")
    assert rule.default == "mean"
    assert {"masked", "krum", "dampened"} <= set(rule.values.replace(",", "").split())
    assert explained("aggregate.rule.name") == [rule]


def test_options_of_models_are_keys():
    assert {one.of for one in explained("model.norm")} >= {"model 'resnet8'", "model 'small_cnn'"}
    assert "table" in explained("model")[0].values


def test_every_key_is_explained():
    waiting, seen = [""], 0
    while waiting:
        for key in below(waiting.pop()):
            waiting.append(key)
            seen += 1
            assert all(one.values and one.default and one.about for one in explained(key)), key
    assert seen > 250


def test_every_key_that_a_preset_tunes_is_known():
    for name in preset_names():
        assert all(explained(key) for key in load_config(name).tunable)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("local.lrr", "unknown key 'local.lrr'; did you mean 'local.lr'"),
        ("tau", "did you mean 'aggregate.rule.tau'"),
        ("xyzzy", "known: method, kind, description, rounds"),
    ],
)
def test_an_unknown_key_names_the_nearest(key, message):
    with pytest.raises(ConfigError, match=message):
        explained(key)


@pytest.mark.parametrize(
    ("assignment", "place"),
    [
        ({"lr": 0.1}, "unknown key 'lr'; did you mean 'local.lr'"),
        ({"clients": 5}, "unknown key 'clients'; did you mean 'measuring.clients' or 'data.partition.clients'"),
        ({"anneal.rho": 0.1}, "unknown key 'anneal.rho'; did you mean 'anneal.perturbation.rho'"),
        ({"lcal.lr": 0.1}, "unknown key 'lcal'; did you mean 'local'"),
    ],
)
def test_a_key_at_the_wrong_place_is_told_where_it_belongs(assignment, place):
    with pytest.raises(ConfigError, match=f"fedavg: {place}"):
        load_config("fedavg", assignment)


def test_what_is_right_belongs_nowhere_else():
    assert elsewhere(["rounds"]) is None


def test_windows_are_those_of_the_schedule():
    windows = planned_windows(load_config("fedpace-paper"))
    found = [(window.stage, window.first, window.last) for window in windows]
    assert found == [
        ("fedavg", 0, 1),
        ("anneal", 2, 15),
        ("fedavg", 16, 19),
        ("dampen", 20, 41),
        ("prune", 42, 49),
    ]

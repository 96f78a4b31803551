"""What makes a comparison unfair is named, and what is meant to differ is not."""

import pytest

from fedpace.analysis import unequal, unfair
from fedpace.experiments import load_config


def dumped(*presets, **overrides):
    return {name: load_config(name, overrides).model_dump(mode="json") for name in presets}


def test_rules_that_share_their_settings_are_fair():
    assert unfair(dumped("fedavg", "gma", "paced", "fedadam", "fedgga")) is None


@pytest.mark.parametrize(
    ("key", "value", "aspect"),
    [
        ("aggregate.weights", "uniform", "weighting"),
        ("local.epochs", 5, "local work"),
        ("local.max_steps", 7, "local work"),
        ("local.batch", 8, "batch size"),
        ("local.optimizer", "sgd", "optimizer"),
        ("local.weight_decay", 0.5, "optimizer"),
        ("local.lr", 0.5, "learning rate"),
        ("rounds", 7, "rounds"),
        ("measuring.every", 2, "evaluation"),
        ("data.partition.alpha", 3.0, "data"),
        ("model", "linear", "model"),
        ("privacy", {"noise": 1.0, "delta": 1e-5}, "privacy"),
        ("local.private", {"noise": 1.0, "delta": 1e-5}, "privacy"),
    ],
)
def test_each_aspect_is_named_unless_it_is_meant(key, value, aspect):
    configs = {**dumped("fedavg"), "other": load_config("fedavg", {key: value}).model_dump(mode="json")}
    assert list(unequal(configs)) == [aspect]
    assert unfair(configs, meant=[key]) is None


def test_a_rule_that_counts_clients_alike_differs_from_a_mean_by_samples():
    configs = {**dumped("fedavg"), "confree": load_config("fedavg", {"aggregate.rule": "conflict_free"}).model_dump()}
    assert "weighting" in unequal(configs)


def test_presets_to_the_letter_of_a_paper_count_clients_alike_and_say_so():
    for preset in ("fedpace-paper", "fedpace-authors-run", "fedgga-paper"):
        config = load_config(preset)
        assert config.aggregate.weights == "uniform"
        assert "count alike" in config.description
        assert "weighting" in unequal({**dumped("fedavg"), preset: config.model_dump(mode="json")})

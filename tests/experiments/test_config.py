import json

import pytest

from fedpace.aggregation import Dampened
from fedpace.core import ConfigError
from fedpace.experiments import load_config
from fedpace.experiments.config import RunConfig
from fedpace.experiments.parsing import parse_config
from fedpace.models import ModelConfig


def names(config, rounds=50):
    return [config.schedule().stage(number).name for number in range(rounds)]


def test_an_empty_config_is_fedavg_without_stages():
    schedule = RunConfig().schedule()
    assert schedule.stages == ()
    (exchange,) = schedule.base.exchanges
    assert (schedule.base.name, exchange.sends, exchange.weights) == ("fedavg", "update", "samples")
    assert schedule.pruning is None


def test_the_base_is_named_after_what_it_does():
    assert load_config("gma").schedule().base.name == "masked"
    assert load_config("fedsgd").schedule().base.name == "fedsgd"
    assert load_config("fedgh").schedule().base.name == "harmonised"


def test_what_the_stages_of_fedpace_do():
    schedule = load_config("fedpace-paper").schedule()
    anneal, dampen, prune = schedule.stages
    assert (anneal.search.k, anneal.exchanges) == (8, schedule.base.exchanges)
    for stage, acts in ((dampen, False), (prune, True)):
        (exchange,) = stage.exchanges
        assert (exchange.sends, exchange.rule, exchange.optimizer.lr) == ("gradient", Dampened(), 0.01)
        assert (stage.search, exchange.counts, exchange.prunes) == (None, acts, acts)
    assert schedule.pruning.threshold == 0.2


def test_conflict_may_be_counted_from_dampening_on():
    dampen, prune = load_config("fedpace-dampen-prune", {"prune.count_from": "dampening"}).schedule().stages
    assert (dampen.exchanges[0].counts, dampen.exchanges[0].prunes) == (True, False)
    assert (prune.exchanges[0].counts, prune.exchanges[0].prunes) == (True, True)


def test_an_ordinary_round_may_follow_each_dampened_one():
    schedule = load_config("fedpace-authors-run").schedule()
    assert schedule.stage(30).exchanges[1:] == schedule.base.exchanges
    assert [len(schedule.stage(number).exchanges) for number in (0, 30, 45)] == [1, 2, 1]


@pytest.mark.parametrize(("source", "sends", "lr"), [("gradient", "gradient", 0.01), ("pseudo", "update", 1.0)])
def test_the_servers_step_fits_what_clients_send(source, sends, lr):
    stage = load_config("fedavg", {"dampen.source": source}).schedule().stage(20)
    assert (stage.name, stage.exchanges[0].sends, stage.exchanges[0].optimizer.lr) == ("dampen", sends, lr)


def test_windows_move_with_the_settings():
    windows = {"anneal.first": 0, "anneal.last": 1, "dampen.first": 3, "prune.enabled": False}
    config = load_config("fedpace-paper", windows)
    assert names(config, 5) == ["anneal", "anneal", "fedavg", "dampen", "dampen"]
    assert names(config)[42] == "fedavg"


def test_gradients_are_taken_of_the_batches_that_training_would_see():
    gradient = load_config("fedsgd", {"local.epochs": 3, "local.batch": 8, "local.max_steps": 5}).plan().gradient
    assert (gradient.epochs, gradient.batch, gradient.max_steps) == (3, 8, 5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"round": 3}, r"here: unknown key 'round'; did you mean 'rounds'\?"),
        ({"anneal": {"kk": 3}}, r"here: unknown key 'anneal.kk'; did you mean 'k'\?"),
        ({"anneal": {"perturbation": {"rhoo": 3}}}, r"'anneal.perturbation.rhoo'; did you mean 'rho'\?"),
        ({"prune": {"treshold": 3}}, r"'prune.treshold'; did you mean 'threshold'\?"),
        ({"data": {"partition": {"alfa": 3}}}, r"partition 'dirichlet': unknown key 'alfa'; did you mean 'alpha'\?"),
        ({"aggregate": {"rule": "meen"}}, r"here: unknown rule 'meen'; did you mean 'mean'\?"),
        ({"aggregate": {"weights": "size"}}, "here: aggregate.weights: input should be 'uniform' or 'samples'"),
        ({"seed": -1}, "here: seed: input should be greater than or equal to 0, found -1"),
        ({"dampen": {"lr": 0}}, "here: dampen.lr: input should be greater than 0, found 0"),
        ({"cohort": {"number": 2, "fraction": 0.5}}, "here: cohort: give a fraction or a number of clients, not both"),
        (
            {"rounds": 5, "cohort": {"late": 1, "joins": 5}},
            "here: cohort.joins: expected a round below 5, found 5",
        ),
        (
            {"cohort": {"joins": 3}},
            "here: cohort: joins is the round of the late clients: expected late above 0 beside it, found",
        ),
        ({"cohort": {"late": -1}}, "here: cohort.late: input should be greater than or equal to 0, found -1"),
        (
            {"model": {"name": "resnet8", "nrom": "batch"}},
            r"here: model 'resnet8': unknown option 'nrom'; did you mean",
        ),
        ({"model": {"norm": "bach"}}, r"here: model 'small_cnn': unknown norm 'bach'; did you mean 'batch'\?"),
        ({"model": {"name": "linear", "norm": "batch"}}, "here: model 'linear': unknown option 'norm'; known: none"),
        ({"model": 3}, "here: model: expected a name or a table with 'name', found 3"),
        ({"speeds": "fast"}, "here: unknown speeds 'fast'; known: by_examples, equal, lognormal"),
        ({"speeds": {"name": "lognormal", "sigma": -1}}, "here: speeds 'lognormal': sigma: input should be greater"),
        ({"asynchronous": {"bufer": 3}}, r"here: unknown key 'asynchronous.bufer'; did you mean 'buffer'\?"),
        ({"asynchronous": {"staleness": {"b": 3}}}, "here: staleness 'polynomial': unknown key 'b'"),
        (
            {"asynchronous": {"buffer": 6, "concurrency": 5}},
            "here: asynchronous: buffer = 6 above concurrency = 5 would wait for clients that begin with its own step",
        ),
        ({"aggregate": {"rule": "json:dumps"}}, "json:dumps"),
        ({"aggregate": {"rule": "collections:OrderedDict"}}, "collections:OrderedDict"),
    ],
)
def test_anything_wrong_is_one_line(table, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_config(table, "here")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "written"),
    [
        ({}, "small_cnn"),
        ({"model": "resnet8"}, "resnet8"),
        ({"model": {"name": "resnet8"}}, "resnet8"),
        ({"model": "Flat"}, "Flat"),  # a user's module, known only to the call that was given it
        ({"model": {"name": "resnet8", "norm": "batch"}}, {"name": "resnet8", "norm": "batch"}),
        ({"model": "resnet8", "model.norm": "batch"}, {"name": "resnet8", "norm": "batch"}),
        ({"model.norm": "group"}, {"name": "small_cnn", "norm": "group"}),
    ],
)
def test_a_model_is_written_as_its_name_or_as_a_table_of_its_options(overrides, written):
    config = load_config("fedavg", overrides)
    dumped = config.model_dump(mode="json")
    assert dumped["model"] == written
    assert json.loads(json.dumps(dumped)) == dumped
    again = RunConfig(**dumped)
    assert again == config
    assert again.fingerprint() == config.fingerprint()


def test_another_model_drops_the_options_of_the_one_below():
    assert load_config("fedavg", {"model": {"name": "resnet8", "norm": "batch"}}, {"model.name": "linear"}).model == (
        "linear"
    )


def test_a_models_options_change_the_fingerprint():
    tables = ["resnet8", {"name": "resnet8", "norm": "batch"}, {"name": "small_cnn", "norm": "group"}, "small_cnn"]
    assert len({RunConfig(model=table).fingerprint() for table in tables}) == len(tables)


def test_a_preset_may_give_a_models_options(tmp_path):
    (tmp_path / "mine.toml").write_text('model = { name = "resnet8", norm = "batch" }\n')
    assert load_config(tmp_path / "mine.toml").model == ModelConfig(name="resnet8", options={"norm": "batch"})
    assert load_config(tmp_path / "mine.toml", {"model": "small_cnn"}).model == "small_cnn"


def test_late_clients_join_at_the_same_part_of_a_shorter_run():
    config = RunConfig(rounds=50, cohort={"late": 2, "joins": 20})
    assert config.shortened(10).cohort.joins == 4
    assert config.shortened(2).cohort.joins == 1
    assert RunConfig(cohort={"late": 2}).shortened(5).cohort == RunConfig(cohort={"late": 2}).cohort


def test_scaffold_takes_its_gradient_only_from_steps_of_known_length():
    paced = {"local.name": "scaffold", "dampen": {"first": 0, "source": "pseudo", "rule": "mean", "pace": "agreement"}}
    with pytest.raises(ConfigError, match="from which SCAFFOLD's option II takes its gradient: expected"):
        load_config("fedavg", paced)
    assert load_config("fedavg", {**paced, "local.option": "I"}).local.option == "I"
    assert load_config("fedavg", {**paced, "dampen": {**paced["dampen"], "enabled": False}}).local.option == "II"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"guard.max_share": 0}, "guard.max_share: input should be greater than 0, found 0"),
        ({"guard.max_share": 1.5}, "guard.max_share: input should be less than or equal to 1, found 1.5"),
        ({"guard.max_examples": -3}, "guard.max_examples: input should be greater than or equal to 1, found -3"),
        ({"guard.growth": 0.5}, "guard.growth: input should be greater than or equal to 1, found 0.5"),
        ({"guard.patience": 0}, "guard.patience: input should be greater than or equal to 1, found 0"),
        ({"guard.clip": {"norm": -1}}, "clipping 'fixed': norm: input should be greater than 0, found -1"),
        ({"guard.clip": "quantil"}, "unknown clipping 'quantil'; did you mean 'quantile'?"),
        ({"guard.clip": {"name": "quantile", "quantile": 1}}, "clipping 'quantile': quantile: input should be less"),
    ],
    ids=str,
)
def test_bounds_that_cannot_be_meant_are_one_line(settings, complaint):
    with pytest.raises(ConfigError) as caught:
        load_config("fedavg", settings)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bound_is_read_back_as_it_was_written():
    config = load_config("fedavg", {"guard.clip": {"name": "adaptive", "quantile": 0.3}, "guard.max_share": 0.2})
    again = RunConfig(**config.model_dump(mode="json"))
    assert again == config
    assert again.guard.clip.quantile == 0.3
    assert config.fingerprint() != load_config("fedavg").fingerprint()

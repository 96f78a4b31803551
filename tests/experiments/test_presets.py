import pytest

from fedpace.aggregation import Harmonised, Masked, Mean
from fedpace.core import ConfigError
from fedpace.data import Iid
from fedpace.experiments import RunConfig, load_config, preset_names
from fedpace.experiments.overrides import parse_overrides, parse_value


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_says_what_it_is_and_survives_its_run_json(name):
    config = load_config(name)
    assert config.method == name
    assert config.description.endswith(".")
    again = RunConfig(**config.model_dump(mode="json"))
    assert again == config
    assert again.schedule() == config.schedule()
    assert again.plan() == config.plan()


def test_fedpace_paper_has_the_papers_settings():
    config = load_config("fedpace-paper")
    assert (config.rounds, config.data.partition.clients, config.data.partition.alpha) == (50, 3, 0.1)
    local = config.local
    assert (local.optimizer, local.lr, local.weight_decay) == ("adam", 1e-3, 1e-4)
    assert (local.epochs, local.batch, local.max_steps) == (2, 32, 100)
    assert config.aggregate.weights == "uniform"
    anneal = config.anneal
    assert (anneal.first, anneal.last, anneal.k, anneal.step) == (2, 15, 8, 1.0)
    assert (anneal.perturbation.rho, anneal.perturbation.scaling.registered_name()) == (1e-5, "norm")
    assert (anneal.accept.beta, anneal.accept.delta) == (0.3, 0.05)
    assert (config.dampen.first, config.dampen.last, config.dampen.lr) == (20, 41, 0.01)
    assert (config.prune.first, config.prune.last, config.prune.lr) == (42, 49, 0.01)
    assert (config.prune.threshold, config.prune.persistence) == (0.2, 1)
    assert (config.prune.mode, config.prune.permanent) == ("zero", True)


def test_the_authors_run_is_what_their_notebook_does():
    config = load_config("fedpace-authors-run")
    assert config.dampen.then_fedavg
    assert config.prune.mode == "grad_mask"
    assert not config.prune.permanent
    assert config.dampen.lr == config.prune.lr == 0.001
    assert config.local.weight_decay == 0
    assert config.anneal.score.registered_name() == "self"
    assert config.anneal.accept.registered_name() == "lenient"
    assert config.anneal.step == 0.3
    assert config.buffers == "mean"
    # What it does not mention is inherited.
    assert (config.anneal.k, config.anneal.perturbation.scaling.registered_name()) == (8, "norm")
    assert (config.dampen.first, config.dampen.last) == (20, 41)


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("fedpace-anneal", ["anneal"]),
        ("fedpace-anneal-dampen", ["anneal", "dampen"]),
        ("fedpace-dampen", ["dampen"]),
        ("fedpace-dampen-prune", ["dampen", "prune"]),
        ("fedpace-prune", ["prune"]),
    ],
)
def test_an_ablation_switches_stages_off_and_changes_nothing_else(name, stages):
    config, whole = load_config(name), load_config("fedpace-paper")
    assert config.kind == "ablation"
    assert [stage.name for stage in config.schedule().stages] == stages
    assert list(config.schedule().stages) == [stage for stage in whole.schedule().stages if stage.name in stages]
    assert (config.local, config.aggregate, config.data) == (whole.local, whole.aggregate, whole.data)


def test_extends_chains_through_files_and_presets(tmp_path):
    (tmp_path / "base.toml").write_text('extends = "gma"\nrounds = 7\n[aggregate.rule]\ntau = 0.6\n')
    (tmp_path / "mine.toml").write_text(f'extends = "{tmp_path}/base.toml"\ndescription = "Mine."\nlocal.lr = 0.5\n')
    config = load_config(tmp_path / "mine.toml")
    assert (config.method, config.kind, config.description) == ("mine", "method", "Mine.")
    assert (config.rounds, config.local.lr, config.aggregate.weights) == (7, 0.5, "samples")
    assert config.aggregate.rule == Masked(tau=0.6)


@pytest.mark.parametrize("rule", ['"mean"', '{ name = "mean" }'])
def test_naming_another_object_drops_the_old_ones_parameters(tmp_path, rule):
    (tmp_path / "mine.toml").write_text(f'extends = "gma"\naggregate.rule = {rule}\n')
    config = load_config(tmp_path / "mine.toml")
    assert config.aggregate.rule == Mean()
    assert config.aggregate.weights == "samples"


def test_a_parameter_below_a_parents_name_keeps_the_name(tmp_path):
    (tmp_path / "base.toml").write_text('aggregate.rule = "masked"\n')
    (tmp_path / "mine.toml").write_text(f'extends = "{tmp_path}/base.toml"\naggregate.rule.tau = 0.6\n')
    assert load_config(tmp_path / "mine.toml").aggregate.rule == Masked(tau=0.6)


def test_a_file_may_name_itself(tmp_path):
    (tmp_path / "a.toml").write_text('extends = "fedpace-dampen"\nmethod = "mine"\nkind = "method"\n')
    config = load_config(tmp_path / "a.toml")
    assert (config.method, config.kind) == ("mine", "method")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"rounds = [", r"mine.toml: not valid TOML \(.*\)"),
        (b'extends = "fedavgg"', r"unknown preset 'fedavgg'; did you mean 'fedavg'\?"),
        (b'extends = "nowhere.toml"', "nowhere.toml: preset cannot be read"),
        (b'extends = "mine.toml"', "mine.toml"),
        (b'description = "\xff"', "mine.toml"),
        (b"rounds = 0", "mine.toml: rounds: input should be greater than or equal to 1, found 0"),
        (b"[local]\nlrr = 1", r"mine.toml: method 'sgd': unknown key 'lrr'; did you mean 'lr'\?"),
        (b"data = 3", "mine.toml: data: "),
    ],
    ids=["not TOML", "unknown parent", "missing parent", "circle", "not UTF-8", "range", "unknown key", "no table"],
)
def test_a_wrong_file_is_one_line_that_names_it(tmp_path, content, message):
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config("mine.toml")
    assert "\n" not in str(caught.value)


def test_overrides_change_only_what_they_name():
    config = load_config("gma", {"aggregate.rule.tau": 0.5, "local.weight_decay": 0.9, "data.partition.clients": 7})
    assert config.aggregate.rule == Masked(tau=0.5)
    assert config.aggregate.weights == "samples"
    assert (config.local.weight_decay, config.local.lr) == (0.9, 1e-3)
    assert (config.data.partition.clients, config.data.partition.alpha) == (7, 0.1)
    assert load_config("gma").aggregate.rule == Masked(tau=0.4)


def test_an_override_below_an_object_given_by_its_name_alone_keeps_the_name():
    config = load_config("fedpace-paper", {"anneal.score": "inter_client", "anneal.score.reduce": "min"})
    assert config.anneal.score.reduce == "min"
    config = load_config("fedavg", {"data.partition": "shards", "data.partition.classes_per_client": 3})
    assert config.data.partition.registered_name() == "shards"
    assert config.data.partition.classes_per_client == 3


@pytest.mark.parametrize(
    "overrides",
    [
        {"data.partition.clients": 5, "data.partition.name": "iid"},
        {"data.partition.name": "iid", "data.partition.clients": 5},
        {"data.partition.clients": 5, "data.partition": "iid"},
        {"data.partition": {"name": "iid"}, "data": {"partition": {"clients": 5}}},
    ],
)
def test_overrides_hold_together_in_any_order(overrides):
    assert load_config("fedavg", overrides).data.partition == Iid(clients=5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model": "linear", "model.name": "lenet"}, "model.name: given twice, as 'linear' and as 'lenet'"),
        ({"data": {"size": 8}, "data.size": 4}, "data.size: given twice, as 8 and as 4"),
        ({"aggregate.rule": Masked(tau=0.9), "aggregate.rule.tau": 0.5}, "aggregate.rule: given twice, as Masked"),
        ({"secure": False, "secure.bits": 16}, "secure: given twice, as False and as {'bits': 16}"),
    ],
)
def test_overrides_that_contradict_one_another_are_refused(overrides, message):
    for each in (overrides, dict(reversed(overrides.items()))):
        with pytest.raises(ConfigError, match="given twice") as caught:
            load_config("fedavg", each)
        assert message.partition(",")[0] in str(caught.value)


def test_of_several_layers_the_later_ones_win():
    config = load_config("gma", {"aggregate.rule.tau": 0.5, "rounds": 3}, {"aggregate.rule": "mean"}, {"rounds": 4})
    assert (config.aggregate.rule, config.rounds) == (Mean(), 4)


def test_an_override_that_names_another_object_drops_the_old_ones_parameters():
    assert load_config("gma", {"aggregate.rule": {"name": "harmonised"}}).aggregate.rule == Harmonised()
    assert load_config("gma", {"aggregate.rule": {"name": "masked"}}).aggregate.rule == Masked(tau=0.4)
    assert load_config("gma", {"aggregate.rule": Masked(tau=0.9)}).aggregate.rule == Masked(tau=0.9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1e-3", 1e-3),
        ("true", True),
        ("'a,b'", "a,b"),
        ("cifar10", "cifar10"),
        ("./a b/c.parquet", "./a b/c.parquet"),
        ("[1, 2]", [1, 2]),
        ('["mlflow"]', ["mlflow"]),
        ("{ name = 'masked', tau = 0.5 }", {"name": "masked", "tau": 0.5}),
        ("", ""),
        ("a.b:c", "a.b:c"),
    ],
)
def test_values_are_toml_and_anything_else_is_text(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_assignments():
    assert parse_overrides(["rounds = 5", "a.b=x=y"]) == {"rounds": 5, "a.b": "x=y"}
    assert parse_overrides(["rounds=5", "rounds=5"]) == {"rounds": 5}
    with pytest.raises(ConfigError, match="rounds: given twice, as 5 and as 6; expected one of them"):
        parse_overrides(["rounds=5", "rounds=6"])


@pytest.mark.parametrize("text", ["novalue", "=3", ""])
def test_an_assignment_without_key_or_value_is_refused(text):
    with pytest.raises(ConfigError, match=f"--set {text}: expected key=value"):
        parse_overrides([text])


def test_another_number_of_rounds_moves_the_windows_along():
    config = load_config("fedpace-paper", {"rounds": 100})
    stages = (config.anneal, config.dampen, config.prune)
    assert [(stage.first, stage.last) for stage in stages] == [(4, 31), (40, 83), (84, 99)]
    assert config.rounds == 100
    assert load_config("fedpace", {"rounds": 5}).schedule().validate_for(5, 3) == []


@pytest.mark.parametrize("override", [{"dampen.first": 30}, {"anneal": {"first": 1, "last": 2}}])
def test_windows_that_are_given_stay_where_they_are(override):
    config = load_config("fedpace-paper", {"rounds": 100, **override})
    assert config.prune.first == 42


def test_a_number_of_rounds_that_cannot_be_is_refused_before_windows_are_moved():
    with pytest.raises(ConfigError, match="rounds: input should be greater than or equal to 1, found 0"):
        load_config("fedpace-paper", {"rounds": 0})


def test_freezing_needs_a_pace_in_all_rounds():
    with pytest.raises(ConfigError, match=r"expected dampen\.pace from round 0 to the end"):
        load_config("fedavg", {"freeze.first": 3})
    with pytest.raises(ConfigError, match=r"expected dampen\.pace from round 0 to the end"):
        load_config("fedpace", {"dampen.first": 3})


def test_every_stage_of_fedpace_can_be_left_out_without_touching_the_others():
    whole = {stage.name for stage in load_config("fedpace").schedule().stages}
    assert whole == {"anneal", "freeze"}
    for name in whole:
        left = load_config("fedpace", {f"{name}.enabled": False}).schedule()
        assert {stage.name for stage in left.stages} == whole - {name}
        assert left.base == load_config("fedpace").schedule().base
    assert load_config("fedpace", {"dampen.pace.power": 0.0}).schedule().base.exchanges[0].pace.power == 0

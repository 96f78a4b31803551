import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import fedpace
from fedpace.aggregation import Rule
from fedpace.aggregation._rule import Stream
from fedpace.core import ConfigError, RunFolderError, slug
from fedpace.data import Iid
from fedpace.experiments import federate, load_config
from fedpace.models import ModelConfig

from .helpers import FAST, Flat, fast_config, measured, snapshot


def train(data="digits", method="fedavg", *, model="linear", rounds=2, settings=None, **options):
    return fedpace.train(data, method, model=model, rounds=rounds, settings={**FAST, **(settings or {})}, **options)


def compare(methods, data="digits", *, model="linear", rounds=2, seeds=(0, 1), workers=1, settings=None, **options):
    settings = {**FAST, **(settings or {})}
    return fedpace.compare(
        methods, data, model=model, rounds=rounds, seeds=seeds, workers=workers, settings=settings, **options
    )


def values(comparison):
    return {row.method: row.values for row in comparison.rows}


def weights(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def arrays(examples=120, features=5, classes=4):
    rng = np.random.default_rng(0)
    return rng.normal(size=(examples, features)).astype(np.float32), np.arange(examples) % classes


class Standstill(Rule):
    """A user's own rule, registered nowhere: the model stays as it is."""

    speed: float = 0.0

    def start(self, size, clients, dtype=torch.float32):
        class Nothing(Stream):
            def add(self, update, weight=1.0):
                pass

            def finish(self):
                return torch.zeros(size, dtype=dtype)

        return Nothing()


def own_factory(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


# Data in every form.


def test_a_name_data_and_a_federation_give_the_same_run():
    data = fedpace.load("digits")
    federation = data.partition("dirichlet", alpha=0.1, clients=3)
    one, two, three = (measured(train(given).records) for given in ("digits", data, federation))
    assert one == two == three


def test_a_federation_is_taken_as_it_was_dealt():
    federation = fedpace.load("digits").partition("iid", clients=5)
    records = train(federation, settings={"measuring.per_client": 10}).records
    assert records[0].cohort == [0, 1, 2, 3, 4]
    assert list(records[0].client_headlines) == [0, 1, 2, 3, 4]


def test_arrays_of_the_users_own():
    result = train(fedpace.load(arrays()), settings={"data.partition": "iid"})
    assert result.module(torch.zeros(1, 5)).shape == (1, 4)


def test_a_pair_of_arrays_needs_no_load():
    settings = {"data.partition": "iid"}
    loaded = train(fedpace.load(arrays()), settings=settings)
    assert measured(train(arrays(), settings=settings).records) == measured(loaded.records)
    assert values(compare(["fedavg"], arrays(), settings=settings))["fedavg"][0] == loaded.accuracy


def test_a_path_as_an_object(tmp_path):
    with pytest.raises(fedpace.FedpaceError, match=r"nowhere.parquet: no such file or folder"):
        train(tmp_path / "nowhere.parquet")


# Models in every form.


def test_a_module_is_trained_from_its_weights_and_left_as_it_was():
    module = Flat()
    before = weights(module).clone()
    result = train(model=module)
    assert torch.equal(weights(module), before)
    assert not torch.equal(weights(result.module), before)
    assert not result.module.training
    assert result.config["model"] == "Flat"


@pytest.mark.parametrize("model", [Flat, own_factory, f"{__name__}:own_factory"])
def test_a_factory_is_drawn_from_the_seed(model):
    one, again, other = (train(model=model, seed=seed).records for seed in (0, 0, 1))
    assert measured(one) == measured(again)
    assert one[0].metrics != other[0].metrics


def test_a_model_that_does_not_fit_is_one_line():
    with pytest.raises(fedpace.FedpaceError, match="its output size must match the data's 10 classes"):
        train(model=Flat(outputs=7))


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ({"name": "resnet8", "norm": "batch"}, {}),
        ("resnet8", {"model.norm": "batch"}),
        (ModelConfig(name="resnet8", options={}), {"model.norm": "batch"}),
    ],
)
def test_a_models_options_reach_the_run_and_its_folder(tmp_path, model, settings):
    result = train(model=model, settings=settings, rounds=1, out=tmp_path / "run")
    assert any(isinstance(part, nn.BatchNorm2d) for part in result.module.modules())
    assert fedpace.Result.read(tmp_path / "run").config["model"] == {"name": "resnet8", "norm": "batch"}
    with pytest.raises(RunFolderError, match=r"model.norm = 'batch', this one has 'group'"):
        train(model={"name": "resnet8", "norm": "group"}, rounds=1, out=tmp_path / "run", resume=True)
    with pytest.raises(RunFolderError, match="holds a run with"):
        train(model="resnet8", rounds=1, out=tmp_path / "run", resume=True)


def test_an_argument_and_a_setting_that_differ_are_refused():
    for given in ({"rounds": 3}, {"model": "lenet"}, {"data.source": "diabetes"}):
        with pytest.raises(ConfigError, match="given twice"):
            train(settings=given)
    with pytest.raises(ConfigError, match=r"data\.partition: given twice"):
        compare(["fedavg"], partition=Iid(), settings={"data.partition.clients": 5})
    with pytest.raises(ConfigError, match="use --seeds"):
        compare(["fedavg"], settings={"seed": 5})


def test_by_default_the_method_names_the_data(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'data.source = "diabetes"\ndata.partition = "iid"\nmodel = "linear"\nrounds = 1\n'
    )
    assert fedpace.train(method=str(tmp_path / "mine.toml"), settings=FAST).config["data"]["source"] == "diabetes"


def test_models_and_their_options_may_differ_between_the_methods_of_a_comparison(tmp_path):
    variants = {"group": {"method": "fedavg"}, "batch": {"method": "fedavg", "model.norm": "batch"}}
    compare(variants, model="resnet8", seeds=[0], rounds=1, out=tmp_path)
    written = [fedpace.Result.read(tmp_path / f"{label}-seed0") for label in variants]
    assert [result.config["model"] for result in written] == ["resnet8", {"name": "resnet8", "norm": "batch"}]
    assert written[0].records[0].metrics["loss"] != written[1].records[0].metrics["loss"]


def test_options_of_a_module_that_is_built_already_are_refused():
    with pytest.raises(ConfigError, match="unknown model 'Flat'"):
        train(model=Flat(), settings={"model.norm": "batch"})


# Rules and settings.


def test_a_rule_of_the_users_own_needs_no_registration(tmp_path):
    module = Flat()
    result = train(model=module, rule=Standstill(), out=tmp_path / "run")
    assert torch.equal(weights(result.module), weights(module))
    assert result.config["aggregate"]["rule"] == {"name": f"{__name__}:Standstill", "speed": 0.0}
    assert fast_config(aggregate__rule=result.config["aggregate"]["rule"]).aggregate.rule == Standstill()
    with pytest.raises(RunFolderError, match=r"aggregate.rule.speed = 0.0, this one has 1.0"):
        train(model=module, rule=Standstill(speed=1.0), out=tmp_path / "run", resume=True)


def test_settings_reach_the_run():
    slow, quick = (train(settings={"local.lr": lr}).records for lr in (1e-4, 1e-2))
    assert slow[-1].train_loss > quick[-1].train_loss


def test_a_wrong_setting_is_one_line():
    with pytest.raises(ConfigError, match=r"fedavg: method 'sgd': unknown key 'lrr'; did you mean 'lr'\?"):
        train(settings={"local.lrr": 1})


def test_a_seed_deals_draws_and_trains():
    one, again, other = (train(seed=seed).records for seed in (3, 3, 4))
    assert measured(one) == measured(again)
    assert one[0].metrics != other[0].metrics


# Results.


def test_a_result_shows_itself(tmp_path):
    result = train("digits", "gma", out=tmp_path / "run")
    text = str(result)
    for part in ("gma", "masked", "linear", f"{result.accuracy:.2%}"):
        assert part in text
    assert "\x1b" not in text
    html = result._repr_html_()
    assert html.startswith("<pre")
    assert f"{result.accuracy:.2%}" in html
    assert isinstance(result.plot(tmp_path / "curves.svg"), Figure)
    assert (tmp_path / "curves.svg").stat().st_size > 0
    assert result.summary.final == result.accuracy == result.records[-1].headline


def test_a_result_is_read_from_its_folder(tmp_path):
    result = train("digits", "fedpace-prune", settings={"prune.first": 0, "prune.last": 1}, out=tmp_path / "run")
    read = fedpace.Result.read(str(tmp_path / "run"))
    assert read.records == result.records
    assert read.config == result.config
    assert read.summary == result.summary
    assert read.warnings == result.warnings != []


def test_a_run_folder_is_not_overwritten(tmp_path):
    train(out=tmp_path / "run")
    before = snapshot(tmp_path / "run")
    with pytest.raises(RunFolderError, match="run: already holds a run"):
        train(out=str(tmp_path / "run"))
    with pytest.raises(RunFolderError, match=r"holds a run with local.lr = 0.001, this one has 0.5"):
        train(out=tmp_path / "run", resume=True, settings={"local.lr": 0.5})
    assert snapshot(tmp_path / "run") == before


def test_without_a_folder_nothing_is_written(tmp_path):
    train()
    compare(["fedavg"], seeds=[0])
    assert snapshot(tmp_path) == {}


# Comparisons.


def test_compare_a_list():
    found = compare(["fedavg", "gma"])
    assert [row.method for row in found.rows] == ["fedavg", "gma"]
    for method in ("fedavg", "gma"):
        assert values(found)[method] == {seed: train(method=method, seed=seed).accuracy for seed in (0, 1)}
    difference = found.rows[1].difference
    gaps = [values(found)["gma"][seed] - values(found)["fedavg"][seed] for seed in (0, 1)]
    assert difference.mean == pytest.approx(np.mean(gaps))
    assert difference.low <= difference.mean <= difference.high
    assert found.rows[0].difference is None


def test_compare_variants_of_one_method():
    variants = {"tau 0.4": {"method": "gma"}, "tau 1": {"method": "gma", "aggregate.rule.tau": 1.0}, "fedavg": {}}
    found = values(compare(variants, rounds=4, seeds=[0], settings={"local.lr": 0.1}))
    assert list(found) == ["tau 0.4", "tau 1", "fedavg"]
    strict = train("digits", "gma", rounds=4, settings={"local.lr": 0.1, "aggregate.rule.tau": 1.0})
    assert found["tau 1"] == {0: strict.accuracy}
    assert found["fedavg"] == {0: train(rounds=4, settings={"local.lr": 0.1}).accuracy}


@pytest.mark.parametrize("partition", ["iid", {"name": "iid", "clients": 3}, Iid()])
def test_compare_on_a_partition(partition):
    dealt = train(settings={"data.partition": "iid"})
    assert values(compare(["fedavg"], seeds=[0], partition=partition)) == {"fedavg": {0: dealt.accuracy}}


def test_each_seed_deals_the_data_anew_but_not_a_federation():
    zero, one = fast_config(seed=0), fast_config(seed=1)
    assert not np.array_equal(federate(zero).counts(), federate(one).counts())
    federation = federate(zero)
    assert federate(one, federation) is federation


def test_a_second_call_does_not_train_again(tmp_path):
    first = compare(["fedavg", "gma"], out=tmp_path)
    before = snapshot(tmp_path)
    assert len([name for name in before if name.endswith("model.safetensors")]) == 4
    assert compare(["fedavg", "gma"], out=tmp_path).to_json() == first.to_json()
    assert snapshot(tmp_path) == before


def test_a_second_call_trains_only_what_is_new(tmp_path):
    compare(["fedavg"], out=tmp_path, seeds=[0])
    before = snapshot(tmp_path)
    assert list(values(compare(["fedavg", "gma"], out=tmp_path, seeds=[0, 1]))["gma"]) == [0, 1]
    after = snapshot(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == 4 * len(before)


def test_results_do_not_depend_on_the_number_of_workers(tmp_path):
    federation = fedpace.load("digits").partition("iid", clients=3)
    module = Flat()
    one, two = (
        compare(["fedavg", "gma"], federation, model=module, workers=workers, out=tmp_path / str(workers))
        for workers in (1, 2)
    )
    assert one.to_json() == two.to_json()
    states = [(tmp_path / name / "gma-seed1" / "model.safetensors").read_bytes() for name in ("1", "2")]
    assert states[0] == states[1]


def test_other_data_in_the_same_folder_are_noticed(tmp_path):
    """Both federations are called digits/iid: their runs must not be taken for each other."""
    three, five = (fedpace.load("digits").partition("iid", clients=clients) for clients in (3, 5))
    compare(["fedavg"], three, seeds=[0], out=tmp_path)
    fresh = compare(["fedavg"], five, seeds=[0])
    try:
        found = compare(["fedavg"], five, seeds=[0], out=tmp_path)
    except RunFolderError:
        return
    records = fedpace.Result.read(tmp_path / "fedavg-seed0").records
    assert records[0].cohort == [0, 1, 2, 3, 4]
    assert found.to_json() == fresh.to_json()


@pytest.mark.parametrize(("methods", "seeds"), [([], [0]), ({}, [0]), (["fedavg"], [])])
def test_nothing_to_compare(methods, seeds):
    with pytest.raises(ConfigError, match="expected at least one method and one seed"):
        compare(methods, seeds=seeds)


def test_a_comparison_shows_itself(tmp_path):
    found = compare(["fedavg", "gma"])
    assert "±" in str(found)
    assert "<table" in found._repr_html_()
    found.plot(tmp_path / "comparison.png")
    assert (tmp_path / "comparison.png").stat().st_size > 0


def test_labels_become_file_names():
    assert slug("local.lr=0.1, anneal.k=3") == "local.lr=0.1-anneal.k=3"
    assert slug("../τ = ½ (mine)") == "τ-=-½-mine"
    assert "/" not in slug("a/b")


def test_the_package_offers_what_it_says():
    assert all(getattr(fedpace, name) is not None for name in fedpace.__all__)
    with pytest.raises(AttributeError, match="module 'fedpace' has no attribute 'trian'"):
        fedpace.trian  # noqa: B018


def test_data_without_classes_pose_a_task_of_their_own():
    partition = {"name": "by", "column": "age"}
    settings = {**FAST, "data.partition": partition, "local.lr": 0.05, "local.max_steps": 20}
    result = fedpace.train("diabetes", "fedavg", model="linear", rounds=8, settings=settings)
    assert list(result.records[-1].metrics) == ["R²", "MAE", "loss"]
    assert 0.2 < result.final < 0.7
    assert (result.metric.name, result.summary.best >= result.final) == ("R²", True)
    assert "R²" in str(result)
    with pytest.raises(ConfigError, match="not judged by accuracy but by R²"):
        _ = result.accuracy


def test_a_config_names_a_table_by_its_path_and_options(tmp_path):
    rows = "".join(f"{'ab'[row % 2]},{row},{'xyz'[row % 3]},{row % 2}\n" for row in range(24))
    (tmp_path / "rows.csv").write_text("who,number,category,target\n" + rows)
    data = {
        "data.source": str(tmp_path / "rows.csv"),
        "data.options": {"target": "target", "leave_out": ["who"]},
        "data.partition": {"name": "by", "column": "who"},
    }
    assert federate(load_config("fedavg", data)).encoding.columns == ("number", *(f"category={name}" for name in "xyz"))

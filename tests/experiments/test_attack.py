"""The attack on the models of finished runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import fedpace
from fedpace.analysis import adversaries, membership_attack
from fedpace.cli import app, attacking
from fedpace.core import ConfigError, FedpaceError, RunFolderError
from fedpace.engine import RunFolder, read_run
from fedpace.experiments import attack_membership, execute, federate
from fedpace.experiments.shadows import train_shadows

from .helpers import Flat, fast_config

RUN = Path("run")
WEIGHTS = RUN / "model.safetensors"
TEST = 359  # test examples of the digits
BATCH_NORM = {"name": "resnet8", "norm": "batch"}


def trained(data=None, own=None, **settings):
    """A short run in the folder ``run``."""
    return execute(fast_config(**settings), data=data, model=own, out=RUN)


class Reshaped(Flat):
    def forward(self, x):
        return self.layer(x.reshape(len(x), -1))


def noise(examples, seed):
    """Nothing can be learnt of them, only remembered; three in four are of one class."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(examples, 2000)).astype(np.float32), (rng.random(examples) < 0.25).astype(np.int64)


@pytest.mark.parametrize(
    ("settings", "leaks"), [({"rounds": 5, "local__lr": 0.01, "local__max_steps": 10}, True), ({"rounds": 1}, False)]
)
def test_a_model_that_remembers_gives_its_examples_away(settings, leaks):
    data = fedpace.load(noise(200, 0), test=noise(200, 1))
    trained(data, data__source="arrays", data__partition="iid", **settings)
    found = attack_membership(RUN, data=data)
    assert (found.on_members == 1) == leaks
    assert found.on_others < 0.7
    assert found.attack.examples == 200
    assert (found.attack.accuracy - 0.5 > 4 * found.attack.error) == leaks
    assert (found.attack.auc > 0.65) == leaks


@pytest.mark.parametrize("model", ["linear", BATCH_NORM])
def test_the_trained_model_is_attacked_in_evaluation_mode(model):
    result = trained(model=model)
    found = attack_membership(RUN)
    assert found.on_others == pytest.approx(result.accuracy)  # of the whole test set
    assert (found.folder, found.method, found.seed, found.attack.examples) == (RUN, "fedavg", 0, TEST)


def test_the_attack_is_that_on_the_models_logits():
    """Where all examples are drawn, the attack by hand on all of them agrees up to the draw."""
    config = fast_config(data__partition={"name": "iid", "clients": 2}, rounds=5)
    module = execute(config, out=RUN).module
    federation = federate(config)
    logits = [
        np.concatenate([module(shard.batch(slice(None))[0]).detach().numpy() for shard in shards])
        for shards in (federation.clients, [federation.test])
    ]
    found, by_hand = attack_membership(RUN).attack, membership_attack(*logits)
    assert found.accuracy == pytest.approx(by_hand.accuracy, abs=4 * (found.error + by_hand.error))
    assert found.examples == by_hand.examples


def test_only_clients_that_took_part_have_members():
    result = trained(data__partition={"name": "iid", "clients": 10}, cohort__number=1, rounds=2)
    cohorts = {client for record in result.records for client in record.cohort}
    sizes = [len(shard) for shard in federate(fast_config(data__partition={"name": "iid", "clients": 10})).clients]
    assert attack_membership(RUN).attack.examples == sum(sizes[client] for client in cohorts) < TEST


def test_examples_and_seed_choose_the_draw():
    trained()
    once, again, other = (attack_membership(RUN, examples=100, seed=seed) for seed in (0, 0, 1))
    assert once == again != other
    assert once.attack.examples == 100
    assert (once.on_members, once.on_others) != (other.on_members, other.on_others)


def test_where_all_examples_are_drawn_a_seed_chooses_the_halves():
    data = fedpace.load(noise(200, 0), test=noise(200, 1))
    trained(data, data__source="arrays", data__partition="iid")
    once, other = (attack_membership(RUN, data=data, seed=seed) for seed in (0, 1))
    assert once.on_members == other.on_members
    assert once.attack != other.attack


def test_a_client_of_whom_nothing_is_drawn_is_not_asked():
    """A reshape with -1 fails on an empty batch."""
    trained(own=Reshaped, data__partition={"name": "iid", "clients": 60})
    assert attack_membership(RUN, examples=20, model=Reshaped).attack.examples == 20


def test_a_model_and_a_federation_of_the_users_own_are_given_again():
    federation, module = fedpace.load("digits").partition("iid", clients=4), Flat()
    result = fedpace.train(federation, model=module, rounds=2, out=RUN, settings={"executor": "serial"})
    found = attack_membership(RUN, data=federation, model=module)
    assert found.on_others == pytest.approx(result.accuracy)
    with pytest.raises(FedpaceError, match=r"^run: .*must be given to attack_membership, too$"):
        attack_membership(RUN, model=module)
    with pytest.raises(ConfigError, match=r"run: unknown model 'Flat'; .*must be given to attack_membership, too"):
        attack_membership(RUN, data=federation)


def test_weights_of_another_model_are_one_line():
    trained()
    with pytest.raises(RunFolderError, match="expected the weights of a Flat, found others"):
        attack_membership(RUN, model=Flat)


def test_other_data_than_the_runs_are_one_line():
    trained()
    with pytest.raises(RunFolderError, match="run: was trained on other data than 'digits' gives now"):
        attack_membership(RUN, data=fedpace.load("digits").partition("iid", clients=4))


def test_an_unfinished_run_is_one_line():
    trained()
    WEIGHTS.unlink()
    with pytest.raises(RunFolderError, match=r"run: expected a finished run, found no model.safetensors"):
        attack_membership(RUN)


def test_no_run_is_one_line():
    with pytest.raises(RunFolderError, match=r"run: is not a run folder \(no run.json\)"):
        attack_membership(RUN)


def as_of_an_older_version():
    """Without the digests that a run ends with."""
    run = read_run(RUN)
    del run["finished"]
    RunFolder(RUN).write_json("run.json", run)


@pytest.mark.parametrize(
    ("old", "message"), [(False, "is not the model that this run ended with"), (True, "cannot be read")]
)
def test_damaged_weights_are_one_line(old, message):
    trained()
    WEIGHTS.write_bytes(WEIGHTS.read_bytes()[:-50])
    if old:
        as_of_an_older_version()
    with pytest.raises(RunFolderError, match=rf"model.safetensors: {message}"):
        attack_membership(RUN)


def test_the_model_of_another_run_is_refused():
    execute(fast_config(seed=1), out=Path("other"))
    trained()
    WEIGHTS.write_bytes(Path("other/model.safetensors").read_bytes())
    with pytest.raises(RunFolderError, match="is not the model that this run ended with"):
        attack_membership(RUN)


def test_a_model_that_diverged_is_one_line():
    trained()
    save_file({name: tensor.fill_(float("nan")) for name, tensor in load_file(WEIGHTS).items()}, WEIGHTS)
    as_of_an_older_version()
    with pytest.raises(ConfigError, match="run: membership attack: expected finite logits"):
        attack_membership(RUN)


@pytest.mark.parametrize("examples", [19, 0, -1])
def test_too_few_examples_are_one_line(examples):
    trained()
    with pytest.raises(ConfigError, match=f"run: .*20 members and 20 others, found {examples} and {examples}"):
        attack_membership(RUN, examples=examples)


def test_buffers_that_never_leave_a_client_make_no_global_model():
    trained(model=BATCH_NORM, rounds=1, buffers="local")
    with pytest.raises(RunFolderError, match="run: buffers = 'local' leaves statistics with the clients"):
        attack_membership(RUN)


def test_models_of_the_clients_own_are_no_global_model():
    trained(preset="per_fedavg", rounds=1)  # not even where all of the model is shared
    with pytest.raises(RunFolderError, match=r"^run: 'per_fedavg' gives each client a model of its own: no global"):
        attack_membership(RUN)


def test_without_buffers_their_policy_does_not_matter():
    result = trained(rounds=1, buffers="local")
    assert attack_membership(RUN).on_others == pytest.approx(result.accuracy)


@pytest.mark.parametrize("by", adversaries.names())
def test_every_attack_succeeds_on_a_model_that_remembers(by):
    data = fedpace.load(noise(200, 0), test=noise(200, 1))
    settings = {"local__lr": 0.01, "local__max_steps": 10, "rounds": 5}
    trained(data, data__source="arrays", data__partition="iid", **settings)
    found = attack_membership(RUN, by=by, data=data).attack
    assert found.accuracy > 0.5 + 3 * found.error
    assert found.auc > 0.5 + 5 * found.auc_error
    if by != "logits":  # which does not look at the right class
        assert found.auc > 0.85
        assert found.hits > 0.1


def forget_the_end(folder):
    """As runs of older versions are, which do not say which model they ended with."""
    run = json.loads((folder / "run.json").read_text())
    del run["finished"]
    (folder / "run.json").write_text(json.dumps(run))


@pytest.mark.parametrize("by", adversaries.names())
def test_a_model_that_never_saw_the_examples_gives_chance(by):
    data, unseen = (fedpace.load(noise(200, seed), test=noise(200, 1)) for seed in (2, 0))
    settings = {"local__lr": 0.01, "local__max_steps": 10, "rounds": 5, "data__partition": "iid"}
    trained(data, data__source="arrays", **settings)
    weights = load_file(WEIGHTS)
    shutil.rmtree(RUN)
    trained(unseen, data__source="arrays", **settings)
    save_file(weights, WEIGHTS)
    forget_the_end(RUN)
    found = attack_membership(RUN, by=by, data=unseen).attack
    assert abs(found.accuracy - 0.5) < 4 * found.error
    assert abs(found.auc - 0.5) < 4 * found.auc_error
    assert found.hits < 0.1


def test_noise_on_what_clients_send_hides_what_they_remember():
    data = fedpace.load(noise(200, 0), test=noise(200, 1))
    settings = {"local__lr": 0.01, "rounds": 5, "aggregate__weights": "uniform", "guard__clip__norm": 1.0}
    for folder, private in ((RUN, {}), (Path("private"), {"privacy": {"epsilon": 1.0, "delta": 1e-3}})):
        partition = {"name": "iid", "clients": 50}
        config = fast_config(data__source="arrays", data__partition=partition, **settings, **private)
        execute(config, data=data, out=folder)
    open_one, private_one = (attack_membership(run, by="loss", data=data).attack for run in (RUN, "private"))
    assert open_one.auc > 0.7
    assert abs(private_one.auc - 0.5) < 4 * private_one.auc_error


def test_shadow_models_are_trained_on_halves_of_what_is_attacked():
    config = fast_config(data__partition={"name": "iid", "clients": 3}, rounds=1)
    federation = federate(config)
    drawn = [(shard, torch.arange(20)) for shard in (*federation.clients, federation.test)]
    shadows = list(train_shadows(config, federation, drawn, 4, seed=0, model=None))
    inside = np.stack([shadow.inside for shadow in shadows])
    assert inside.shape == (4, 80)
    assert (inside.sum(0) == 2).all()  # each example is in one half of all models
    assert (inside.sum(1) == 40).all()
    assert (inside[0] != inside[1]).all()
    assert not (inside[0] == inside[2]).all()


def test_shadow_models_have_no_more_clients_under_way_than_there_are():
    """Two clients are attacked, of six."""
    settings = {"asynchronous.buffer": 4, "asynchronous.concurrency": 6, "speeds": "equal"}
    partition = {"name": "iid", "clients": 6}
    config = fast_config(data__partition=partition, rounds=1, **{k.replace(".", "__"): v for k, v in settings.items()})
    federation = federate(config)
    drawn = [(shard, torch.arange(20)) for shard in (*federation.clients[:2], federation.test)]
    assert len(list(train_shadows(config, federation, drawn, 2, seed=0, model=None))) == 2


def test_a_shadow_model_remembers_its_own_half():
    data = fedpace.load(noise(200, 0), test=noise(200, 1))
    config = fast_config(local__lr=0.01, local__max_steps=10, rounds=5, data__source="arrays", data__partition="iid")
    federation = federate(config, data)
    drawn = [(shard, torch.arange(len(shard))) for shard in (*federation.clients, federation.test)]
    shadow = next(train_shadows(config, federation, drawn, 2, seed=0, model=None))
    batches = [shard.batch(positions) for shard, positions in drawn]
    right = np.concatenate([shadow.module(x).argmax(1).numpy() == y.numpy() for x, y in batches])
    assert right[shadow.inside].all()
    assert right[~shadow.inside].mean() < 0.7


def test_attackers_and_augmentations_are_not_done_twice():
    """The shards that are drawn were falsified and augmented already."""
    settings = {"attackers": 0.5, "attack": "label_flip", "data__augment": ["flip"], "rounds": 1}
    trained(data__partition={"name": "iid", "clients": 4}, **settings)
    assert attack_membership(RUN, by={"name": "lira", "shadows": 4}, examples=40).attack.examples == 40


NUMBERS = {"task": "regression", "model": "mlp", "local__lr": 0.01, "local__max_steps": 30, "data__partition": "iid"}


def numbers(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(150, 200)).astype(np.float32), rng.normal(size=150).astype(np.float32)


def test_without_classes_losses_are_attacked():
    data = fedpace.load(numbers(0), test=numbers(1))
    trained(data, data__source="arrays", rounds=8, **NUMBERS)
    found = attack_membership(RUN, by="loss", data=data).attack
    assert found.auc > 0.5 + 4 * found.auc_error


@pytest.mark.parametrize("by", ["lira", "lira_offline"])
def test_without_classes_there_is_no_likelihood_ratio(by):
    data = fedpace.load(numbers(0), test=numbers(1))
    trained(data, data__source="arrays", rounds=1, **NUMBERS)
    message = f"run: membership attack '{by}' needs the probability of one class per example; .*task 'regression'"
    with pytest.raises(ConfigError, match=message):
        attack_membership(RUN, by=by, data=data)


def test_an_attack_repeats_itself():
    trained()
    once, again = (attack_membership(RUN, by={"name": "lira", "shadows": 4}, examples=40) for _ in range(2))
    assert once == again


def attack(*arguments):
    return CliRunner().invoke(app, ["attack", "membership", *map(str, arguments)], env={"COLUMNS": "160"})


def test_the_command_prints_a_row_per_run_and_attack(monkeypatch):
    monkeypatch.setattr(attacking, "out_console", Console(width=160))
    trained()
    execute(fast_config("gma", seed=3), out=Path("other"))
    told = attack(RUN, "other", "--examples", 50).stdout
    rows = [line for line in told.splitlines() if " gma " in line]
    for by, row in zip(("logits", "loss"), rows, strict=True):
        found = attack_membership("other", by=by, examples=50)
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert cells == [
            "gma",
            "3",
            by,
            f"{found.attack.accuracy:.2%} ± {found.attack.error:.2%}".replace("%", ""),
            f"{found.attack.auc:.3f} ± {found.attack.auc_error:.3f}",
            f"{found.attack.hits:.2%} ± {found.attack.hits_error:.2%}".replace("%", ""),
            f"{found.on_members:.2%}",
            f"{found.on_others:.2%}",
        ]
    assert " fedavg " in told
    assert "guessing gives 50 %" in " ".join(told.split()).lower()


def test_the_command_prints_json():
    trained()
    (printed,) = json.loads(attack(RUN, "--seed", 1, "--json", "--attack", "logits").stdout)
    found = attack_membership(RUN, seed=1)
    assert printed["folder"] == "run"
    assert (printed["attack"]["accuracy"], printed["attack"]["examples"]) == (found.attack.accuracy, TEST)
    assert printed["on_members"] == found.on_members


def test_the_command_says_how_many_shadow_models_are_trained():
    trained()
    options = (RUN, "--json", "--attack", "lira", "--attack", "loss", "--examples", 40)
    four, six = (json.loads(attack(*options, "--shadows", number).stdout) for number in (4, 6))
    assert [run["by"] for run in four] == ["lira", "loss"]
    assert four[0]["attack"] != six[0]["attack"]
    assert four[1] == six[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--attack", "lirra"), "unknown membership attack 'lirra'; did you mean 'lira'"),
        (("--shadows", "8"), "shadows: expected an attack that trains some (lira), found logits, loss"),
        (("--attack", "lira", "--shadows", "2"), "'lira': shadows: input should be greater than or equal to 4"),
    ],
)
def test_what_cannot_be_done_is_one_line(options, message):
    trained()
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(app, ["attack", "membership", "run", *options], catch_exceptions=False)
    assert message in str(caught.value)

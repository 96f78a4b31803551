"""Whole runs with clients that lie."""

import pytest
import torch

from fedpace.core import ConfigError
from fedpace.engine import Listener, read_run
from fedpace.experiments import load_config
from fedpace.experiments.byzantine import byzantine_tables, read_attacked
from fedpace.experiments.engines import run_on
from fedpace.experiments.run import execute

SHORT = {
    "data.source": "digits",
    "data.partition": {"name": "iid", "clients": 5},
    "model": "linear",
    "executor": "serial",
    "rounds": 3,
    "local.max_steps": 20,
    "local.lr": 0.03,
    "measuring.per_client": 20,
}


def config(preset="fedavg", **changes):
    return load_config(preset, {**SHORT, **changes})


def lying(attack="sign_flip", share=0.2, **changes):
    return config(**{"attackers": share, "attack": attack, **changes})


def weights(result):
    return torch.nn.utils.parameters_to_vector(result.module.parameters())


class Interrupted(Listener):
    """Ends a run after its first round."""

    def finished_round(self, record):
        raise KeyboardInterrupt


def test_who_attacks_follows_from_the_seed_and_is_written_down(tmp_path):
    execute(lying(), out=tmp_path / "a")
    execute(lying(attack="gaussian"), out=tmp_path / "b")
    first, second = (read_run(tmp_path / name)["attackers"] for name in "ab")
    assert len(first) == 1
    assert first == second


def test_attackers_are_left_out_of_what_is_measured_of_clients(tmp_path):
    result = execute(lying(share=0.4), out=tmp_path / "run")
    attackers = set(read_run(tmp_path / "run")["attackers"])
    for record in result.records:
        assert set(record.client_headlines) == set(range(5)) - attackers


def test_one_client_that_claims_a_trillion_examples_owns_the_mean_unless_its_share_is_bounded():
    claims = {"name": "false_examples", "factor": 1e9}
    honest, owned, bounded = (
        execute(settings).accuracy
        for settings in (config(), lying(attack=claims), lying(attack=claims, **{"guard.max_share": 0.25}))
    )
    assert owned < 0.2
    assert bounded > honest - 0.1


def test_ten_times_the_opposite_ruins_a_mean():
    honest, mean = (execute(settings).accuracy for settings in (config(), lying()))
    assert honest > 0.8
    assert mean < honest - 0.3


@pytest.mark.parametrize("attack", ["alie", "label_flip", "false_examples"])
def test_attacks_are_the_same_on_every_engine(attack):
    found = [
        run_on("local", lying(attack)),
        run_on("local", lying(attack, executor="processes")),
        run_on("flower-inprocess", lying(attack)),
    ]
    first, *others = map(weights, found)
    assert all(torch.equal(first, other) for other in others)
    assert not torch.equal(first, weights(execute(config())))


def test_a_resumed_run_has_the_same_attack(tmp_path):
    whole = execute(lying("gaussian"))
    with pytest.raises(KeyboardInterrupt):
        execute(lying("gaussian"), out=tmp_path / "run", listeners=[Interrupted()])
    again = execute(lying("gaussian"), out=tmp_path / "run", resume=True)
    assert torch.equal(weights(again), weights(whole))


def test_personalised_methods_are_attacked_too():
    changes = {"data.partition.test_share": 0.2, "model": "small_cnn", "buffers": "local"}
    result = execute(lying("alie", share=0.4, **{"local.name": "fedrep", **changes}))
    assert len(result.records[-1].client_headlines) == 3


def test_a_table_of_rules_and_attacks(tmp_path):
    runs = {
        "a": config(),
        "b": lying(),
        "c": config("gma"),
        "d": lying({"name": "backdoor", "boost": 5}),
    }
    for name, settings in runs.items():
        execute(settings, out=tmp_path / name)
    found = [read_attacked(tmp_path / name) for name in runs]
    assert [run.attack for run in found] == ["no attack", "sign_flip, 20%", "no attack", "backdoor, 20%"]
    assert [run.success is not None for run in found] == [False, False, False, True]
    tables = byzantine_tables(found)
    assert tables[0].header == ["method", "no attack", "backdoor, 20%", "sign_flip, 20%"]
    assert len(tables) == 3
    assert tables[0].rows[1][2:] == ["–", "–"]


def test_a_share_that_is_no_client_is_refused():
    with pytest.raises(ConfigError, match=r"0\.1 of 5 clients are 0: expected at least one"):
        execute(lying(share=0.1))


def test_an_unknown_attack_is_one_line():
    with pytest.raises(ConfigError, match="unknown attack 'sign_flop'; did you mean 'sign_flip'"):
        lying("sign_flop")

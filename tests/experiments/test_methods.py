"""Every preset runs to its end."""

from math import isfinite

import pytest

import fedpace
from fedpace.experiments import load_config, preset_names
from tests.methods.bench import METHODS

from .helpers import FAST, measured

# algorithms.md 1.1: first round of each stage. A new preset enters what it does here.
ANNEALED = {0: "fedavg", 2: "anneal", 16: "fedavg"}
STAGES = {
    "and-mask": {0: "and_mask"},
    "fedadagrad": {0: "fedavg"},
    "fedadam": {0: "fedavg"},
    "fedavg": {0: "fedavg"},
    "fedavgm": {0: "fedavg"},
    "fedgga": ANNEALED,
    "fedgga-paper": ANNEALED,
    "fedgh": {0: "harmonised"},
    "fedpace": {0: "dampen", 2: "anneal", 16: "dampen", 20: "freeze"},
    "fedpace-anneal": ANNEALED,
    "fedpace-anneal-dampen": {**ANNEALED, 20: "dampen", 42: "fedavg"},
    "fedpace-authors-run": {**ANNEALED, 20: "dampen", 42: "prune"},
    "fedpace-dampen": {0: "fedavg", 20: "dampen", 42: "fedavg"},
    "fedpace-dampen-prune": {0: "fedavg", 20: "dampen", 42: "prune"},
    "fedpace-paper": {**ANNEALED, 20: "dampen", 42: "prune"},
    "fedpace-prune": {0: "fedavg", 42: "prune"},
    "fedprox": {0: "fedavg"},
    "fedsgd": {0: "fedsgd"},
    "fedyogi": {0: "fedavg"},
    "gga-walk": ANNEALED,
    "gma": {0: "masked"},
    "paced": {0: "dampen"},
    "scaffold": {0: "fedavg"},
}


UNIFORM = {"aggregate.weights": "uniform"}  # clients count alike, as in FedPACE's paper


def train(preset, **settings):
    return fedpace.train("digits", preset, model="linear", settings={**FAST, **settings})


@pytest.mark.parametrize("preset", METHODS)
@pytest.mark.parametrize("rule", ["mean", "masked", "conflict_free"])
def test_every_personal_preset_learns_under_any_rule(preset, rule):
    settings = {"rounds": 5, "data.partition.clients": 3, "executor": "serial", "local.max_steps": 15}
    settings |= {"local.lr": 0.02, "model": {"name": "small_cnn", "norm": "group"}, "aggregate.rule": rule}
    records = fedpace.train("digits", preset, settings=settings).records
    assert all(len(record.client_headlines) == 3 for record in records)
    assert records[-1].metrics["loss"] < records[0].metrics["loss"]
    assert records[-1].headline > records[0].headline + 0.1


@pytest.mark.parametrize("preset", sorted({*preset_names()} - {*METHODS}))
def test_every_preset_runs_for_its_fifty_rounds(preset):
    anneal = load_config(preset).anneal
    k = min(anneal.k, 3) if anneal is not None else 0  # more candidates only take longer
    records = train(preset, **({"anneal.k": k} if anneal is not None else {})).records
    first = STAGES[preset]
    expected = [first[max(start for start in first if start <= number)] for number in range(50)]
    assert [record.stage for record in records] == expected
    assert all(isfinite(record.metrics["loss"]) for record in records)
    assert records[0].metrics["loss"] != records[-1].metrics["loss"]
    tried = [record.search.candidates if record.search else 0 for record in records]
    assert tried == [k if stage == "anneal" else 0 for stage in expected]


def test_with_all_stages_off_fedpace_is_fedavg_bitwise():
    off = {f"{stage}.enabled": False for stage in ("anneal", "dampen", "prune")}
    records = train("fedpace-paper", rounds=3, **off).records
    assert measured(records) == measured(train("fedavg", rounds=3, **UNIFORM).records)


def test_stages_change_what_is_learned():
    windows = {"anneal.enabled": False, "dampen.first": 1, "dampen.last": 1, "prune.first": 2, "prune.last": 2}
    paper = train("fedpace-paper", rounds=3, **windows)
    plain = train("fedavg", rounds=3, **UNIFORM)
    assert measured(paper.records)[0] == measured(plain.records)[0]
    assert paper.records[1].metrics["loss"] != plain.records[1].metrics["loss"]
    assert paper.records[1].similarity.kind == "gradient"


def test_a_threshold_above_the_lowest_agreement_prunes():
    windows = {"anneal.enabled": False, "dampen.enabled": False, "prune.first": 0, "prune.last": 1}
    idle = train("fedpace-paper", rounds=2, **windows)
    active = train("fedpace-paper", rounds=2, **windows, **{"prune.threshold": 0.5})
    assert [record.pruned for record in idle.records] == [0, 0]
    assert len(idle.warnings) == 1
    assert "cannot prune" in idle.warnings[0]
    assert active.records[-1].pruned > 0
    assert active.warnings == []


def test_annealing_that_accepts_nothing_says_so():
    result = train("fedpace-paper", rounds=16, **{"dampen.enabled": False, "prune.enabled": False})
    assert any("annealing did nothing" in warning for warning in result.warnings)
    always = {"accept": {"name": "lenient"}, "first": 0, "last": 0}
    result = train("fedgga", rounds=1, anneal=always)
    assert result.records[0].search.accepted
    assert result.warnings == []

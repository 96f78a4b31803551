import json
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedpace.analysis import paired_interval
from fedpace.cli import app
from fedpace.core import Agreement, ConfigError, RoundRecord, RunFolderError
from fedpace.experiments import Result, execute, federate, load_config
from fedpace.experiments.batch import Job, run_batch
from fedpace.experiments.evidence_page import page, tables
from fedpace.experiments.metrics import measure
from fedpace.experiments.pictures import draw
from fedpace.experiments.reproduce import reproduce
from fedpace.experiments.reproduction import load_reproduction
from fedpace.experiments.toml_files import reproduction_names

from .helpers import fast_config, measured

RESULTS = Path(__file__).parents[2] / "docs" / "results"
EVIDENCE = [path for path in sorted(RESULTS.glob("*.json")) if path.stem in reproduction_names()]
REQUIRED = {"method", "data", "seed", "final", "best", "last10", "auc", "similarity", "curve"}


def made_up(values, metric="final", **more):
    """Evidence with one run per method and seed, from method → values by seed."""
    runs = [
        {"method": method, "seed": seed, metric: value, "curve": [value], "warnings": []}
        for method, found in values.items()
        for seed, value in enumerate(found)
    ]
    return {
        "name": "paper.table",
        "title": "A table",
        "source": "Made up.",
        "scale": "smoke",
        "metrics": [metric],
        "reference": next(iter(values)),
        "published": {"a row that was not run": {metric: 50.0}},
        "differs": ["Everything."],
        "changes": {"local.lr": 0.1},
        "versions": {"python": "3"},
        "runs": runs,
        **more,
    }


@pytest.mark.parametrize("name", reproduction_names())
def test_smoke_scale_writes_evidence_page_and_pictures(name, tmp_path):
    done = reproduce(name, "smoke", runs=tmp_path / "runs", out=tmp_path / "out", workers=1)
    found = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert found == done.evidence
    assert found["name"] == name
    assert found["scale"] == "smoke"
    assert set(found["settings"]) == set(load_reproduction(name).rows("smoke"))
    assert all(run.keys() >= REQUIRED and 0 <= run["final"] <= 100 for run in found["runs"])
    assert all(run["curve"][-1] == run["final"] for run in found["runs"])
    assert all(run[metric] is not None for run in found["runs"] for metric in found["metrics"])
    text = (tmp_path / "out" / f"{name}.md").read_text()
    pictures = [path for path in done.files if path.suffix == ".png"]
    assert pictures
    for picture in pictures:
        assert f"]({picture.name})" in text
        assert picture.stat().st_size > 5_000
        assert picture.with_suffix(".svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize("name", reproduction_names())
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_larger_scales_are_valid(name, scale, tmp_path):
    for job in load_reproduction(name).jobs(scale, tmp_path):
        clients, plan = getattr(job.config.data.partition, "clients", 3), job.config.plan()
        plan.schedule.validate_for(plan.rounds, clients if plan.asynchronous is None else plan.in_a_round(clients))
        ours = name.startswith(("asynchronous.", "personal.", "trust."))  # a paper's table needs the paper's data
        assert ours or not job.config.data.source.startswith("digit")
        assert job.config.rounds == 50 or scale == "quick" or not name.startswith("fedpace")


@pytest.mark.parametrize("name", reproduction_names())
def test_every_scale_has_the_rows_that_others_are_compared_with(name):
    reproduction = load_reproduction(name)
    assert set(reproduction.scales) == {"smoke", "quick", "full"}
    for scale in reproduction.scales:
        rows = reproduction.rows(scale)
        assert {row.versus or reproduction.reference for row in rows.values()} | {reproduction.reference} <= set(rows)


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_committed_pages_say_what_their_numbers_say(path):
    found = json.loads(path.read_text())
    text = path.with_suffix(".md").read_text()
    pictures = [line.split("](")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert page(found, pictures) == text
    assert all((RESULTS / picture).exists() for picture in pictures)
    published = {
        label: variant.published for label, variant in load_reproduction(path.stem).rows(found["scale"]).items()
    }
    assert found["published"] == published


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_committed_evidence_is_of_the_presets_as_they_are(path):
    """Whoever changes a preset must run its evidence again; a new setting with its default changes nothing."""
    found = json.loads(path.read_text())
    tuned = {row["label"]: row["settings"] for row in found.get("tuning", [])}
    jobs = load_reproduction(path.stem).jobs(found["scale"], Path(), found["changes"], tuned)
    for job in jobs:
        assert_contains(job.config.model_dump(mode="json"), found["settings"][job.label])
    assert [(job.label, job.config.seed, job.case) for job in jobs] == [
        (run["method"], run["seed"], run.get("held_out", "")) for run in found["runs"]
    ]


def assert_contains(present, committed):
    for key, value in committed.items():
        if isinstance(value, dict):
            assert_contains(present[key], value)
        elif key not in ("description", "kind", "method"):
            assert present[key] == value, key


def test_table_shows_paper_ours_and_the_paired_difference():
    found = made_up({"a": [10.0, 20.0], "b": [12.0, 24.0]}, published={"b": {"final": 30.5}})
    (table,) = tables(found)
    assert table.header == ["method", "paper", "ours", "difference to a", "seed 0", "seed 1"]
    assert table.rows[0] == ["a", "–", "15.00 ± 7.07", "–", "10.00", "20.00"]
    # Differences 2 and 4: 3 ± 12.706 · √2 / √2
    assert table.rows[1] == ["b", "30.50", "18.00 ± 8.49", "+3.00 [-9.71, +15.71]", "12.00", "24.00"]


def test_difference_that_excludes_zero_has_a_star():
    (table,) = tables(made_up({"a": [10.0, 20.0, 30.0], "b": [12.0, 22.1, 31.9]}))
    assert table.rows[1][3].endswith(" *")


def test_single_run_claims_no_spread():
    (table,) = tables(made_up({"a": [10.0], "b": [12.0]}))
    assert table.rows[1] == ["b", "–", "12.00", "+2.00"]
    assert "proves nothing" in table.caption


def test_similarity_and_area_are_no_percentages():
    (table,) = tables(made_up({"a": [0.1234], "b": [-0.0005]}, metric="auc"))
    assert [row[2] for row in table.rows] == ["0.123", "-0.001"]


def test_held_out_domains_are_repetitions():
    runs = [
        {"method": method, "seed": 0, "held_out": domain, "final": value, "curve": [value], "warnings": []}
        for method, value in (("a", 1.0), ("b", 2.0))
        for domain in ("art", "photo")
    ]
    (table,) = tables(made_up({"a": [0.0]}) | {"runs": runs})
    assert table.header[4:] == ["art", "photo"]
    assert table.rows[1][3].startswith("+1.00")


def test_seeds_of_a_held_out_domain_share_a_column():
    runs = [
        {
            "method": method,
            "seed": seed,
            "held_out": domain,
            "final": value + 2 * seed,
            "curve": [value],
            "warnings": [],
        }
        for method, value in (("a", 1.0), ("b", 2.0))
        for domain in ("art", "photo")
        for seed in (0, 1)
    ]
    (table,) = tables(made_up({"a": [0.0]}) | {"runs": runs})
    assert table.header[4:] == ["art", "photo"]
    assert table.rows[1][4:] == ["3.00", "3.00"]
    assert "4 repetitions" in table.caption


def test_value_that_was_not_measured_is_a_dash():
    (table,) = tables(made_up({"a": [1.0, 2.0], "b": [None, 3.0]}))
    assert table.rows[1][2:] == ["3.00", "+1.00", "–", "3.00"]


PAIRS = {"versus": {"x": "x", "x + GMA": "x", "y": "y", "y + GMA": "y"}, "reference": "x"}


def test_a_row_is_compared_with_its_own_base():
    (table,) = tables(made_up({"x": [10.0], "x + GMA": [12.0], "y": [50.0], "y + GMA": [47.0]}, **PAIRS))
    assert table.header[3] == "difference to its base"
    assert [row[3] for row in table.rows] == ["–", "+2.00", "–", "-3.00"]


def test_signs_are_counted_where_the_paper_has_both_rows_of_a_pair():
    ours = {
        "x": [10.0, 20.0, 30.0],
        "x + GMA": [12.0, 22.1, 31.9],
        "y": [50.0, 60.0, 70.0],
        "y + GMA": [45.0, 65.0, 72.0],
    }
    papers = {"x": {"final": 80.0}, "x + GMA": {"final": 79.0}, "y": {"final": 80.0}, "y + GMA": {"final": 81.0}}
    found = made_up(ours, published=papers, **PAIRS)
    signs = (
        "Signs: in 1 of 2 pairs our difference has the sign of the paper's. "
        "The paired interval excludes 0 in 1 pairs, 0 of them with the paper's sign."
    )
    assert signs in page(found, []).splitlines()
    del found["published"]["y + GMA"]
    assert "Signs: in 0 of 1 pairs" in page(found, [])
    assert "Signs" not in page(made_up(ours, published=papers), [])  # as in the pages that know no pairs


def accuracies(by_client):
    return {client: {"accuracy": value} for client, value in by_client.items()}


def test_participating_clients_are_those_of_the_last_cohort():
    early = RoundRecord(round=0, cohort=[1], client_metrics=accuracies({1: 0.0, 2: 0.0, 11: 0.0}))
    last = RoundRecord(round=1, cohort=[1, 2], client_metrics=accuracies({1: 0.5, 2: 0.7, 11: 0.1}))
    result = Result({}, [early, last])
    assert measure("participating", result) == pytest.approx(0.6)
    assert measure("non_participating", result) == pytest.approx(0.1)
    everyone = Result({}, [replace(last, client_metrics=accuracies({1: 0.5, 2: 0.7}))])
    assert isnan(measure("non_participating", everyone))


def test_fairness_is_of_the_last_round():
    last = RoundRecord(round=1, client_metrics=accuracies({client: client / 20 for client in range(20)}))
    result = Result({}, [RoundRecord(round=0, client_metrics=accuracies({0: 0.5})), last])
    assert measure("spread", result) == pytest.approx((399 / 12) ** 0.5 / 20)  # of the numbers 0 to 19, over 20
    assert measure("worst_decile", result) == pytest.approx(0.025)


def test_late_clients_are_measured_apart(tmp_path):
    late = {"cohort.late": 2, "cohort.joins": 1, "data.partition.clients": 4, "model": "small_cnn"}
    config = load_config("fedrep", {**late, "rounds": 2, "local.max_steps": 1, "executor": "serial"})
    result = execute(config, out=tmp_path / "run")
    shares = result.records[-1].client_headlines
    assert [record.cohort for record in result.records] == [[0, 1], [0, 1, 2, 3]]
    assert measure("late", result) == pytest.approx((shares[2] + shares[3]) / 2)
    everyone = execute(
        load_config("fedavg", {"rounds": 1, "model": "linear", "executor": "serial"}), out=tmp_path / "e"
    )
    assert isnan(measure("late", everyone))


def test_runs_of_a_seed_are_compared_when_the_first_of_them_ends():
    def run(values, times):
        rounds = enumerate(zip(values, times, strict=True))
        return Result({}, [RoundRecord(round=i, time=t, metrics={"accuracy": v}) for i, (v, t) in rounds])

    fast, slow = run([0.1, 0.2, 0.3], [1, 2, 3]), run([0.5, 0.6, 0.7], [2, 4, 9])
    assert measure("equal_time", fast, [fast, slow]) == 0.3
    assert measure("equal_time", slow, [fast, slow]) == 0.5
    assert isnan(measure("equal_time", run([0.5], [4]), [fast, slow]))
    assert isnan(measure("equal_time", Result({}, [RoundRecord(round=0, metrics={"accuracy": 0.5})])))


def test_evidence_in_virtual_time_compares_runs_of_the_same_seed(tmp_path):
    found = reproduce("asynchronous.staleness", "smoke", runs=tmp_path, workers=1).evidence
    first = min(run["time"] for run in found["runs"])
    for run in found["runs"]:
        until = [value for value, time in zip(run["curve"], run["times"], strict=True) if time <= first]
        assert (run["equal_time"], run["time"]) == (until[-1], run["times"][-1])
        assert (run["staleness"] > 0) == ("cosines_by_staleness" in run) == ("under way" in run["method"])


def test_agreement_of_exactly_tau_is_not_below_it():
    ten = [0, 1, 2, 3, 40, 0, 0, 0, 0, 0, 54]  # of ten clients, |S| = 4 is 0.4
    three = [1, 1, 2, 0]
    found = [Agreement(histogram=ten), None, Agreement(histogram=three)]
    records = [RoundRecord(round=number, agreement=agreement) for number, agreement in enumerate(found)]
    assert measure("below_tau", Result({}, records)) == pytest.approx((0.06 + 0.5) / 2)


def test_agreement_is_a_mean_over_the_rounds_that_saw_clients():
    records = [RoundRecord(round=i, agreement=Agreement(mean)) for i, mean in enumerate((0.5, None, 0.25))]
    assert measure("agreement", Result({}, [*records, RoundRecord(round=3)])) == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("name", "label", "metric", "value"),
    [
        ("gma.table2", "FMNIST, label skew: FedAdam + GMA", "best", 87.18),
        ("gma.table2-clients", "MNIST, iid, 10 clients: FedAvg", "best", 99.11),
        ("gma.table2-images", "TinyImageNet, iid, 10 clients: FedYogi + GMA", "best", 30.78),
        ("gma.table3-quantity", "CIFAR-10, quantity skew, 100 clients: FedAdam", "best", 79.24),
        ("gma.table4", "FedAvg + GMA", "non_participating", 78.53),
        ("gma.table6", "FMNIST, label skew: FedAvg, ρ = 0.9", "last10", 88.10),
        ("gma.table7", "BatchNorm, label skew: FedYogi", "last10", 67.29),
        ("gma.table10", "η_g = 1.5, η_l = 0.1: FedAvg", "best", 86.96),
        ("gma.membership", "label skew: FedAvg + GMA", "attack", 55.0),
        ("confree.table1", "FedPAC + ConFREE", "best", 91.42),
        ("confree.table1-variants", "FedRep + ConFREE", "best", 90.61),
        ("confree.table1-steps", "FedALA + ConFREE", "best", 91.32),
        ("confree.table1-cifar100", "FedALA + ConFREE", "best", 57.70),
        ("confree.table1-tiny", "Per-FedAvg", "best", 25.62),
        ("confree.table1-flowers102", "LG-FedAvg + ConFREE", "best", 52.72),
        ("confree.table1-pathological", "FedCP", "best", 70.47),
        ("confree.table1-pathological-flowers102", "APFL + ConFREE", "best", 70.79),
        ("confree.table2", "C = 60, P = 30 %: FedROD + ConFREE", "best", 53.23),
        ("confree.table2-flowers102", "C = 20, P = 60 %: FedALA", "best", 62.48),
        ("confree.figure1", "P = 100 %: FedPAC", "best", 61.94),
        ("confree.figure1-flowers102", "P = 60 %: FedRep", "best", 57.42),
        ("confree.figure2", "β = 0.1: FedCP + ConFREE", "best", 55.68),
        ("confree.figure2-flowers102", "β = 0.1: APFL", "best", 63.65),
        ("confree.figure2-steps", "β = 0.1: FedRep + ConFREE", "best", 51.41),
    ],
)
def test_published_values_stand_in_their_rows(name, label, metric, value):
    assert load_reproduction(name).methods[label].published[metric] == value


@pytest.mark.parametrize("name", [name for name in reproduction_names() if name.startswith("gma")])
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_a_pair_differs_in_the_rule_alone(name, scale, tmp_path):
    reproduction = load_reproduction(name)
    configs = {(job.label, job.config.seed): job.config for job in reproduction.jobs(scale, tmp_path)}
    for (label, seed), config in configs.items():
        base = configs[reproduction.methods[label].versus or label, seed]
        mean = config.aggregate.model_copy(update={"rule": base.aggregate.rule})
        assert config.model_copy(update={"aggregate": mean, "dampen": None}) == base


@pytest.mark.parametrize("name", [name for name in reproduction_names() if name.startswith("confree")])
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_a_row_differs_from_its_base_in_the_aggregation_alone(name, scale, tmp_path):
    reproduction = load_reproduction(name)
    configs = {(job.label, job.config.seed): job.config for job in reproduction.jobs(scale, tmp_path)}
    for (label, seed), config in configs.items():
        base = configs[reproduction.methods[label].versus, seed]
        assert config.model_copy(update={"aggregate": base.aggregate}) == base
        assert (config == base) == (label == reproduction.methods[label].versus)
        assert (base.aggregate.rule.registered_name(), base.aggregate.weights) == ("mean", "samples")


def test_poster_and_code_are_compared_with_steps_of_their_lengths(tmp_path):
    rows = {
        job.label: job.config.aggregate for job in load_reproduction("confree.table1-variants").jobs("full", tmp_path)
    }
    rules = {label: (row.rule.registered_name(), getattr(row.rule, "c", None)) for label, row in rows.items()}
    assert rules["FedRep + ConFREE"] == ("conflict_free", 0.5)
    assert {c for name, c in rules.values() if name == "conflict_free"} == {0.1, 0.3, 0.5, 0.7}
    assert rules["FedRep + ConFREE of the code"][0] == "conflict_free_authors"
    steps = {(row.weights, row.optimizer.lr) for label, row in rows.items() if rules[label][0] == "mean"}
    assert steps == {("samples", 1.0), ("uniform", 1.0), ("uniform", 1.2), ("uniform", 1.5)}


@pytest.mark.parametrize("name", ["gma.table4", "gma.table5"])
@pytest.mark.parametrize("scale", ["smoke", "quick", "full"])
def test_a_single_round_is_the_last_one_whatever_the_scale(name, scale, tmp_path):
    for job in load_reproduction(name).jobs(scale, tmp_path):
        rules = [job.config.schedule().stage(r).exchanges[0].rule.registered_name() for r in range(job.config.rounds)]
        assert rules[:-1] == ["mean"] * (job.config.rounds - 1)
        assert rules[-1] == ("masked" if job.label.endswith("GMA") else "mean")


def test_before_the_single_round_both_rows_are_the_same_run(tmp_path):
    mean, masked = (
        execute(job.config).records
        for job in load_reproduction("gma.table4").jobs("smoke", tmp_path)
        if job.config.seed == 0
    )
    assert measured(mean)[:-1] == measured(masked)[:-1]
    assert mean[-1].agreement == masked[-1].agreement  # of the same updates
    assert mean[-1].metrics != masked[-1].metrics


def test_curves_have_a_picture_for_each_panel(tmp_path):
    reproduction = load_reproduction("gma.figure2")
    jobs = [job for job in reproduction.jobs("full", tmp_path) if job.label.startswith("FE")][:2]
    jobs += [job for job in reproduction.jobs("full", tmp_path) if job.label.startswith("FedC")][:2]
    results = [Result({}, [RoundRecord(round=r, metrics={"accuracy": 0.5}) for r in range(2)])] * 4
    written = draw(reproduction, jobs, results, tmp_path)
    assert [path.name for path in written[::2]] == ["gma.figure2.FEMNIST.png", "gma.figure2.FedCMNIST.png"]
    assert "GMA, Figure 2: FEMNIST" in written[1].read_text()
    assert "FEMNIST: FedAvg" not in written[1].read_text()  # the title says it
    assert "FedCMNIST" not in written[1].read_text()


def test_a_sweep_has_a_line_for_each_rule(tmp_path):
    reproduction = load_reproduction("confree.figure1")
    jobs = [job for job in reproduction.jobs("quick", tmp_path) if job.config.seed == 0]
    written = draw(
        reproduction, jobs, [Result({}, [RoundRecord(round=0, metrics={"accuracy": 0.5})])] * len(jobs), tmp_path
    )
    text = written[1].read_text()
    for words in ("P, FedRep", "P, FedROD", "mean", "+ ConFREE"):
        assert f"<!-- {words} -->" in text
    assert "P = 30 %" not in text


def test_contrasts_are_of_each_base_and_of_their_mean_over_seeds():
    values = {"a": [1.0, 2.0], "a x": [2.0, 4.0], "a y": [2.5, 4.0], "b": [1.0, 1.0], "b x": [1.0, 4.0], "b y": [1.0]}
    versus = {label: label[0] for label in values}
    found = made_up(values, versus=versus, contrasts={"x alone": ["x", ""], "y beyond x": ["y", "x"]})
    table = tables(found)[-1]
    assert table.header == ["method", "x alone", "y beyond x"]
    cells = [[cell.split(" ")[0] for cell in row] for row in table.rows]
    assert cells == [
        ["a", "+1.50", "+0.25"],
        ["b", "+1.50", "+0.00"],
        ["all", "+1.50", "+0.25"],
    ]  # y: of the first seed
    interval = paired_interval([0.5, 2.5])
    assert f"[{interval.low:+.2f}, {interval.high:+.2f}]" in table.rows[-1][1]
    assert "x alone: x minus the method as it is; y beyond x: y minus x." in table.caption
    assert "**Final accuracy (%): differences**" in page(found, [])
    assert len(tables(made_up(values))) == 1


@pytest.mark.parametrize("name", reproduction_names())
def test_contrasts_are_between_rows_that_exist(name):
    reproduction = load_reproduction(name)
    bases = {row.versus for row in reproduction.methods.values()}
    labels = {
        f"{base} {option}".strip() for pair in reproduction.contrasts.values() for option in pair for base in bases
    }
    assert labels <= set(reproduction.methods)


def test_a_picture_of_seeds_says_what_it_shows(tmp_path):
    reproduction = load_reproduction("gma.table4")
    jobs = reproduction.jobs("smoke", tmp_path)
    last = RoundRecord(round=0, cohort=[0], client_metrics=accuracies({0: 0.9, 1: 0.1}))
    written = draw(reproduction, jobs, [Result({}, [last])] * len(jobs), tmp_path)
    assert "<!-- Last round: accuracy on the clients that took part (point: one seed, bar: mean) -->" in (
        written[1].read_text()
    )


def test_page_names_command_differences_and_warnings():
    found = made_up({"a": [1.0]})
    found["runs"][0]["warnings"] = ["annealing did nothing"]
    text = page(found, ["picture.png"])
    assert "`fedpace reproduce paper.table --scale smoke --set local.lr=0.1`: 1 rounds, seeds 0." in text
    assert "* Everything." in text
    assert "* a: annealing did nothing" in text
    several = made_up({"a": [1.0, 2.0], "b": [1.0], "c": [1.0]})
    for run, warnings in zip(several["runs"], (["x", "y"], ["x"], ["y", "x"], ["x"]), strict=True):
        run["warnings"] = warnings
    assert "\n\n* all rows: x\n* a, b: y\n\n" in page(several, [])
    assert "![A table](picture.png)" in text


def test_mean_of_fewer_than_ten_rounds_says_so():
    few, enough = (made_up({"a": [1.0, 2.0]}, metric="last10") for _ in range(2))
    for found, rounds in ((few, [*range(9), None]), (enough, list(range(10)))):
        for run in found["runs"]:
            run["curve"] = rounds
    assert "Only 9 rounds were measured: the mean is over all of them." in page(few, [])
    assert "rounds were measured" not in page(enough, [])


def test_a_comparison_of_our_own_has_no_column_for_a_paper():
    (table,) = tables(made_up({"a": [50.0, 51.0], "b": [52.0, 53.0]}, published={"a": {}, "b": {}}))
    assert table.header == ["method", "ours", "difference to a", "seed 0", "seed 1"]
    assert table.rows[1] == ["b", "52.50 ± 0.71", "+2.00 [+2.00, +2.00] *", "52.00", "53.00"]


def test_reproductions_share_runs(tmp_path):
    one, two = (load_reproduction(name).jobs("full", tmp_path) for name in ("fedpace.table1-uniform", "fedpace.table3"))
    assert {job.folder for job in one} == {job.folder for job in two}


def test_rows_that_are_one_run_are_run_once(tmp_path):
    jobs = load_reproduction("fedpace.figure6").jobs("smoke", tmp_path)
    assert len({job.folder for job in jobs}) == len(jobs) - 2 * len({job.config.seed for job in jobs})


def test_fingerprint_tells_results_apart():
    config = load_config("fedpace")
    assert config.fingerprint() == load_config("fedpace", {"executor": "serial", "seed": 3}).fingerprint()
    assert config.fingerprint() != load_config("fedpace", {"local.lr": 0.1}).fingerprint()


def test_run_of_an_older_version_goes_on(tmp_path):
    """A setting that did not exist when a run began has its default there."""
    job = Job("fedavg", fast_config(rounds=1), tmp_path / "run")
    run_batch([job], Console(quiet=True), workers=1)
    description = json.loads((job.folder / "run.json").read_text())
    del description["config"]["guard"], description["config"]["aggregate"]["weights"], description["clients"]
    del description["config"]["cohort"]["late"], description["config"]["data"]["partition"]["limit"]
    (job.folder / "run.json").write_text(json.dumps(description))
    (result,) = run_batch([job], Console(quiet=True), workers=1)
    assert len(result.records) == 1
    other = Job("fedavg", fast_config(rounds=1, aggregate__weights="uniform"), job.folder)
    with pytest.raises(RunFolderError, match=r"aggregate.weights = 'samples', this one has 'uniform'"):
        run_batch([other], Console(quiet=True), workers=1)


def test_shortened_windows_keep_order_and_place():
    config = load_config("fedpace-paper").shortened(25)
    windows = [(stage.first, stage.last) for stage in (config.anneal, config.dampen, config.prune)]
    assert windows == [(1, 7), (10, 20), (21, 24)]
    assert config.rounds == 25


@pytest.mark.parametrize("rounds", range(1, 50))
def test_shortened_schedule_is_valid_and_a_window_without_rounds_is_left_out(rounds):
    config = load_config("fedpace-paper").shortened(rounds)
    schedule = config.schedule()
    schedule.validate_for(rounds, 3)
    assert {schedule.stage(number).name for number in range(rounds)} >= {stage.name for stage in schedule.stages}


def test_unknown_reproduction_names_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown reproduction 'fedpace.tabel1'; did you mean 'fedpace.table1'"):
        load_reproduction("fedpace.tabel1")


@pytest.mark.parametrize("key", ["rounds", "seed"])
def test_change_that_the_scale_would_undo_is_refused(key, tmp_path):
    with pytest.raises(ConfigError, match=f"--set {key}: the scale decides"):
        load_reproduction("fedpace.figure5").jobs("smoke", tmp_path, {key: 1})


def test_place_that_cannot_be_written_is_found_before_training(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="file/out: cannot be written"):
        reproduce("fedpace.figure5", "smoke", runs=tmp_path / "runs", out=tmp_path / "file" / "out")
    assert not (tmp_path / "runs").exists()


def test_command_prints_paper_and_ours_and_goes_on_with_finished_runs(tmp_path):
    arguments = ["reproduce", "fedpace.figure5", "--scale", "smoke", "--runs", str(tmp_path / "runs")]
    arguments += ["--set", "local.lr=0.05"]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert "19.48" in first.output
    assert "What differs from the paper" in first.output
    assert "local.lr = 0.05." in first.output
    assert (tmp_path / "runs" / "smoke" / "fedpace.figure5.md").exists()
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rounds.jsonl")}
    assert CliRunner().invoke(app, [*arguments, "--json"]).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rounds.jsonl")} == times


def test_the_majority_is_what_the_most_frequent_class_of_the_test_set_would_get(tmp_path):
    config = load_config("fedavg", {"data.source": "digits", "data.partition": {"name": "iid", "clients": 2}})
    counts = federate(config).test.class_counts()
    result = Result(config.model_dump(mode="json"), [])
    assert measure("majority", result) == pytest.approx(counts.max() / counts.sum())

import pytest

from fedpace.core import ModelError
from fedpace.experiments import execute, load_config
from fedpace.experiments.batch import plan_jobs
from fedpace.experiments.dry_comparison import dry_comparison
from fedpace.experiments.dry_run import dry_run

QUICK = {"model": "linear", "executor": "serial", "local.max_steps": 1, "measuring.per_client": 0}


def sent(records):
    return sum(record.bytes_up for record in records), sum(record.bytes_down for record in records)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"rounds": 7}),
        ("scaffold", {"rounds": 5}),  # something travels along with each update
        ("fedsgd", {"rounds": 4, "cohort.number": 2}),
        ("fedpace-paper", {"rounds": 12}),  # a search, and stages that come back
        ("paced", {"rounds": 6}),  # from the second round on a pace is sent
        ("fedavg", {"rounds": 5, "wire": "int8"}),
        ("lg_fedavg", {"rounds": 4, "data.partition.test_share": 0.2, "model": "mlp"}),
    ],
)
def test_bytes_are_those_that_travel(method, settings, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = load_config(method, {**QUICK, **settings})
    said, records = dry_run(config), execute(config).records
    assert (said.bytes_up, said.bytes_down) == sent(records)
    assert (said.rounds, said.cohort) == (len(records), len(records[0].cohort))
    assert [*tmp_path.iterdir()] == []


def test_what_is_frozen_round_by_round_is_not_sent():
    config = load_config("fedpace", {**QUICK, "rounds": 12})
    said, records = dry_run(config), execute(config).records
    assert said.bytes_up == pytest.approx(sent(records)[0], rel=0.01)


def test_clients_that_do_not_wait_are_sent_about_as_much():
    partition = {"name": "iid", "clients": 6}
    waiting = {"asynchronous.buffer": 2, "asynchronous.concurrency": 4, "speeds": "equal"}
    config = load_config("fedavg", {**QUICK, "rounds": 40, "data.partition": partition, **waiting})
    said, records = dry_run(config), execute(config).records
    assert said.bytes_up == sent(records)[0]
    assert said.bytes_down == pytest.approx(sent(records)[1], rel=0.1)


def test_stages_and_sizes_are_told():
    said = dry_run(load_config("fedpace-paper", QUICK))
    assert [name for name, _ in said.stages] == ["fedavg", "anneal", "fedavg", "dampen", "prune"]
    assert (said.clients, said.cohort, said.parameters, said.shared) == (3, 3, 650, 650)
    assert any("cannot prune" in warning for warning in said.warnings)


def test_more_steps_take_longer():
    few, many = (dry_run(load_config("fedavg", {**QUICK, "local.max_steps": steps})).seconds for steps in (1, 1000))
    assert 0 < few < many


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(ModelError, match="shares nothing"):
        dry_run(load_config("fedrep", {**QUICK, "data.partition.test_share": 0.2}))


def test_a_comparison_counts_its_runs(tmp_path):
    jobs = plan_jobs({"fedavg": {}, "gma": {}}, [0, 1, 2], {**QUICK, "rounds": 3}, tmp_path)
    said = dry_comparison(jobs, 1)
    assert (said.runs, said.done, said.at_once, list(said.methods)) == (6, 0, 1, ["fedavg", "gma"])
    assert said.seconds == pytest.approx(3 * sum(run.seconds for run in said.methods.values()))
    execute(jobs[0].config, out=jobs[0].folder)
    assert dry_comparison(jobs, 1).done == 1
    assert "6 runs, of which 0 are done" in said.table().plain()

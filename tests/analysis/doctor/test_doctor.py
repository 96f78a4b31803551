"""Faults that were planted in real runs are found, and healthy runs are left alone."""

from __future__ import annotations

from functools import cache

import pytest

import fedpace
from fedpace.analysis import Finding, ReportedRun, checks, diagnose
from fedpace.core import Dropped, RoundRecord
from fedpace.experiments.presets import load_config
from fedpace.tasks import Metric

SHORT = {"executor": "serial", "local.max_steps": 5, "measuring.per_client": 0, "local.lr": 0.01}


@cache
def run(method: str = "fedavg", seed: int = 0, rounds: int = 8, **settings: object) -> ReportedRun:
    """A real run on digits, among six clients."""
    alpha = settings.pop("alpha", 100.0)
    clients = fedpace.load("digits").partition("dirichlet", alpha=alpha, clients=6, seed=seed)
    given = {**SHORT, **{key.replace("__", "."): value for key, value in settings.items()}}
    result = fedpace.train(clients, method, model="linear", rounds=rounds, seed=seed, settings=given)
    return result.reported()


def found(check: str, *runs: ReportedRun) -> list[Finding]:
    return [finding for finding in diagnose(runs) if finding.check == check]


def test_a_client_that_sends_the_opposite_is_found_by_name() -> None:
    liar = run(attackers=0.17, attack="sign_flip")
    (finding,) = found("opposed_client", liar)
    opposed = finding.title.split()[1]
    assert f"client {opposed} pulls" in finding.title
    assert "aggregate.rule" in finding.command


@pytest.mark.parametrize("alpha", [0.1, 100.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_honest_clients_oppose_nobody_however_their_labels_differ(alpha: float, seed: int) -> None:
    assert found("opposed_client", run(seed=seed, alpha=alpha)) == []


def test_a_search_that_accepts_nothing_is_found() -> None:
    idle = run("fedgga", anneal__accept__beta=5.0)
    (finding,) = found("idle_stage", idle)
    assert "accepted none" in finding.seen


def test_a_run_without_searches_has_no_idle_stage() -> None:
    assert found("idle_stage", run()) == []


def test_a_client_whose_answers_are_dropped_is_found_with_the_reason() -> None:
    records = [
        RoundRecord(round=number, cohort=[0, 1, 2], used=2, dropped=[Dropped(1, "not finite")]) for number in range(4)
    ]
    (finding,) = found("lost_client", ReportedRun("fedavg", 0, {}, records, client_names=["a", "hospital", "c"]))
    assert "hospital" in finding.title
    assert "4 of its 4" in finding.seen
    assert "not finite" in finding.seen


def test_a_single_drop_is_an_accident() -> None:
    records = [RoundRecord(round=0, cohort=[0, 1], used=1, dropped=[Dropped(1, "late")])]
    records += [RoundRecord(round=number, cohort=[0, 1], used=2) for number in range(1, 4)]
    assert found("lost_client", ReportedRun("fedavg", 0, {}, records)) == []


def measured(label: str, seed: int, value: float, clients: dict[int, float] | None = None) -> ReportedRun:
    own = {client: {"accuracy": each} for client, each in (clients or {}).items()}
    record = RoundRecord(round=0, metrics={"accuracy": value}, client_metrics=own)
    return ReportedRun(label, seed, {"method": label}, [record])


def test_clients_that_are_better_off_alone_are_named() -> None:
    noise = [0.0, 0.01, -0.01, 0.005]
    alone = [measured("local_only", seed, 0.9, {0: 0.9, 1: 0.5 + each}) for seed, each in enumerate(noise)]
    together = [measured("fedavg", seed, 0.8, {0: 0.6 + each, 1: 0.8}) for seed, each in enumerate(noise)]
    (finding,) = found("harmed_clients", *together, *alone)
    assert finding.title == "better off alone: 1 of the clients"
    assert "0 -0.299 [-0.317, -0.281]" in finding.seen


def test_without_local_training_nobody_is_said_to_be_harmed() -> None:
    assert found("harmed_clients", *(measured("fedavg", seed, 0.5, {0: 0.1}) for seed in range(4))) == []


def test_a_difference_within_the_noise_of_seeds_is_found() -> None:
    base = [measured("fedavg", seed, 0.5) for seed in range(4)]
    near = [measured("gma", seed, 0.5 + each) for seed, each in enumerate((0.05, -0.04, 0.03, -0.02))]
    (finding,) = found("seed_noise", *base, *near)
    assert "gma and fedavg" in finding.title
    far = [measured("gma", seed, 0.7 + each) for seed, each in enumerate((0.05, -0.04, 0.03, -0.02))]
    assert found("seed_noise", *base, *far) == []


def test_how_many_seeds_would_decide_is_said() -> None:
    base = [measured("fedavg", seed, 0.5) for seed in range(4)]
    near = [measured("gma", seed, 0.52 + each) for seed, each in enumerate((0.03, -0.03, 0.03, -0.03))]
    (finding,) = found("seed_noise", *base, *near)
    assert "about 15 seeds" in finding.seen  # (2.2 · 0.0346 / 0.02)² = 14.5


@pytest.mark.parametrize("seed", [3, 4])
def test_a_healthy_run_has_no_serious_finding(seed: int) -> None:
    healthy = run(seed=seed, rounds=20, local__lr=0.02)
    assert [finding for finding in diagnose([healthy]) if finding.weight > 0.5] == []


def test_findings_come_worst_first_and_every_check_may_meet_an_empty_run() -> None:
    weights = [finding.weight for finding in diagnose([run(attackers=0.17, attack="sign_flip")])]
    assert weights == sorted(weights, reverse=True)
    assert diagnose([ReportedRun("fedavg", 0, {}, [])]) == []
    assert checks.names()


def test_a_metric_that_should_fall_is_understood() -> None:
    loss = Metric("loss", rises=False)
    rows = [RoundRecord(round=number, metrics={"loss": 2 - number / 50}) for number in range(50)]
    assert found("not_converged", ReportedRun("fedavg", 0, {"method": "fedavg"}, rows, metric=loss))


def test_what_is_to_be_tried_can_be_typed() -> None:
    idle = run("fedgga", anneal__accept__beta=5.0)
    liar = run(attackers=0.17, attack="sign_flip")
    commands = [finding.command for each in (idle, liar) for finding in diagnose([each])]
    assert len(commands) >= 2
    for command in commands:
        _, verb, method, *options = command.split()
        settings = dict(option.split("=", 1) for option in options if "=" in option)
        assert verb in ("run", "compare")
        load_config(method, settings)

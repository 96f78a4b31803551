"""A run that stopped too early is found, and one that did not is left alone."""

from __future__ import annotations

from fedpace.analysis import Finding, ReportedRun, diagnose
from fedpace.core import RoundRecord
from fedpace.tasks import Metric


def run(curve: list[float], seed: int = 0, **more: Metric) -> ReportedRun:
    records = [RoundRecord(round=number, metrics={"accuracy": value}) for number, value in enumerate(curve)]
    return ReportedRun("fedavg", seed, {"method": "fedavg"}, records, **more)


def found(*runs: ReportedRun) -> list[Finding]:
    return [finding for finding in diagnose(runs) if finding.check == "not_converged"]


def test_a_curve_that_still_rises_is_found() -> None:
    (finding,) = found(run([number / 100 for number in range(50)]), run([number / 90 for number in range(50)], seed=1))
    assert "of 50 rounds" in finding.seen
    assert "--rounds 100" in finding.command


def test_a_flat_curve_is_not() -> None:
    assert found(run([0.8] * 50)) == []


def test_a_metric_that_should_fall_and_rises_does_not_converge_later() -> None:
    loss = Metric("loss", rises=False)
    assert found(run([number / 100 for number in range(50)], metric=loss)) == []
    assert found(run([2 - number / 50 for number in range(50)], metric=loss))


def test_a_run_too_short_to_say_says_nothing() -> None:
    assert found(run([0.1, 0.9])) == []

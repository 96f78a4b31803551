"""Our presets as Flower apps: what is told, and what goes wrong outside of us."""

import logging

import pytest

pytest.importorskip("flwr")

from fedpace.core import ClientError, RoundRecord
from fedpace.experiments import deployment
from fedpace.experiments.deployment import deploy
from fedpace.experiments.flower_app import _Lines
from fedpace.experiments.presets import load_config


def test_flowers_log_has_a_line_per_round(caplog):
    caplog.set_level(logging.INFO, logger="flwr")
    _Lines().finished_round(RoundRecord(round=3, stage="dampen", metrics={"accuracy": 0.5}))
    _Lines().finished_round(RoundRecord(round=4))
    assert [record.message for record in caplog.records] == ["round 3, dampen: accuracy 50.00%", "round 4, fedavg"]


def test_superlink_that_has_forgotten_the_run(tmp_path, monkeypatch):
    answers = {"run": {"run-id": "7"}, "list": {"runs": []}}
    monkeypatch.setattr(deployment, "_flwr", lambda command, *_: answers[command])
    monkeypatch.setattr(deployment, "POLL", 0)
    with pytest.raises(ClientError, match=r"^home no longer knows run 7; go on with --resume$"):
        deploy(load_config("fedavg", {}), "fedavg", {}, "home", tmp_path / "run")

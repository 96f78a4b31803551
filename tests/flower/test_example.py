"""The example app runs with Flower's strategy and with ours."""

import importlib
import tomllib
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict
from flwr.common.config import validate_config
from flwr.serverapp.strategy import FedAvg

from fedpace.flower import GradientMasked, InProcessGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
PROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())


def component(name):
    module, _, attribute = PROJECT["tool"]["flwr"]["app"]["components"][name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def test_flower_accepts_its_project_file(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    valid, errors, warnings = validate_config(PROJECT)
    assert (valid, errors, warnings) == (True, [], [])


@pytest.mark.parametrize(("name", "strategy"), [("fedavg", FedAvg), ("gradient-masked", GradientMasked)])
def test_the_app_learns(name, strategy, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    config = PROJECT["tool"]["flwr"]["app"]["config"] | {"strategy": name, "num-server-rounds": 3}
    results, start = [], strategy.start
    monkeypatch.setattr(strategy, "start", lambda self, **given: results.append(start(self, **given)) or results[-1])
    on = InProcessGrid(component("clientapp"), 10, config)
    component("serverapp")(on, Context(1, 0, {}, RecordDict(), config))
    accuracies = [metrics["accuracy"] for metrics in results[0].evaluate_metrics_clientapp.values()]
    assert len(accuracies) == 3
    assert accuracies[-1] > max(0.5, accuracies[0])
    saved = torch.load(tmp_path / "final_model.pt", weights_only=True)
    assert saved["1.num_batches_tracked"].item() > 0
    if strategy is GradientMasked:
        last = results[0].train_metrics_clientapp[3]
        assert (last["clients"], last["dropped"]) == (10, 0)
        assert 0 < last["agreement"] < 1

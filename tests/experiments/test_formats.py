"""What rounding costs and saves, in whole runs on digits."""

import pytest
import torch

from fedpace.experiments.presets import load_config
from fedpace.experiments.run import execute

SETTINGS = {"data.source": "digits", "executor": "serial", "measuring.per_client": 0}
CNN = {"model": "small_cnn", "data.partition.clients": 10, "rounds": 12, "local.max_steps": 8, "measuring.every": 12}
LINEAR = {"model": "linear", "local.lr": 0.01, "rounds": 10, "local.max_steps": 5, "measuring.every": 10}


def trained(wire, settings):
    return execute(load_config("fedavg", {**SETTINGS, **settings, "wire": wire}))


@pytest.fixture(scope="module")
def exact():
    return trained("float32", CNN)


@pytest.mark.parametrize(("wire", "smaller"), [("bf16", 2), ("int8", 3.9), ("signs", 27)])
def test_digits_are_learnt_as_well_with_less_traffic(exact, wire, smaller):
    found = trained(wire, CNN)
    assert exact.accuracy > 0.9
    assert found.accuracy >= exact.accuracy - 0.015
    assert exact.records[0].bytes_up > smaller * found.records[0].bytes_up * 0.99
    assert exact.records[0].bytes_down == found.records[0].bytes_down


def test_with_residuals_signs_lead_much_nearer_to_where_floats_lead():
    def found(wire):
        return torch.cat([tensor.flatten() for tensor in trained(wire, LINEAR).module.state_dict().values()])

    exact = found("float32")
    kept, lost = (float((found({"name": "signs", "residual": each}) - exact).norm()) for each in ("kept", "lost"))
    assert kept < lost / 2
    assert kept < 0.15 * float(exact.norm())

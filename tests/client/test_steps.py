"""Steps on flat vectors, bitwise those of torch's optimizers."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedpace.client import TrainingSettings
from fedpace.core import FlatModule

from .helpers import plain


@pytest.mark.parametrize(
    ("settings", "cls"),
    [
        ({"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1}, torch.optim.Adam),
        ({"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.1}, torch.optim.SGD),
        ({"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "momentum": 0.9}, torch.optim.SGD),
    ],
)
def test_steps_are_those_of_torch_and_start_anew_each_time(settings, cls):
    model, generator = FlatModule(plain()), torch.Generator().manual_seed(0)
    start, parts = model.vector.clone(), (slice(0, 4), slice(7, None))
    for _ in range(2):  # the second client finds what the first one left behind
        vector = nn.Parameter(start.clone())
        theirs = cls([vector], fused=True, **{key: value for key, value in settings.items() if key != "optimizer"})
        model.vector.copy_(start)
        ours = TrainingSettings(**settings).steps_on(model, parts)
        for _ in range(3):
            gradient = torch.randn(start.shape, generator=generator)
            model.gradient.copy_(gradient)
            vector.grad = gradient
            theirs.step()
            ours.step()
        for part in parts:
            assert torch.equal(model.vector[part], vector[part])
        assert torch.equal(model.vector[4:7], start[4:7])


def test_no_compiler_is_imported_for_a_step():
    code = """
import sys, torch
from fedpace.client import TrainingSettings
from fedpace.core import FlatModule
TrainingSettings().steps_on(FlatModule(torch.nn.Linear(2, 1))).step()
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)

from torch import nn

from fedpace.experiments import load_config
from fedpace.experiments.batch import Job

FAST = {"executor": "serial", "local.max_steps": 1, "measuring.per_client": 0}
"""Settings under which a round of the linear model on the digits takes milliseconds."""

MEASURED = ("round", "stage", "metrics", "train_loss", "similarity", "agreement", "pruned")


def fast_config(preset="fedavg", rounds=2, **overrides):
    """A config of few and short rounds; ``local__lr`` stands for ``local.lr``."""
    named = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_config(preset, {"model": "linear", "rounds": rounds, **FAST, **named})


def job(folder, label="fedavg", **overrides):
    """One run of a batch, in a folder of its label's name."""
    return Job(label, fast_config(**overrides), folder / label)


def measured(records):
    """What must be equal in two runs of the same config: everything but times."""
    return [{key: getattr(record, key) for key in MEASURED} for record in records]


def snapshot(folder):
    """Every file with its content and its time."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Flat(nn.Module):
    """A user's own model, without arguments."""

    def __init__(self, outputs=10):
        super().__init__()
        self.layer = nn.Linear(64, outputs)

    def forward(self, x):
        return self.layer(x.flatten(1))

"""Every method on every kind of task: it learns, or it says in one line why it cannot."""

from math import isfinite

import numpy as np
import pytest

import fedpace
from fedpace.core import ConfigError
from fedpace.data import Data, Examples, Ragged
from fedpace.experiments import preset_names
from fedpace.tasks import tasks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
LETTERS = tuple("abcd")
FAST = {"executor": "serial", "local.max_steps": 2, "local.batch": 4, "local.epochs": 1, "measuring.per_client": 5}
WITHOUT_CLASSES = ("multilabel", "next_token", "regression")
REFUSED = {
    **{("fedrod", kind): "its balanced loss counts the examples of each class" for kind in WITHOUT_CLASSES},
    **{("fedpac", kind): "class" for kind in WITHOUT_CLASSES},
    ("fedcp", "next_token"): "it divides the features of whole examples",
}


def texts():
    rows = [RNG.integers(0, len(LETTERS), RNG.integers(3, 7)) for _ in range(60)]
    return Examples(Ragged.of([row[:-1] for row in rows]), Ragged.of([row[1:] for row in rows]), vocabulary=LETTERS)


KINDS = {
    "classification": (Examples(X, (X.sum(1) > 0).astype(np.int64), ("low", "high")), "mlp"),
    "multilabel": (Examples(X, (X[:, :3] > 0).astype(np.int64)), "mlp"),
    "regression": (Examples(X, X.sum(1)), "mlp"),
    "next_token": (texts(), "char_lstm"),
}


@pytest.mark.parametrize("kind", tasks.names())
@pytest.mark.parametrize("preset", preset_names())
def test_a_method_learns_every_task_or_says_why_not(preset, kind):
    examples, model = KINDS[kind]
    federation = Data(kind, examples).partition("iid", clients=3, test_share=0.3)
    if (preset, kind) in REFUSED:
        reason = REFUSED[preset, kind]
        with pytest.raises(ConfigError, match=f"'{preset}' cannot learn the task '{kind}': .*{reason}") as caught:
            fedpace.train(federation, preset, model=model, rounds=2, settings=FAST)
        assert "\n" not in str(caught.value)
        return
    result = fedpace.train(federation, preset, model=model, rounds=2, settings=FAST)
    record = result.records[-1]
    assert list(record.metrics) == [metric.name for metric in tasks.get(kind)().metrics]
    assert isfinite(record.train_loss)
    assert result.metric == tasks.get(kind)().headline
    assert len(record.client_metrics) == 3
    assert record.dropped == []
    assert isfinite(record.metrics["loss"])


def test_a_comparison_names_its_metric_and_shows_it_as_it_is():
    examples, model = KINDS["regression"]
    data = Data("numbers", examples)
    options = {"seeds": (0, 1), "rounds": 2, "model": model, "settings": FAST, "partition": {"name": "iid"}}
    compared = fedpace.compare(["fedavg", "fedprox"], data, **options)
    assert "Final R²" in str(compared)
    assert "accuracy" not in str(compared).lower()
    assert compared.to_json()["headline"] == {"name": "R²", "rises": True, "percent": False}

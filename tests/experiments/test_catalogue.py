import inspect

import pytest

from fedpace.aggregation import rules
from fedpace.attacks import attacks
from fedpace.core import without_markup
from fedpace.data import augmentations, partitions, shifts, sources
from fedpace.engine.speeds import speeds
from fedpace.experiments import load_config, preset_names
from fedpace.experiments.catalogue import catalogue
from fedpace.experiments.toml_files import reproduction_names
from fedpace.models import models
from fedpace.server import clippings, optimizers, staleness_weights
from fedpace.tasks import tasks


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("presets", preset_names()),
        ("methods", [name for name in preset_names() if load_config(name).kind == "method"]),
        ("data", sources.names()),
        ("models", models.names()),
        ("partitions", partitions.names()),
        ("shifts", shifts.names()),
        ("augmentations", augmentations.names()),
        ("rules", rules.names()),
        ("optimizers", optimizers.names()),
        ("clippings", clippings.names()),
        ("speeds", speeds.names()),
        ("staleness", staleness_weights.names()),
        ("tasks", tasks.names()),
        ("reproductions", reproduction_names()),
    ],
)
def test_everything_that_can_be_named_is_described_in_one_line(kind, names):
    entries = catalogue(kind)
    assert list(entries) == names
    for name, text in entries.items():
        assert len(text) > 20, name
        assert "\n" not in text


@pytest.mark.parametrize(
    ("kind", "registry"),
    [
        ("data", sources),
        ("models", models),
        ("partitions", partitions),
        ("shifts", shifts),
        ("augmentations", augmentations),
        ("attacks", attacks),
        ("rules", rules),
        ("optimizers", optimizers),
        ("clippings", clippings),
        ("speeds", speeds),
        ("staleness", staleness_weights),
        ("tasks", tasks),
    ],
)
def test_what_stands_in_the_source_is_what_is_registered(kind, registry):
    docs = {name: (inspect.getdoc(registry.get(name)) or "").partition("\n")[0] for name in registry.names()}
    assert catalogue(kind) == {name: without_markup(text) for name, text in docs.items()}


def test_ablations_are_presets_but_no_methods():
    assert "fedpace-prune" in catalogue("presets")
    assert "fedpace-prune" not in catalogue("methods")
    assert "fedpace-paper" in catalogue("methods")

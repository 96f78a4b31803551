"""Shifts and options of sources in the config of a run."""

import pytest

from fedpace.core import ConfigError, DataError
from fedpace.data import Coloured
from fedpace.experiments import load_config
from fedpace.experiments.config import RunConfig, upgraded
from fedpace.experiments.run import federate

from .helpers import png, write_parquet


@pytest.mark.parametrize("shift", ["coloured", {"name": "coloured"}, Coloured()])
def test_a_shift_is_given_by_name_table_or_object(shift):
    config = load_config("fedavg", {"data.shift": shift})
    assert config.data.shift == Coloured()
    federation = federate(config)
    assert federation.shape == (3, 8, 8)
    assert federation.name == "digits/dirichlet/coloured"


def test_a_parameter_may_be_changed_alone():
    config = load_config("fedavg", {"data.shift": "coloured", "data.shift.q": 0.5})
    assert config.data.shift == Coloured(q=0.5)
    assert config.model_dump(mode="json")["data"]["shift"]["q"] == 0.5


def test_a_config_is_read_as_it_was_written():
    config = load_config("gma", {"data.shift": {"name": "rotated", "angles": [0, 30]}})
    assert RunConfig(**config.model_dump(mode="json")) == config


def test_shift_and_options_enter_the_fingerprint_only_where_they_are_used():
    plain = load_config("fedavg")
    written = plain.model_dump(mode="json")
    for new in ("shift", "options"):  # as an older version wrote it
        del written["data"][new]
    assert upgraded(written) == plain.model_dump(mode="json")
    assert "data" not in plain.model_dump(exclude_defaults=True)
    configs = [plain, *(load_config("fedavg", {"data.shift": {"name": "coloured", "q": q}}) for q in (0.9, 0.8))]
    configs.append(load_config("fedavg", {"data.options.characters": "digits"}))
    assert len({config.fingerprint() for config in configs}) == 4


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        ({"data.shift": "colourd"}, ConfigError, r"fedavg: unknown shift 'colourd'; did you mean 'coloured'\?"),
        ({"data.shift.q": 0.5}, ConfigError, "fedavg: shift: expected a name or a table with 'name'"),
        ({"data.options.sise": 3}, ConfigError, r"data source 'digits': unknown key 'sise'; did you mean 'size'\?"),
        ({"data.source": "./rgb", "data.shift": "coloured"}, DataError, "shift 'coloured': .* found 3"),
    ],
)
def test_anything_wrong_is_one_line(tmp_path, overrides, error, message):
    write_parquet(tmp_path / "rgb" / "train.parquet", [0, 1] * 20, images=[png((1, 2, 3), mode="RGB")] * 40)
    with pytest.raises(error, match=message) as caught:
        federate(load_config("fedavg", overrides))
    assert "\n" not in str(caught.value)


def test_options_reach_the_source(tmp_path):
    labels = [number % 62 for number in range(620)]
    write_parquet(tmp_path / "data" / "femnist" / "train.parquet", labels, label="character", writer_id=["w"] * 620)
    options = {"data.source": "femnist", "data.options.characters": "digits", "data.size": 3}
    federation = federate(load_config("fedavg", options))
    assert federation.classes == tuple("0123456789")
    assert federation.shape == (1, 3, 3)

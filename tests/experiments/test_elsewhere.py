"""Whole runs on a device that only tests have (``tests/elsewhere.py``): nothing may mix it with the host.

Covered: every preset with the serial executor, so every method, rule, stage and server optimizer: local steps,
evaluation, searches, the server's exchange, checkpoints and resuming. Values are real and must be those of the CPU.
Not covered: what a GPU does to numbers, its own random numbers, spawned workers, mixed precision in earnest.
"""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import fedpace
from fedpace.analysis import unfair
from fedpace.cli import main
from fedpace.core import ClientError, ConfigError, RunFolderError, devices
from fedpace.data import Data, Examples
from fedpace.engine import Listener, Serial, Worker
from fedpace.experiments import RunConfig, load_config, preset_names
from fedpace.experiments.engines import run_on
from fedpace.experiments.run import Result, execute
from fedpace.methods import methods
from fedpace.server import Server
from tests.elsewhere import AWAY, HOST, Elsewhere, place

SHORT = {
    "data.source": "digits",
    "local.max_steps": 1,
    "measuring.per_client": 5,
    "measuring.every": 3,
    "executor": "serial",
}

SMALL = {"name": "iid", "clients": 2, "limit": 80, "test_share": 0.2}


@pytest.fixture
def gpu(monkeypatch):
    """A machine with such a device. Enter what is given to work there."""
    monkeypatch.setattr(devices, "here", lambda: ["cuda:0", "cpu"])
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: None)
    return Elsewhere()


def weights(result: Result) -> torch.Tensor:
    return torch.cat([tensor.flatten().double() for tensor in result.module.state_dict().values()])


def short(preset, rounds=3, **settings):
    return load_config(preset, {**SHORT, **settings}).shortened(rounds)


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_runs_on_a_device_as_on_the_cpu(preset, gpu):
    config = short(preset)
    expected = execute(config)
    with gpu:
        found = execute(config.model_copy(update={"device": "cuda"}))
        torch.testing.assert_close(weights(found), weights(expected), rtol=1e-4, atol=1e-5)
        assert {place(tensor) for tensor in found.module.state_dict().values()} == {HOST}
    for one, other in zip(found.records, expected.records, strict=True):
        assert one.metrics == pytest.approx(other.metrics, rel=1e-4)
        assert one.agreement == other.agreement  # counts
        assert (one.used, one.dropped) == (other.used, [])


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd", "yogi"])
def test_an_interrupted_run_goes_on_from_its_checkpoint(optimizer, gpu, tmp_path):
    config = short("fedpace-paper", **{"aggregate.optimizer": {"name": optimizer}, "device": "cuda"})
    with gpu:
        whole = execute(config, out=tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            execute(config, out=tmp_path / "cut", listeners=[Interrupt()])
        resumed = execute(config, out=tmp_path / "cut", resume=True)
        assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.parametrize("preset", ["paced", "scaffold"])
def test_old_versions_lie_where_clients_train_and_survive_an_interruption(preset, gpu, tmp_path):
    settings = {"asynchronous.buffer": 1, "asynchronous.concurrency": 3, "speeds": "lognormal"}
    config = short(preset, 5, **settings)
    expected, there = execute(config), config.model_copy(update={"device": "cuda"})
    with gpu:
        whole = execute(there)
        with pytest.raises(KeyboardInterrupt):
            execute(there, out=tmp_path / "cut", listeners=[Interrupt()])
        resumed = execute(there, out=tmp_path / "cut", resume=True)
        assert torch.equal(weights(resumed), weights(whole))
        torch.testing.assert_close(weights(whole), weights(expected), rtol=1e-4, atol=1e-5)
    assert max(max(record.staleness.values()) for record in whole.records) > 1


class Interrupt(Listener):
    def finished_round(self, record):
        if record.round == 1:
            raise KeyboardInterrupt


def test_what_clients_keep_and_halves_remember_survives_an_interruption(gpu, tmp_path):
    for preset in ("scaffold", "fedpac", "apfl"):
        config = short(preset, device="cuda", buffers="local", **{"data.partition": SMALL})
        with gpu:
            whole = execute(config, out=tmp_path / preset)
            with pytest.raises(KeyboardInterrupt):
                execute(config, out=tmp_path / f"{preset}-cut", listeners=[Interrupt()])
            resumed = execute(config, out=tmp_path / f"{preset}-cut", resume=True)
            assert torch.equal(weights(resumed), weights(whole))


def test_the_server_works_where_clients_train(gpu, monkeypatch):
    """Or on the host, if clients train on a device without double precision."""
    seen = []
    exchange = Server.exchange
    monkeypatch.setattr(
        Server, "exchange", lambda self, *rest: (seen.append(place(self.vector)), exchange(self, *rest))[1]
    )
    with gpu:
        execute(short("fedavg", device="cuda"))
        assert set(seen) == {AWAY}
        seen.clear()
        monkeypatch.setattr(devices, "here", lambda: ["mps", "cpu"])
        execute(short("apfl", device="mps", **{"data.partition": SMALL}))
        assert set(seen) == {HOST}


def test_one_gpu_needs_no_process_of_its_own(gpu):
    with gpu:
        config = short("fedavg", device="cuda", executor="processes")
        expected = execute(config.model_copy(update={"executor": Serial()}))
        assert torch.equal(weights(execute(config)), weights(expected))


@pytest.mark.parametrize(
    "settings",
    [
        {"model": {"name": "resnet8", "norm": "batch"}},
        {"local.optimizer": "adagrad"},
        {"local.name": "common_adam"},
        {"local.accumulate": 2, "local.clip": 1.0, "local.max_steps": 3},
        {"data.augment": ["flip"]},
        {"anneal": {"first": 0, "last": 1, "k": 2, "sketch": 100}},
        {"anneal": {"first": 0, "last": 1, "k": 2, "perturbation": {"scaling": "per_tensor", "only": "*weight"}}},
        {"dampen": {"first": 0, "source": "pseudo", "pace": "shuffled"}, "freeze": {"first": 1}},
    ],
    ids=str,
)
def test_further_settings(settings, gpu):
    config = short("fedavg", **settings)
    expected = execute(config)
    with gpu:
        found = execute(config.model_copy(update={"device": "cuda"}))
        torch.testing.assert_close(weights(found), weights(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")  # which an LSTM looks for on any GPU
@pytest.mark.parametrize("model", ["char_lstm", "tiny_transformer"])
def test_texts(model, gpu):
    tokens = np.random.default_rng(0).integers(0, 7, (40, 9))
    data = Data("texts", Examples(tokens[:, :-1], tokens[:, 1:], vocabulary=tuple("abcdefg")))
    config = short("fedavg", model=model, **{"data.partition": {"name": "iid", "clients": 2}})
    expected = execute(config, data=data)
    with gpu:
        found = execute(config.model_copy(update={"device": "cuda"}), data=data)
        torch.testing.assert_close(weights(found), weights(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", [name for name in methods.names() if name != "per_fedavg"])
def test_precision_reaches_the_loss_and_nothing_else(method, precision, gpu, monkeypatch):
    """The CPU computes in float32 here, whatever it is told: what is seen is where a context is entered.

    Scaling a loss by a power of two and its gradient back leaves every bit where it was.
    """
    entered = []

    class Context(nullcontext):
        def __enter__(self):
            entered.append(True)

    monkeypatch.setattr(torch, "autocast", lambda kind, dtype: Context())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    settings = {"local.name": method, "data.partition": SMALL}
    config = short("fedavg", rounds=2, device="cuda", **settings)
    with gpu:
        expected = execute(config)
        assert not entered
        local = config.local.model_copy(update={"precision": precision})
        found = execute(config.model_copy(update={"local": local}))
        assert len(entered) >= 4  # two rounds of two clients
        torch.testing.assert_close(weights(found), weights(expected))
        assert {parameter.dtype for parameter in found.module.parameters()} == {torch.float32}


def test_fp16_that_overflows_drops_the_client(gpu, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda kind, dtype: nullcontext())
    monkeypatch.setattr(devices, "LOSS_SCALE", float("inf"))
    with gpu, pytest.raises(ClientError, match="no update could be used in 1 rounds; the first one: not finite"):
        execute(short("fedavg", rounds=1, device="cuda", **{"local.precision": "fp16"}))


# What is refused -----------------------------------------------------------------------------------------------------

NO_BF16 = "precision: bf16 needs a CPU with AVX512_BF16 or AMX, found the device 'cpu'; take float32 instead"
REFUSED = [
    ({"device": "cuda"}, "device: expected one that is here (cpu) or auto, found 'cuda'"),
    ({"device": "cuda:7"}, "device: expected one that is here (cpu) or auto, found 'cuda:7'"),
    ({"device": "gpu"}, "device: expected auto, cpu, cuda, cuda:N or mps, found 'gpu'; did you mean 'cuda'?"),
    ({"local.precision": "bf16"}, NO_BF16),
    ({"local.precision": "fp16"}, "precision: fp16 needs a GPU, found the device 'cpu'; take float32 instead"),
    ({"local.precision": "bf61"}, "precision: input should be 'float32', 'bf16' or 'fp16', found 'bf61'"),
    ({"local.name": "per_fedavg", "local.precision": "fp16"}, "the step within a batch would lose small gradients"),
]


@pytest.fixture
def plain_cpu(monkeypatch):
    """A machine with nothing but a CPU of the common sort."""
    monkeypatch.setattr(devices, "here", lambda: ["cpu"])
    monkeypatch.setattr(devices, "_cpu_knows_bf16", lambda: False)


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=str)
def test_what_is_not_here_is_refused_in_one_line_before_any_training(
    settings, message, plain_cpu, monkeypatch, tmp_path
):
    monkeypatch.setattr(Worker, "answer", lambda *_: pytest.fail("it trained"))
    out = tmp_path / "run"
    with pytest.raises(ConfigError) as error:
        fedpace.train("digits", rounds=1, out=out, settings=settings)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not out.exists()
    with pytest.raises(ConfigError) as error:
        fedpace.compare(["fedavg", "gma"], rounds=1, seeds=(0,), settings=settings)
    assert message in str(error.value)


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=str)
def test_the_command_line_ends_with_code_2(settings, message, plain_cpu, tmp_path, monkeypatch, capsys):
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    monkeypatch.setattr("sys.argv", ["fedpace", "run", "fedavg", "--rounds", "1", "--out", str(tmp_path), *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_several_runs_share_no_gpu(gpu):
    with gpu, pytest.raises(ConfigError, match="workers: expected 1, because runs on 'cuda' go one after another"):
        fedpace.compare(["fedavg", "gma"], rounds=1, seeds=(0,), settings={"device": "cuda"}, workers=2)


def test_a_comparison_on_a_gpu_goes_run_by_run(gpu):
    with gpu:
        found = fedpace.compare(["fedavg", "gma"], rounds=1, seeds=(0,), settings={**SHORT, "device": "cuda"})
    assert len(found.rows) == 2


def test_simulated_nodes_see_no_gpu(gpu):
    with gpu, pytest.raises(ConfigError, match="flower-simulation"):
        run_on("flower-simulation", short("fedavg", device="cuda"))


def test_nodes_of_flower_choose_a_device(gpu):
    config = short("scaffold", device="cuda")
    with gpu:
        found = run_on("flower-inprocess", config)
        torch.testing.assert_close(weights(found), weights(execute(config)), rtol=1e-4, atol=1e-5)


# What is written down ------------------------------------------------------------------------------------------------


def test_auto_is_written_down_as_what_it_was(gpu):
    assert RunConfig(device="auto").device == "cuda"
    assert RunConfig().device == "cpu"


def test_a_run_is_not_resumed_on_another_device(gpu, tmp_path):
    with gpu:
        execute(short("fedavg", device="cuda"), out=tmp_path / "run")
    assert json.loads((tmp_path / "run/run.json").read_text())["config"]["device"] == "cuda"
    with pytest.raises(RunFolderError, match="holds a run with device = 'cuda', this one has 'cpu'"):
        execute(short("fedavg"), out=tmp_path / "run", resume=True)


def test_a_device_is_no_unfairness_but_a_precision_is():
    one, other = RunConfig().model_dump(), RunConfig(device="cuda").model_dump()
    assert unfair({"a": one, "b": other}) is None
    other["local"]["precision"] = "bf16"
    assert "precision (a: float32; b: bf16)" in unfair({"a": one, "b": other})


def test_the_device_of_the_default_changes_no_fingerprint():
    assert RunConfig(device="cpu").fingerprint() == RunConfig().fingerprint() != RunConfig(device="cuda").fingerprint()

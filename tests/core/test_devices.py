import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from fedpace.core import ConfigError, Device, Precision, Settings, devices
from tests.elsewhere import AWAY, Elsewhere, place

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda:0"), torch.device("mps:0")
BF16_CHECKS = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


@pytest.fixture
def machine(monkeypatch):
    """Makes torch believe in another machine."""

    def has(cuda=0, mps=False, cpu=(False, False), gpu_bf16=False, macos_14=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: gpu_bf16)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: macos_14)
        for check, answer in zip(BF16_CHECKS, cpu, strict=True):
            monkeypatch.setattr(torch.cpu, check, lambda answer=answer: answer, raising=False)

    return has


# Where ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "best"), [({"cuda": 2, "mps": True}, "cuda:0"), ({"cuda": 1}, "cuda:0"), ({"mps": True}, "mps:0")]
)
def test_auto_is_the_best_that_is_here(machine, parts, best):
    machine(**parts)
    assert devices.choose("auto") == devices.choose() == torch.device(best)


def test_auto_is_the_cpu_where_there_is_nothing_else(machine):
    machine()
    assert devices.choose("auto") == CPU
    assert devices.here() == ["cpu"]


@pytest.mark.parametrize(
    ("name", "device"),
    [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:1"), ("mps", "mps:0")],
)
def test_a_name_is_the_device_that_tensors_will_name(machine, name, device):
    """``torch.device("cuda")`` is not equal to the device of a tensor that lies there."""
    machine(cuda=2, mps=True)
    assert devices.choose(name) == torch.device(device)


@pytest.mark.parametrize(
    ("parts", "name", "found"),
    [
        ({}, "cuda", "(cpu)"),
        ({}, "mps", "(cpu)"),
        ({"mps": True}, "cuda", "(mps, cpu)"),
        ({"cuda": 2}, "cuda:2", "(cuda:0, cuda:1, cpu)"),
    ],
)
def test_a_device_that_is_not_here_is_refused(machine, parts, name, found):
    machine(**parts)
    with pytest.raises(ConfigError) as error:
        devices.choose(name)
    assert str(error.value) == f"device: expected one that is here {found} or auto, found '{name}'"


@pytest.mark.parametrize(
    ("name", "tail"),
    [
        ("cudo", "did you mean 'cuda'?"),
        ("gpu", "did you mean 'cuda'?"),
        ("gpu:1", "did you mean 'cuda'?"),
        ("CPU", "known: auto, cpu, cuda, mps"),
        ("cuda:", "did you mean 'cuda'?"),
        ("cuda:x", "did you mean 'cuda'?"),
        ("cpu:0", "did you mean 'cpu'?"),
        ("", "known: auto, cpu, cuda, mps"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name, tail):
    message = f"device: expected auto, cpu, cuda, cuda:N or mps, found '{name}'; {tail}"
    for refuse in (devices.choose, TypeAdapter(Device).validate_python):
        with pytest.raises(ConfigError) as error:
            refuse(name)
        assert str(error.value) == message


def test_a_setting_may_name_a_device_of_another_machine(machine):
    class Where(Settings):
        device: Device = "auto"
        precision: Precision = "float32"

    machine()
    assert Where(device="cuda:3").device == "cuda:3"
    assert Where().model_dump() == {"device": "auto", "precision": "float32"}


# Precision -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [CPU, CUDA, MPS])
def test_float32_needs_nothing(machine, device):
    machine()
    with devices.autocast(device, "float32"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize(
    ("device", "precision", "needs"),
    [
        (CPU, "fp16", "a GPU"),
        (CPU, "bf16", "a CPU with AVX512_BF16 or AMX"),
        (CUDA, "bf16", "a GPU that knows bfloat16"),
        (MPS, "bf16", "macOS 14 or newer"),
    ],
)
def test_what_a_device_cannot_is_refused_with_the_reason(machine, device, precision, needs):
    machine(cuda=1, mps=True)
    with pytest.raises(ConfigError) as error:
        devices.autocast(device, precision)
    expected = f"precision: {precision} needs {needs}, found the device '{device}'; take float32 instead"
    assert str(error.value) == expected


@pytest.mark.parametrize("instructions", [(True, False), (False, True)])
def test_bf16_on_a_cpu_that_has_the_instructions(machine, instructions):
    machine(cpu=instructions)
    entered = devices.autocast(CPU, "bf16")
    assert isinstance(entered, torch.autocast)
    assert (entered.device, entered.fast_dtype) == ("cpu", torch.bfloat16)


def test_bf16_is_refused_where_torch_cannot_tell(machine, monkeypatch):
    machine()
    for check in BF16_CHECKS:
        monkeypatch.delattr(torch.cpu, check)
    with pytest.raises(ConfigError, match="AVX512_BF16"):
        devices.autocast(CPU, "bf16")


@pytest.mark.parametrize(("device", "precision"), [(CUDA, "fp16"), (CUDA, "bf16"), (MPS, "fp16"), (MPS, "bf16")])
def test_what_a_gpu_can_is_allowed(machine, monkeypatch, device, precision):
    machine(cuda=1, mps=True, gpu_bf16=True, macos_14=True)
    asked = []
    monkeypatch.setattr(torch, "autocast", lambda *arguments: asked.append(arguments))
    devices.autocast(device, precision)
    assert asked == [(device.type, {"fp16": torch.float16, "bf16": torch.bfloat16}[precision])]


# To NumPy ------------------------------------------------------------------------------------------------------------


def test_a_tensor_of_the_cpu_is_not_copied():
    tensor = torch.ones(3)
    assert devices.on_cpu(tensor)
    assert np.shares_memory(devices.to_numpy(tensor), tensor.numpy())


def test_a_tensor_with_a_gradient_becomes_an_array():
    assert devices.to_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]


def test_a_tensor_elsewhere_is_not_on_the_cpu():
    assert not devices.on_cpu(torch.empty(2, device="meta"))


# Moving --------------------------------------------------------------------------------------------------------------


def test_nothing_is_placed_or_carried_on_the_cpu():
    batches = iter([(torch.ones(2), torch.ones(2))])
    assert devices.carried(batches, CPU) is batches
    tensors = {"a": torch.ones(2)}
    assert devices.moved(tensors, CPU)["a"] is tensors["a"]
    assert isinstance(devices.placed(CPU), nullcontext)


def test_batches_of_one_or_several_inputs_are_carried():
    with Elsewhere():
        one = (torch.ones(2), torch.zeros(2))
        several = ({"a": torch.ones(2), "b": torch.ones(2)}, torch.zeros(2))
        (inputs, targets), (named, _) = devices.carried(iter([one, several]), AWAY)
        assert {place(tensor) for tensor in (inputs, targets, *named.values())} == {AWAY}


def test_double_precision_stays_on_the_host_where_the_device_has_none():
    tensors = {"alpha": torch.tensor(0.5, dtype=torch.float64), "v": torch.ones(2)}
    with Elsewhere():
        found = devices.moved(tensors, MPS)
        assert {name: str(place(tensor)) for name, tensor in found.items()} == {"alpha": "cpu", "v": "mps:0"}
        assert {place(tensor) for tensor in devices.moved(tensors, AWAY).values()} == {AWAY}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cuda", ["cuda:0", "cuda:1"]), ("auto", ["cuda:0", "cuda:1"]), ("cuda:1", ["cuda:1"]), ("cpu", ["cpu"])],
)
def test_workers_are_dealt_over_the_devices_that_a_name_leaves_open(machine, name, expected):
    machine(cuda=2)
    assert [str(device) for device in devices.choose_all(name)] == expected


def test_random_numbers_of_the_host_go_on_undisturbed():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    with devices.forked_rng(CPU):
        torch.rand(7)
    assert torch.equal(torch.rand(1), expected)


def test_a_function_in_float32_is_itself():
    assert devices.computed(torch.neg, CPU, "float32") is torch.neg


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_gradients_add_up_whatever_the_precision(precision):
    """Scaling by a power of two, there and back, rounds nothing."""
    found = {}
    for name in ("float32", precision):
        weights = torch.arange(1.0, 5.0).requires_grad_()
        weights.grad = gradient = torch.full((4,), 0.1)
        devices.backward((weights**3 / 7).sum(), gradient, name)
        found[name] = gradient
    assert torch.equal(found[precision], found["float32"])


def test_small_gradients_survive_fp16():
    found = {}
    for precision in ("fp16", "bf16"):  # of which only the first is scaled
        weights = torch.ones(1, requires_grad=True)
        weights.grad = gradient = torch.zeros(1)
        loss = weights.half() * torch.ones(1).half()  # whose gradient passes through fp16
        devices.backward(loss.float().sum() * 1e-8, gradient, precision)
        found[precision] = gradient.item()
    assert found == {"fp16": pytest.approx(1e-8, rel=0.01), "bf16": 0}


def test_the_scale_of_a_loss_is_a_power_of_two_that_fp16_holds():
    assert math.frexp(devices.LOSS_SCALE)[0] == 0.5
    assert torch.finfo(torch.float16).max > devices.LOSS_SCALE


def test_a_function_computes_in_its_precision(machine, monkeypatch):
    machine(cpu=(True, False))
    entered = []

    class Context(nullcontext):
        def __enter__(self):
            entered.append(True)

    monkeypatch.setattr(torch, "autocast", lambda *arguments: Context())
    compute = devices.computed(torch.neg, CPU, "bf16")
    assert (compute(torch.ones(1)).item(), len(entered)) == (-1, 1)
    assert (compute(torch.ones(1)).item(), len(entered)) == (-1, 2)

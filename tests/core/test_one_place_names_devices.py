"""No module but ``core/devices.py`` names a device: what lies where is decided in one place."""

import ast
from pathlib import Path

import pytest

import fedpace

ROOT = Path(fedpace.__file__).parent
ALLOWED = {Path("core/devices.py")}
NAMES = ("cpu", "cuda", "mps", "meta", "xpu")
WITH_A_DEVICE = ("cuda", "cpu", "pin_memory", "get_device", "to_empty")
FORBIDDEN = [f"torch.{name}" for name in ("cuda", "mps", "cpu", "device", "autocast", "amp", "accelerator")]


def names_a_device(value):
    return isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.partition(":")[0] in NAMES


def offences(tree):
    """Line and text of each place that names a device."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            where = node.func.attr
            if where in WITH_A_DEVICE and not node.args:
                yield node.lineno, f".{where}()"
            if where in ("to", "empty", "zeros", "Generator") and any(map(names_a_device, node.args)):
                yield node.lineno, f".{where}(…) with the name of a device"
            for keyword in node.keywords:
                if keyword.arg == "map_location" or (keyword.arg == "device" and names_a_device(keyword.value)):
                    yield node.lineno, f"{keyword.arg} = …"
                if keyword.arg == "devices" and not (isinstance(keyword.value, ast.List) and not keyword.value.elts):
                    yield node.lineno, "devices = …"
        if isinstance(node, ast.Attribute) and ast.unparse(node) in FORBIDDEN and not _in_annotation(node, tree):
            yield node.lineno, ast.unparse(node)


def _in_annotation(node, tree):
    """``torch.device`` as a type names no device."""
    for parent in ast.walk(tree):
        kinds = (getattr(parent, "annotation", None), getattr(parent, "returns", None))
        if any(node in ast.walk(kind) for kind in kinds if kind is not None):
            return True
    return False


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_device_is_named(file):
    if file.relative_to(ROOT) not in ALLOWED:
        found = [f"line {line}: {text}" for line, text in offences(ast.parse(file.read_text()))]
        assert found == [], f"{file.name} names a device; leave that to fedpace.core.devices"


@pytest.mark.parametrize(
    "code",
    [
        "x.cuda()",
        "x.cpu()",
        "x.pin_memory()",
        'x.to("cuda:1")',
        'torch.zeros(2, device="mps")',
        'torch.load(f, map_location="cpu")',
        'torch.device("cpu")',
        'torch.autocast("cuda")',
        "torch.cuda.is_available()",
        "torch.amp.GradScaler()",
        "torch.random.fork_rng(devices=[0])",
        'torch.Generator("cpu")',
    ],
)
def test_what_would_name_one_is_seen(code):
    assert list(offences(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "torch.random.fork_rng(devices=[])",
        "x.to(device)",
        "torch.zeros(2, device=x.device)",
        "def f(device: torch.device) -> torch.device: ...",
        'DEVICE = "cpu"',
    ],
)
def test_what_names_none_is_allowed(code):
    assert not list(offences(ast.parse(code)))

"""The lock covers all that the project asks for, with hashes, and says nothing of where it was made."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("dp", "flower", "hub", "llm", "text", "track")
ASKED = [*PROJECT["dependencies"], *(one for extra in EXTRAS for one in PROJECT["optional-dependencies"][extra])]


def locked():
    """Name → version, and how many hashes it has."""
    found = {}
    for entry in re.split(r"\n(?=\S)", TEXT):
        if not entry.startswith("#"):
            requirement = Requirement(entry.partition("\\\n")[0].strip())
            (version,) = requirement.specifier
            found[canonicalize_name(requirement.name)] = (version.version, entry.count("--hash=sha256:"))
    return found


@pytest.mark.parametrize("asked", [one for one in ASKED if Requirement(one).name != "torch"])
def test_the_lock_has_a_version_of_each_dependency_within_its_bounds(asked):
    requirement = Requirement(asked)
    version, _ = locked()[canonicalize_name(requirement.name)]
    assert version in requirement.specifier


def test_every_version_of_the_lock_has_hashes():
    assert len(locked()) > len(ASKED)
    assert {name for name, (_, hashes) in locked().items() if not hashes} == set()


def test_the_lock_and_what_is_tested_agree():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    tested = {canonicalize_name(name): version for name, version in tested.items()}
    found = locked()
    assert {name: found[name][0] for name in found.keys() & tested.keys()} == {
        name: tested[name] for name in found.keys() & tested.keys()
    }
    torch = Requirement(next(one for one in ASKED if Requirement(one).name == "torch"))
    assert tested["torch"] in torch.specifier


def test_the_lock_leaves_the_choice_of_torch_and_of_the_index_to_the_user():
    assert not [name for name in locked() if name in ("torch", "triton") or name.startswith(("nvidia-", "cuda-"))]
    assert not re.search(r"https?:|file:|index-url|find-links", TEXT)

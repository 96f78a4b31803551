"""Packages whose names are imported on first use."""

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import fedpace

LAZY = ["fedpace", "fedpace.core", "fedpace.analysis", "fedpace.engine", "fedpace.experiments"]


def test_the_package_offers_its_public_names_and_no_others():
    assert dir(fedpace) == fedpace.__all__
    assert {"load", "federate", "train", "compare", "trusted_files"} < set(dir(fedpace))


@pytest.mark.parametrize("name", LAZY)
def test_every_public_name_is_there(name):
    package = import_module(name)
    assert dir(package) == sorted(package.__all__)
    assert len(set(package.__all__)) == len(package.__all__)
    modules = {each for each in package.__all__ if isinstance(getattr(package, each), ModuleType)}
    assert modules == ({"devices"} if name == "fedpace.core" else set())


@pytest.mark.parametrize("name", LAZY)
def test_no_public_name_is_that_of_a_module_which_python_would_put_there_instead(name):
    package = import_module(name)
    assert {module.name for module in iter_modules(package.__path__)} & set(package.__all__) <= {"devices"}


def test_an_unknown_name_is_the_usual_error():
    with pytest.raises(AttributeError, match="module 'fedpace' has no attribute 'trian'"):
        fedpace.trian  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Layuot'"):
        from fedpace.core import Layuot  # noqa: F401


def test_to_import_the_package_costs_next_to_nothing():
    code = "import sys, fedpace; dir(fedpace); sys.exit(bool({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

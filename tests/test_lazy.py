"""Packages whose names are imported on first use."""

import inspect
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


def modules_on_purpose(package):
    """Public names that are modules of the package: ``from fedpace.core import devices``."""
    lines = inspect.getsource(package).splitlines()
    begun = f"    from {package.__name__} import "
    return {name for line in lines if line.startswith(begun) for name in line.removeprefix(begun).split(", ")}


@pytest.mark.parametrize("name", LAZY)
def test_every_public_name_is_there(name):
    package = import_module(name)
    assert dir(package) == sorted(package.__all__)
    modules = {each for each in package.__all__ if isinstance(getattr(package, each), ModuleType)}
    assert modules == modules_on_purpose(package)


@pytest.mark.parametrize("name", LAZY)
def test_no_public_name_is_that_of_a_module_which_python_would_put_there_instead(name):
    package = import_module(name)
    modules = {module.name for module in iter_modules(package.__path__)}
    assert modules & set(package.__all__) == modules_on_purpose(package)


def test_an_unknown_name_is_the_usual_error():
    with pytest.raises(AttributeError, match="module 'fedpace' has no attribute 'trian'"):
        fedpace.trian  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Layuot'"):
        from fedpace.core import Layuot  # noqa: F401


def test_to_import_the_package_costs_next_to_nothing():
    code = "import sys, fedpace; dir(fedpace); sys.exit(bool({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

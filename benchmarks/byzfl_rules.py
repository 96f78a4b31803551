"""ByzFL, as far as it is installed: what our robust rules are compared with."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def byzfl() -> tuple[Any, Any] | None:
    """ByzFL's aggregators and pre-aggregators (``pip install --no-deps byzfl``), or nothing.

    ``import byzfl`` asks for packages that only its experiments use, torchvision among them: they are imported past it.
    """
    found = find_spec("byzfl")
    if found is None:
        return None
    package = ModuleType("byzfl")
    package.__path__ = list(found.submodule_search_locations or [])
    sys.modules["byzfl"] = package
    from byzfl.aggregators import aggregators, preaggregators

    return aggregators, preaggregators

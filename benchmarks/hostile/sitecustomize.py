"""With this folder on its PYTHONPATH a fedpace ClientApp lies: each of its answers is another mess."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

APP = "fedpace.flower.client"


def _spoil(module: ModuleType) -> None:
    """Put a liar in the place of what answers turns."""
    import torch

    honest = module._answers

    def longer(update: Any, factor: float) -> Any:
        update.vector.mul_(factor)
        return update

    def claiming(update: Any, examples: int) -> Any:
        update.examples = examples
        return update

    def shaped(update: Any, vector: Any) -> Any:
        update.vector = vector
        return update

    lies: list[Callable[[Any], Any]] = [
        lambda update: longer(update, -10),
        lambda update: longer(update, float("nan")),
        lambda update: longer(update, 1e30),
        lambda update: claiming(update, 10**15),
        lambda update: claiming(update, -1),
        lambda update: shaped(update, torch.zeros(3)),
        lambda update: shaped(update, torch.zeros(0)),
        lambda update: shaped(update, update.vector.to(torch.complex64)),
        lambda update: 1 / 0,
    ]

    def lying(*arguments: Any) -> Any:
        return [random.choice(lies)(update) if update.vector is not None else update for update in honest(*arguments)]

    module._answers = lying  # type: ignore[attr-defined]


class _Spoiler(MetaPathFinder, Loader):
    """Imports the real module, and spoils it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != APP:
            return None
        sys.meta_path.remove(self)
        found = find_spec(name)
        assert found is not None
        assert found.loader is not None
        self._real, found.loader = found.loader, self
        return found

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        _spoil(module)


sys.meta_path.insert(0, _Spoiler())

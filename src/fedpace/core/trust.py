"""Who may name code to run: the user may, a file only if the user says so."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fedpace.core.errors import ConfigError, RunFolderError

_trusted: ContextVar[bool] = ContextVar("files may name code to run", default=False)


@contextmanager
def trusted_files() -> Iterator[None]:
    """Within this context presets and run folders may name code to run: for files whose authors you trust."""
    before = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(before)


def is_import_path(value: object) -> bool:
    """Whether a value is ``package.module:Name``, and thereby code to run once something is looked up by it.

    >>> is_import_path("mine.models:Net"), is_import_path("C:/data"), is_import_path("a note: this one")
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    module, colon, name = value.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def refuse_import_paths(values: Mapping[str, Any], where: str) -> None:
    """Fail if the table of a file, which nobody said to be trusted, holds an import path anywhere.

    >>> refuse_import_paths({"model": {"name": "subprocess:getoutput"}}, "shared.toml")
    Traceback (most recent call last):
    ...
    fedpace.core.errors.ConfigError: shared.toml: model.name = 'subprocess:getoutput' is code to run, which files may \
    name only if you trust their author: add --trust, or fedpace.trusted_files() in Python
    """
    if _trusted.get():
        return
    for key, value in _leaves(values):
        if is_import_path(value):
            raise ConfigError(
                f"{where}: {key} = {value!r} is code to run, which files may name only if you trust their author: add "
                "--trust, or fedpace.trusted_files() in Python"
            )


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Fail if what will be written in a folder is a link, or holds one: it may lead to any file of the user's."""
    if _trusted.get():
        return
    for name in names:
        for path in (folder / name, *folder.glob(f"{name}/**/*")):
            if path.is_symlink():
                raise RunFolderError(f"{path}: expected no link in a run folder, found one to {os.readlink(path)}")


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All values of a table with their dotted keys; without recursion, because a stranger chose its depth."""
    waiting: list[tuple[str, Any]] = [("", values)]
    while waiting:
        key, value = waiting.pop()
        inner: Iterator[tuple[Any, Any]] = iter(())
        if isinstance(value, Mapping):
            inner = iter(value.items())
        elif isinstance(value, list | tuple):
            inner = iter(enumerate(value))
        else:
            yield key, value
        waiting.extend((f"{key}.{part}".lstrip("."), below) for part, below in inner)

"""FEMNIST as LEAF's scripts write it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from fedpace.core import DataError, one_line, parse_json
from fedpace.data._encode import encode
from fedpace.data.data import Data
from fedpace.data.examples import Array, Examples
from fedpace.data.sources._cache import cached
from fedpace.data.sources._characters import CHARACTERS, Characters, chosen
from fedpace.data.sources._images import resized
from fedpace.data.sources._source import ImageSource, sources

KEYS = {"users": list, "num_samples": list, "user_data": dict}


@sources.register("leaf")
class Leaf(ImageSource):
    """FEMNIST in LEAF's JSON files, in ``path/train/`` and ``path/test/`` or alone in ``path``; a domain is a writer.

    A file holds ``users``, ``num_samples`` (as many numbers) and ``user_data``: for each user ``x``, images as lists of
    numbers from 0 to 1, and ``y``, their labels from 0 to 61 (Caldas et al., 2018).

    Parameters: ``path``; ``characters``: all 62, or the 10 digits (as GMA uses it); ``size`` to resize to.
    """

    path: Path
    characters: Characters = "all"

    def load(self) -> Data:
        """Read all files, and keep the characters that were chosen."""
        splits = json_splits(self.path)
        if not splits:
            raise DataError(f"{self.path}: expected LEAF's JSON files in train/ and test/ or alone, found none")
        read = [_read(files, self.size) for files in splits]
        writers, names = encode(f"{self.path}: users", [users for _, _, users in read])
        sides = []
        for files, (images, labels, _), own in zip(splits, read, writers, strict=True):
            try:
                sides.append(Examples(images, labels, CHARACTERS, own, names))
            except DataError as error:
                raise DataError(f"{files[0].parent}: {error}") from None
        return chosen(Data(self.path.stem, *sides), self.characters)


def json_splits(path: Path) -> list[list[Path]]:
    """LEAF's files of the training set and, if there is one, of the test set; nothing if there are none."""
    if not path.is_dir():
        return [[path]] if path.is_file() and path.suffix == ".json" else []
    for root in (path, path / "data"):
        train, test = (sorted((root / split).glob("*.json")) for split in ("train", "test"))
        if train:
            return [train, test] if test else [train]
    alone = not any(entry.is_dir() for entry in path.iterdir())  # beside folders, a JSON file is about something else
    files = sorted(path.glob("*.json")) if alone else []
    return [files] if files else []


def _read(files: list[Path], size: int | None) -> tuple[Array, Array, Array]:
    """Images, labels and users of a split, one per example; kept, because gigabytes of JSON take minutes to read."""
    parsed = cache(lambda: _parse(files))
    return (
        cached(files, f"LEAF images, size {size}", lambda: resized(parsed()[0], size)),
        cached(files, "LEAF labels", lambda: parsed()[1]),
        cached(files, "LEAF users", lambda: parsed()[2]),
    )


def _parse(files: list[Path]) -> tuple[Array, Array, Array]:
    found = [user for file in files for user in _users(file)]
    sides = sorted({images.shape[1] for _, images, _ in found})
    if len(sides) != 1:
        raise DataError(f"{files[0].parent}: expected images of one size, found {sides or 'none'}")
    users = np.repeat([name for name, _, _ in found], [len(labels) for _, _, labels in found])
    return np.concatenate([images for _, images, _ in found]), np.concatenate([labels for _, _, labels in found]), users


def _users(file: Path) -> Iterator[tuple[str, Array, Array]]:
    """Name, images and labels of each user in a file."""
    content = _content(file)
    users, counts, examples = (content[key] for key in KEYS)
    if len(users) != len(counts):
        raise DataError(f"{file}: expected a number for each user, found {len(users)} users and {len(counts)} numbers")
    for user in (*users, *examples):
        if not _is_name(user):
            raise DataError(f"{file}: expected names of users, found {user!r}")
    if len(set(users)) < len(users):
        twice = next(user for number, user in enumerate(users) if user in users[:number])
        raise DataError(f"{file}: user '{twice}' is listed twice in 'users'")
    for user in sorted(examples.keys() - set(users)):
        raise DataError(f"{file}: user '{user}' is in 'user_data', but not in 'users'")
    for user, count in zip(users, counts, strict=True):
        if user not in examples:
            raise DataError(f"{file}: user '{user}' is in 'users', but not in 'user_data'")
        where = f"{file}: user '{user}'"
        x, y = (_list(where, examples[user], key) for key in ("x", "y"))
        if type(count) is not int or not len(x) == len(y) == count:
            raise DataError(f"{where} has {len(x)} images and {len(y)} labels, but num_samples is {count!r}")
        if count:
            yield user, _pixels(where, x), _labels(where, y)


def _is_name(value: Any) -> bool:
    """Whether a value is a text of which a file and a terminal can be told."""
    return isinstance(value, str) and not any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in value)


def _list(where: str, own: Any, key: str) -> list[Any]:
    found = own.get(key, []) if isinstance(own, dict) else own
    if not isinstance(found, list) or found is own:
        raise DataError(f"{where}: expected lists 'x' and 'y', found {type(found).__name__}")
    return found


def _content(file: Path) -> dict[str, Any]:
    try:
        content: Any = parse_json(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: expected a complete JSON file, but it cannot be read ({one_line(error)})") from None
    table: dict[str, Any] = content if isinstance(content, dict) else {}
    for key, kind in KEYS.items():
        if not isinstance(table.get(key), kind):
            raise DataError(
                f"{file}: expected LEAF's keys {', '.join(KEYS)}, but '{key}' is missing or no {kind.__name__}"
            )
    return table


def _pixels(where: str, x: list[Any]) -> Array:
    """Square grey images of numbers from 0 to 1."""
    flat = _numbers(x, "iuf")
    side = isqrt(flat.shape[1]) if flat.ndim == 2 else 0
    if not side or flat.shape[1] != side**2 or flat.min() < 0 or not flat.max() <= 1:
        raise DataError(f"{where}: expected images as lists of 784 numbers from 0 to 1, found something else")
    pixels: Array = np.rint(flat * 255).astype(np.uint8).reshape(-1, side, side, 1)
    return pixels


def _labels(where: str, y: list[Any]) -> Array:
    labels = _numbers(y, "i")
    if labels.ndim != 1:
        raise DataError(f"{where}: expected whole numbers from 0 to {len(CHARACTERS) - 1} as labels, found {y[0]!r}")
    return labels.astype(np.int64)


def _numbers(values: list[Any], kinds: str) -> Array:
    """As an array of one of these kinds; nothing, in no dimension that anybody expects, if there are others."""
    try:
        found = np.asarray(values)
    except ValueError:  # lists of different lengths
        return np.empty((0, 0, 0))
    return found if found.dtype.kind in kinds else np.empty((0, 0, 0))

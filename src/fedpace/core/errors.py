"""Errors that a user can cause. Each message is one line: what was expected, what was found, how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fedpace.core.text import one_line

LONGEST_MESSAGE = 2_000  # characters


class FedpaceError(Exception):
    """Base of all errors that the command line shows as one line and exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message)[:LONGEST_MESSAGE])  # names and values from outside may hold anything


class ConfigError(FedpaceError):
    """A preset, key or value that cannot be used."""


class DataError(FedpaceError):
    """Data that is missing, damaged or does not fit."""


class PartitionError(FedpaceError):
    """A partition that cannot be made of this data."""


class ModelError(FedpaceError):
    """A model that cannot be built or does not fit the data."""


class ClientError(FedpaceError):
    """Every client of a round failed, or a client sent something that the guard was told to refuse."""


class RunFolderError(FedpaceError):
    """A run folder that holds something else, is damaged, or cannot be written."""


def same_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant: whoever types it need not remember where it has hyphens and where underscores.

    >>> same_name("and_mask", ["and-mask", "gma"]), same_name("gma-", ["and-mask", "gma"])
    ('and-mask', None)
    """
    return next((each for each in known if each.replace("-", "_") == name.replace("-", "_")), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error message: the nearest known name, or all of them.

    >>> did_you_mean("fedavgg", ["fedavg", "gma"])
    "did you mean 'fedavg'?"
    >>> did_you_mean("zzz", ["fedavg", "gma"])
    'known: fedavg, gma'
    """
    known = sorted(known)
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known) or 'none'}"

"""Shadow models: a run done again on random halves of what is to be attacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpace.core import derive, numpy_stream
from fedpace.data import Federation, Shard
from fedpace.engine import Cohort, Measuring
from fedpace.experiments.config import RunConfig
from fedpace.experiments.run import Model, execute

Drawn = Sequence[tuple[Shard, Tensor]]
"""Shards, and positions of some of their examples."""


@dataclass(frozen=True)
class Shadow:
    """A trained module, and which of the drawn examples it was trained on, in their order."""

    module: nn.Module
    inside: NDArray[np.bool_]


def train_shadows(
    config: RunConfig, federation: Federation, drawn: Drawn, number: int, *, seed: int, model: Model | None
) -> Iterator[Shadow]:
    """Train ``number`` models as ``config`` says, each on a half of the ``drawn`` examples, with seeds of their own.

    Two halves at a time make a whole, so that each example is in one half of all models. Every shard's part of a
    half is a client; one part that has no client of its own (of a test set) is dealt to as many as the others are.
    """
    clients = max(len(drawn) - 1, 1)
    size = sum(len(positions) for _, positions in drawn)
    for pair in range(number // 2):
        rng = numpy_stream(seed, "shadows", pair)
        half = np.zeros(size, bool)
        half[rng.permutation(size)[: size // 2]] = True
        for which, inside in enumerate((half, ~half)):
            shards = _dealt(drawn, inside, clients, rng)
            names = tuple(map(str, range(len(shards))))
            dealt = replace(federation, clients=shards, client_names=names, client_tests=None)
            again = _again(config, len(shards), derive(seed, "shadow", pair, which))
            trained = execute(again, data=dealt, model=model).module
            assert trained is not None  # only results that were read from a folder have none
            yield Shadow(trained, inside)


def _dealt(drawn: Drawn, inside: NDArray[np.bool_], clients: int, rng: np.random.Generator) -> tuple[Shard, ...]:
    """Clients with the examples that are ``inside``; the last of the ``drawn`` is the test set."""
    sizes = [len(positions) for _, positions in drawn]
    parts = []
    for at, ((shard, positions), chosen) in enumerate(zip(drawn, np.split(inside, np.cumsum(sizes)[:-1]), strict=True)):
        indices = shard.indices[positions.numpy()[chosen]]
        deals = np.array_split(rng.permutation(indices), clients) if at == len(drawn) - 1 else [indices]
        parts += [(shard, np.sort(dealt)) for dealt in deals if len(dealt)]
    augmentations = drawn[0][0].augmentations
    return tuple(replace(shard, indices=indices, augmentations=augmentations) for shard, indices in parts)


def _again(config: RunConfig, clients: int, seed: int) -> RunConfig:
    """The same run on other clients, all of them honest; data come as they were shifted and augmented."""
    cohort = Cohort(fraction=config.cohort.fraction, number=config.cohort.number and min(config.cohort.number, clients))
    asynchronous = config.asynchronous and config.asynchronous.among(clients)
    return config.model_copy(
        update={
            "seed": seed,
            "cohort": cohort,
            "asynchronous": asynchronous,
            "data": config.data.model_copy(update={"augment": ()}),
            "attackers": 0.0,
            "secure": None,
            "track": (),
            "measuring": Measuring(every=config.rounds, per_client=0, pairwise=0),
        }
    )

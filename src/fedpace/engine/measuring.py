"""How well the global model does, on the test set and for each participant."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Any, Literal

from pydantic import Field

from fedpace.client import Evaluation
from fedpace.core import ClientError, Dropped, Settings, Tensors, Update, numpy_stream, one_line
from fedpace.data import Federation
from fedpace.engine.cohort import drawn
from fedpace.engine.worker import Turn
from fedpace.tasks import Sums, Task, added

log = logging.getLogger("fedpace")

MANY = 10_000  # clients that are more than figures need
CHUNK = 500  # test images per turn: fixed, so that sums do not depend on the number of workers


class Measuring(Settings):
    """What is measured: the test set ``every`` so many rounds, and each client on at most ``per_client`` examples.

    ``clients`` are those of the round's ``cohort``, or ``all``. A client without a test split of its own is measured on
    its training examples. Where all clients are measured, which those with models of their own always are, a ``sample``
    of so many stands for them: drawn once for the run, so that rounds can be compared. ``pairwise`` is the largest
    number of clients of a round whose updates are kept to compare every pair; 0 saves that memory.
    """

    every: int = Field(1, ge=1)
    per_client: int = Field(250, ge=0)
    clients: Literal["cohort", "all"] = "cohort"
    sample: int | None = Field(None, ge=1)
    pairwise: int = Field(32, ge=0)

    def due(self, number: int, rounds: int) -> bool:
        """Whether a round is measured; the last one always is."""
        return (number + 1) % self.every == 0 or number + 1 == rounds

    def measured(self, population: int, cohort: Sequence[int], seed: int) -> Sequence[int]:
        """The clients that a round measures."""
        return self.everybody(population, seed) if self.clients == "all" else cohort

    def everybody(self, population: int, seed: int) -> Sequence[int]:
        """All clients, or the sample that stands for them."""
        if self.sample is None or self.sample >= population:
            return range(population)
        return drawn(numpy_stream(seed, "measured"), population, self.sample)

    def check(self, population: int, *, personal: bool) -> list[str]:
        """A warning where each round would measure very many clients, because all of them."""
        if population <= MANY or self.sample is not None or not (personal or self.clients == "all"):
            return []
        return [f"every measured round asks all {population} clients; measuring.sample = 1000 asks as many of them"]

    def turns(self, federation: Federation, clients: Sequence[int], state: Callable[[int], Tensors]) -> list[Turn]:
        """The test set in chunks, then one turn for each of the ``clients``, with the ``state`` that it keeps."""
        size = len(federation.test)
        turns = [Turn(-1, Evaluation(start=s, stop=s + CHUNK), 0, on="test") for s in range(0, size, CHUNK)]
        for client in clients if self.per_client else ():
            shard = (federation.client_tests or federation.clients)[client]
            step = max(len(shard) // self.per_client, 1)  # evenly spread, because shards are sorted by class
            work = Evaluation(stop=step * self.per_client, step=step)
            turns.append(Turn(client, work, 0, on="client_test", state=state(client)))
        return turns


def collect(answers: Iterable[tuple[Turn, Update]], task: Task, *, personal: bool = False) -> dict[str, Any]:
    """Metrics on the test set and of each client; of ``personal`` models, those over all clients' tests.

    Clients whose answers say nothing are ``unmeasured``: left out and named. Without any figure at all the run ends.
    """
    total: Sums = {}
    clients: dict[int, dict[str, float]] = {}
    unmeasured: list[Dropped] = []
    for turn, answer in answers:
        if turn.on == "test":
            if answer.failure:
                raise ClientError(f"the model could not be evaluated: {answer.failure}")
            total = added(total, answer.metrics)
            continue
        found = _measured(answer, task)
        if isinstance(found, str):
            log.warning("evaluation of client %d dropped: %s", turn.client, found)
            unmeasured.append(Dropped(turn.client, f"evaluation: {found}"))
        elif found:
            clients[turn.client] = found
            total = added(total, answer.metrics) if personal else total
    if not total and unmeasured:
        raise ClientError(f"the model could not be evaluated; the first client with {unmeasured[0].reason}")
    try:
        metrics = task.measured(total)
    except ArithmeticError as error:
        if not personal:
            raise
        log.warning("the clients' sums make no figure together: %s", one_line(error))  # one of them lies
        metrics = {}
    return {"metrics": metrics, "client_metrics": clients, "unmeasured": unmeasured}


def _measured(answer: Update, task: Task) -> dict[str, float] | str:
    """A client's metrics, or why there are none; a client without examples has none and did nothing wrong."""
    if answer.failure or not answer.metrics:
        return answer.failure or {}
    try:
        if not answer.metrics["count"] > 0:
            raise ValueError(f"expected a count above 0, found {answer.metrics['count']:g}")
        found = task.measured(answer.metrics)
        if wrong := [each.name for each in task.metrics if each.percent and not _may_be_share(found[each.name])]:
            raise ValueError(f"{wrong[0]}: expected a share, found {found[wrong[0]]:g}")
        return found
    except Exception as error:  # whatever a task says to sums that are not its own
        return f"its sums cannot be used ({type(error).__name__}: {one_line(error)})"


def _may_be_share(value: float) -> bool:
    return isnan(value) or 0 <= value <= 1

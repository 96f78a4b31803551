"""How well the global model does, on the test set and for each participant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from pydantic import Field

from fedpace.client import Evaluation
from fedpace.core import ClientError, Settings, Tensors, Update
from fedpace.data import Federation
from fedpace.engine.worker import Turn
from fedpace.tasks import Sums, Task, added

CHUNK = 500  # test images per turn: fixed, so that sums do not depend on the number of workers


class Measuring(Settings):
    """What is measured: the test set ``every`` so many rounds, and each client on at most ``per_client`` examples.

    ``clients`` are those of the round's ``cohort``, or ``all``. A client without a test split of its own is measured on
    its training examples. ``pairwise`` is the largest number of clients of a round whose updates are kept to compare
    every pair; 0 saves that memory.
    """

    every: int = Field(1, ge=1)
    per_client: int = Field(250, ge=0)
    clients: Literal["cohort", "all"] = "cohort"
    pairwise: int = Field(32, ge=0)

    def due(self, number: int, rounds: int) -> bool:
        """Whether a round is measured; the last one always is."""
        return (number + 1) % self.every == 0 or number + 1 == rounds

    def measured(self, federation: Federation, cohort: Sequence[int]) -> Sequence[int]:
        """The clients that a round measures."""
        return range(len(federation)) if self.clients == "all" else cohort

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
    """Metrics on the test set and of each client; of ``personal`` models, those over all clients' tests."""
    total: Sums = {}
    clients: dict[int, dict[str, float]] = {}
    for turn, answer in answers:
        if answer.failure:
            raise ClientError(f"the model could not be evaluated: {answer.failure}")
        if turn.on == "test" or personal:
            total = added(total, answer.metrics)
        if turn.on != "test" and answer.metrics:
            clients[turn.client] = task.measured(answer.metrics)
    return {"metrics": task.measured(total), "client_metrics": clients}

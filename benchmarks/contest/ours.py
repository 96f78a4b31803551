"""fedpace, by its public interface. The option names the executor, and whether all pairs of updates are compared."""

from __future__ import annotations

import numpy as np
from benchmarks.contest.gate import Gate
from benchmarks.contest.setups import Job

from fedpace.core import RoundRecord
from fedpace.data import Hands, load
from fedpace.engine import Cohort, Executor, Listener, Measuring, Plan, Processes, Serial, train
from fedpace.engine.executors import executors
from fedpace.methods import LocalSGD

ENDLESS = 10**6


class Gated(Listener):
    """Lets every round wait at the gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def started(self, config: dict[str, object], rounds: int, first_round: int) -> None:
        """Before the first round."""
        self._gate()

    def finished_round(self, record: RoundRecord) -> None:
        """Before the next one."""
        self._gate()


def run(job: Job, gate: Gate) -> None:
    """Train without measuring anything that the set-up does not ask for."""
    set_up = job.set_up
    inputs, labels = job.stored()
    training = slice(0, job.test.start)
    test = inputs[job.test], labels[job.test]
    hands = Hands(np.arange(set_up.clients + 1) * set_up.examples)
    data = load((inputs[training], labels[training]), test=test).partition(hands)
    local = LocalSGD(
        optimizer="sgd", lr=set_up.learning_rate, weight_decay=0, epochs=1, batch=set_up.batch, max_steps=None
    )
    every = 1 if set_up.evaluated else ENDLESS
    pairwise = 32 if job.option == "cosines" else 0
    plan = Plan(
        rounds=ENDLESS,
        local=local,
        cohort=Cohort(number=set_up.cohort),
        measuring=Measuring(every=every, per_client=0, pairwise=pairwise),
        executor=executor(job),
    )
    train(set_up.module(), data, plan, listeners=[Gated(gate)])


def executor(job: Job) -> Executor:
    """The one that the option names, else the one for so many workers."""
    if job.option in executors.names():
        return executors.get(job.option)()
    return Serial() if job.workers == 1 else Processes(workers=job.workers)

"""The search as the engine drives it: each candidate is judged on the answers to *its* path."""

import pytest
import torch

from fedpace.data import load
from fedpace.engine import Plan, Serial, train
from fedpace.models import build
from fedpace.server import Annealing, Schedule
from fedpace.server.annealing import Acceptance
from tests.stages import stage_with

SEEN = []


class Notes(Acceptance):
    """Accepts nothing and writes down what it is shown."""

    def accepts(self, candidate, reference):
        SEEN.append(candidate)
        return False


def candidates(walk, clients=3, k=6):
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    data = load((inputs, inputs[:, :3].argmax(1)), test=(inputs[:5], inputs[:5, :3].argmax(1)))
    federation = data.partition("iid", clients=clients)
    search = Annealing(k=k, score="self", accept=Notes(), walk=walk)
    schedule = Schedule(base=stage_with(search=search))
    SEEN.clear()
    train(
        build("linear", federation.shape, 3, seed=0), federation, Plan(schedule=schedule, rounds=1, executor=Serial())
    )
    return list(SEEN)


@pytest.mark.parametrize("walk", ["best", "ratchet", "random_walk"])
def test_every_candidate_is_compared_client_by_client(walk):
    """At ρ = 1e-5 each client's gradient is nearly its own at θ; mixed-up clients would differ."""
    seen = candidates(walk)
    assert len(seen) == 6
    assert [candidate.score for candidate in seen] == pytest.approx([1.0] * 6, abs=1e-4)

"""Local training shares nothing, and is nothing but training."""

import torch

from fedpace.engine import Cohort
from fedpace.methods import LocalOnly, LocalSGD
from tests.client.helpers import Bench, normed

from .bench import STEPS, Client, run


def test_turns_are_local_training_that_goes_on_bitwise():
    client, plain = Client(LocalOnly(**STEPS)), Bench(normed())
    work = LocalSGD(**STEPS)
    for seed in (7, 8):
        update = client.turn(seed)
        plain.model.buffers.copy_(client.buffers)
        work.training(plain.model.vector, client.training, plain.context(seed)).run()
        assert torch.equal(update.state["personal"], plain.model.vector)
    assert update.vector.shape == (0,)


def test_what_the_server_sends_and_who_else_trains_does_not_matter():
    three, two = run(LocalOnly(**STEPS), cohort=Cohort()), run(LocalOnly(**STEPS), cohort=Cohort(late=1))
    for one, other in zip(three.records, two.records, strict=True):
        assert one.client_headlines[0] == other.client_headlines[0]
        assert (one.bytes_up, one.bytes_down) == (0, 0)
        assert (one.similarity, one.agreement) == (None, None)
    assert three.records[-1].client_headlines[2] != two.records[-1].client_headlines[2]

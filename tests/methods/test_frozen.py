"""What the steps of each phase change; everything else stays as it is to the bit, although weight decay pulls at it."""

import re
from itertools import pairwise

import pytest
import torch

from fedpace.methods import methods

from .bench import METHODS, STEPS, Client, noise

EPOCH = 5  # batches of 8 in 40 examples
BASE, HEAD, GLOBAL_HEAD, NOTHING = r"[01]\.", r"3\.", r"head_g\.", "$"
FROZEN = {  # what each step leaves alone; a method that is not here freezes nothing
    "fedrep": [BASE] * EPOCH + [HEAD] * EPOCH,
    "fedpac": [BASE] * EPOCH + [HEAD] * EPOCH,
    "fedcp": [GLOBAL_HEAD] * EPOCH,
    "fedala": [BASE] * 11 * 4 + [NOTHING] * EPOCH,  # eleven passes over four fifths of the examples settle W
}


def watched(name):
    """A client of the method, and its tensors before each step."""
    seen = []

    class Watched(methods.get(name)):
        def loss_of(self, start, shard, context):
            inner = super().loss_of(start, shard, context)

            def loss(module, inputs, targets):
                if module is context.model.module:  # not a second model beside it
                    seen.append({key: tensor.detach().clone() for key, tensor in module.named_parameters()})
                return inner(module, inputs, targets)

            return loss

    return Client(Watched(**{**STEPS, "weight_decay": 0.1})), seen


@pytest.mark.parametrize("name", METHODS)
def test_what_is_frozen_stays_and_all_else_moves(name):
    client, seen = watched(name)
    client.turn(seed=1)
    client.vector = client.vector + noise(client.vector)
    seen.clear()
    client.turn(seed=2)
    frozen = FROZEN.get(name, [NOTHING] * len(seen))
    assert len(seen) == len(frozen) > 1
    for (before, after), still in zip(pairwise(seen), frozen[:-1], strict=True):
        moved = {key for key, tensor in after.items() if not torch.equal(tensor, before[key])}
        assert moved == {key for key in after if not re.match(still, key)}

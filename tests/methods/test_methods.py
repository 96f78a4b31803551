"""What holds for every registered method, and for pieces of work that are none."""

import copy

import pytest
import torch
from torch import nn

from fedpace.client import Context, works
from fedpace.core import ConfigError, FlatModule, parse
from fedpace.experiments import load_config
from fedpace.methods import Method, Personal, methods
from fedpace.tasks import Classification, NextToken, Regression
from tests.client.helpers import CLASSES, FEATURES, shard


@pytest.mark.parametrize("name", works.names())
def test_a_piece_of_work_is_no_method(name):
    assert not issubclass(works.get(name), Method)
    assert name not in methods.names()
    with pytest.raises(ConfigError, match="unknown method"):
        load_config("fedavg", {"local.name": name})


@pytest.mark.parametrize("name", methods.names())
def test_a_method_says_whether_clients_have_models_of_their_own(name):
    assert methods.get(name).personal == issubclass(methods.get(name), Personal)


@pytest.mark.parametrize("work", [methods.get(name)().work() for name in methods.names()], ids=methods.names())
def test_a_method_survives_a_message(work):
    assert parse(works, work.model_dump(mode="json")) == work


@pytest.mark.parametrize("name", methods.names())
def test_every_method_trains_what_the_task_asks_for(name):
    """The loss of another task has another gradient, hence another update."""
    method = methods.get(name)(batch=8, max_steps=2)
    module = method.prepare(nn.Sequential(nn.Linear(FEATURES, 6), nn.ReLU(), nn.Linear(6, CLASSES)), seed=0)
    data, moved = shard(), []
    for task in (Classification(), Classification(label_smoothing=0.4)):
        model = FlatModule(copy.deepcopy(module), method.layout(module))
        vector, state = model.layout.take_shared(model.vector).clone(), method.first_state(model)
        method.turn(vector, data, Context(model, model.buffers.clone(), 0, 7, {}, state, data, task))
        moved.append(model.vector.clone())
    assert not torch.equal(*moved)


@pytest.mark.parametrize(("name", "task"), [("fedrod", Regression()), ("fedpac", Regression()), ("fedcp", NextToken())])
def test_a_task_that_a_method_cannot_learn_has_a_reason(name, task):
    assert methods.get(name)().unfit_for(task)
    assert methods.get(name)().unfit_for(Classification()) is None

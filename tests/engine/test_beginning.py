"""What a run begins with: a task that fits the targets, a model that fits the task, a loss that can be descended."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpace.core import DataError, FedpaceError, ModelError
from fedpace.data import Data, Examples, Ragged, load
from fedpace.engine import initial_module, task_of
from fedpace.tasks import Classification, Multilabel, NextToken, Regression

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
LETTERS = tuple("abc")


def dealt(targets, inputs=X, **kinds):
    return Data("mine", Examples(inputs, targets, **kinds)).partition("iid", clients=2)


def tokens(longest=6):
    rows = [RNG.integers(0, len(LETTERS), RNG.integers(2, longest + 1)) for _ in range(40)]
    return dealt(Ragged.of(rows), Ragged.of(rows), vocabulary=LETTERS)


NUMBERS = dealt(X.sum(1))
CLASSES = dealt((X.sum(1) > 0).astype(np.int64), classes=("low", "high"))
LABELS = dealt((X > 0).astype(np.int64))


@pytest.mark.parametrize(
    ("federation", "task"),
    [(NUMBERS, Regression()), (CLASSES, Classification()), (LABELS, Multilabel()), (tokens(), NextToken())],
)
def test_targets_suggest_the_task(federation, task):
    assert task_of(federation) == task
    assert task_of(federation, task) is task


@pytest.mark.parametrize(
    ("federation", "task", "message"),
    [
        (
            NUMBERS,
            Classification(),
            "mine/iid, task 'classification': expected one class per example, found float32",
        ),
        (CLASSES, Regression(), "mine/iid, task 'regression': expected floats, found int64 targets; for classes use"),
        (CLASSES, Multilabel(), "expected a row of 2 zeros and ones per example"),
        (tokens(), Classification(), "expected one class per example"),
        (NUMBERS, NextToken(), "expected a row of tokens per text, found float32 targets"),
        (CLASSES, Classification(class_weights=(1.0,)), "class_weights: expected 2, one per class, found 1"),
    ],
)
def test_targets_of_another_kind_are_one_line(federation, task, message):
    with pytest.raises(DataError) as caught:
        task_of(federation, task)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


class NoScalar(Regression):
    def loss(self, outputs, targets):
        return (outputs.squeeze(1) - targets) ** 2


class NoGradient(Regression):
    def loss(self, outputs, targets):
        return (targets**2).mean()


class NoTensor(Regression):
    def loss(self, outputs, targets):
        return 0.5


class Fails(Regression):
    def loss(self, outputs, targets):
        raise ZeroDivisionError("in the user's\nloss")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (NoScalar(), "expected a loss that is a tensor without dimensions, found one of shape (2,)"),
        (NoGradient(), "expected a loss with a gradient, found none"),
        (NoTensor(), "expected a loss that is a tensor without dimensions, found float"),
        (Fails(), "its loss fails on a batch (ZeroDivisionError: in the user's loss)"),
    ],
)
def test_an_own_loss_that_cannot_be_descended_is_one_line(task, message):
    with pytest.raises(ModelError) as caught:
        initial_module("linear", NUMBERS, task, seed=0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("federation", "model", "message"),
    [
        (NUMBERS, nn.Linear(3, 2), "gives (2, 2) for 2 examples of shape (3,); expected outputs of shape (2, 1)"),
        (CLASSES, nn.Linear(3, 5), "its output size must match the data's 2 classes"),
        (LABELS, nn.Linear(3, 2), "expected outputs of shape (2, 3)"),
        (NUMBERS, nn.Linear(4, 1), "cannot take examples of shape (3,)"),
        (tokens(), nn.Embedding(3, 2), "expected outputs of shape"),
        (tokens(), nn.Embedding(2, 3), "rows, expected 3 or more"),
    ],
)
def test_a_model_that_does_not_fit_the_task_is_one_line(federation, model, message):
    with pytest.raises(FedpaceError) as caught:
        initial_module(model, federation, task_of(federation), seed=0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_batch_of_rows_that_differ_in_length_is_padded_so_that_padding_does_not_count():
    federation = tokens()
    task = task_of(federation)
    module = initial_module("char_lstm", federation, task, seed=0)
    inputs, targets = federation.clients[0].batch(slice(None), padding=task.padding)
    with torch.no_grad():
        together = task.loss(module.eval()(inputs), targets)
        total, count = 0.0, 0
        for position in range(len(targets)):
            own, wanted = federation.clients[0].batch(slice(position, position + 1), padding=task.padding)
            total += float(task.loss(module(own), wanted)) * wanted.numel()
            count += wanted.numel()
    assert float(together) == pytest.approx(total / count, rel=1e-5)


def test_a_trial_leaves_the_weights_and_the_random_numbers_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, other = (initial_module("mlp", load("diabetes").partition("iid"), Regression(), seed=1) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)

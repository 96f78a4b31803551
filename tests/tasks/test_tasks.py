"""Properties that hold for every task of the registry, and what each refuses."""

import math

import pytest
import torch
from torch.nn import functional as F

from fedpace.core import ConfigError, parse
from fedpace.tasks import Classification, Multilabel, NextToken, Regression, Task, added, tasks

N, OUTPUTS, LENGTH = 24, 5, 7


def batch(task, seed=0):
    """Outputs and targets of a task."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(task, NextToken):
        targets = torch.randint(OUTPUTS, (N, LENGTH), generator=generator)
        targets[0, 3:] = -100
        return torch.randn(N, LENGTH, OUTPUTS, generator=generator), targets
    outputs = torch.randn(N, OUTPUTS, generator=generator)
    if isinstance(task, Classification):
        return outputs, torch.randint(OUTPUTS, (N,), generator=generator)
    if isinstance(task, Multilabel):
        return outputs, torch.randint(2, (N, OUTPUTS), generator=generator).float()
    return outputs, torch.randn(N, OUTPUTS, generator=generator)


@pytest.fixture(params=tasks.names())
def task(request):
    return parse(tasks, request.param)


def test_the_loss_is_a_scalar_with_a_gradient(task):
    outputs, targets = batch(task)
    loss = task.loss(outputs.requires_grad_(), targets)
    loss.backward()
    assert loss.shape == ()
    assert outputs.grad.abs().sum() > 0


def test_metrics_do_not_depend_on_how_examples_are_divided(task):
    outputs, targets = batch(task)
    whole = task.measured(task.sums(outputs, targets))
    parts = {}
    for start, stop in ((0, 1), (1, 10), (10, N)):
        parts = added(parts, task.sums(outputs[start:stop], targets[start:stop]))
    assert task.measured(parts) == pytest.approx(whole, rel=1e-5)
    assert list(whole) == [metric.name for metric in task.metrics]
    assert task.headline is task.metrics[0]


def test_the_measured_loss_is_the_trained_one_where_nothing_is_smoothed(task):
    outputs, targets = batch(task)
    assert task.measured(task.sums(outputs, targets))["loss"] == pytest.approx(float(task.loss(outputs, targets)))


def test_its_own_targets_and_outputs_pass_and_others_are_refused(task):
    outputs, targets = batch(task)
    assert task.check_targets(targets, OUTPUTS) is None
    assert task.check_outputs(outputs, targets, OUTPUTS) is None
    assert "shape" in task.check_outputs(outputs[..., :-1], targets, OUTPUTS)
    others = [batch(parse(tasks, name))[1] for name in tasks.names() if name != task.registered_name()]
    refused = [task.check_targets(other, OUTPUTS) for other in others]
    assert all(
        refused[i] for i, other in enumerate(others) if other.dtype != targets.dtype or other.dim() != targets.dim()
    )


def test_better_predictions_have_a_better_headline(task):
    outputs, targets = batch(task)
    if isinstance(task, Regression):
        good = targets.clone()
    elif isinstance(task, Multilabel):
        good = targets * 2 - 1
    else:
        good = F.one_hot(targets.clamp(min=0), OUTPUTS).float()
    name = task.headline.name
    better, worse = (task.measured(task.sums(found, targets))[name] for found in (good, outputs))
    assert (better > worse) == task.headline.rises
    assert better == pytest.approx(1.0)


def test_a_task_survives_its_config(task):
    assert parse(tasks, task.model_dump()) == task


@pytest.mark.parametrize(
    ("task", "targets", "reason"),
    [
        (Classification(), torch.rand(4), "regression"),
        (Classification(), torch.tensor([0, 5]), "from 0 to 4, found 0 to 5"),
        (Classification(class_weights=(1.0, 2.0)), torch.tensor([0, 1]), "expected 5, one per class, found 2"),
        (Multilabel(), torch.full((2, OUTPUTS), 0.5), "0 or 1"),
        (Regression(), torch.tensor([[math.nan] * OUTPUTS]), "NaN"),
        (Regression(), torch.tensor([1, 2]), "classification"),
        (NextToken(), torch.tensor([[0, 9]]), "from 0 to 4, found 0 to 9"),
    ],
)
def test_targets_that_cannot_be_meant_are_refused_with_the_reason(task, targets, reason):
    assert reason in task.check_targets(targets, OUTPUTS)


def test_smoothing_and_weights_change_what_is_trained_and_not_what_is_measured():
    outputs, targets = batch(Classification())
    plain = Classification()
    for changed in (Classification(label_smoothing=0.1), Classification(class_weights=(1, 2, 3, 4, 5))):
        assert changed.loss(outputs, targets) != plain.loss(outputs, targets)
        assert changed.sums(outputs, targets) == plain.sums(outputs, targets)


def test_huber_is_linear_far_away():
    near, far = (Regression(error="huber", delta=0.1).loss(torch.tensor([x]), torch.zeros(1)) for x in (10.0, 20.0))
    assert far - near == pytest.approx(1.0)


def test_padding_counts_neither_in_the_loss_nor_in_the_metrics():
    outputs, targets = batch(NextToken())
    padded = torch.cat([targets, torch.full((N, 2), -100)], 1)
    more = torch.cat([outputs, torch.randn(N, 2, OUTPUTS)], 1)
    assert NextToken().loss(more, padded) == pytest.approx(float(NextToken().loss(outputs, targets)))
    assert NextToken().sums(more, padded)["count"] == NextToken().sums(outputs, targets)["count"]


def test_constant_targets_have_no_r2():
    assert math.isnan(Regression().measured(Regression().sums(torch.rand(4, 1), torch.ones(4, 1)))["R²"])


@pytest.mark.parametrize("table", [{"name": "classifcation"}, {"name": "classification", "class_weights": [0, 0]}])
def test_a_wrong_task_is_one_line(table):
    with pytest.raises(ConfigError):
        parse(tasks, table)


def test_everything_registered_is_a_task():
    assert all(issubclass(tasks.get(name), Task) for name in tasks.names())

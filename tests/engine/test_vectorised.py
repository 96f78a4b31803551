"""Many clients as one computation: what each would have answered alone, up to rounding."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedpace.aggregation import Dampened, Mean
from fedpace.attacks import SignFlip
from fedpace.core import ConfigError, derive
from fedpace.data import Federation, Ragged, Shard, load
from fedpace.data.shifts import Rotated
from fedpace.engine import Attackers, Cohort, Listener, Serial, Turn, Vectorised, train
from fedpace.engine.executors import vectorised
from fedpace.methods import (
    FedALA,
    FedRep,
    LGFedAvg,
    LocalOnly,
    LocalSGD,
    MethodTurn,
    Proximal,
    Scaffold,
    methods,
)
from fedpace.models import build
from fedpace.server import Guard, Pace, Schedule
from fedpace.tasks import Classification, Multilabel, NextToken, Regression
from tests.elsewhere import AWAY, Elsewhere, place
from tests.engine import small
from tests.records import untimed
from tests.stages import stage_with

SIZES = (23, 7, 40, 12, 7, 31)  # of different lengths, two of them smaller than a batch
SGD = {"optimizer": "sgd", "lr": 0.1, "batch": 10, "epochs": 2}


def cut(data: Federation, sizes=SIZES) -> Federation:
    """The same clients with so many examples."""
    shards = (replace(s, indices=s.indices[:size]) for s, size in zip(data.clients, sizes, strict=True))
    return replace(data, clients=tuple(shards))


def federation() -> Federation:
    return cut(load("digits").partition("iid", clients=len(SIZES), seed=0, test_share=0.2))


def mlp(shape=(1, 8, 8), outputs=10) -> nn.Module:
    return build({"name": "mlp", "width": 16}, shape, outputs, 0)


def run(executor, local, data=None, module=None, folder=None, **changes):
    settings = {"schedule": Schedule(), "rounds": 3, "local": local, "executor": executor}
    return train(
        copy.deepcopy(module) or mlp(), data or federation(), small.plan(**{**settings, **changes}), folder=folder
    )


def check_same(local, data=None, module=None, **changes):
    """Both executors come to the same model, and nobody trained alone."""
    alone = run(Serial(), local, data, module, **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MethodTurn, "__call__", None)
        together = run(Vectorised(), local, data, module, **changes)
    assert together.warnings == alone.warnings
    torch.testing.assert_close(small.weights(together.module), small.weights(alone.module), rtol=1e-4, atol=1e-5)
    for one, other in zip(alone.records, together.records, strict=True):
        assert (other.bytes_up, other.dropped) == (one.bytes_up, [])
        assert other.train_loss == pytest.approx(one.train_loss, rel=1e-4)
        assert other.metrics == pytest.approx(one.metrics, rel=1e-3, nan_ok=True)
        for client, metrics in one.client_metrics.items():
            assert other.client_metrics[client] == pytest.approx(metrics, rel=1e-3, nan_ok=True)


LOCALS = {
    "sgd": LocalSGD(**SGD),
    "momentum": LocalSGD(**SGD, momentum=0.9),
    "adam": LocalSGD(batch=10),
    "another optimizer": LocalSGD(optimizer="adamw", batch=10, options={"amsgrad": True}),
    "clipping": LocalSGD(**SGD, clip=0.5),
    "accumulation": LocalSGD(**SGD, accumulate=2),
    "few steps": LocalSGD(**{**SGD, "epochs": 5}, max_steps=3),
    "a rate that falls": LocalSGD(**SGD, rate="cosine"),
    "proximal": Proximal(**SGD, mu=1.0),
    "scaffold": Scaffold(lr=0.1, batch=10),
    "lg_fedavg": LGFedAvg(**SGD),
    "local_only": LocalOnly(**SGD),
    "fedrep": FedRep(**SGD, head_epochs=2, clip=0.7),
}


@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS)
def test_clients_that_train_together_learn_what_each_would_learn_alone(local):
    check_same(local, cohort=Cohort(number=4))


@pytest.mark.parametrize("local", [LocalSGD(**SGD), LocalSGD(batch=10), LGFedAvg(**SGD)], ids=["sgd", "adam", "lg"])
def test_a_pace_slows_all_of_them_down(local):
    stage = stage_with(name="pace", first=0, last=2, rule=Dampened(), pace=Pace())
    check_same(local, schedule=Schedule(stages=(stage,)))


def test_gradients_are_taken_together():
    stage = stage_with(name="gradients", first=0, last=2, sends="gradient", rule=Mean())
    check_same(LocalSGD(**SGD), schedule=Schedule(stages=(stage,)))


@pytest.mark.parametrize("change", ["augmented", "shifted", "pools of their own"])
def test_clients_that_make_their_batches_themselves(change):
    data = federation()
    if change == "augmented":
        data = data.augmented({"name": "crop", "padding": 1}, "flip")
    elif change == "shifted":
        data = data.shifted(Rotated())
    else:
        own = (Shard(s.pool.take(s.indices), np.arange(len(s))) for s in data.clients)
        data = replace(data, clients=tuple(own))
    check_same(LocalSGD(**SGD), data)


RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(120, 5)).astype(np.float32)
NAMED = {"numbers": ROWS[:, :2], "kind": RNG.integers(0, 4, (120, 1))}


def dealt(inputs, targets) -> Federation:
    return cut(
        load((inputs, targets), test=(inputs, targets)).partition("iid", clients=6, seed=0), (9, 20, 14, 3, 5, 20)
    )


class TwoInputs(nn.Module):
    """Takes numbers and a category by name."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(4, 3), nn.Linear(5, 3)

    def forward(self, numbers, kind):
        return self.head(torch.cat([numbers, self.table(kind[:, 0])], 1))


class Strange(Regression):
    """A task of one's own whose loss depends on values, which vmap cannot do."""

    def loss(self, outputs, targets):
        return F.mse_loss(outputs, targets) * (2 if outputs.mean() > 0 else 1)


TASKS = {
    "weights": (Classification(class_weights=tuple(range(1, 11))), federation, mlp),
    "label smoothing": (Classification(label_smoothing=0.1, class_weights=tuple(range(1, 11))), federation, mlp),
    "regression": (Regression(), lambda: dealt(ROWS, ROWS[:, :2]), lambda: mlp((5,), 2)),
    "huber": (Regression(error="huber"), lambda: dealt(ROWS, ROWS[:, 0]), lambda: mlp((5,), 1)),
    "several labels": (Multilabel(), lambda: dealt(ROWS, (ROWS[:, :3] > 0) * 1), lambda: mlp((5,), 3)),
    "two inputs": (Classification(), lambda: dealt(NAMED, NAMED["kind"][:, 0] % 3), TwoInputs),
    "a loss of one's own": (Strange(), lambda: dealt(ROWS, ROWS[:, :2]), lambda: mlp((5,), 2)),
}


@pytest.mark.parametrize(("task", "data", "module"), TASKS.values(), ids=TASKS)
def test_every_task_is_learnt_together(task, data, module):
    check_same(LocalSGD(**SGD), data(), module(), task=task)


def test_texts_of_different_length_are_learnt_together():
    texts = ["hello my dear friend, how are you", "fine", "not so well, thank you", "this and that", "no", "yes"] * 6
    data = load(texts).partition("iid", clients=4, seed=0)
    assert isinstance(data.clients[0].pool.inputs, Ragged)
    model = {"name": "tiny_transformer", "width": 8, "heads": 2, "layers": 1}
    module = build(model, data.shape, data.outputs, 0)
    check_same(LocalSGD(**{**SGD, "batch": 3}), data, module, task=NextToken())


def test_frozen_parameters_and_tensors_that_layers_share_stay_so():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10))
    module[1].weight.requires_grad_(False)
    module.append(nn.Linear(10, 10))
    module.append(nn.Linear(10, 10))
    module[-1].weight = module[-2].weight
    check_same(LocalSGD(**SGD), module=module)


def test_images_in_a_network_of_convolutions():
    module = build({"name": "small_cnn", "norm": "group"}, (1, 8, 8), 10, 0)
    check_same(LocalSGD(**SGD, max_steps=2), module=module, rounds=2)


def test_groups_are_as_large_as_the_memory_and_their_size_changes_nothing(monkeypatch):
    seen = []
    answers = vectorised.Worker.answers

    def counted(self, turns, *asked):
        seen.append(len(turns))
        return answers(self, turns, *asked)

    monkeypatch.setattr(vectorised.Worker, "answers", counted)
    large = run(Vectorised(), LocalSGD(**SGD), rounds=1)
    assert seen[0] == len(SIZES)
    seen.clear()
    small_groups = run(Vectorised(memory=0.15), LocalSGD(**SGD), rounds=1)
    assert seen[:2] == [3, 3]
    torch.testing.assert_close(small.weights(small_groups.module), small.weights(large.module))
    seen.clear()
    run(Vectorised(memory=0.01), LocalSGD(**SGD), rounds=1)
    assert not seen


class Raises(LocalSGD):
    """Some clients fail once they have trained."""

    in_phases = True

    def answer(self, vector, shard, context, loss, kept):
        if context.client in (1, 4):
            raise RuntimeError("no answer")
        return super().answer(vector, shard, context, loss, kept)


def test_a_client_that_fails_is_dropped_alone():
    outcome = run(Vectorised(), Raises(**SGD), rounds=1)
    assert [(drop.client, drop.reason) for drop in outcome.records[0].dropped] == [
        (1, "RuntimeError: no answer"),
        (4, "RuntimeError: no answer"),
    ]
    reason = "some clients were trained one after another (RuntimeError: no answer)"
    assert outcome.warnings == [f"executor 'vectorised': {reason}"]
    expected = run(Serial(), Raises(**SGD), rounds=1)
    torch.testing.assert_close(small.weights(outcome.module), small.weights(expected.module))


class Inherits(LocalSGD):
    """Changes what a turn is, and says nothing about it."""

    def turn(self, vector, shard, context):
        update = super().turn(vector, shard, context)
        update.vector *= 2
        return update


@pytest.mark.parametrize("local", [FedALA(**SGD), Inherits(**SGD)], ids=["fedala", "of one's own"])
def test_other_methods_run_one_client_after_another_to_the_bit(local):
    alone, together = (run(executor, local, rounds=2) for executor in (Serial(), Vectorised()))
    assert torch.equal(small.weights(together.module), small.weights(alone.module))
    assert untimed(together.records) == untimed(alone.records)
    why = f"because turns of '{local.registered_name()}' are more than plain steps in float32"
    assert together.warnings == [f"executor 'vectorised': clients train one after another, {why}"]


def test_methods_that_declare_nothing_of_their_own_inherit_no_promise():
    known = {name for name in methods.names() if methods.get(name).__dict__.get("in_phases")}
    assert known == {"sgd", "proximal", "scaffold", "lg_fedavg", "local_only", "fedrep"}
    assert not Inherits().stackable
    assert not LocalSGD(precision="bf16").stackable


class Branches(nn.Module):
    """Its course depends on values."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        scores = self.head(images.flatten(1))
        return scores if scores.sum() > 0 else -scores


class Mixes(Branches):
    """Compares the examples of a batch with each other."""

    def forward(self, images):
        scores = self.head(images.flatten(1))
        return scores - scores.mean(0)


REFUSED = {
    "batch norm": (small.module, r"layer 'features.0.1' \(BatchNorm2d\) .* it changes its buffer 'running_mean'"),
    "dropout": (
        lambda: nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)),
        r"layer '1' \(Dropout\) .* called random operation",
    ),
    "recurrent": (
        lambda: nn.Sequential(nn.Flatten(), Recurrent()),
        r"layer '1.lstm' \(LSTM\) .* Batching rule not implemented for aten::lstm",
    ),
    "branches": (Branches, r"the model \(Branches\) .* data-dependent control flow"),
    "mixes": (Mixes, r"the model \(Mixes\) .* together, gradients differ by [\d.]+% from those of each client"),
}


class Recurrent(nn.Module):
    """Reads the pixels one after another."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 10)

    def forward(self, pixels):
        return self.head(self.lstm(pixels[..., None])[0][:, -1])


@pytest.mark.parametrize(("module", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_model_that_cannot_train_together_is_refused_before_the_first_round(module, reason, tmp_path):
    with pytest.raises(ConfigError, match=f"^executor 'vectorised': {reason}.*expected executor = 'serial'") as error:
        run(Vectorised(), LocalSGD(**SGD), module=module(), folder=tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_goes_on_to_the_bit(tmp_path):
    local, changes = Scaffold(lr=0.1, batch=10), {"cohort": Cohort(number=4), "buffers": "local"}
    whole = run(Vectorised(), local, folder=tmp_path / "whole", **changes)
    plan = small.plan(schedule=Schedule(), rounds=3, local=local, executor=Vectorised(), **changes)

    class StopError(Exception):
        """In the middle of a run."""

    class Stopping(Listener):
        def finished_round(self, record):
            if record.round == 1:
                raise StopError

    with pytest.raises(StopError):
        train(mlp(), federation(), plan, folder=tmp_path / "cut", listeners=[Stopping()])
    resumed = train(mlp(), federation(), plan, folder=tmp_path / "cut", resume=True)
    assert torch.equal(small.weights(resumed.module), small.weights(whole.module))
    assert untimed(resumed.records) == untimed(whole.records)


def test_attackers_and_the_guard_see_the_same_updates():
    attackers = Attackers.among(len(SIZES), 0.4, SignFlip(), seed=0)
    check_same(LocalSGD(**SGD), attackers=attackers, guard=Guard(clip={"name": "fixed", "norm": 0.5}))


def test_updates_come_in_the_order_of_the_turns():
    data, local = federation(), LocalSGD(**SGD)
    turns = [Turn(client, local.work(), derive(0, client)) for client in (3, 0, 5, 1)]
    start = vectorised.Worker(mlp(), data).model
    with Serial().start(mlp(), data) as alone, Vectorised().start(mlp(), data) as together:
        together.prepare(local)
        both = (execution.run(turns, start.vector, start.buffers) for execution in (alone, together))
        for one, other in zip(*both, strict=True):
            assert (one.client, one.examples) == (other.client, other.examples)
            torch.testing.assert_close(other.vector, one.vector, rtol=1e-4, atol=1e-6)


def test_on_another_device_the_answers_are_those_of_the_host():
    data, local = federation(), LocalSGD(**SGD)
    turns = [Turn(client, local.work(), derive(0, client)) for client in range(3)]
    worker = vectorised.Worker(mlp(), data)
    vector, buffers = worker.model.vector.clone(), worker.model.buffers.clone()
    expected = [small.copied(update) for update in worker.answers(turns, vector, buffers, {})]
    with Elsewhere():
        worker.move(AWAY)
        answers = [small.copied(update) for update in worker.answers(turns, vector, buffers, {})]
        assert {place(update.vector) for update in answers} == {AWAY}
    for one, other in zip(expected, answers, strict=True):
        assert torch.equal(one.vector, other.vector)

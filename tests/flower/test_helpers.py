"""What ClientApps call gives what our own client work gives."""

import json

import pytest
import torch
from torch import nn

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedpace.client import Gradient, Probe
from fedpace.core import Perturbation, sketch
from fedpace.flower import FedGGA, FedPACE, InProcessGrid, answer_probe, apply_pace, gradient_reply, wants_gradient
from fedpace.methods import LocalSGD
from tests.client.helpers import Bench, normed, plain, shard

from .plain import one_round


def message(model, **config):
    InProcessGrid(ClientApp(), 1)  # says who sends
    names = [name for name, parameter in model.named_parameters()]
    config = ConfigRecord({"fedpace-parameters": names, **config})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "config": config}), 1, "train")


def flat(record, names):
    return torch.cat([torch.from_numpy(record[name].numpy()).flatten() for name in names])


def snapshot(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def unchanged(model, before):
    return all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("make", [plain, normed])
def test_a_gradient_reply_is_what_our_gradient_work_sends(make):
    bench, data, work = Bench(make()), shard(40), Gradient(epochs=1, batch=8)
    expected = bench.run(work, data)
    model = make().eval()
    before = snapshot(model)
    asked = message(model, **{"fedpace-send": "gradient"})
    assert wants_gradient(asked)
    reply = gradient_reply(asked, model, work.batches(data, bench.context()), examples=40)
    found = flat(reply.content["gradient"], bench.model.layout.names)
    torch.testing.assert_close(found, expected.vector, rtol=0, atol=1e-6)
    assert reply.content["metrics"]["num-examples"] == 40
    assert reply.content["metrics"]["loss"] == pytest.approx(expected.metrics["loss"], abs=1e-5)
    assert unchanged(model, before)
    assert not model.training


def test_no_batch_no_gradient():
    model = plain()
    with pytest.raises(ValueError, match="at least one batch"):
        gradient_reply(message(model), model, [])
    assert not wants_gradient(message(model))


PATHS = [(), (11,), (11, 12)]


def probe(model, paths=PATHS, rho=0.05, size=None):
    asked = {"perturbation": Perturbation(rho=rho).model_dump(mode="json"), "paths": paths, "batch": 8, "sketch": size}
    return message(model, **{"fedpace-probe": json.dumps(asked)})


@pytest.mark.parametrize("make", [plain, normed])
def test_an_answer_to_a_probe_is_what_our_probe_sends(make):
    bench, data, model = Bench(make()), shard(40), make()
    batch = next(Gradient(batch=8).batches(data, bench.context()))
    before = snapshot(model)
    reply = answer_probe(probe(model), model, batch)
    vectors = reply.content["probes"]["vectors"].numpy()
    for path, vector, loss in zip(PATHS, vectors, reply.content["metrics"]["loss"], strict=True):
        expected = bench.run(Probe(perturbation=Perturbation(rho=0.05), path=path, batch=8), data)
        torch.testing.assert_close(torch.from_numpy(vector), expected.vector, rtol=0, atol=1e-6)
        assert loss == pytest.approx(expected.metrics["loss"], abs=1e-5)
    assert unchanged(model, before)


def test_an_answer_to_a_probe_may_be_sketches():
    model, batch = plain(), shard(8).batch(torch.arange(8))
    whole = answer_probe(probe(model), model, batch).content["probes"]["vectors"].numpy()
    short = answer_probe(probe(model, size=4), model, batch).content["probes"]["vectors"].numpy()
    assert short.shape == (3, 4)
    torch.testing.assert_close(torch.from_numpy(short[1]), sketch(torch.from_numpy(whole[1]), 4))


def test_every_point_meets_the_same_dropout():
    model = nn.Sequential(nn.Linear(6, 30), nn.Dropout(), nn.Linear(30, 3))
    batch = (torch.randn(8, 6), torch.randint(3, (8,)))
    torch.manual_seed(0)
    reply = answer_probe(probe(model, [(), ()]), model, batch)
    first, second = reply.content["probes"]["vectors"].numpy()
    assert (first == second).all()


def test_frozen_parameters_have_no_gradient():
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    model[0].weight.requires_grad_(False)
    batch = (torch.randn(8, 6), torch.randint(3, (8,)))
    found = gradient_reply(message(model), model, [batch]).content["gradient"]
    assert not found["0.weight"].numpy().any()
    assert found["0.bias"].numpy().any()


def test_arrays_with_names_of_their_own_are_refused():
    model = nn.Linear(2, 2)
    asked = message(model)
    asked.content["arrays"] = ArrayRecord({"0": Array(torch.zeros(2, 2).numpy())})
    with pytest.raises(ValueError, match=r"state_dict\(\), found 0"):
        gradient_reply(asked, model, [])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_steps_at_a_pace_are_those_of_our_local_work(optimizer):
    settings = {"lr": 0.05} | ({} if optimizer == "adam" else {"momentum": 0.5})
    data, work = shard(40), LocalSGD(optimizer=optimizer, epochs=2, batch=8, **settings)
    bench, model = Bench(plain()), plain()
    pace = torch.rand(bench.model.layout.size, generator=torch.Generator().manual_seed(0)) * 2
    expected = bench.run(work, data, extras={"pace": pace})
    asked = message(model)
    tensors = {name: Array(view.numpy()) for name, view in bench.model.layout.tensors(pace)}
    asked.content["pace"] = ArrayRecord(tensors)
    start = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    chosen = kind(model.parameters(), weight_decay=1e-4, **settings)
    apply_pace(asked, model, chosen)
    for inputs, labels in work.batches(data, bench.context()):
        chosen.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        chosen.step()
    found = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]) - start
    torch.testing.assert_close(found, expected.vector, rtol=1e-4, atol=1e-5)


def test_without_a_pace_steps_are_the_optimizers_own():
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    apply_pace(message(model), model, optimizer)
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 1)


def helped():
    """A ClientApp that uses all helpers."""
    app, model = ClientApp(), plain()

    @app.train("probe")
    def on_probe(message, context):
        return answer_probe(message, model, shard(8, seed=context.node_config["partition-id"]).batch(torch.arange(8)))

    @app.train()
    def train(message, context):
        data = shard(24, seed=context.node_config["partition-id"])
        batch = data.batch(torch.arange(24))
        if wants_gradient(message):
            return gradient_reply(message, model, [batch])
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        apply_pace(message, model, optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": 24})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def test_a_client_with_all_helpers_takes_part_in_every_stage():
    strategy = FedPACE(anneal=(1, 1), dampen=(2, 2), prune=(3, 3), search={"k": 2, "accept": "lenient"})
    on, record = InProcessGrid(helped(), 3), ArrayRecord(plain().state_dict())
    seen = []
    for number in range(1, 6):
        record, metrics = one_round(strategy, on, record, number=number)
        seen.append(metrics)
    assert [metrics["dropped"] for metrics in seen] == [0] * 5
    assert ["search-accepted" in metrics for metrics in seen] == [False, True, False, False, False]
    assert seen[1]["search-accepted"] == 1


@pytest.mark.parametrize("sketch", [None, 12])
def test_fedgga_moves_to_a_point_of_higher_agreement(sketch):
    _, metrics = one_round(
        FedGGA(first=0, k=8, rho=0.05, sketch=sketch), InProcessGrid(helped(), 3), ArrayRecord(plain().state_dict())
    )
    assert metrics["search-accepted"] == 1
    assert metrics["search-gain"] > 0

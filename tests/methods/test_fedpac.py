"""FedPAC: the client against a loop, its statistics against the paper's formulas, the server by client id."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fedpace.core import Update, derive
from fedpace.engine import Cohort
from fedpace.methods import FedPAC, FedRep, fedpac
from fedpace.methods.fedpac import head_weights
from tests.client.helpers import CLASSES, flat, statistics
from tests.engine import small

from .bench import STEPS, Client, federation, noise, run

SIZE = 6  # features of the model
PROTOTYPES = noise(torch.zeros(CLASSES, SIZE), scale=1.0, seed=5)
PROTOTYPES[1] = torch.nan  # nobody had this class


def features(client, module):
    inputs, labels = client.training.batch(slice(None))
    with torch.no_grad():
        return module.eval()[:-1](inputs), labels


# The client ----------------------------------------------------------------------------------------------------------


def by_hand(client, module, lam, prototypes):
    """A pass that trains the head, then one that trains the base with its features drawn to the prototypes."""
    head, base = torch.optim.SGD(module[-1].parameters(), lr=0.1), torch.optim.SGD(module[:-1].parameters(), lr=0.1)
    for optimizer, seed in ((head, derive(7, "head")), (base, 7)):
        for inputs, labels in client.method.batches(client.training, client.context(seed)):
            seen = module.train()[:-1](inputs)
            loss = F.cross_entropy(module[-1](seen), labels)
            for row, label in zip(seen, labels.tolist(), strict=True):
                if prototypes is not None and label != 1:
                    loss = loss + lam * (row - prototypes[label]).square().sum() / seen.numel()
            module.zero_grad()
            loss.backward()
            optimizer.step()
    return module


@pytest.mark.parametrize("lam", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("prototypes", [None, PROTOTYPES], ids=["first round", "later"])
def test_it_is_two_phases(lam, prototypes):
    client = Client(FedPAC(**STEPS, lam=lam))
    combined = client.state["personal"] + noise(client.state["personal"])
    client.extras = {"head": combined} | ({} if prototypes is None else {"prototypes": prototypes})
    start = copy.deepcopy(client.module)
    nn.utils.vector_to_parameters(combined.clone(), start[-1].parameters())
    module = by_hand(client, start, lam, prototypes)
    update = client.turn()
    tolerance = {"atol": 1e-6, "rtol": 1e-4}
    torch.testing.assert_close(client.vector + update.vector, flat(module[:-1]), **tolerance)
    torch.testing.assert_close(client.state["personal"], flat(module[-1]), **tolerance)
    torch.testing.assert_close(update.buffers.floats, statistics(module)[0])
    assert torch.equal(update.extras["head"], client.state["personal"])


def test_without_prototypes_it_is_fedrep_bitwise():
    one, two = Client(FedPAC(**STEPS)), Client(FedRep(**STEPS))
    assert torch.equal(one.turn().vector, two.turn().vector)
    assert torch.equal(one.state["personal"], two.state["personal"])


def test_statistics_are_of_the_received_base_and_prototypes_of_the_trained_one():
    client = Client(FedPAC(**STEPS))
    seen, labels = features(client, copy.deepcopy(client.module))
    update = client.turn()
    moments, variance, size = torch.zeros(CLASSES, SIZE), 0.0, len(labels)
    for label in range(CLASSES):  # the paper's formulas
        own = seen[labels == label]
        share = len(own) / size
        moments[label] = share * own.mean(0)
        variance += share * float((own.T @ own / len(own)).trace()) - share**2 * float(own.mean(0).square().sum())
    torch.testing.assert_close(update.extras["moments"], moments)
    assert float(update.extras["variance"]) == pytest.approx(variance / size, rel=1e-4)
    module = copy.deepcopy(client.module)
    nn.utils.vector_to_parameters(client.vector + update.vector, module[:-1].parameters())
    trained, _ = features(client, with_buffers(module, update.buffers))
    for label in range(CLASSES):
        torch.testing.assert_close(update.extras["prototypes"][label], trained[labels == label].mean(0))
    assert update.extras["counts"].tolist() == client.training.class_counts().tolist()


def with_buffers(module, buffers):
    module[1].running_mean, module[1].running_var = (part.clone() for part in buffers.floats.split(SIZE))
    return module


def test_it_answers_with_the_combined_head():
    client, inputs = Client(FedPAC(**STEPS)), noise(torch.zeros(9, 5), scale=1.0)
    combined = client.state["personal"] + 1
    client.extras = {"head": combined}
    module = copy.deepcopy(client.module).eval()
    nn.utils.vector_to_parameters(combined, module[-1].parameters())
    torch.testing.assert_close(client.scores(inputs), module(inputs).detach())


# The weights ---------------------------------------------------------------------------------------------------------


def drawn(clients, seed, spread=0.3):
    rng = np.random.default_rng(seed)
    return spread * rng.normal(size=(clients, 12)), rng.uniform(0.2, 2, clients)


def forms(moments, variances):
    """P of each client, from distances themselves."""
    for own in moments:
        away = own - moments
        yield np.diag(variances) + away @ away.T


@given(st.integers(1, 9), st.integers(0, 1000), st.floats(0.01, 3))
def test_rows_are_on_the_simplex_without_negligible_weights(clients, seed, spread):
    weights = head_weights(*drawn(clients, seed, spread))
    assert weights.shape == (clients, clients)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-12)
    assert not ((weights > 0) & (weights < 1e-3)).any()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_weights_are_the_minimum(monkeypatch, seed, scale):
    """No client's share could grow or shrink with a gain (the conditions of Karush, Kuhn and Tucker)."""
    monkeypatch.setattr(fedpac, "_NEGLIGIBLE", 0.0)
    moments, variances = drawn(8, seed)
    moments, variances = moments * scale**0.5 + 10, variances * scale  # where all lie plays no part
    for form, alpha in zip(forms(moments, variances), head_weights(moments, variances), strict=True):
        slopes = form @ alpha / scale
        assert slopes.min() == pytest.approx(alpha @ slopes, rel=1e-4)
        assert slopes[alpha > 0].max() == pytest.approx(slopes.min(), rel=1e-4)


def test_two_clients_by_hand():
    weights = head_weights(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([5.0, 20.0]))
    np.testing.assert_allclose(weights, [[0.9, 0.1], [0.4, 0.6]], rtol=1e-6)  # 5 / (5 + 20 + 25) and 20 / 50


def test_clients_that_are_alike_share_by_their_variance():
    weights = head_weights(np.ones((3, 4)), np.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(weights, [[4 / 7, 2 / 7, 1 / 7]] * 3, rtol=1e-6)


@given(st.integers(2, 7), st.integers(0, 1000))
def test_equal_statistics_have_equal_weights(clients, seed):
    moments, variances = drawn(clients, seed)
    moments[1], variances[1] = moments[0], variances[0]
    weights = head_weights(moments, variances)
    np.testing.assert_allclose(weights[:, 0], weights[:, 1], atol=2e-3)
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-7)


@pytest.mark.parametrize("clients", [1, 4, 1001])
def test_clients_without_any_features_share_alike(clients):
    """The form is zero, and every equal share of many is below what is dropped."""
    np.testing.assert_allclose(fedpac._minimum(np.zeros((clients, clients))), 1 / clients, rtol=1e-6)


# The server ----------------------------------------------------------------------------------------------------------


def server_side(**settings):
    method = FedPAC(**settings)
    client = Client(method)
    return method.server_side(client.layout, 4)


def sent(client, group, counts=(4.0, 4.0, 4.0)):
    """A client whose head says who it is and whose statistics say to which group it belongs."""
    moments = torch.zeros(CLASSES, SIZE)
    moments[group % CLASSES, group] = 100.0
    extras = {"head": torch.full((CLASSES * SIZE + CLASSES,), float(client)), "moments": moments}
    counts = torch.tensor(counts)
    prototypes = torch.full((CLASSES, SIZE), float(client)) * (counts[:, None] > 0)
    return Update(client, extras={**extras, "variance": torch.tensor(0.5), "prototypes": prototypes, "counts": counts})


@pytest.mark.parametrize("order", [[2, 5, 7, 9], [9, 5, 2, 7]])
def test_each_client_gets_the_mean_head_of_its_group_whatever_the_order_of_arrival(order):
    server, groups = server_side(), {2: 0, 5: 1, 7: 0, 9: 1}
    for client in order:
        update = sent(client, groups[client])
        server.learn(update)
        for tensor in update.extras.values():
            tensor.fill_(torch.nan)  # it is lent
    server.finish()
    for client, mean in {2: 4.5, 5: 7.0, 7: 4.5, 9: 7.0}.items():
        torch.testing.assert_close(server.sends_to(client)["head"], torch.full((21,), mean))
    assert server.sends_to(3) == {}
    assert set(server.sends()) == {"prototypes"}  # nobody sees another's head


def test_a_head_waits_for_its_client_and_a_round_forgets_the_one_before():
    server = server_side()
    assert server.sends() == {}
    for cohort in ([1, 2], [2, 3]):
        for client in cohort:
            server.learn(sent(client, group=0))
        server.finish()
    for client, mean in {1: 1.5, 2: 2.5, 3: 2.5}.items():
        torch.testing.assert_close(server.sends_to(client)["head"], torch.full((21,), mean))
    torch.testing.assert_close(server.sends()["prototypes"], torch.full((CLASSES, SIZE), 2.5))


def test_one_client_alone_gets_its_own_head_back_bitwise():
    server, update = server_side(), Client(FedPAC(**STEPS)).turn()
    server.learn(update)
    server.finish()
    assert torch.equal(server.sends_to(0)["head"], update.extras["head"])
    torch.testing.assert_close(server.sends()["prototypes"], update.extras["prototypes"])


@pytest.mark.parametrize(("weights", "mean"), [("samples", 2.75), ("uniform", 2.0)])
def test_prototypes_are_averaged_over_those_who_have_the_class(weights, mean):
    server = server_side(prototype_weights=weights)
    server.learn(sent(1, 0, counts=(1.0, 0.0, 0.0)))
    server.learn(sent(3, 0, counts=(7.0, 5.0, 0.0)))
    server.finish()
    found = server.sends()["prototypes"]
    torch.testing.assert_close(found[0], torch.full((SIZE,), mean))
    torch.testing.assert_close(found[1], torch.full((SIZE,), 3.0))
    assert found[2].isnan().all()


# Whole runs ----------------------------------------------------------------------------------------------------------


def test_whoever_took_part_is_measured_with_the_head_that_it_is_sent():
    measured = {}

    class Attentive(FedPAC):
        def predictor(self, vector, context):
            measured[context.client] = "head" in context.extras
            return super().predictor(vector, context)

    (record,) = run(Attentive(**STEPS, max_steps=1), rounds=1, cohort=Cohort(number=2)).records
    assert measured == {client: client in record.cohort for client in range(3)}


def test_a_head_reaches_those_who_took_part_and_is_counted():
    size = {name: tensor.numel() for name, tensor in small.module().named_parameters()}
    head, base = size["head.weight"] + size["head.bias"], sum(size.values()) - size["head.weight"] - size["head.bias"]
    records = run(FedPAC(**STEPS, max_steps=1), rounds=2, cohort=Cohort(number=2)).records
    first, second = (set(record.cohort) for record in records)
    assert len(federation()) == 3
    assert first != second
    assert records[0].bytes_down == 4 * 2 * base
    assert records[1].bytes_down == 4 * (2 * (base + size["head.weight"]) + len(first & second) * head)
    assert records[0].bytes_up == 4 * 2 * (base + head + 2 * size["head.weight"] + 10 + 1)


@pytest.mark.parametrize("seed", range(20))
def test_what_one_client_sends_along_never_stops_the_round(seed):
    """Negative variances and counts, and any size that the server's guard lets pass."""
    server, generator = server_side(), torch.Generator().manual_seed(seed)
    for client, size in enumerate((1.0, 1.0, float(10 ** (seed - 4) if seed < 19 else 1e15))):
        extras = {n: torch.randn(shape, generator=generator) * size for n, shape in server.expects.items()}
        server.learn(Update(client, extras=extras))
    server.finish()
    heads = [server.sends_to(client)[fedpac._HEAD] for client in range(3)]
    assert all(head.isfinite().all() for head in heads)
    assert not server.memory[fedpac._PROTOTYPES].isinf().any()

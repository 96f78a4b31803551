"""Updates that are summed in secret: the server steps as if it had seen them, and has not."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

from fedpace.core import ClientError, ConfigError, Layout, Update
from fedpace.experiments.engines import node_of, run_on, run_on_grid
from fedpace.experiments.presets import load_config
from fedpace.flower import InProcessGrid, SecureExchange, client_app
from fedpace.flower._packing import Packing
from fedpace.flower._secagg import CONFIG, VECTOR, Key, setup_config, to_mask
from fedpace.flower._secagg import Stage as Step
from fedpace.flower.secure import SECURE, _neighbours, secure_answer
from fedpace.server import Collected, Exchange, Pruning, Schedule, Secure, Server, Weighing
from tests.server.helpers import buffers as held_buffers
from tests.stages import stage_with

STEPS = [Step.SETUP, Step.SHARE_KEYS, Step.COLLECT_MASKED_VECTORS, Step.UNMASK]
SIZE = 40
NONE = held_buffers()


def answers(clients=5, seed=0, size=SIZE, scale=1.0):
    """One update per client; the first coordinates are zero for all, and each client leaves some others alone."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for client in range(clients):
        vector = torch.randn(size, generator=random) * scale
        vector[torch.rand(size, generator=random) < 0.2] = 0
        vector[:4] = 0
        found.append(Update(client, vector, 10 + 7 * client, {"loss": float(client)}))
    return found


class Toy(InProcessGrid):
    """Nodes that answer with given updates; ``lost`` says which clients are lost at which step. Keeps what was said."""

    def __init__(self, updates, lost=None, held=NONE):
        app = ClientApp()

        @app.train("secure")
        def train(message, context):
            update = self.updates[context.node_config["partition-id"]]
            return secure_answer(message, context, lambda: (update, held, len(self.updates[0].vector)))

        super().__init__(app, len(updates))
        self.updates, self.lost, self.said = updates, lost or {}, []

    def send_and_receive(self, messages, *, timeout=None):
        for message in messages:
            client = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
            message.content = carried(message.content)
            (reply,) = super().send_and_receive([message])
            if not reply.has_error():
                reply.content = carried(reply.content)
            self.said.append((client, reply))
            if self.lost.get(client) != message.content.config_records[CONFIG][Key.STAGE]:
                yield reply
            elif client % 2:  # some fail aloud, some are never heard of again
                yield Message(Error(1, "its disk\nis full"), reply_to=message)


def carried(content):
    """As it is on the other end of a wire."""
    return recorddict_from_proto(recorddict_to_proto(content))


def summed(grid, weighing=None, held=NONE, exchange=None, **options):
    exchange = exchange or SecureExchange(grid, Secure(**options))
    work = {node: RecordDict({"config": ConfigRecord()}) for node in grid.contexts}
    return exchange.run(work, len(grid.updates[0].vector), held, weighing or Weighing("uniform"))


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "fedpace"]


def nodes(grid):
    return {context.node_config["partition-id"]: node for node, context in grid.contexts.items()}


def expected(updates, weights="uniform"):
    factors = [update.examples if weights == "samples" else 1 for update in updates]
    rows = torch.stack([update.vector.double() * factor for update, factor in zip(updates, factors, strict=True)])
    return rows.sum(0), torch.sign(rows).sum(0), sum(factors)


def same(found, updates, weights="uniform"):
    """Whether sums are those of the updates: each value rounded to the resolution, signs and counts exact."""
    total, signs, weight = expected(updates, weights)
    sums = found.opened.sums
    assert torch.all((sums.total - total).abs() <= len(updates) * found.packing.resolution)
    assert torch.equal(sums.signs.double(), signs)
    assert (sums.clients, sums.weight) == (len(updates), weight)
    return True


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize(("clients", "shares"), [(3, 1.0), (4, 1.0), (9, 0.5)])
def test_sums_are_those_of_the_updates(clients, shares, weights):
    updates = answers(clients)
    found = summed(Toy(updates), Weighing(weights), shares=shares)
    assert same(found, updates, weights)
    assert found.opened.train_loss == pytest.approx((clients - 1) / 2)
    assert found.opened.clipped == 0


@pytest.mark.parametrize("step", STEPS)
def test_client_lost_at_any_step_does_not_spoil_the_sum(step):
    """Before its vector has arrived it is left out, and afterwards it counts."""
    updates = answers(6)
    for client in (2, 3):
        found = summed(Toy(updates, {client: step}))
        counted = step == Step.UNMASK
        assert same(found, [update for update in updates if counted or update.client != client])
        answer = found.answers[nodes(Toy(updates))[client]]
        assert counted == isinstance(answer, RecordDict)
        assert (
            counted or answer == f"{'its node failed: its disk is full' if client % 2 else 'no answer'} (at '{step}')"
        )


def test_clients_lost_at_every_step_of_one_round():
    updates = answers(9)
    found = summed(Toy(updates, dict(enumerate(STEPS))), threshold=0.51)
    assert same(found, updates[3:])


def test_lost_neighbours_on_a_ring():
    updates = answers(8)
    found = summed(Toy(updates, {0: Step.COLLECT_MASKED_VECTORS, 1: Step.UNMASK}), shares=0.6, threshold=0.51)
    assert same(found, updates[1:])


@pytest.mark.parametrize("step", STEPS)
def test_too_few_clients_end_the_round_and_leave_the_model(step, caplog):
    updates = answers(4)
    found = summed(Toy(updates, {0: step, 1: step}))  # 3 of 4 are needed
    assert found.opened is None
    assert found.ended == f"secure aggregation ended early, 2 of 4 clients left after '{step}', expected 3"
    server = Server(Layout(("w",), ((SIZE,),)), torch.ones(SIZE), NONE, Schedule())
    kept = []
    report = server.exchange_sums(Exchange(), Collected([Update(2), Update(3)], ended=found.ended), 4, kept.append)
    assert torch.equal(server.vector, torch.ones(SIZE))
    assert (report.used, kept) == (0, [])
    assert said(caplog) == [f"{found.ended}: the model stays as it is"]


@pytest.mark.parametrize("clients", [0, 1, 2])
def test_two_clients_are_too_few_for_a_secret(clients):
    grid = Toy(answers(3))
    for node in list(grid.contexts)[clients:]:
        del grid.contexts[node]
    found = summed(grid)
    assert found.opened is None
    assert f"{clients} of {clients} clients left at its start, expected 3" in found.ended
    assert grid.said == []


@pytest.mark.parametrize(("size", "threshold"), [(9, 2), (9, 4)])
def test_client_refuses_a_threshold_that_protects_nothing(size, threshold):
    grid = Toy(answers(3))
    config = ConfigRecord({Key.STAGE: Step.SETUP, **setup_config(size, size, threshold)})
    (reply,) = grid.send_and_receive([Message(RecordDict({CONFIG: config}), next(iter(grid.contexts)), SECURE)])
    assert f"3 or more, and more than half of {size} shares, found {threshold}" in reply.error.reason


def test_client_discloses_one_secret_of_each_and_only_once():
    grid = Toy(answers(4), dict.fromkeys(range(4), Step.UNMASK))
    summed(grid)

    def ask(**lists):
        config = ConfigRecord({Key.STAGE: Step.UNMASK, **lists})
        (reply,) = InProcessGrid.send_and_receive(grid, [Message(RecordDict({CONFIG: config}), nodes(grid)[0], SECURE)])
        return reply.error.reason if reply.has_error() else ""

    everyone = list(grid.contexts)
    assert "expect setup stage, but receive unmask" in ask(active_nids=everyone, dead_nids=[])  # they did so already
    grid = Toy(answers(4), dict.fromkeys(range(4), Step.COLLECT_MASKED_VECTORS))
    summed(grid)
    assert "both present and lost" in ask(active_nids=everyone, dead_nids=everyone[:1])
    assert ask(active_nids=everyone, dead_nids=[]) == ""
    (context,) = [c for c in grid.contexts.values() if c.node_config["partition-id"] == 0]
    assert all(len(record) == 0 for record in context.state.config_records.values())  # keys serve once


def test_what_travels_looks_uniform_and_is_new_every_time():
    updates = answers(4, size=2000)
    grid = Toy(updates)
    packing = summed(grid).packing
    summed(grid)
    masked = {}
    for client, reply in grid.said:
        for name, array in reply.content.array_records.get(VECTOR, {}).items():
            masked.setdefault((client, name), []).append(array.numpy())
        assert not {"num-examples", "loss"} & {key for record in reply.content.values() for key in record}
    assert len(masked) == 8
    for (client, name), (first, second) in masked.items():
        raw = packing.pack(updates[client])[name]
        for sent in (first, second, first - raw, first - second):
            counts = np.bincount(sent.view(np.uint8), minlength=256)
            assert len(counts) == 256
            expectation = counts.sum() / 256
            chi_square = float(((counts - expectation) ** 2 / expectation).sum())
            assert chi_square < 255 + 6 * np.sqrt(2 * 255)  # six standard deviations
    total = sum(masked[client, "sums"][0] for client in range(4))
    assert np.any(total != sum(packing.pack(update)["sums"] for update in updates))  # own masks do not cancel out


def test_masks_differ_in_every_bit_of_the_seed():
    like = {"a": np.zeros(8, np.uint64)}
    seeds = [bytes(32)] + [bytes(i) + b"\1" + bytes(31 - i) for i in range(32)]
    assert len({to_mask(seed, like)["a"].tobytes() for seed in seeds}) == 33


def test_result_does_not_depend_on_node_ids():
    updates = answers(5)
    grid, other = Toy(updates), Toy(updates)
    other.contexts = {2**62 - 3 * node: context for node, context in reversed(other.contexts.items())}
    first, second = summed(grid).opened.sums, summed(other).opened.sums
    assert torch.equal(first.total, second.total)
    assert torch.equal(first.signs, second.signs)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_client_that_is_not_finite_leaves_by_itself(value):
    updates = answers(5)
    updates[1].vector[7] = value
    found = summed(Toy(updates))
    assert same(found, [update for update in updates if update.client != 1])
    assert "not finite" in found.answers[nodes(Toy(updates))[1]]


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_buffers_are_averaged_in_the_same_sum(weights):
    updates, held = answers(4), held_buffers((0.0, 0.0), (0,))
    for update in updates:
        update.buffers = held_buffers((update.client, 100.0), (7,))
    updates[2].buffers = None
    found = summed(Toy(updates, held=held), Weighing("uniform", weights), held)
    others = [updates[client] for client in (0, 1, 3)]
    assert same(found, others)
    assert "expected the model's buffers" in found.answers[nodes(Toy(updates))[2]]
    factors = [update.examples if weights == "samples" else 1 for update in others]
    mean = sum(update.client * factor for update, factor in zip(others, factors, strict=True)) / sum(factors)
    assert found.opened.buffers.floats.tolist() == pytest.approx([mean, 100.0])
    assert found.opened.buffers.integers.tolist() == [7]


def test_clipped_values_are_counted_and_the_next_bound_is_twice_as_high(caplog):
    updates = answers(4)
    grid = Toy(updates)
    bound = 0.75
    beyond = sum(int((update.vector.abs() > bound).sum()) for update in updates)
    exchange = SecureExchange(grid, Secure(bound=bound))
    first = summed(grid, exchange=exchange)
    assert first.opened.clipped == beyond > 0
    clipped = sum(update.vector.double().clamp(-bound, bound) for update in updates)
    assert torch.allclose(first.opened.sums.total, clipped, atol=4 * first.packing.resolution, rtol=0)
    assert said(caplog) == [f"secure aggregation clipped {beyond} values at ±0.75; from now on at ±1.5"]
    second = summed(grid, exchange=exchange)
    assert (second.packing.bound, exchange.bound) == (1.5, 3.0)
    assert torch.equal(first.opened.sums.signs, second.opened.sums.signs)
    for _ in range(2):
        last = summed(grid, exchange=exchange)
    assert exchange.bound == last.packing.bound
    assert same(last, updates)


@settings(max_examples=60, deadline=None)
@given(
    clients=st.sampled_from([3, 4, 127, 128, 300, 32_767, 32_768]),
    bound=st.floats(1e-6, 1e9),
    share=st.floats(-1, 1, width=32),
    examples=st.integers(1, 5000),
)
def test_sums_never_leave_the_range_of_the_integers(clients, bound, share, examples):
    """However many clients send the largest value, the sum of fixed-point values and of signs is right."""
    packing = Packing(clients, bound, 2, 1, 1, "uniform", "samples")
    vector = torch.tensor([bound, share], dtype=torch.float32)
    held = held_buffers((share,), (examples,))
    one = packing.pack(Update(0, vector, examples, {"loss": 2.5}, held))
    opened = packing.open({name: part * part.dtype.type(clients) for name, part in one.items()}, clients)
    kept = vector.double().clamp(-bound, bound)
    assert torch.allclose(opened.sums.total, clients * kept, atol=clients * packing.resolution, rtol=1e-12)
    assert torch.equal(opened.sums.signs.double(), clients * torch.sign(vector).double())
    assert opened.train_loss == pytest.approx(2.5, abs=1e-6)
    assert opened.buffers.integers.tolist() == [examples]
    mean = min(max(share * examples, -bound), bound) / examples
    assert float(opened.buffers.floats) == pytest.approx(mean, rel=1e-9, abs=packing.resolution / examples)
    assert opened.clipped == clients * int((vector.double().abs() > bound).sum() + (abs(share * examples) > bound))


def test_neighbours_on_a_ring_are_symmetric_and_as_many_as_there_are_shares():
    for clients in range(3, 20):
        for part in (0.1, 0.5, 0.8, 1.0):
            shares, threshold = Secure(shares=part).counts(clients)
            near = _neighbours(list(range(clients)), shares)
            assert 3 <= threshold <= shares <= clients
            assert all(len(found) == shares and node in found for node, found in near.items())
            assert all(node in near[other] for node, found in near.items() for other in found)


RULES = [
    "mean",
    {"name": "masked", "tau": 0.5},
    {"name": "masked", "tau": 0.4, "threshold": "strict"},
    {"name": "and_mask", "tau": 0.5},
    {"name": "and_mask", "tau": 0.5, "rescale": "surviving_share"},
    "dampened",
]


@pytest.mark.parametrize("mask_at", ["pre", "post"])
@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_server_steps_as_if_it_had_seen_the_updates(rule, weights, mask_at):
    """Over several rounds: the model up to the resolution, and agreement, conflicts and masks exactly."""
    stage = stage_with(rule=rule, weights=weights, mask_at=mask_at, optimizer="adam", counts=True, prunes=True)
    schedule = Schedule(base=stage, pruning=Pruning(threshold=0.5, persistence=2))
    plain, secure = (
        Server(Layout(("w", "b"), ((6, 6), (4,))), torch.ones(SIZE), held_buffers((1.0, 2.0), (0,)), schedule)
        for _ in range(2)
    )
    secure.check_sums(5)
    for number in range(3):
        updates = answers(5, seed=number, scale=0.01)
        for update in updates:
            update.buffers = held_buffers((update.client * 0.5, 3.0 + number), (number + 1,))
        seen = plain.exchange(stage.exchanges[0], updates, 5)
        packing = Packing.of(5, 2.0**20, SIZE, secure.buffers, secure.weighing(stage.exchanges[0]))
        vectors = [packing.pack(update) for update in updates]  # without masks, which are tested above
        opened = packing.open({name: sum(vector[name] for vector in vectors) for name in vectors[0]}, 5)
        report = secure.exchange_sums(stage.exchanges[0], Collected([Update(i) for i in range(5)], **vars(opened)), 5)
        assert report.agreement == seen.agreement
        assert report.diagnostics == pytest.approx(seen.diagnostics)
        assert (report.similarity, report.clipped) == (None, 0)
        assert report.train_loss == pytest.approx(seen.train_loss, abs=1e-6)
        assert torch.equal(secure.pruner.counters, plain.pruner.counters)
        assert torch.equal(secure.pruner.mask, plain.pruner.mask)
        assert torch.allclose(secure.vector, plain.vector, rtol=1e-5, atol=1e-7)
        assert torch.allclose(secure.buffers.floats, plain.buffers.floats, rtol=1e-6)
        assert torch.equal(secure.buffers.integers, plain.buffers.integers)
    assert 0 < plain.pruned < 1
    assert int(plain.pruner.counters[:4].sum()) == 0  # nobody moved them: neither conflict nor agreement


FAST = {"data.source": "digits", "model": "linear", "rounds": 2, "local.max_steps": 3, "data.partition.clients": 4}


def run(config, grid=InProcessGrid):
    return run_on_grid(config, grid(client_app(lambda context: node_of(config)), config.data.partition.clients))


@pytest.mark.parametrize(
    ("preset", "rounds", "changes"),
    [
        ("gma", 2, {}),
        ("fedpace-dampen-prune", 4, {"data.partition.limit": 200}),
        ("fedavg", 2, {"model": "small_cnn", "local.optimizer": "sgd"}),  # Adam makes much of a last bit
        ("fedrep", 2, {"model": "small_cnn", "data.partition.limit": 40}),  # clients keep heads of their own
    ],
)
def test_run_in_secret_is_the_open_run(preset, rounds, changes):
    config = load_config(preset, {k: v for k, v in (FAST | changes).items() if k != "rounds"}).shortened(rounds)
    opened, secret = run(config), run(config.model_copy(update={"secure": Secure()}))
    for a, b in zip(opened.module.state_dict().values(), secret.module.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    for a, b in zip(opened.records, secret.records, strict=True):
        assert b.train_loss == pytest.approx(a.train_loss, rel=1e-4)
        assert b.agreement.mean == pytest.approx(a.agreement.mean, abs=1e-3)
        assert b.pruned == pytest.approx(a.pruned, abs=1e-3)
        assert (b.clipped, b.similarity) == (0, None)
        assert b.bytes_up > 2 * a.bytes_up
        assert b.bytes_down == a.bytes_down
        assert a.clipped is None


def test_run_goes_on_when_a_round_ends_early(caplog):
    config = load_config("fedavg", FAST | {"secure": True})

    class Flaky(InProcessGrid):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            self.asked = getattr(self, "asked", 0) + (messages[0].metadata.message_type == SECURE)
            first = self.asked == 3 and messages[0].metadata.message_type == SECURE
            return super().send_and_receive(messages)[2 if first else 0 :]  # of the vectors of the first round

    result = run(config, Flaky)
    first, second = result.records
    assert [len(record.dropped) for record in result.records] == [2, 0]
    assert (first.train_loss, first.agreement) == (None, None)
    assert second.train_loss is not None
    assert "secure aggregation ended early, 2 of 4 clients left after 'collect_masked_vectors'" in caplog.text
    assert caplog.text.count("left out until it answers") == 2


@pytest.mark.parametrize(
    ("preset", "reason"),
    [
        ("fedpace", "a pace needs"),
        ("fedgga", "a search needs"),
        ("scaffold", "server's side of this client work"),
        ("fedpac", "server's side"),
    ],
)
def test_presets_that_need_each_update_are_refused_before_the_first_round(preset, reason):
    with pytest.raises(ConfigError, match=reason):
        run(load_config(preset, FAST | {"model": "small_cnn", "rounds": 20, "secure": True}))


def test_secrecy_is_one_word_of_config_and_needs_nodes():
    assert load_config("gma", {"secure": True}).secure == Secure() == load_config("gma", {"secure": {}}).secure
    assert load_config("gma", {"secure": False}).secure is None
    assert load_config("gma", {"secure.shares": 0.5}).secure == Secure(shares=0.5)
    with pytest.raises(ConfigError, match=r"expected --engine flower-…, found local"):
        run_on("local", load_config("gma", {"secure": True}))


def test_every_client_failing_ends_the_run():
    config = load_config("fedavg", FAST | {"secure": True})

    class Broken(InProcessGrid):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            replies = super().send_and_receive(messages)
            if messages[0].metadata.message_type != SECURE:
                return replies
            return [Message(Error(1, "its disk is full"), reply_to=message) for message in messages]

    with pytest.raises(ClientError, match=r"every client failed in round 0; .*its disk is full"):
        run(config, Broken)

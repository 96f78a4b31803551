"""Updates that are summed in secret: the server steps as if it had seen them, and has not."""

import re

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.supercore.primitives.asymmetric import generate_key_pairs

from fedpace.core import ClientError, ConfigError, Layout, Update
from fedpace.engine import Listener
from fedpace.experiments.engines import node_of, run_on, run_on_grid
from fedpace.experiments.presets import load_config
from fedpace.flower import InProcessGrid, SecureExchange, client_app
from fedpace.flower._packing import Packing
from fedpace.flower._secagg import CONFIG, VECTOR, Key, opened_secret, setup_config, to_mask, to_record
from fedpace.flower._secagg import Stage as Step
from fedpace.flower._secret_sum import SECURE, neighbours, to_blame
from fedpace.flower.secure import demanded, secure_answer
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
    """Nodes that answer with given updates; ``lost`` says which clients are lost at which step, ``wrong`` what others
    make of their answers. Keeps what was said."""

    def __init__(self, updates, lost=None, held=NONE, wrong=None):
        app = ClientApp()

        @app.train("secure")
        def train(message, context):
            update = self.updates[context.node_config["partition-id"]]
            return secure_answer(message, context, lambda: (update, held, len(self.updates[0].vector)))

        super().__init__(app, len(updates))
        self.updates, self.lost, self.said, self.wrong = updates, lost or {}, [], wrong or {}

    def send_and_receive(self, messages, *, timeout=None):
        for message in messages:
            client = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
            message.content = carried(message.content)
            (reply,) = super().send_and_receive([message])
            if not reply.has_error():
                reply.content = carried(reply.content)
                if client in self.wrong:
                    self.wrong[client](message.content.config_records[CONFIG][Key.STAGE], reply.content)
            self.said.append((client, reply))
            if self.lost.get(client) != message.content.config_records[CONFIG][Key.STAGE]:
                yield reply
            elif client % 2:  # some fail aloud, some are never heard of again
                yield Message(Error(1, "its disk\nis full"), reply_to=message)


def carried(content):
    """As it is on the other end of a wire."""
    return recorddict_from_proto(recorddict_to_proto(content))


SIGNS = ("signs",)
ALL = ("signs", "votes", "sizes")


def summed(grid, weighing=None, held=NONE, exchange=None, **options):
    exchange = exchange or SecureExchange(grid, Secure(**{"fewest_agreeing": 3} | options))
    work = {node: RecordDict({"config": ConfigRecord()}) for node in grid.contexts}
    return exchange.run(work, len(grid.updates[0].vector), held, weighing or Weighing("uniform", None, SIGNS))


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


def test_in_a_private_round_the_server_opens_a_noisy_sum_and_nothing_besides():
    """Each client adds its own noise; no loss is told, and no count of clipped values."""
    grid = Toy(answers(5, size=4000))
    found = summed(grid, Weighing("uniform", noise=0.5), norm=1e9)
    total, _, _ = expected(grid.updates)
    noise = found.opened.sums.total - total
    assert float(noise.std()) == pytest.approx(0.5 * 5**0.5, rel=0.06)
    assert abs(float(noise.mean())) < 0.1
    assert (found.opened.train_loss, found.opened.clipped, found.opened.sums.signs) == (None, 0, None)
    again = summed(Toy(answers(5, size=4000)), Weighing("uniform", noise=0.5), norm=1e9)
    assert not torch.equal(again.opened.sums.total, found.opened.sums.total)  # nobody can repeat it


def test_in_a_private_round_an_update_is_no_longer_than_the_norm():
    (update,) = answers(1, size=4000, scale=1e4)
    packing = Packing.of(3, 4000, NONE, Weighing("uniform", noise=1e-3), Secure(norm=2.0))
    sums = packing.pack(update)["sums"][:4000].view(np.int64) / packing.scale
    assert np.linalg.norm(sums) == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize(("clients", "shares"), [(3, 1.0), (4, 1.0), (9, 0.5)])
def test_sums_are_those_of_the_updates(clients, shares, weights):
    updates = answers(clients)
    found = summed(Toy(updates), Weighing(weights, None, SIGNS), shares=shares)
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
        assert counted == (answer is None)
        assert (
            counted or answer == f"{'its node failed: its disk is full' if client % 2 else 'no answer'} (at '{step}')"
        )


@pytest.mark.parametrize("first", STEPS)
@pytest.mark.parametrize("second", STEPS)
def test_two_clients_lost_at_any_two_steps(first, second):
    """With every sum that can be asked for; each step is the first or the second of a round to lose somebody."""
    updates, lost = answers(7), {1: first, 2: second}
    found = summed(Toy(updates, lost), Weighing("samples", None, ALL), threshold=0.51)
    used = only(updates, *(client for client, step in lost.items() if step != Step.UNMASK))
    assert same(found, used, "samples")
    weights = torch.tensor([update.examples for update in used], dtype=torch.float64)[:, None]
    rows = torch.stack([update.vector.double() for update in used]) * weights
    assert torch.equal(found.opened.sums.votes.double(), (torch.sign(rows) * weights).sum(0))
    torch.testing.assert_close(found.opened.sums.sizes, rows.abs().sum(0), rtol=0, atol=7 * found.packing.resolution)


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
    found = summed(Toy(updates, held=held), Weighing("uniform", weights, SIGNS), held)
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
    exchange = SecureExchange(grid, Secure(bound=bound, fewest_agreeing=3))
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
    packing = Packing(
        clients=clients, bound=bound, size=2, floats=1, integers=1, updates="uniform", buffers="samples", asked=SIGNS
    )
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
            near = neighbours(list(range(clients)), shares)
            assert 3 <= threshold <= shares <= clients
            assert all(len(found) == shares and node in found for node, found in near.items())
            assert all(node in near[other] for node, found in near.items() for other in found)


RULES = [
    "mean",
    "magnitude_dampened",
    {"name": "masked", "tau": 0.5, "agreement_weights": "samples"},
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
    secure.check_sums(5, Secure())
    for number in range(3):
        updates = answers(5, seed=number, scale=0.01)
        for update in updates:
            update.buffers = held_buffers((update.client * 0.5, 3.0 + number), (number + 1,))
        seen = plain.exchange(stage.exchanges[0], updates, 5)
        packing = Packing.of(5, SIZE, secure.buffers, secure.weighing(stage.exchanges[0]), Secure())
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
        ("paced", 3, {"local.optimizer": "sgd"}),  # from sums of sizes
        ("fedpace-dampen-prune", 4, {"data.partition.limit": 200}),
        ("fedavg", 2, {"model": "small_cnn", "local.optimizer": "sgd"}),  # Adam makes much of a last bit
        ("fedrep", 2, {"model": "small_cnn", "data.partition.limit": 40}),  # clients keep heads of their own
    ],
)
def test_run_in_secret_is_the_open_run(preset, rounds, changes):
    config = load_config(preset, {k: v for k, v in (FAST | changes).items() if k != "rounds"}).shortened(rounds)
    opened, secret = run(config), run(config.model_copy(update={"secure": Secure(fewest_agreeing=3)}))
    for a, b in zip(opened.module.state_dict().values(), secret.module.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    for a, b in zip(opened.records, secret.records, strict=True):
        assert b.train_loss == pytest.approx(a.train_loss, rel=1e-4)
        agrees = preset == "gma" or (preset == "fedpace-dampen-prune" and b.stage != "fedavg")
        assert (b.agreement is not None) == agrees  # nothing is asked for that the rule does not need
        assert not agrees or b.agreement.mean == pytest.approx(a.agreement.mean, abs=1e-3)
        assert b.pruned == pytest.approx(a.pruned, abs=1e-3)
        assert (b.clipped, b.similarity) == (0, None)
        assert b.bytes_up > 2 * a.bytes_up
        assert b.bytes_down == a.bytes_down
        assert a.clipped is None


def other_curve():
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def says(step, **values):
    """Answers of one step in whose config some values are other ones; a function is given what would be there."""

    def wrong(stage, content):
        config = content.config_records[CONFIG]
        for name, value in values.items() if stage == step else ():
            config[name] = value(config.get(name)) if callable(value) else value

    return wrong


def garbled(readers=slice(None)):
    """Shares that some neighbours cannot read."""

    def change(texts):
        for place in range(len(texts))[readers]:
            texts[place] = b"nonsense"
        return list(texts)

    return says(Step.SHARE_KEYS, ctxts=change)


def only(updates, *left_out):
    return [update for update in updates if update.client not in left_out]


TWICE = generate_key_pairs()[1].public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
KEYS = {
    "no text": says(Step.SETUP, pk1=7),
    "nonsense": says(Step.SETUP, pk2=b"nonsense"),
    "another curve": says(Step.SETUP, pk1=other_curve()),
    "the same twice": says(Step.SETUP, pk1=TWICE, pk2=TWICE),
}


@pytest.mark.parametrize("wrong", KEYS.values(), ids=KEYS)
def test_keys_that_nobody_can_use_drop_their_owner_alone(wrong):
    updates = answers(5)
    found = summed(Toy(updates, wrong={1: wrong}))
    assert same(found, only(updates, 1))
    assert "(at 'setup')" in found.answers[nodes(Toy(updates))[1]]


def test_clients_with_the_same_keys_are_dropped_and_nobody_else():
    updates, seen = answers(6), []

    def copies(stage, content):
        if stage == Step.SETUP:
            config = content.config_records[CONFIG]
            seen.append(config[Key.PUBLIC_KEY_1])
            config[Key.PUBLIC_KEY_2] = seen[0] if len(seen) > 1 else config[Key.PUBLIC_KEY_2]

    found = summed(Toy(updates, wrong={1: copies, 4: copies}))
    assert same(found, only(updates, 1, 4))
    assert found.answers[nodes(Toy(updates))[4]] == "its public keys are those of another client"


@pytest.mark.parametrize("step", [None, *STEPS])
@pytest.mark.parametrize("readers", [slice(None), slice(1), slice(2), slice(3)])
def test_a_sender_of_garbage_is_found_and_dropped_alone(readers, step):
    """Be it for all neighbours or for some; and another client may be lost at any step."""
    updates = answers(8)
    found = summed(Toy(updates, {5: step} if step else {}, wrong={2: garbled(readers)}), threshold=0.6)
    if found.opened is None:  # who is lost at the end takes along what it had in common with the one that is banned
        assert step == Step.UNMASK
        assert "what it has in common" in found.ended
        return
    assert same(found, only(updates, 2) if step in (None, Step.UNMASK) else only(updates, 2, 5))
    assert found.answers[nodes(Toy(updates))[2]] == "it and its neighbours cannot read each other's shares"
    assert sum(isinstance(answer, str) for answer in found.answers.values()) == 1 + (step not in (None, Step.UNMASK))


def test_a_sender_of_garbage_that_is_lost_as_well():
    updates = answers(7)
    found = summed(Toy(updates, {2: Step.COLLECT_MASKED_VECTORS}, wrong={2: garbled(slice(3))}))
    assert same(found, only(updates, 2))


def test_who_says_that_nobody_can_be_read_is_dropped_alone():
    updates = answers(6)
    grid = Toy(updates)
    everyone = nodes(grid)
    grid.wrong = {3: says(Step.COLLECT_MASKED_VECTORS, unread=[node for c, node in everyone.items() if c != 3])}
    found = summed(grid)
    assert same(found, only(updates, 3))
    assert isinstance(found.answers[everyone[3]], str)


@pytest.mark.parametrize("unread", [7, ["x"], [12345], [b""], b"nonsense"])
def test_a_complaint_that_cannot_be_understood_drops_its_author(unread):
    updates = answers(5)
    found = summed(Toy(updates, wrong={3: says(Step.COLLECT_MASKED_VECTORS, unread=unread)}))
    assert same(found, only(updates, 3))


@pytest.mark.parametrize(
    ("unread", "present", "blamed"),
    [
        ([], "abcd", ""),
        (["ab"], "abcd", "b"),
        (["ab", "cb"], "abcd", "b"),
        (["ab", "ac", "ad"], "abcd", "a"),
        (["ab", "ac", "cb"], "abcd", "bc"),
        (["ab"], "acd", "b"),
        (["ab", "cd"], "abcd", "bd"),
    ],
)
def test_blame_is_on_whoever_most_pairs_have_in_common(unread, present, blamed):
    """A pair is a reader and a writer."""
    pairs = {tuple(map(ord, pair)) for pair in unread}
    found = to_blame(pairs, set(map(ord, present)))
    assert {chr(node) for node in found} == set(blamed)


@pytest.mark.parametrize("share", [b"", b"nonsense", bytes(84), 7])
def test_wrong_shares_of_one_client_do_not_spoil_the_sum(share):
    def change(shares):
        return [share] * len(shares)

    updates = answers(6)
    found = summed(Toy(updates, {0: Step.COLLECT_MASKED_VECTORS}, wrong={3: says(Step.UNMASK, shares=change)}))
    assert same(found, only(updates, 0))


@pytest.mark.parametrize(("shares", "threshold"), [(4, 3), (20, 14)])
@pytest.mark.parametrize("place", [0, -1])
def test_a_secret_is_opened_by_the_shares_that_are_right(shares, threshold, place):
    secret = bytes(range(32))
    known = create_shares(secret, threshold, shares)
    known[place] = known[place][:4] + bytes(len(known[place]) - 4)
    assert opened_secret(known, threshold, secret.__eq__) == secret
    assert opened_secret([b"nonsense"] * threshold, threshold, secret.__eq__) is None


def test_a_client_whose_secret_cannot_be_opened_costs_one_round():
    updates = answers(5)
    grid = Toy(updates, wrong={1: says(Step.SHARE_KEYS, commitment=bytes(32))})
    exchange = SecureExchange(grid, Secure(fewest_agreeing=3))
    first, second = summed(grid, exchange=exchange), summed(grid, exchange=exchange)
    assert first.opened is None
    assert f"the secret of node {nodes(grid)[1]} cannot be opened" in first.ended
    assert same(second, only(updates, 1))
    assert "left out" in second.answers[nodes(grid)[1]]


def test_a_client_gives_away_nothing_for_those_that_it_also_discloses():
    grid = Toy(answers(4), dict.fromkeys(range(4), Step.COLLECT_MASKED_VECTORS))
    summed(grid)
    everyone = list(grid.contexts)
    config = ConfigRecord({Key.STAGE: Step.UNMASK, "active_nids": everyone, "dead_nids": [], "banned": everyone[1:2]})
    (reply,) = InProcessGrid.send_and_receive(grid, [Message(RecordDict({CONFIG: config}), everyone[0], SECURE)])
    assert "both present and lost" in reply.error.reason


def opened_with(change, clients=4, **options):
    """What is said of sums that were changed after all clients kept to the rules."""
    packing = Packing.of(
        clients, SIZE, held_buffers((1.0,), (2,)), Weighing("samples", "samples", ALL), Secure(**options)
    )
    vectors = []
    for update in answers(clients):
        update.buffers = held_buffers((0.5,), (3,))
        vectors.append(packing.pack(update))
    total = {name: sum(vector[name] for vector in vectors) for name in vectors[0]}
    change({name: part.view(f"i{part.itemsize}") for name, part in total.items()})
    return packing.open(total, clients)


def put(name, place, value):
    def change(parts):
        parts[name][place] = value

    return change


WEIGHT = SIZE + 1  # the first count, after the updates and one float of the buffers
BEYOND = {
    "sign": (put("signs", 7, 100), "Σ sgn(u): expected integers from -4 to 4, found"),
    "negative sign": (put("signs", 7, -5), "Σ sgn(u)"),
    "vote": (put("votes", 7, 2**25), "Σ w sgn(u)"),
    "value": (put("sums", 3, 2**62 + 1), "Σ w u"),
    "lowest value": (put("sums", 3, -(2**63)), "Σ w u"),
    "buffer": (put("sums", SIZE, -(2**62) - 2**40), "Σ w u"),
    "weight": (put("sums", WEIGHT, -5), "Σ w: expected integers from 4 to"),
    "no weight": (put("sums", WEIGHT, 0), "Σ w: expected"),
    "large weight": (put("sums", WEIGHT, 4 * 2**20 + 1), "Σ w: expected"),
    "weight of buffers": (put("sums", WEIGHT + 1, 0), "Σ w of buffers"),
    "clipped": (put("sums", WEIGHT + 2, -1), "clipped values"),
    "many clipped": (put("sums", WEIGHT + 2, 4 * (SIZE + 1) + 1), "clipped values"),
    "losses": (put("sums", WEIGHT + 3, 5), "clients with a loss"),
    "loss": (put("sums", WEIGHT + 4, 2**62), "losses"),
    "integer": (put("sums", WEIGHT + 5, 2**50), "integers of buffers"),
    "size": (put("sizes", 3, -1), "Σ w |u|"),
    "size below the sum": (put("sizes", slice(None), 0), "expected |Σ w u| ≤ Σ w |u|"),
}


@pytest.mark.parametrize(("change", "reason"), BEYOND.values(), ids=BEYOND)
def test_sums_that_no_clients_can_have_are_refused(change, reason):
    assert opened_with(lambda parts: None).sums.clients == 4
    with pytest.raises(ValueError, match=re.escape(reason)):
        opened_with(change)


def test_updates_are_shortened_by_their_clients_and_longer_sums_are_refused():
    def long(parts):
        parts["sums"][:SIZE] *= 3
        parts["sizes"][:] *= 3

    norm = 0.5
    found = opened_with(lambda parts: None, norm=norm)
    expected = sum(
        update.vector.double() * min(1, norm / float(update.vector.double().norm())) * update.examples
        for update in answers(4)
    )
    torch.testing.assert_close(found.sums.total, expected)
    with pytest.raises(ValueError, match="expected a length of at most"):
        opened_with(long, norm=norm)
    opened_with(long)


def test_a_client_counts_for_no_more_than_the_most():
    found = opened_with(lambda parts: None, most_examples=11)
    assert found.sums.weight == 10 + 3 * 11


def test_a_round_whose_sums_are_out_of_range_is_not_used_and_says_so():
    def shifted(stage, content):
        if stage == Step.COLLECT_MASKED_VECTORS:
            vector = {name: array.numpy().copy() for name, array in content[VECTOR].items()}
            vector["signs"][7:8] += 100
            content[VECTOR] = to_record(vector)

    found = summed(Toy(answers(5), wrong={1: shifted}))
    assert found.opened is None
    reason = "the sums are not used because no clients can have them (Σ sgn(u): expected"
    assert reason in found.ended
    server = Server(Layout(("w",), ((SIZE,),)), torch.ones(SIZE), NONE, Schedule())
    report = server.exchange_sums(Exchange(), Collected([Update(0)], ended=found.ended), 5)
    assert (report.used, report.still) == (0, found.ended)


def test_a_run_whose_sums_can_never_be_used_is_no_result():
    """And its record says why nothing was used."""
    config = load_config("fedavg", FAST | {"secure": True})

    class Spoiler(InProcessGrid):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages)
            for reply in replies:
                if VECTOR in reply.content:
                    vector = {name: array.numpy() + np.uint64(2**62) for name, array in reply.content[VECTOR].items()}
                    reply.content[VECTOR] = to_record(vector)
                    break
            return replies

    class Heard(Listener):
        def finished_round(self, record):
            self.record = record

    heard = Heard()
    grid = Spoiler(client_app(lambda context: node_of(config)), 4)
    with pytest.raises(ClientError, match=r"no update could be used in 2 rounds; .*no clients can have them"):
        run_on_grid(config, grid, listeners=[heard])
    assert "no clients can have them" in heard.record.still


def test_a_liar_cannot_raise_the_bound_for_ever(caplog):
    def clips(stage, content):
        if stage == Step.COLLECT_MASKED_VECTORS:
            vector = {name: array.numpy().copy() for name, array in content[VECTOR].items()}
            vector["sums"][SIZE + 2 : SIZE + 3] += np.uint64(1)
            content[VECTOR] = to_record(vector)

    updates = answers(4)
    grid = Toy(updates, wrong={1: clips})
    exchange = SecureExchange(grid, Secure(bound=8.0, fewest_agreeing=3))
    for _ in range(13):
        last = summed(grid, exchange=exchange)
    assert exchange.bound == 8.0 * 2**10
    assert same(last, updates)


@pytest.mark.parametrize("setting", [{"bound": 1e300}, {"bound": float("inf")}, {"norm": 0}, {"fewest": 2}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        load_config("gma", {"secure": setting})


def test_a_client_takes_part_in_no_sum_with_a_bound_that_spoils_it():
    packing = Packing.of(3, SIZE, NONE, Weighing("uniform"), Secure())
    record = packing.record()
    assert Packing.read(record) == packing
    record["bound"] = 1e300
    with pytest.raises(ValueError, match="bound"):
        Packing.read(record)


@pytest.mark.parametrize("demand", [True, 3, 4])
def test_a_node_that_demands_secrecy_trains_in_no_other_way(demand):
    config = load_config("fedavg", FAST)
    app = client_app(lambda context: node_of(config))
    grids = [InProcessGrid(app, 4) for _ in range(2)]
    for grid in grids:
        for context in grid.contexts.values():
            context.node_config["secure"] = demand
    with pytest.raises(ClientError, match="lets it train within a secure sum only, found an open question"):
        run_on_grid(config, grids[0])
    threshold = 1.0 if demand == 4 else 2 / 3
    result = run_on_grid(config.model_copy(update={"secure": Secure(threshold=threshold)}), grids[1])
    assert [record.used for record in result.records] == [4, 4]
    assert len(result.records[0].client_metrics) == 4  # evaluations are answered


def test_a_node_may_demand_more_clients_than_the_server():
    config = load_config("fedavg", FAST | {"secure": True})
    grid = InProcessGrid(client_app(lambda context: node_of(config)), 4)
    next(iter(grid.contexts.values())).node_config["secure"] = 4
    result = run_on_grid(config, grid)
    assert "threshold: expected 4 or more" in result.records[0].dropped[0].reason
    assert result.records[0].used == 3


@pytest.mark.parametrize("demand", [2, "yes", 0])
def test_a_demand_that_cannot_be_understood_is_an_error(demand):
    context = next(iter(Toy(answers(3)).contexts.values()))
    context.node_config["secure"] = demand
    with pytest.raises(ConfigError, match="expected true, false or a number from 3"):
        demanded(context)


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
        ("fedpace", "a search needs"),
        ("fedgga", "a search needs"),
        ("scaffold", "server's side of this client work"),
        ("fedpac", "server's side"),
    ],
)
def test_presets_that_need_each_update_are_refused_before_the_first_round(preset, reason):
    with pytest.raises(ConfigError, match=reason):
        run(load_config(preset, FAST | {"model": "small_cnn", "rounds": 20, "secure.fewest_agreeing": 3}))


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


PRIVATE = {"privacy": {"noise": 0.5, "delta": 1e-2, "sampling": "fixed"}, "aggregate.weights": "uniform"}
POISSON = PRIVATE["privacy"] | {"sampling": "poisson"}


def test_a_private_secure_run_learns_and_says_what_it_told():
    config = load_config("fedavg", FAST | PRIVATE | {"secure.norm": 1.0, "rounds": 2})
    first, second = run(config), run(config)
    assert first.records[-1].epsilon > first.records[0].epsilon > 0
    assert first.records[-1].train_loss is None
    weights = [torch.cat([t.flatten() for t in result.module.state_dict().values()]) for result in (first, second)]
    assert not torch.equal(*weights)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "within secure sums by clients; expected norm"),
        (
            {"secure.norm": 1.0, "privacy": PRIVATE["privacy"] | {"sampling": "poisson"}},
            "expected sampling = 'fixed', found 'poisson'",
        ),
        ({"secure.norm": 1.0, "aggregate.rule": "masked", "secure.fewest_agreeing": 3}, "no noise is added to sums"),
    ],
)
def test_a_secure_run_that_is_not_private_is_refused_in_one_line(changes, message):
    config = load_config("fedavg", {**FAST, **PRIVATE, "secure.shares": 1.0, **changes})
    with pytest.raises(ConfigError, match=f"^privacy.*{message}"):
        run(config)

"""The adapter: Flower's messages in, our server's step out."""

import json
import logging

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedpace.core import Buffers, ClientError, ConfigError, Layout, Perturbation, RunFolderError, Update, derive
from fedpace.flower import ConflictFree, ServerStrategy
from fedpace.server import Annealing, Exchange, Guard, Pace, Schedule, Server
from fedpace.server.annealing import Lenient
from tests.server.helpers import replied
from tests.stages import stage_with

from .plain import EXAMPLES, Watched, answer, app, arrays, grid, moved, one_round, updates, vector

LAYOUT = Layout(("w", "b"), ((3, 2), (2,)))


def close(one, other, atol=1e-6):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_allclose(one[name].numpy(), other[name].numpy(), atol=atol, rtol=0)


def equal(one, other):
    return list(one) == list(other) and all(np.array_equal(one[name].numpy(), other[name].numpy()) for name in one)


def without_integers(record):
    return ArrayRecord({name: array for name, array in record.items() if "tracked" not in name})


def test_with_the_mean_it_is_flowers_fedavg():
    ours = ServerStrategy().start(grid(), arrays(), num_rounds=3)
    flowers = FedAvg().start(grid(), arrays(), num_rounds=3)
    close(without_integers(ours.arrays), without_integers(flowers.arrays))
    for number, metrics in flowers.train_metrics_clientapp.items():
        assert ours.train_metrics_clientapp[number]["loss"] == pytest.approx(metrics["loss"])
        evaluated = dict(flowers.evaluate_metrics_clientapp[number])
        assert dict(ours.evaluate_metrics_clientapp[number]) == pytest.approx(evaluated)


def test_clients_may_count_alike():
    found, _ = one_round(ServerStrategy(weights="uniform"), grid())
    torch.testing.assert_close(vector(found), vector(arrays()) + updates().mean(0))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arrays_keep_names_shapes_dtypes_and_order(dtype):
    start = arrays(w=dtype)
    found, _ = one_round(ServerStrategy(), grid(), start)
    assert [(n, a.shape, a.dtype) for n, a in found.items()] == [(n, a.shape, a.dtype) for n, a in start.items()]


def test_clients_that_stand_still_do_not_move_a_model_of_half_precision():
    """θ is what clients receive, not what was there before rounding."""
    still, seen = ClientApp(), []

    @still.train()
    def train(message, context):
        return answer(message, context.node_config["partition-id"], message.content["arrays"])

    record, strategy = arrays(w="float16"), ServerStrategy(rule="dampened")
    for number, on in enumerate([grid(), grid(still), grid(still)], start=1):
        record, metrics = one_round(strategy, on, record, number=number)
        seen.append(record)
    assert equal(seen[0], seen[1])
    assert equal(seen[1], seen[2])
    assert metrics["agreement"] == 0


def test_buffers_are_averaged_by_examples_and_the_largest_integer_is_taken():
    found, _ = one_round(ServerStrategy(rule="dampened", optimizer={"name": "sgd", "lr": 0.1}), grid())
    rows = [moved(arrays(), client, 1) for client in range(4)]
    mean = np.average([row["bn.running_mean"].numpy() for row in rows], axis=0, weights=EXAMPLES)
    np.testing.assert_allclose(found["bn.running_mean"].numpy(), mean, atol=1e-6)
    assert found["bn.num_batches_tracked"].numpy() == 3 + 3


def test_which_arrays_are_buffers_is_the_users_to_say():
    found, _ = one_round(ServerStrategy(rule="dampened", buffers=lambda name: name == "b"), grid())
    plain, _ = one_round(ServerStrategy(), grid())
    np.testing.assert_allclose(found["b"].numpy(), plain["b"].numpy(), atol=1e-6)
    assert not np.allclose(found["bn.running_mean"].numpy(), plain["bn.running_mean"].numpy())


def test_an_update_is_formed_in_the_memory_of_the_one_before():
    strategy = ServerStrategy()
    on = grid()
    replies = on.send_and_receive(strategy.configure_train(1, arrays(), ConfigRecord(), on))
    answers = [(reply.metadata.src_node_id, reply) for reply in replies]
    places = {update.vector.data_ptr() for update in strategy._updates(Exchange(), answers)}
    assert len(places) == 1


def spoiled(change):
    """A reply whose arrays were changed."""

    def spoil(reply):
        if reply.content.array_records:
            found = dict(reply.content["arrays"])
            change(found)
            reply.content["arrays"] = ArrayRecord(found)
        return reply

    return spoil


def nan(found):
    found["w"] = Array(np.full((3, 2), np.nan, dtype="float32"))


def nan_statistics(found):
    found["bn.running_mean"] = Array(np.full(4, np.inf, dtype="float32"))


def metric(**values):
    def spoil(reply):
        reply.content["metrics"] = MetricRecord(values)
        return reply

    return spoil


def raises(reply):
    raise RuntimeError("out of\nmemory")


def replaced(**records):
    return lambda reply: Message(RecordDict(records), reply_to=reply_to(reply))


def reply_to(reply):
    """A message that the reply's sender could have been sent."""
    return Message(RecordDict(), reply.metadata.src_node_id, "train")


def torn(found):
    found["w"] = Array("float32", (3, 2), "numpy.ndarray", found["w"].data[:70])


def empty(found):
    found["w"] = Array("float32", (3, 2), "numpy.ndarray", b"")


def two_records(reply):
    reply.content["more"] = ArrayRecord({"w": Array(np.zeros(1))})
    return reply


BAD = {
    "nan": (spoiled(nan), "not finite"),
    "nan statistics": (spoiled(nan_statistics), "not finite"),
    "shape": (spoiled(lambda found: found.update(w=Array(np.zeros((2, 3), "float32")))), "array 'w', expected (3, 2)"),
    "missing": (spoiled(lambda found: found.pop("b")), "missing: b"),
    "extra": (spoiled(lambda found: found.update(c=Array(np.zeros(1)))), "not asked for: c"),
    "dtype": (spoiled(lambda found: found.update(w=Array(np.zeros((3, 2), "complex64")))), "found complex64"),
    "rounded": (spoiled(lambda found: found.update(w=Array(np.zeros((3, 2), "int64")))), "found int64"),
    "torn": (spoiled(torn), ""),
    "empty": (spoiled(empty), ""),
    "two records": (two_records, "one ArrayRecord, found 2"),
    "no examples": (metric(loss=1.0), "num-examples: expected a number above 0, found None"),
    "zero examples": (metric(**{"num-examples": 0}), "found 0"),
    "nan examples": (metric(**{"num-examples": float("nan")}), "found nan"),
    "list of examples": (metric(**{"num-examples": [1, 2]}), "found [1, 2]"),
    "no metrics": (replaced(arrays=arrays()), "one MetricRecord, found 0"),
    "nothing": (replaced(), "one MetricRecord, found 0"),
    "error": (raises, "RuntimeError: out of memory"),
}


@pytest.mark.parametrize(("spoil", "reason"), BAD.values(), ids=BAD)
def test_a_bad_client_is_dropped_and_the_round_goes_on(spoil, reason, caplog):
    with caplog.at_level(logging.WARNING, "fedpace"):
        found, metrics = one_round(ServerStrategy(), grid(app(spoil, bad=[1])))
    kept = [0, 2, 3]
    rows, weights = updates(clients=kept), torch.tensor([EXAMPLES[client] for client in kept])
    expected = vector(arrays()) + (rows * weights[:, None]).sum(0) / weights.sum()
    torch.testing.assert_close(vector(found), expected)
    assert (metrics["clients"], metrics["dropped"]) == (3, 1)
    assert metrics["loss"] == pytest.approx(np.average(kept, weights=weights))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fedpace"]
    assert reason in line
    assert "\n" not in line


@pytest.mark.parametrize("spoil", [spoiled(nan), raises])
def test_if_nobody_is_left_the_model_stays_as_it_is(spoil):
    found, metrics = one_round(ServerStrategy(optimizer="adam"), grid(app(spoil, bad=range(4))))
    assert equal(found, arrays())
    assert (metrics["clients"], metrics["dropped"]) == (0, 4)


def test_a_client_that_does_not_answer_is_dropped():
    _, metrics = one_round(ServerStrategy(), grid(), order=lambda replies: list(replies)[1:])
    assert (metrics["clients"], metrics["dropped"]) == (3, 1)


@pytest.mark.parametrize("rule", ["mean", "masked", "conflict_free"])
def test_the_order_of_replies_does_not_matter(rule):
    orders = [list, lambda replies: list(replies)[::-1], lambda replies: iter(sorted(replies, key=id))]
    found = [one_round(ServerStrategy(rule=rule), grid(), order=order)[0] for order in orders]
    assert equal(found[0], found[1])
    assert equal(found[0], found[2])


def test_clients_with_different_metrics_are_averaged_over_what_all_sent(caplog):
    spoil = metric(**{"num-examples": EXAMPLES[1], "loss": 1.0, "extra": 2.0, "list": [1.0]})
    _, metrics = one_round(ServerStrategy(), grid(app(spoil, bad=[1])))
    assert metrics["loss"] == pytest.approx(np.average(range(4), weights=EXAMPLES))
    assert "extra" not in metrics
    assert metrics["clients"] == 4
    assert "only loss are averaged" in caplog.text


@pytest.mark.parametrize("values", [{}, {"loss": float("nan")}, {"loss": [1.0]}, {"loss": float("inf"), "x": 1.0}])
def test_a_client_with_other_metrics_than_most_is_left_out_of_their_mean(values, caplog):
    spoil = metric(**{"num-examples": EXAMPLES[1], **values})
    _, metrics = one_round(ServerStrategy(), grid(app(spoil, bad=[1])))
    kept = [0, 2, 3]
    assert metrics["loss"] == pytest.approx(np.average(kept, weights=[EXAMPLES[client] for client in kept]))
    assert metrics["clients"] == 4
    assert "only loss are averaged, of 3 of 4 clients" in caplog.text


@pytest.mark.parametrize("spoil", [raises, metric(accuracy=1.0), replaced()])
def test_a_bad_evaluation_is_left_out(spoil):
    strategy, on = ServerStrategy(), grid(app(spoil, bad=[1]))
    replies = on.send_and_receive(strategy.configure_evaluate(1, arrays(), ConfigRecord(), on))
    found = strategy.aggregate_evaluate(1, replies)
    kept = [0, 2, 3]
    weights = [EXAMPLES[client] for client in kept]
    assert found["accuracy"] == pytest.approx(np.average([client / 4 for client in kept], weights=weights))


def test_a_cohort_is_drawn_from_seed_and_round():
    def drawn(seed, number):
        strategy, on = ServerStrategy(seed=seed, fraction_train=0.5), grid(nodes=4)
        messages = strategy.configure_train(number, arrays(), ConfigRecord(), on)
        return [message.metadata.dst_node_id for message in messages]

    assert all(len(drawn(0, number)) == 2 for number in range(1, 5))
    assert drawn(0, 1) == drawn(0, 1) == sorted(drawn(0, 1))
    assert len({tuple(drawn(0, number)) for number in range(1, 9)}) > 1
    assert [drawn(0, number) for number in range(1, 9)] != [drawn(1, number) for number in range(1, 9)]


def test_the_config_arrives_and_is_not_changed():
    on, config = Watched(app()), ConfigRecord({"lr": 0.5})
    one_round(ServerStrategy(), on, config=config, number=7)
    assert [dict(message.content["config"]) for message in on.sent] == [{"lr": 0.5, "server-round": 7}] * 4
    assert dict(config) == {"lr": 0.5}


@pytest.mark.parametrize("options", [{"min_available_nodes": 9}, {"min_train_nodes": 9}])
def test_waiting_for_nodes_ends(options):
    with pytest.raises(ClientError, match=r"expected 9 nodes within 0\.01 s, found 4"):
        one_round(ServerStrategy(wait=0.01, **options), grid())


def test_no_training_no_result():
    assert one_round(ServerStrategy(fraction_train=0.0), grid()) == (None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": Schedule(), "rule": "mean"}, "expected no rule beside it"),
        ({"rule": "maskd"}, "did you mean 'masked'"),
        ({"optimizer": {"name": "adam", "lr": -1}}, "lr"),
        ({"weights": "size"}, "weights"),
        (
            {"schedule": Schedule(stages=(stage_with(name="a", last=4), stage_with(name="b", first=4)))},
            "'a' .* and 'b' .* overlap",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(options, message):
    with pytest.raises(ConfigError, match=message) as error:
        ServerStrategy(**options)
    assert "\n" not in str(error.value)


def test_a_model_of_other_arrays_is_refused():
    strategy = ServerStrategy()
    one_round(strategy, grid())
    with pytest.raises(ConfigError, match="missing"):
        one_round(strategy, grid(), ArrayRecord({"w": Array(np.zeros(2, "float32"))}), number=2)


@pytest.mark.parametrize("record", [{}, {"n": np.arange(3)}, {"z": np.zeros(2, "complex64")}])
def test_arrays_without_anything_to_train_are_refused(record):
    with pytest.raises(ConfigError, match=r"arrays?"):
        one_round(ServerStrategy(), grid(), ArrayRecord({name: Array(value) for name, value in record.items()}))


def probed(message, client):
    """Gradients at all paths' points: some function of the point that differs from client to client."""
    asked = json.loads(message.content["config"]["fedpace-probe"])
    theta, perturbation = vector(message.content["arrays"]), Perturbation(**asked["perturbation"])
    points = [perturbation.follow(theta, LAYOUT, tuple(path)) for path in asked["paths"]]
    return torch.stack([torch.sin((client + 1) * 9 * point) for point in points])


def probing(answers=probed, bad=()):
    """Clients that answer probes, some by ``answers``."""
    found = app()

    @found.train("probe")
    def probe(message, context):
        client = context.node_config["partition-id"]
        vectors = (answers if client in bad else probed)(message, client)
        metrics = MetricRecord({"num-examples": 1, "loss": [1.0] * len(vectors)})
        record = ArrayRecord({"vectors": Array(vectors.numpy())})
        return Message(RecordDict({"probes": record, "metrics": metrics}), reply_to=message)

    return found


SEARCH = Annealing(k=5, perturbation=Perturbation(rho=0.1), accept=Lenient(delta=10.0))


def searching(**changes):
    search = SEARCH.model_copy(update=changes)
    return ServerStrategy(Schedule(base=stage_with(search=search, weights="uniform")), seed=3), search


def by_hand(search, number=0, clients=range(4)):
    """What the search should find at the arrays of :func:`arrays`."""
    theta = vector(arrays())

    def answers(paths):
        points = [search.perturbation.follow(theta, LAYOUT, path) for path in paths]
        for point in points:
            yield [Update(client, torch.sin((client + 1) * 9 * point), 1, {"loss": 1.0}) for client in clients]

    return replied(search.search(theta, LAYOUT, derive(3, "search", number)), answers)


@pytest.mark.parametrize("walk", ["best", "ratchet", "random_walk"])
def test_a_search_asks_by_seeds_and_moves_the_model_before_training(walk):
    strategy, search = searching(walk=Annealing(walk=walk).walk)
    on = Watched(probing())
    _, metrics = one_round(strategy, on)
    point, report = by_hand(search)
    assert report.accepted
    assert metrics["search-accepted"] == 1
    assert metrics["search-gain"] == pytest.approx(report.gain, abs=1e-6)
    probes = [message for message in on.sent if message.metadata.message_type == "train.probe"]
    trained = [message for message in on.sent if message.metadata.message_type == "train"]
    assert len(probes) == 4 * (6 if walk == "random_walk" else 2)  # θ and all candidates
    assert all(equal(message.content["arrays"], arrays()) for message in probes)
    assert len(trained) == 4
    torch.testing.assert_close(vector(trained[0].content["arrays"]), point)
    assert on.sent[-4:] == trained


@pytest.mark.parametrize(
    "answers",
    [
        lambda message, client: probed(message, client)[:, 1:],
        lambda message, client: probed(message, client)[:0],
        lambda message, client: probed(message, client) * np.nan,
    ],
    ids=["shape", "too few", "nan"],
)
def test_a_bad_answer_to_a_probe_leaves_that_client_out(answers):
    strategy, search = searching()
    on = Watched(probing(answers, bad=[2]))
    _, metrics = one_round(strategy, on)
    point, report = by_hand(search, clients=[0, 1, 3])
    assert metrics["search-gain"] == pytest.approx(report.gain, abs=1e-6)
    torch.testing.assert_close(vector(on.sent[-1].content["arrays"]), point)
    assert metrics["clients"] == 4  # it trained all the same


def test_clients_that_answer_no_probes_train_as_ever(caplog):
    strategy, _ = searching(after="nothing")
    found, metrics = one_round(strategy, grid())
    plain, _ = one_round(ServerStrategy(weights="uniform"), grid())
    assert equal(found, plain)
    assert "search-gain" not in metrics
    assert caplog.text.count("probe of client") == 4


def test_a_round_may_end_with_its_search():
    strategy, search = searching(after="nothing")
    on = Watched(probing())
    found, metrics = one_round(strategy, on)
    torch.testing.assert_close(vector(found), by_hand(search)[0])
    assert not [message for message in on.sent if message.metadata.message_type == "train"]
    assert metrics["clients"] == 0


def with_gradients(stubborn=()):
    """Clients that send gradients when asked to; the stubborn ones send weights."""
    found = ClientApp()

    @found.train()
    def train(message, context):
        client, config = context.node_config["partition-id"], message.content["config"]
        reply = answer(message, client)
        if config.get("fedpace-send") == "gradient" and client not in stubborn:
            del reply.content["arrays"]
            values = updates()[client]
            record = {name: Array(tensor.numpy()) for name, tensor in LAYOUT.tensors(values)}
            reply.content["gradient"] = ArrayRecord(record)
            assert list(config["fedpace-parameters"]) == ["w", "b"]
        return reply

    return found


GRADIENT = stage_with(sends="gradient", rule="dampened", weights="uniform", optimizer={"name": "sgd", "lr": 0.5})


@pytest.mark.parametrize("stubborn", [(), (1,)])
def test_a_stage_may_ask_for_gradients(stubborn):
    found, metrics = one_round(ServerStrategy(Schedule(base=GRADIENT)), grid(with_gradients(stubborn)))
    kept = [client for client in range(4) if client not in stubborn]
    step = GRADIENT.exchanges[0].rule(updates(clients=kept))
    torch.testing.assert_close(vector(found), vector(arrays()) + 0.5 * step)
    assert metrics["dropped"] == len(stubborn)
    assert np.array_equal(found["bn.running_mean"].numpy(), arrays()["bn.running_mean"].numpy())


def test_weights_are_not_taken_for_gradients():
    """A model without statistics: names and shapes would fit."""
    start = ArrayRecord({name: arrays()[name] for name in ("w", "b")})
    found, metrics = one_round(ServerStrategy(Schedule(base=GRADIENT)), grid(), start)
    assert equal(found, start)
    assert metrics["dropped"] == 4


def test_a_round_may_have_a_second_exchange():
    both = (*GRADIENT.exchanges, Exchange(weights="uniform"))
    stage = GRADIENT.model_copy(update={"exchanges": both})
    on = Watched(with_gradients())
    found, _ = one_round(ServerStrategy(Schedule(base=stage)), on)
    middle, _ = one_round(ServerStrategy(Schedule(base=GRADIENT)), grid(with_gradients()))
    expected, _ = one_round(ServerStrategy(weights="uniform"), grid(), middle)
    assert len(on.sent) == 8
    close(found, expected)


@pytest.mark.parametrize("sends_pace", [True, False])
def test_a_pace_is_sent_to_clients_that_understand_it(sends_pace, caplog):
    pace, on = Pace(), Watched(app())
    strategy = ServerStrategy(Schedule(base=stage_with(pace=pace, weights="uniform")), sends_pace=sends_pace)
    record, _ = one_round(strategy, on)
    assert all(list(message.content.array_records) == ["arrays"] for message in on.sent)  # nothing is known yet
    one_round(strategy, on, record, number=2)
    sent = [message.content.array_records.get("pace") for message in on.sent[4:]]
    assert ("its pace is not sent" in caplog.text) == (not sends_pace)
    if not sends_pace:
        assert sent == [None] * 4
        return
    rows = updates()
    agreement = rows.mean(0).abs() / rows.abs().mean(0)
    torch.testing.assert_close(vector(sent[0]), pace.of(agreement))


def test_a_restarted_strategy_goes_on(tmp_path):
    def make():
        stages = (stage_with(name="late", first=3, rule="dampened", optimizer={"name": "adam", "lr": 0.1}),)
        base = stage_with(optimizer={"name": "adam", "lr": 0.1}, counts=True)
        return ServerStrategy(Schedule(base=base, stages=stages, pruning={}), fraction_train=0.5, seed=1)

    whole = make().start(grid(), arrays(), num_rounds=5)
    first = make()
    first.start(grid(), arrays(), num_rounds=2)
    first.save(tmp_path / "deep" / "state.safetensors")
    second = make()
    record = second.load(tmp_path / "deep" / "state.safetensors")
    assert second.rounds_done == 2
    result = second.start(grid(), record, num_rounds=5 - second.rounds_done)
    assert equal(result.arrays, whole.arrays)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["state.safetensors"]


@pytest.mark.parametrize("content", [None, b"", b"something else"])
def test_a_file_that_cannot_be_loaded_is_named(tmp_path, content):
    path = tmp_path / "state.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"state\.safetensors: expected"):
        ServerStrategy().load(path)


def test_a_state_without_what_the_schedule_needs_is_refused(tmp_path):
    strategy = ServerStrategy()
    one_round(strategy, grid())
    strategy.save(tmp_path / "state")
    with pytest.raises(RunFolderError, match=r"pruning\.mask"):
        ServerStrategy(Schedule(pruning={})).load(tmp_path / "state")


def test_there_is_nothing_to_save_before_the_first_round(tmp_path):
    with pytest.raises(ConfigError, match="no model yet"):
        ServerStrategy().save(tmp_path / "state")


def test_metrics_are_numbers():
    _, metrics = one_round(ConflictFree(), grid())
    assert {"clients", "dropped", "agreement", "similarity", "similarity-min", "loss"} <= set(metrics)
    assert all(isinstance(value, float) for value in metrics.values())


def huge(found):
    found["w"] = Array(np.full((3, 2), 3e38, dtype="float32"))


@pytest.mark.parametrize(
    ("change", "found"), [(nan, "not finite"), (huge, r"expected values of at most 1e\+15, found 3e\+38")]
)
def test_an_app_whose_model_does_not_change_any_more_ends_with_the_reason(change, found):
    strategy, nodes = ServerStrategy(guard=Guard(patience=2)), grid(app(spoiled(change), bad=range(4)))
    one_round(strategy, nodes)
    with pytest.raises(ClientError, match=rf"^no update could be used in 2 rounds; the first one: {found}$"):
        one_round(strategy, nodes, number=2)


def claims(examples):
    def change(reply):
        if "arrays" in reply.content.array_records:
            reply.content["metrics"] = MetricRecord({"num-examples": examples, "loss": 1.0})
        return reply

    return change


def test_bounds_hold_for_any_flower_app():
    liar = app(claims(10**12), bad=[3])
    owned, _ = one_round(ServerStrategy(), grid(liar))
    guard = {"max_share": 0.4, "clip": {"name": "fixed", "norm": 0.1}}
    kept, metrics = one_round(ServerStrategy(guard=guard), grid(liar))
    torch.testing.assert_close(vector(owned), vector(arrays()) + updates()[3])
    assert (metrics["capped"], metrics["shortened"], metrics["bound"]) == (1, 4, 0.1)
    assert float((vector(kept) - vector(arrays())).norm()) <= 0.1 + 1e-6


@pytest.mark.parametrize("clip", ["fixed", "quantile", {"name": "adaptive", "first": 1.5}], ids=str)
def test_bounds_of_a_strategy_are_the_servers(clip):
    guard = Guard(clip=clip, max_examples=12, max_share=0.4)
    found, _ = one_round(ServerStrategy(guard=guard), grid())
    sent = [Update(client, row.clone(), EXAMPLES[client]) for client, row in enumerate(updates())]
    server = Server(LAYOUT, vector(arrays()), Buffers(torch.zeros(0), torch.zeros(0).long()), Schedule(), guard=guard)
    report = server.exchange(Exchange(), sent, 4)
    torch.testing.assert_close(vector(found), server.vector)
    assert report.bounded.shortened
    assert report.bounded.capped == [1]


def test_what_bounds_remember_is_saved_and_loaded(tmp_path):
    def strategy():
        return ServerStrategy(guard=Guard(clip={"name": "adaptive", "first": 0.1}, growth=1.0))

    first, nodes = strategy(), grid()
    record, _ = one_round(first, nodes)
    first.save(tmp_path / "state")
    later = strategy()
    loaded = later.load(tmp_path / "state")
    on, other = (one_round(each, nodes, rec, number=n) for each, rec, n in ((first, record, 2), (later, loaded, 1)))
    assert equal(on[0], other[0])
    assert on[1]["bound"] == other[1]["bound"] != 0.1


def test_a_share_that_the_nodes_cannot_have_is_refused():
    with pytest.raises(ConfigError, match=r"^guard.max_share: .* 0.2 of 4 clients"):
        one_round(ServerStrategy(guard=Guard(max_share=0.2)), grid())


@pytest.mark.parametrize(
    ("guard", "complaint"),
    [
        ({"max_share": 0}, "guard: max_share: input should be greater than 0, found 0"),
        ({"clip": {"norm": -1}}, "clipping 'fixed': norm: input should be greater than 0, found -1"),
        ({"max_shares": 0.5}, "guard: unknown key 'max_shares'; did you mean 'max_share'?"),
    ],
    ids=str,
)
def test_what_is_no_guard_is_refused_in_one_line(guard, complaint):
    with pytest.raises(ConfigError) as caught:
        ServerStrategy(guard=guard)
    assert str(caught.value) == complaint

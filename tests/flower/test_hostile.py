"""Whatever a node answers, in whichever phase: the round ends, the model stays finite, and the honest are used."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedpace.aggregation import rules
from fedpace.core import ClientError
from fedpace.experiments.engines import node_of, run_on
from fedpace.experiments.presets import load_config
from fedpace.experiments.run import execute
from fedpace.flower import (
    ConflictFree,
    FedGGA,
    FedPACE,
    GradientMasked,
    Harmonised,
    OnGrid,
    Paced,
    ServerStrategy,
    SignDampened,
    client_app,
)
from fedpace.flower.execution import WHO

from .hostile import (
    Hostile,
    claimed,
    claiming,
    echo,
    failing,
    faults,
    filled,
    header,
    repeated,
    saying,
    silent,
    spoiled,
    unasked,
)
from .plain import answer, arrays, one_round, updates
from .test_strategy import LAYOUT, probed

SOME = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
STRATEGIES = {
    "plain": ServerStrategy,
    "adam": lambda: ServerStrategy(optimizer="adam", pairwise=3),
    "masked": GradientMasked,
    "dampened": lambda: SignDampened(optimizer="yogi"),
    "harmonised": Harmonised,
    "conflict-free": ConflictFree,
    "paced": Paced,
    "fedgga": lambda: FedGGA(first=0, k=2),
    "fedpace": lambda: FedPACE(anneal=(0, 0), dampen=(1, 1), prune=(2, 2), search={"k": 2, "accept": "lenient"}),
}


def honest():
    """Clients that know all that a strategy may ask for, and keep their heads whatever becomes of the model."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        client, config = context.node_config["partition-id"], message.content["config"]
        reply = answer(message, client)
        if config.get("fedpace-send") == "gradient":
            del reply.content["arrays"]
            values = LAYOUT.tensors(updates(number=config["server-round"])[client])
            reply.content["gradient"] = ArrayRecord({name: Array(tensor.numpy()) for name, tensor in values})
        return reply

    @app.train("probe")
    def probe(message, context):
        vectors = probed(message, context.node_config["partition-id"])
        metrics = MetricRecord({"num-examples": 1, "loss": [1.0] * len(vectors)})
        record = ArrayRecord({"vectors": Array(vectors.numpy())})
        return Message(RecordDict({"probes": record, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        metrics = MetricRecord({"num-examples": 10, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def play(strategy, on, record):
    """Three rounds of training and evaluation."""
    for number in range(1, 4):
        record, metrics = one_round(strategy, on, record, number=number)
        asked = strategy.configure_evaluate(number, record, ConfigRecord(), on)
        strategy.aggregate_evaluate(number, on.send_and_receive(asked))
        assert all(torch.from_numpy(array.numpy()).isfinite().all() for array in record.values())
        assert metrics["clients"] >= 2 or not metrics["clients"] + metrics["dropped"]


@pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES)
@SOME
@given(wrong=st.lists(faults, min_size=1, max_size=4))
def test_strategies_use_the_honest(make, wrong):
    play(make(), Hostile(honest(), 3, wrong), arrays())


@pytest.mark.parametrize("rule", rules.names())
@settings(SOME, max_examples=6)
@given(wrong=st.lists(faults, min_size=1, max_size=4))
def test_every_rule_uses_the_honest(rule, wrong):
    play(ServerStrategy(rule=rule), Hostile(honest(), 3, wrong), arrays())


@SOME
@given(wrong=st.lists(faults, min_size=1, max_size=4))
def test_models_of_half_precision_stay_finite(wrong):
    play(ServerStrategy(optimizer={"name": "sgd", "lr": 3.0}), Hostile(honest(), 3, wrong), arrays(w="float16"))


def test_a_reply_that_is_repeated_counts_once():
    def sent(fault, clients=3):
        on, strategy = Hostile(honest(), clients, [fault]), ServerStrategy()
        record, _ = one_round(strategy, on)
        asked = strategy.configure_evaluate(1, record, ConfigRecord(), on)
        return record, strategy.aggregate_evaluate(1, on.send_and_receive(asked))

    once, again = (sent(fault) for fault in (lambda message, reply: [reply], repeated))
    assert once[1] == again[1]
    assert all((once[0][name].numpy() == again[0][name].numpy()).all() for name in once[0])


FAST = {"data.source": "digits", "model": "linear", "local.max_steps": 1, "executor": "serial"}
FAST |= {"data.partition.limit": 60, "measuring.per_client": 10}
RUNS = {
    "fedavg": {"model": "mlp"},
    "scaffold": {},
    "fedrep": {"model": "small_cnn", "data.partition.test_share": 0.3},
    "fedgga": {"wire": "signs"},
    "gma": {},
    "fedpac": {"model": "small_cnn", "data.partition.test_share": 0.3},
    "fedcp": {"model": "small_cnn", "data.partition.test_share": 0.3},
    "fedprox": {"wire": "int8"},
    "apfl": {"data.partition.test_share": 0.3},
}


def config(preset, clients=3, **changes):
    chosen = load_config(preset, FAST | RUNS.get(preset, {}) | {"data.partition.clients": clients} | changes)
    return chosen.shortened(2)


def run(chosen, wrong, spared=(WHO,), clients=(0,)):
    app = client_app(lambda context: node_of(chosen))
    grid = Hostile(app, chosen.data.partition.clients, wrong, spared, clients)
    return execute(chosen, executor=OnGrid(grid=grid, wait=0, secure=chosen.secure))


@pytest.mark.parametrize("preset", RUNS)
@settings(SOME, max_examples=6)
@given(wrong=st.lists(faults, min_size=1, max_size=4), spared=st.sampled_from([(), (WHO,)]))
def test_runs_on_nodes_use_the_honest(preset, wrong, spared):
    result = run(config(preset), wrong, spared)
    assert all(tensor.isfinite().all() for tensor in result.module.state_dict().values())
    assert all(record.used >= 2 for record in result.records)


ANSWERS = {
    "silence": silent,
    "an error": failing,
    "a stranger's reply": unasked,
    "its question": echo,
    "examples '7'": saying('[{"examples": "7", "metrics": {}, "failure": null, "state": null}]'),
    "examples null": saying('[{"examples": null, "metrics": {}, "failure": null, "state": null}]'),
    "metrics null": saying('[{"examples": 7, "metrics": null, "failure": null, "state": null}]'),
    "loss 'x'": saying('[{"examples": 7, "metrics": {"loss": "x"}, "failure": null, "state": null}]'),
    "no answer": saying("[]"),
    "a number": saying("[1]"),
    "deeply nested": saying("[" * 100_000),
    "no text": saying(b""),
    "float16": spoiled(filled((650,), "float16", 1.0), 0, everything=True),
    "complex": spoiled(filled((650,), "complex64", 1.0), 0, everything=True),
    "uint16": spoiled(filled((650,), "uint16", 1.0), 0, everything=True),
    "empty bytes": spoiled(claimed(b""), 0, everything=True),
    "10^15 values": spoiled(claimed(header((10**15,), "<f4")), 0, everything=True),
    "huge values": spoiled(filled((650,), "float32", 3e38), 0, everything=True),
}


@pytest.mark.parametrize("wrong", ANSWERS.values(), ids=ANSWERS)
def test_a_node_that_cannot_be_understood_is_dropped_by_name(wrong):
    result = run(config("fedavg", model="linear"), [wrong])
    for record in result.records:
        assert [drop.client for drop in record.dropped] == [0]
        assert {drop.client for drop in record.unmeasured} <= {0}
        assert (record.used, list(record.client_metrics)[-2:]) == (2, [1, 2])


def in_evaluations(wrong):
    def fault(message, reply):
        evaluates = '"on": "client_test"' in str(message.content["config"]["turns"])
        return wrong(message, reply) if evaluates else [reply]

    return fault


def in_step(step, wrong):
    """Only in one step of the secure protocol."""

    def fault(message, reply):
        config = message.content.config_records.get("protocol", {})
        return wrong(message, reply) if config.get("stage") == step else [reply]

    return fault


STEPS = ["setup", "share_keys", "collect_masked_vectors", "unmask"]
MASKED = st.builds(
    filled, st.just((655,)), st.sampled_from(["uint64", "int64", "uint8", "float64"]), st.sampled_from([0.0, 7.0, 1e18])
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("preset", ["fedavg", "gma", "paced"])
@settings(SOME, max_examples=6)
@given(wrong=faults | st.builds(spoiled, MASKED, st.integers(0, 2), st.booleans()))
def test_secure_rounds_end_and_use_the_honest(preset, step, wrong):
    """Or nobody, where a vector cannot be told from an honest one before the sum is opened and found impossible."""
    secure = {"secure.threshold": 0.51, "secure.fewest_agreeing": 3}
    result = run(config(preset, clients=5, **secure), [in_step(step, wrong)])
    assert all(tensor.isfinite().all() for tensor in result.module.state_dict().values())
    for record in result.records:
        assert record.used >= 4 or (record.used == 0 and step == "collect_masked_vectors")


@SOME
@given(wrong=st.lists(faults, min_size=1, max_size=5))
def test_secure_runs_end_whatever_is_answered_at_any_step(wrong):
    result = run(config("gma", clients=5, **{"secure.threshold": 0.51, "secure.fewest_agreeing": 3}), wrong)
    assert all(tensor.isfinite().all() for tensor in result.module.state_dict().values())


FIRST = '[{{"examples": 7, "metrics": {}, "failure": null, "state": null}}]'


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (failing, "evaluation: its node failed: its disk is full"),
        (silent, "evaluation: no answer within 600 s"),
        (saying(FIRST.format('{"count": 0.0, "correct": 0.0, "loss": 0.0}')), "expected a count above 0, found 0"),
        (saying(FIRST.format('{"count": -7.0, "correct": -7.0, "loss": 0.0}')), "expected a count above 0, found -7"),
        (saying(FIRST.format('{"count": 7.0, "correct": 1e300, "loss": 0.0}')), "accuracy: expected a share"),
        (saying(FIRST.format('{"count": 7.0}')), "KeyError: 'correct'"),
    ],
)
@pytest.mark.parametrize("preset", ["fedavg", "fedrep"])
def test_a_client_that_cannot_be_evaluated_is_named_and_the_run_goes_on(preset, wrong, reason):
    result = run(config(preset), [in_evaluations(wrong)])
    first = result.records[0]
    (unmeasured,) = first.unmeasured
    assert unmeasured.client == 0
    assert reason in unmeasured.reason
    assert (list(first.client_metrics), first.used, first.dropped) == ([1, 2], 3, [])
    assert first.headline is not None


def test_if_no_client_of_a_personal_method_can_be_evaluated_the_run_ends():
    with pytest.raises(ClientError, match=r"could not be evaluated; .*its disk is full"):
        run(config("fedrep"), [in_evaluations(failing)], clients=range(3))


def test_a_node_that_repeats_itself_changes_nothing():
    chosen = config("fedavg")
    local, found = run_on("local", chosen), run(chosen, [repeated], ())
    pairs = zip(local.module.state_dict().values(), found.module.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("metrics", [{"num-examples": 1e39}, {"num-examples": 10**400}, {"loss": 10**400}])
def test_numbers_beyond_all_bounds_drop_their_client(metrics):
    found, seen = one_round(ServerStrategy(), Hostile(honest(), 3, [claiming(metrics)]))
    assert all(torch.from_numpy(array.numpy()).isfinite().all() for array in found.values())
    assert (seen["clients"], seen["dropped"], seen["loss"]) == (2, 1, pytest.approx(40 / 30))

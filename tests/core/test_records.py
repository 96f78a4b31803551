import json
import re

import pytest

from fedpace.core import Agreement, Dropped, RoundRecord, SearchReport, Seconds, Similarity


def whole():
    return RoundRecord(
        round=3,
        stage="anneal",
        cohort=[0, 2],
        search=SearchReport(True, 8, 0.1, 0.2, 0.1, 2.0, 1.9, 0.3, 0.0),
        similarity=Similarity("update", 0.5, 0.25, [[1.0, 0.5], [0.5, 1.0]]),
        agreement=Agreement(0.75, [1, 0, 3], {"weight": [1, 0, 3]}),
        diagnostics={"masked": 0.25, "projections": [1, 2]},
        dropped=[Dropped(1, "not finite")],
        train_loss=1.5,
        bytes_up=8,
        bytes_down=16,
        metrics={"accuracy": 0.5, "loss": 1.0},
        client_metrics={0: {"accuracy": 0.25, "loss": 2.0}},
        clients_on="test",
        time=12.5,
        staleness={0: 3, 2: 0},
        seconds=Seconds(0.5, 1.0, 0.25, 0.25),
    )


def test_a_record_is_read_as_it_was_written():
    line = whole().to_json()
    assert "\n" not in line
    assert RoundRecord.from_json(line) == whole()
    assert whole().headline == 0.5
    assert whole().client_headlines == {0: 0.25}
    assert whole().seconds.total == 2.0


def test_what_is_not_finite_is_null():
    record = RoundRecord(
        round=0, train_loss=float("nan"), metrics={"R²": float("-inf")}, diagnostics={"x": float("inf")}
    )
    table = json.loads(record.to_json())
    assert (table["train_loss"], table["metrics"], table["diagnostics"]) == (None, {"R²": None}, {"x": None})


def test_a_record_of_the_first_version_is_read():
    old = {"round": 1, "stage": "dampen", "accuracy": 0.5, "loss": 1.0, "client_accuracy": {"7": 0.25}}
    old |= {"client_accuracy_on": "test", "secure": True, "dropped": [{"client": 2, "reason": "empty"}]}
    found = RoundRecord.from_json(json.dumps(old))
    assert (found.round, found.stage, found.metrics) == (1, "dampen", {"accuracy": 0.5, "loss": 1.0})
    assert (found.client_headlines, found.clients_on, found.dropped) == ({7: 0.25}, "test", [Dropped(2, "empty")])
    unmeasured = RoundRecord.from_json(json.dumps({"round": 0, "accuracy": None, "loss": None, "client_accuracy": {}}))
    assert unmeasured.headline is None


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "3",
        '{"round": "x"}',
        '{"version": 9, "round": 0}',
        '{"stage": "a"}',
        "{",
        "",
        "[" * 100_000,
        '{"round": NaN}',
        '{"version": true, "round": 0}',
        '{"round": 0, "client_accuracy": 3}',
        '{"round": 0, "metrics": {}}',
    ],
)
def test_anything_else_is_an_error_of_one_line(line):
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        RoundRecord.from_json(line)


def changed(table, key, value):
    *above, last = key.split(".")
    inner = table
    for part in above:
        inner = inner[int(part) if isinstance(inner, list) else part]
    inner[last] = value
    return json.dumps(table)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("round", "3", "round: input should be a valid integer"),
        ("round", 3.0, "round: input should be a valid integer"),
        ("round", True, "round: input should be a valid integer"),
        ("round", -1, "round: input should be greater than or equal to 0"),
        ("stage", 3, "stage: input should be a valid string"),
        ("cohort", [0, -2], "cohort.1: input should be greater than or equal to 0"),
        ("cohort", [2, 2], "cohort: expected each client once"),
        ("used", 3, "used: expected at most the 2 clients of the cohort, found 3"),
        ("time", -1.0, "time: input should be greater than or equal to 0"),
        ("staleness", {"0": -1, "2": 0}, "staleness.0: input should be greater than or equal to 0"),
        ("staleness", {"0": 1}, "staleness: expected that of the cohort [0, 2], found that of [0]"),
        ("pruned", 1.5, "pruned: input should be less than or equal to 1"),
        ("bytes_up", 0.5, "bytes_up: input should be a valid integer"),
        ("train_loss", "1", "train_loss: input should be a valid number"),
        ("train_loss", 1e999, "Infinity is no JSON"),
        ("metrics", [], "metrics: input should be an object"),
        ("metrics.accuracy", "half", "metrics.accuracy: input should be a valid number"),
        ("client_metrics", {"a": {}}, "client_metrics.a.[key]: input should be a valid integer"),
        ("client_metrics", {"-1": {}}, "client_metrics.-1.[key]: input should be greater than or equal to 0"),
        ("clients_on", "both", "clients_on: input should be 'train' or 'test'"),
        ("seconds.local", -1, "seconds.local: input should be greater than or equal to 0"),
        ("search.accepted", 1, "search.accepted: input should be a valid boolean"),
        ("similarity.mean", 2, "similarity.mean: input should be less than or equal to 1"),
        ("similarity.matrix", [[1.0, 0.5]], "similarity.matrix: expected 1 rows of as many numbers"),
        ("agreement.histogram", [1, 2], "agreement: expected lists of one length"),
        ("dropped.0.reason", None, "dropped.0.reason: input should be a valid string"),
        ("accuracy", 0.5, "accuracy: unexpected keyword argument"),
        ("search.found", 0.5, "search.found: unexpected keyword argument"),
    ],
)
def test_what_a_run_never_writes_is_refused_by_its_name(key, value, message):
    line = changed(json.loads(whole().to_json()), key, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        RoundRecord.from_json(line)


def test_cosines_may_leave_the_circle_by_rounding():
    record = RoundRecord(round=0, similarity=Similarity(mean=1.0000001, min=-1.0000001))
    assert RoundRecord.from_json(record.to_json()) == record

import json

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


@pytest.mark.parametrize("line", ["[]", "3", '{"round": "x"}', '{"version": 9, "round": 0}', '{"stage": "a"}', "{"])
def test_anything_else_is_an_error_of_one_line(line):
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        RoundRecord.from_json(line)

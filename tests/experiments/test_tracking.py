import sys

import pytest

from fedpace.core import ClientError, ConfigError, FedpaceError, RoundRecord, SearchReport
from fedpace.experiments import execute
from fedpace.experiments.tracking import scalars, trackers

from .helpers import fast_config, snapshot


def test_scalars_are_the_numbers_of_a_record():
    search = SearchReport(accepted=True, candidates=8)
    metrics = {"accuracy": 0.5, "loss": None}
    found = scalars(RoundRecord(round=3, stage="anneal", cohort=[0, 1], metrics=metrics, search=search, bytes_up=12))
    expected = {"accuracy": 0.5, "search.accepted": 1.0, "search.candidates": 8.0, "bytes_up": 12.0}
    assert found.items() >= expected.items()
    assert found.keys().isdisjoint({"round", "version", "stage", "cohort", "loss", "search.gain", "metrics.accuracy"})
    assert all(type(value) is float for value in found.values())


def test_tensorboard_writes_every_round(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = execute(fast_config(rounds=3, track=["tensorboard"]), out=tmp_path / "run")
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("accuracy")}
    assert found == pytest.approx({record.round: record.headline for record in result.records})
    assert "seconds/local" in events.Tags()["scalars"]


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """MLflow with a store in the test's folder; its client alone (mlflow-skinny) knows no other than files."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    module = pytest.importorskip("mlflow")
    module.set_tracking_uri(None)
    yield module
    while module.active_run() is not None:
        module.end_run()


def test_mlflow_logs_settings_and_every_round(tmp_path, mlflow):
    result = execute(fast_config(rounds=3, track=["mlflow"], local__lr=0.25), out=tmp_path / "mine")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs(["0"])
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params["method"] == "fedavg"
    assert "0.25" in run.data.params["local"]
    history = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "accuracy")}
    assert history == {record.round: record.headline for record in result.records}
    assert run.data.metrics["seconds.local"] > 0


def test_a_run_that_fails_does_not_block_the_next(tmp_path, mlflow):
    with pytest.raises(ClientError, match="larger than"):
        execute(fast_config(track=["mlflow"], local__optimizer="sgd", local__lr=1e38, guard__nonfinite="raise"))
    execute(fast_config(track=["mlflow"]))
    statuses = [run.info.status for run in mlflow.MlflowClient().search_runs(["0"])]
    assert statuses.count("FINISHED") == 1
    assert "RUNNING" not in statuses


def test_a_store_that_cannot_be_used_is_one_line(tmp_path, mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    with pytest.raises(FedpaceError, match="nonsense") as caught:
        execute(fast_config(track=["mlflow"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "package"), [("mlflow", "mlflow"), ("tensorboard", "tensorboard")])
def test_a_missing_package_is_one_line_that_says_what_to_install(tmp_path, monkeypatch, name, package):
    for module in [module for module in sys.modules if module.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"track: {package} is not installed; pip install 'fedpace\[track\]'"):
        execute(fast_config(track=[name]), out=tmp_path / "run")
    assert snapshot(tmp_path) == {}


def test_a_tracker_of_another_name_is_refused():
    with pytest.raises(ConfigError, match=r"track.0: input should be 'tensorboard' or 'mlflow', found 'wandb'"):
        fast_config(track=["wandb"])
    assert trackers([], None) == []


def test_a_run_that_cannot_begin_leaves_no_events(tmp_path):
    with pytest.raises(FedpaceError, match="9 clients are to be sampled"):
        execute(fast_config(track=["tensorboard"], cohort__number=9), out=tmp_path / "run")
    assert snapshot(tmp_path) == {}

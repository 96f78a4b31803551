import json
from dataclasses import replace

import pytest
import torch

from fedpace.aggregation import Dampened, Masked
from fedpace.core import ClientError, ConfigError, DataError, RoundRecord, RunFolderError
from fedpace.data import load
from fedpace.engine import Cohort, Listener, Measuring, RunFolder, Serial, read_rounds, read_run, train
from fedpace.methods import FedRep, LocalOnly, LocalSGD
from fedpace.server import Annealing, Guard, Schedule
from tests.engine import small
from tests.records import untimed
from tests.stages import stage_with


def run(folder=None, resume=False, listeners=(), **changes):
    plan = small.plan(**{"executor": Serial(), **changes})
    return train(small.module(), small.federation(), plan, folder=folder, resume=resume, listeners=listeners)


@pytest.fixture(scope="module")
def uninterrupted():
    return run()


def test_a_record_holds_every_metric(uninterrupted):
    for record in uninterrupted.records:
        assert 0 <= record.headline <= 1
        assert record.metrics["loss"] > 0
        assert set(record.client_headlines) == {0, 1, 2, 3, 4}
        assert record.similarity.kind == ("gradient" if record.stage == "prune" else "update")
        assert -1 <= record.similarity.min <= record.similarity.mean <= 1
        assert sum(record.agreement.histogram) == 94_410
        assert sum(map(sum, record.agreement.layers.values())) == 94_410
        assert record.bytes_up > 0 < record.bytes_down
        assert record.seconds.local > 0 < record.seconds.evaluate
    stages = [record.stage for record in uninterrupted.records]
    assert stages == ["fedavg", "anneal", "pace", "dampen", "prune", "prune"]
    assert uninterrupted.records[1].search.candidates == 2
    pruned = [record.pruned for record in uninterrupted.records]
    assert pruned[:4] == [0, 0, 0, 0]
    assert 0 < pruned[4] <= pruned[5]


def test_with_all_stages_off_fedpace_is_plain_fedavg_bitwise(uninterrupted):
    plain = run(schedule=Schedule())
    off = run(schedule=Schedule(stages=(), pruning=small.every_stage().pruning))
    assert torch.equal(small.weights(plain.module), small.weights(off.module))
    assert not torch.equal(small.weights(plain.module), small.weights(uninterrupted.module))


def test_data_of_one_class_are_refused():
    images, labels = torch.zeros(20, 1, 8, 8), torch.full((20,), 3)
    federation = load((images, labels)).partition("iid", clients=2)
    with pytest.raises(DataError, match=r"^arrays/iid: expected two classes or more, found only '3'$"):
        train(small.module(), federation, small.plan(executor=Serial()))


@pytest.mark.parametrize(("rounds", "stopped_after"), [(2, 2), (12, 10)])
def test_a_run_that_never_could_use_an_update_is_no_result(tmp_path, rounds, stopped_after):
    diverging = {"schedule": Schedule(), "local": LocalSGD(max_steps=2, lr=1e38), "measuring": Measuring(per_client=0)}
    for resume in (False, True):
        with pytest.raises(ClientError, match=f"no update could be used in {stopped_after} rounds; the first one: not"):
            run(tmp_path / "run", resume, rounds=rounds, **diverging)
        assert len(read_rounds(tmp_path / "run")) == stopped_after


class Sends(LocalSGD):
    """Trains at first; after a tenth of the run, clients up to ``last`` send a value everywhere."""

    value: float = float("nan")
    last: int = 5

    def at(self, progress):
        return self if progress >= 0.1 else LocalSGD(max_steps=self.max_steps)

    def turn(self, vector, shard, context):
        update = super().turn(vector, shard, context)
        return update if context.client > self.last else replace(update, vector=torch.full_like(vector, self.value))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "^no update could be used in 3 rounds; the first one: not finite$"),
        (3e38, r"^no update could be used in 3 rounds; the first one: larger than 1e\+15$"),
        (0.0, "^the model has not changed in 3 rounds: the step changed nothing$"),
    ],
)
def test_a_run_in_which_nothing_changes_any_more_stops_with_the_reason(tmp_path, value, reason):
    broken = {"local": Sends(value=value, max_steps=2), "guard": Guard(patience=3)}
    for resume in (False, True):
        with pytest.raises(ClientError, match=reason):
            run(tmp_path / "run", resume, schedule=Schedule(), rounds=20, **broken)
        stills = [record.still is not None for record in read_rounds(tmp_path / "run")]
        assert stills == [False, False, True, True, True], "what was trained before is not lost"


def test_a_run_that_stood_still_until_its_end_is_finished_with_a_warning(tmp_path):
    outcome = run(tmp_path, schedule=Schedule(), rounds=4, local=Sends(max_steps=1), guard=Guard(patience=3))
    assert outcome.warnings[0] == "no update could be used in 3 rounds; the first one: not finite"
    assert RunFolder(tmp_path).complete


@pytest.mark.parametrize("local", [LocalOnly(max_steps=1), FedRep(max_steps=1, lr=1e-30)], ids=repr)
def test_models_of_their_own_may_change_while_what_is_shared_does_not(local):
    federation = load("digits").partition("iid", clients=3, seed=0, test_share=0.3, limit=40)
    plan = small.plan(executor=Serial(), schedule=Schedule(), rounds=3, local=local, guard=Guard(patience=2))
    assert len(train(small.module(), federation, plan).records) == 3


def test_a_run_that_most_clients_could_not_train_warns_of_it():
    heard = []

    class Ear(Listener):
        def warned(self, message):
            heard.append(message)

    outcome = run(schedule=Schedule(), rounds=20, local=Sends(last=2, max_steps=1), listeners=[Ear()])
    assert heard == outcome.warnings
    assert heard == ["most clients were dropped in 18 rounds: client 0 with 'not finite'"]
    assert not run(schedule=Schedule(), rounds=12, local=Sends(last=1, max_steps=1)).warnings


def test_dampening_with_one_client_is_the_plain_mean():
    dampened = Schedule(base=stage_with(rule=Dampened()))
    assert torch.equal(
        small.weights(run(schedule=dampened, cohort=Cohort(number=1)).module),
        small.weights(run(schedule=Schedule(), cohort=Cohort(number=1)).module),
    )


def test_masking_at_zero_is_fedavg_bitwise():
    masked = run(schedule=Schedule(base=stage_with(rule=Masked(tau=0.0))), rounds=3)
    assert torch.equal(small.weights(masked.module), small.weights(run(schedule=Schedule(), rounds=3).module))


def test_the_trained_module_is_what_was_evaluated(uninterrupted):
    test = small.federation().test
    inputs, labels = test.batch(slice(None))
    accuracy = (uninterrupted.module(inputs).argmax(1) == labels).float().mean().item()
    assert accuracy == pytest.approx(uninterrupted.records[-1].headline, abs=1e-6)


def test_a_run_folder_holds_everything(tmp_path, uninterrupted):
    outcome = run(tmp_path / "run", config={"method": "all"})
    assert read_run(tmp_path / "run")["config"] == {"method": "all"}
    assert read_run(tmp_path / "run")["versions"]["torch"] == torch.__version__
    assert read_rounds(tmp_path / "run") == outcome.records
    assert RunFolder(tmp_path / "run").complete
    assert torch.equal(small.weights(outcome.module), small.weights(uninterrupted.module))


@pytest.mark.parametrize("stop_after", range(1, small.ROUNDS))
def test_an_interrupted_run_resumes_bitwise(tmp_path, uninterrupted, stop_after):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round + 1 == stop_after:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listeners=[Stop()])
    resumed = run(tmp_path, resume=True)
    assert torch.equal(small.weights(resumed.module), small.weights(uninterrupted.module))
    assert untimed(read_rounds(tmp_path)) == untimed(uninterrupted.records)


def test_bounds_that_remember_resume_bitwise(tmp_path):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 2:
                raise KeyboardInterrupt

    guard = Guard(clip={"name": "adaptive", "first": 0.2}, growth=1.0, max_share=0.3)
    whole = run(guard=guard)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listeners=[Stop()], guard=guard)
    resumed = run(tmp_path, resume=True, guard=guard)
    assert torch.equal(small.weights(resumed.module), small.weights(whole.module))
    assert untimed(read_rounds(tmp_path)) == untimed(whole.records)
    assert len({record.bound for record in whole.records}) > 2


def test_a_share_that_a_cohort_cannot_have_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"^guard.max_share: .* 0.1 of 5 clients"):
        run(tmp_path / "new", guard=Guard(max_share=0.1))
    assert not (tmp_path / "new").exists()


def test_a_line_without_its_checkpoint_is_done_again(tmp_path, uninterrupted):
    run(tmp_path)
    damaged = tmp_path / "checkpoint" / f"round-{small.ROUNDS - 1:05d}" / "state.safetensors"
    damaged.write_bytes(b"")
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 6, "cut sho')
    resumed = run(tmp_path, resume=True)
    assert torch.equal(small.weights(resumed.module), small.weights(uninterrupted.module))
    assert [record.round for record in read_rounds(tmp_path)] == list(range(small.ROUNDS))


def test_local_buffers_stay_with_their_client_and_survive_resume(tmp_path):
    class Stop(Listener):
        def finished_round(self, record):
            if record.round == 2:
                raise KeyboardInterrupt

    kept = run(tmp_path / "whole", buffers="local")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", buffers="local", listeners=[Stop()])
    resumed = run(tmp_path / "cut", buffers="local", resume=True)
    assert torch.equal(small.weights(resumed.module), small.weights(kept.module))
    initial = small.module().state_dict()["features.0.1.running_mean"]
    assert torch.equal(kept.module.state_dict()["features.0.1.running_mean"], initial)


def test_a_folder_with_a_run_is_refused_and_one_with_another_config_too(tmp_path):
    run(tmp_path, rounds=5, config={"local": {"lr": 0.1}})
    before = (tmp_path / "rounds.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match="already holds a run; add --resume"):
        run(tmp_path, rounds=5, config={"local": {"lr": 0.1}})
    with pytest.raises(RunFolderError, match=r"holds a run with local\.lr = 0\.1, this one has 0\.2"):
        run(tmp_path, rounds=5, config={"local": {"lr": 0.2}}, resume=True)
    assert (tmp_path / "rounds.jsonl").read_bytes() == before


def test_rounds_that_are_not_measured_have_no_accuracy():
    records = run(measuring=Measuring(every=4, per_client=0)).records
    assert [record.headline is not None for record in records] == [False, False, False, True, False, True]
    assert records[3].client_metrics == {}


def test_listeners_hear_warnings_and_idle_annealing_is_one_of_them():
    heard = []

    class Ear(Listener):
        def warned(self, message):
            heard.append(message)

    schedule = Schedule(stages=(stage_with(name="anneal", first=0, last=1, search=Annealing(k=3)),))
    outcome = run(schedule=schedule, rounds=2, listeners=[Ear()])
    assert heard == outcome.warnings
    assert "none of 6 perturbations was accepted" in heard[0]


def test_annealing_that_accepts_moves_the_model():
    usable = Annealing(k=4, perturbation={"rho": 1e-3}, accept={"beta": 0.0, "delta": 10.0})
    schedule = Schedule(stages=(stage_with(name="anneal", first=0, last=1, search=usable),))
    outcome = run(schedule=schedule, rounds=2)
    searches = [record.search for record in outcome.records]
    assert any(search.accepted for search in searches)
    assert all(search.gain > 0 for search in searches if search.accepted)
    assert not torch.equal(small.weights(outcome.module), small.weights(run(schedule=Schedule(), rounds=2).module))


def test_nonfinite_updates_are_refused_when_told_to(monkeypatch):
    from fedpace.core import ClientError
    from fedpace.methods import LocalSGD

    exploding = LocalSGD(optimizer="sgd", lr=1e30, max_steps=2)
    with pytest.raises(ClientError, match=r"^no update could be used in 1 rounds; the first one: not finite$"):
        run(local=exploding, schedule=Schedule(), rounds=1)
    with pytest.raises(ClientError, match="not finite"):
        run(local=exploding, schedule=Schedule(), rounds=1, guard=Guard(nonfinite="raise"))


def test_overlapping_stages_are_refused_before_anything_is_written(tmp_path):
    overlapping = Schedule(stages=(stage_with(name="a", first=0, last=3), stage_with(name="b", first=3)))
    with pytest.raises(ConfigError, match=r"stages 'a' .* and 'b' .* overlap"):
        run(tmp_path / "new", schedule=overlapping)
    assert not (tmp_path / "new").exists()


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path):
    run(tmp_path, rounds=5)
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    (tmp_path / "rounds.jsonl").write_text("\n".join([lines[0][:10], *lines[1:]]))
    with pytest.raises(RunFolderError, match="line 1 is damaged"):
        read_rounds(tmp_path)


def test_records_are_valid_json(uninterrupted):
    for record in uninterrupted.records:
        assert RoundRecord.from_json(record.to_json()) == record


def test_a_model_that_diverged_is_recorded_as_null(tmp_path):
    from fedpace.methods import LocalSGD

    exploding = LocalSGD(optimizer="sgd", lr=1e30, max_steps=2)
    guard = Guard(nonfinite="zero_coord")
    run(tmp_path, local=exploding, schedule=Schedule(), rounds=2, guard=guard)
    last = json.loads((tmp_path / "rounds.jsonl").read_text().splitlines()[-1], parse_constant=pytest.fail)
    assert last["train_loss"] is None

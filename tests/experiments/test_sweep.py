import pytest

from fedpace.core import ConfigError
from fedpace.experiments.sweep import parse_axis, sweep_jobs


def test_every_combination_with_every_seed(tmp_path):
    jobs = sweep_jobs("fedgga", ["anneal.k=3,8", "local.lr=0.1,0.01,0.001"], [0, 5], {"rounds": 20}, tmp_path)
    found = [(job.config.anneal.k, job.config.local.lr, job.config.seed) for job in jobs]
    assert found == [(k, lr, seed) for k in (3, 8) for lr in (0.1, 0.01, 0.001) for seed in (0, 5)]
    assert {job.config.rounds for job in jobs} == {20}
    assert jobs[0].label == jobs[1].label == "anneal.k=3, local.lr=0.1"
    assert len({job.folder for job in jobs}) == 12
    assert {job.folder.parent for job in jobs} == {tmp_path}


def test_what_is_varied_is_not_set_as_well(tmp_path):
    with pytest.raises(ConfigError, match="rounds: given twice, as 3 and as 7"):
        sweep_jobs("fedavg", ["rounds=7"], [0], {"rounds": 3}, tmp_path)
    with pytest.raises(ConfigError, match="--grid rounds: is given twice"):
        sweep_jobs("fedavg", ["rounds=7", "rounds=8"], [0], {}, tmp_path)


def test_a_grid_over_names_keeps_what_is_set_beside_them(tmp_path):
    jobs = sweep_jobs("fedavg", ["data.partition.name=iid,dirichlet"], [0], {"data.partition.clients": 5}, tmp_path)
    assert [job.config.data.partition.clients for job in jobs] == [5, 5]


def test_a_grid_over_seeds_is_honoured_or_refused(tmp_path):
    try:
        jobs = sweep_jobs("fedavg", ["seed=1,2"], [0], {}, tmp_path)
    except ConfigError:
        return
    assert [job.config.seed for job in jobs] == [1, 2]


def test_values_of_an_axis_are_toml():
    assert parse_axis("local.optimizer=adam, sgd") == ("local.optimizer", ["adam", "sgd"])
    assert parse_axis("dampen.then_fedavg=true,false") == ("dampen.then_fedavg", [True, False])


@pytest.mark.parametrize("text", ["anneal.k", "anneal.k=", "=3,8", "anneal.k=3,,8"])
def test_an_axis_without_key_or_values_is_refused(tmp_path, text):
    with pytest.raises(ConfigError) as caught:
        sweep_jobs("fedgga", [text], [0], {}, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_key_that_does_not_exist_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown key 'anneal.kk'; did you mean 'k'\?"):
        sweep_jobs("fedgga", ["anneal.kk=3,8"], [0], {}, tmp_path)

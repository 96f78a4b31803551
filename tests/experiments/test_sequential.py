"""Seeds are added until differences are decided, and no more than that."""

import json
from zlib import crc32

import pytest

from fedpace.core import ConfigError, RoundRecord
from fedpace.experiments.batch import Job
from fedpace.experiments.reproduce import reproduce
from fedpace.experiments.run import Result
from fedpace.experiments.sequential import Sequential, UntilDecided

from .helpers import fast_config


class Made:
    """Methods whose runs end with an effect of their own, and a noise of the seed that pairs do not share."""

    def __init__(self, tmp_path, **effects):
        self.effects, self.folder, self.ran = effects, tmp_path, []

    def plan(self, methods, seeds):
        return [Job(method, fast_config(seed=seed), self.folder) for method in methods for seed in seeds]

    def run(self, jobs):
        self.ran += [(job.label, job.config.seed) for job in jobs if (job.label, job.config.seed) not in self.ran]
        return [Result({}, [RoundRecord(round=0, metrics={"accuracy": self.accuracy(job)})]) for job in jobs]

    def accuracy(self, job):
        noise = crc32(f"{job.label} {job.config.seed}".encode()) % 101 - 50
        return 0.4 + self.effects[job.label] + 0.0005 * noise

    def complete(self, seeds=(0, 1), avoid=(), **until):
        return Sequential(
            UntilDecided(**{"width": 1e-6, **until}),
            versus=dict.fromkeys(self.effects, next(iter(self.effects))),
            plan=self.plan,
            run=self.run,
            pair=lambda job: job.config.seed,
            value=lambda result: result.summary.final,
            avoid=avoid,
        ).complete(seeds)


def seeds_of(jobs, method):
    return [job.config.seed for job in jobs if job.label == method]


def test_a_clear_effect_needs_few_seeds_and_an_unclear_one_goes_on(tmp_path):
    made = Made(tmp_path, base=0.0, clear=0.3, unclear=0.0)
    jobs = made.complete(most=12)
    assert 4 <= len(seeds_of(jobs, "clear")) <= 7
    assert seeds_of(jobs, "unclear") == seeds_of(jobs, "base") == list(range(12))
    assert {(job.label, job.config.seed) for job in jobs} == set(made.ran)


def test_a_narrow_interval_is_an_answer_too(tmp_path):
    jobs = Made(tmp_path, base=0.0, same_as=0.0).complete(width=0.08)
    assert len(seeds_of(jobs, "same_as")) < 30


def test_more_effects_need_more_seeds(tmp_path):
    alone = Made(tmp_path, base=0.0, effect=0.05).complete()
    among = Made(tmp_path, base=0.0, effect=0.05, **{f"x{i}": 0.5 for i in range(20)}).complete()
    assert len(seeds_of(alone, "effect")) < len(seeds_of(among, "effect"))


def test_seeds_that_something_was_tuned_on_are_left_out(tmp_path):
    jobs = Made(tmp_path, base=0.0, none=0.0).complete(most=5, avoid=(2, 4))
    assert seeds_of(jobs, "none") == [0, 1, 3, 5, 6]


@pytest.mark.parametrize(("points", "most", "found"), [(0, 30, "width"), (-1, 30, "width"), (1, 1, "most")])
def test_a_width_of_nothing_is_refused_in_one_line(points, most, found):
    with pytest.raises(ConfigError, match=rf"^--until-decided .*{found}: .*, found [^\n]*$"):
        UntilDecided.of_points(points, most)


def test_a_reproduction_says_how_many_pairs_it_needed(tmp_path):
    until = UntilDecided(width=0.9, most=6)
    done = reproduce("fedpace.figure7", "smoke", until_decided=until, runs=tmp_path, workers=1)
    page = (tmp_path / "smoke" / "fedpace.figure7.md").read_text()
    assert "--until-decided 90 --most 6" in page
    assert "pairs needed" in page
    assert "confidence sequence" in page
    seeds = {run["seed"] for run in done.evidence["runs"]}
    assert 2 < len(seeds) <= 6
    assert json.loads((tmp_path / "smoke" / "fedpace.figure7.json").read_text())["until_decided"]["width"] == 0.9

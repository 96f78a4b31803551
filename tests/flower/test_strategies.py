"""The named strategies are our rules and schedules, on messages."""

import logging

import pytest
import torch

pytest.importorskip("flwr")

from fedpace.aggregation import ConflictFree as ConflictFreeRule
from fedpace.aggregation import Dampened, Krum, Masked, Mean, Median, NearestNeighbours, TrimmedMean
from fedpace.aggregation import Harmonised as HarmonisedRule
from fedpace.core import ConfigError
from fedpace.flower import (
    ConflictFree,
    FedGGA,
    FedPACE,
    GradientMasked,
    Harmonised,
    Paced,
    ServerStrategy,
    SignDampened,
)
from fedpace.server import Annealing, Pruning, Schedule, ServerAdam, Stage

from .plain import EXAMPLES, Watched, app, arrays, grid, one_round, updates, vector

SAMPLES, UNIFORM = torch.tensor(EXAMPLES), torch.ones(4)
ALL = [ConflictFree, FedGGA, FedPACE, GradientMasked, Harmonised, Paced, SignDampened]
TRIMMED_NEIGHBOURS = NearestNeighbours(attackers=1, rule=TrimmedMean(share=0.3))

RULES = [
    (GradientMasked(), Masked(tau=0.4), SAMPLES),
    (GradientMasked(0.8), Masked(tau=0.8), SAMPLES),
    (GradientMasked(tau=0.0, weights="uniform"), Mean(), UNIFORM),
    (SignDampened(), Dampened(), SAMPLES),
    (Harmonised(), HarmonisedRule(), UNIFORM),
    (Harmonised("keep", weights="samples"), HarmonisedRule(negative="keep"), SAMPLES),
    (ConflictFree(), ConflictFreeRule(), UNIFORM),
    (ConflictFree(0.1), ConflictFreeRule(c=0.1), UNIFORM),
    (ConflictFree(weights="samples"), ConflictFreeRule(client_weights="samples"), SAMPLES),
    (FedPACE(), Mean(), SAMPLES),
    (Paced(), Mean(), SAMPLES),
    (FedGGA(), Mean(), SAMPLES),
    (ServerStrategy(rule="median"), Median(), SAMPLES),
    (ServerStrategy(rule={"name": "krum", "attackers": 0}), Krum(attackers=0), SAMPLES),
    (
        ServerStrategy(
            rule={"name": "nearest_neighbours", "attackers": 1, "rule": {"name": "trimmed_mean", "share": 0.3}}
        ),
        NearestNeighbours(attackers=1, rule=TrimmedMean(share=0.3)),
        SAMPLES,
    ),
]


@pytest.mark.parametrize(("strategy", "rule", "weights"), RULES, ids=lambda value: type(value).__name__)
def test_a_round_is_the_rule_applied_to_the_updates(strategy, rule, weights):
    found, metrics = one_round(strategy, grid())
    torch.testing.assert_close(vector(found), vector(arrays()) + rule(updates(), weights), atol=1e-6, rtol=1e-6)
    assert metrics["clients"] == 4


def test_more_attackers_than_a_rule_bears_are_refused():
    with pytest.raises(
        ConfigError, match="rule 'krum', attackers = 1: expected at least 5 clients in a round, found 4"
    ):
        one_round(ServerStrategy(rule={"name": "krum", "attackers": 1}), grid())


@pytest.mark.parametrize("strategy", ALL)
@pytest.mark.parametrize("optimizer", ["adam", ServerAdam(), {"name": "adam"}])
def test_every_strategy_takes_any_optimizer_and_fedavgs_parameters(strategy, optimizer):
    made = strategy(optimizer=optimizer, fraction_train=0.5, min_available_nodes=3, seed=1)
    assert made.schedule.base.exchanges[0].optimizer == ServerAdam()
    assert (made.fraction_train, made.min_available_nodes, made.seed) == (0.5, 3, 1)
    _, metrics = one_round(made, grid())
    assert metrics["clients"] == 2


def test_the_mask_multiplies_the_optimizers_step():
    found, _ = one_round(GradientMasked(0.6, optimizer="adam"), grid())
    stream = Masked(tau=0.6).start(8, 4)
    for row, weight in zip(updates(), EXAMPLES, strict=True):
        stream.add(row, weight)
    expected, (mean, mask) = vector(arrays()), stream.split()
    ServerAdam().step(expected, mean, {}, mask)
    torch.testing.assert_close(vector(found), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GradientMasked(1.5),
        lambda: ConflictFree(-1.0),
        lambda: Harmonised("drop"),
        lambda: SignDampened(optimizer="adamm"),
        lambda: FedGGA(k=-1),
        lambda: FedGGA(first=5, last=3),
        lambda: FedPACE(pace={"power": -1}),
        lambda: FedPACE(anneal=(0, 5), dampen=(5, None)),
        lambda: FedPACE(pace=None, freeze=(0, None)),
        lambda: FedPACE(freeze=(0, None), freezing={"share": 2}),
        lambda: Paced(pace={"power": -1}),
    ],
)
def test_a_wrong_parameter_is_one_line(make):
    with pytest.raises(ConfigError) as error:
        make()
    assert "\n" not in str(error.value)


def test_fedgga_searches_in_its_window(caplog):
    strategy, on = FedGGA(first=1, last=1, k=2), Watched(app())
    record = arrays()
    with caplog.at_level(logging.ERROR):
        for number in (1, 2, 3):
            record, _ = one_round(strategy, on, record, number=number)
    rounds = [
        message.content["config"]["server-round"] for message in on.sent if "probe" in message.metadata.message_type
    ]
    assert rounds == [2] * 4  # these clients do not answer, so there is no second message


@pytest.mark.parametrize("make", [FedPACE, Paced])
def test_a_pace_is_sent_from_the_second_round_on(make):
    strategy, on = make(), Watched(app())
    record, _ = one_round(strategy, on)
    one_round(strategy, on, record, number=2)
    assert ["pace" in message.content.array_records for message in on.sent] == [False] * 4 + [True] * 4


def test_a_frozen_coordinate_has_no_pace_and_keeps_its_value():
    strategy, on = FedPACE(freeze=(0, None), freezing={"share": 0.5, "per_round": 0.5}), Watched(app())
    first, _ = one_round(strategy, on)
    second, _ = one_round(strategy, on, first, number=2)
    frozen = vector(on.sent[-1].content.array_records["pace"]) == 0
    assert frozen.sum() == len(frozen) // 2
    assert torch.equal(vector(first)[frozen], vector(second)[frozen])


def test_the_papers_fedpace_is_the_presets_schedule():
    from fedpace.experiments.presets import load_config

    preset = load_config("fedpace-paper", {}).schedule()
    windows = {"anneal": (2, 15), "dampen": (20, 41), "prune": (42, 49)}
    ours = FedPACE(pace=None, weights="uniform", search=Annealing(), pruning=Pruning(), **windows).schedule

    def plain(stage: Stage) -> Stage:
        search = stage.search and Annealing(**{name: getattr(stage.search, name) for name in Annealing.model_fields})
        return stage.model_copy(update={"name": "", "search": search})

    assert list(map(plain, ours.stages)) == list(map(plain, preset.stages))
    assert plain(ours.base) == plain(preset.base)
    assert isinstance(preset, Schedule)
    assert ours.pruning == Pruning(**{name: getattr(preset.pruning, name) for name in Pruning.model_fields})

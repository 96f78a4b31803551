import json
from math import isnan

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from fedpace.analysis import Comparison, paired_interval, summarise
from fedpace.core import ConfigError, RoundRecord
from fedpace.tasks import Metric

MAE = Metric("MAE", rises=False)
FEDAVG = {0: 0.30, 1: 0.34, 2: 0.32}
BETTER = {0: 0.40, 1: 0.45, 2: 0.41}  # differences .10, .11, .09
UNSURE = {0: 0.32, 1: 0.33, 2: 0.33}  # differences .02, -.01, .01


@pytest.fixture
def compare(curve):
    """Builds a comparison from final accuracies."""

    def build(methods, **options):
        return Comparison(
            {
                name: {seed: summarise(curve([value])) for seed, value in by_seed.items()}
                for name, by_seed in methods.items()
            },
            **options,
        )

    return build


@pytest.fixture
def three(compare):
    return compare({"FedAvg": FEDAVG, "Better": BETTER, "Unsure": UNSURE})


def rendered(table, width=120):
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("count", [2, 3, 10])
def test_interval_equals_scipys_paired_t_test(level, count):
    a, b = np.random.default_rng(count).normal(size=(2, count))
    expected = stats.ttest_rel(a, b).confidence_interval(level)
    interval = paired_interval(list(a - b), level)
    assert interval.mean == pytest.approx(np.mean(a - b))
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_one_difference_has_no_interval():
    interval = paired_interval([0.3])
    assert interval.mean == 0.3
    assert isnan(interval.low)
    assert isnan(interval.high)
    assert not interval.excludes_zero


def test_no_difference_at_all():
    assert isnan(paired_interval([]).mean)


def test_identical_differences_have_an_interval_of_no_width():
    interval = paired_interval([0.25] * 4)
    assert (interval.low, interval.high) == (0.25, 0.25)
    assert interval.excludes_zero
    assert not paired_interval([0.0, 0.0]).excludes_zero


@pytest.mark.parametrize("level", [0, 1, 95])
def test_level_out_of_range(level):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        paired_interval([1.0, 2.0], level)


def test_mean_and_sample_std_over_seeds(three):
    fedavg, better, _ = three.rows
    assert fedavg.mean == pytest.approx(0.32)
    assert fedavg.std == pytest.approx(0.02)  # sqrt((.02² + .02² + 0) / 2)
    assert better.std == pytest.approx(np.std([0.40, 0.45, 0.41], ddof=1))
    assert fedavg.difference is None


def test_difference_is_paired_by_seed(three):
    # differences .10, .11, .09: std .01, half width 4.3027 * .01 / sqrt(3) = .024841
    better = three.rows[1].difference
    assert (better.mean, better.low, better.high) == pytest.approx((0.1, 0.1 - 0.024841, 0.1 + 0.024841), abs=1e-6)


def test_only_common_seeds_are_paired(compare):
    row = compare({"a": {0: 0.1, 1: 0.2, 5: 0.9}, "b": {1: 0.3, 0: 0.4, 7: 0.5}}).rows[1]
    assert row.pairs == 2
    assert row.difference.mean == pytest.approx(0.2)
    assert row.mean == pytest.approx(0.4)


def test_no_common_seed(compare):
    comparison = compare({"a": {0: 0.1}, "b": {1: 0.3}})
    assert isnan(comparison.rows[1].difference.mean)
    assert "nan" not in str(comparison)


def test_a_seed_that_measured_nothing_does_not_count(compare):
    row = compare({"a": {0: 0.1, 1: None}}).rows[0]
    assert (row.mean, row.values) == (0.1, {0: 0.1})
    assert isnan(row.std)


def test_metric_is_chosen(curve):
    summaries = {"a": {0: summarise(curve([0.5, 0.1]))}}
    found = {metric: Comparison(summaries, metric=metric).rows[0].mean for metric in ("final", "best", "last10", "auc")}
    assert found == pytest.approx({"final": 0.1, "best": 0.5, "last10": 0.3, "auc": 0.3})


def test_unknown_metric_and_no_method(compare):
    with pytest.raises(ConfigError, match="did you mean 'final'"):
        compare({"a": {0: 0.1}}, metric="finale")
    with pytest.raises(ConfigError, match="at least one method"):
        compare({})


@pytest.mark.parametrize(
    "render", [str, lambda c: rendered(c.table()), lambda c: c._repr_html_(), lambda c: c.to_markdown()]
)
def test_every_rendering_has_the_numbers(three, render):
    text = render(three)
    assert "32.00 ± 2.00" in text
    assert "+10.00 [+7.52, +12.48] *" in text
    assert "+0.67 [−3.13, +4.46]" in text
    assert "+0.67 [−3.13, +4.46] *" not in text
    assert "Final accuracy, 3 seeds" in text
    assert "95 % paired t" in " ".join(text.split())


def test_plain_text_has_fixed_width_and_no_colour(three):
    header, rule, *rows = str(three).splitlines()[1:-1]
    assert {len(line) for line in (header, rule, *rows)} == {len(rule)}
    assert "\x1b" not in str(three)


def test_star_of_the_table_is_bold(three):
    assert [row.style for row in three.table().rows] == [None, "bold", None]


def test_one_seed_shows_neither_std_nor_interval(compare):
    text = str(compare({"a": {0: 0.1}, "b": {0: 0.0875}}))
    assert "−1.25" in text
    assert "Final accuracy, 1 seed\n" in text
    assert "10.00 ±" not in text
    assert "[" not in text
    assert "fewer than two common seeds" in text


def test_title_tells_unequal_numbers_of_seeds(compare):
    assert compare({"a": {0: 0.1}, "b": {0: 0.1, 1: 0.1, 2: 0.1}}).title.endswith("1–3 seeds")


def test_tiny_negative_difference_is_not_minus_zero(compare):
    assert "+0.00" in str(compare({"a": {0: 0.1}, "b": {0: 0.0999999}}))


def test_names_are_escaped(compare):
    comparison = compare({"[red]a|b<i>": {0: 0.1}})
    assert "[red]a|b<i>" in rendered(comparison.table())
    assert "[red]a|b&lt;i&gt;" in comparison._repr_html_()
    assert r"[red]a\|b&lt;i>" in comparison.to_markdown()


def test_json_is_plain_and_holds_null_for_unknown(compare):
    data = compare({"a": {0: 0.1}, "b": {0: 0.3}}).to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert (data["metric"], data["level"], data["reference"]) == ("final", 0.95, "a")
    assert data["rows"][1] == {
        "method": "b",
        "values": {"0": 0.3},
        "mean": 0.3,
        "std": None,
        "pairs": 1,
        "difference": {"mean": pytest.approx(0.2), "low": None, "high": None},
        "stars": 0,
        "fairness": {"mean": None, "spread": None, "worst_decile": None},
        "time": None,
    }


def test_a_second_star_is_for_differences_that_hold_for_all_methods_together(compare):
    values = {
        "a": dict.fromkeys(range(4), 0.1),
        "b": {0: 0.11, 1: 0.12, 2: 0.13, 3: 0.14},
        "c": dict.fromkeys(range(4), 0.2),
    }
    values["d"] = {0: 0.1, 1: 0.14, 2: 0.16, 3: 0.18}
    found = compare({**values, **{f"e{i}": values["c"] for i in range(7)}})
    assert [row.stars for row in found.rows[:4]] == [0, 1, 2, 0]
    assert "** where it still does at 99.5 %, for 10 methods together" in found.caption
    assert [row.stars for row in compare({"a": values["a"], "c": values["c"]}).rows] == [0, 1]


def test_a_metric_that_falls_is_shown_as_it_is_and_said_to_fall():
    summaries = {
        name: {seed: summarise([RoundRecord(round=0, metrics={"MAE": mae + seed})], metric=MAE) for seed in (0, 1)}
        for name, mae in (("a", 3.0), ("b", 2.0))
    }
    compared = Comparison(summaries, metric="best", headline=MAE)
    text = str(compared)
    assert "Best MAE, 2 seeds" in text
    assert "3.500 ± 0.707" in text
    assert "−1.000 [−1.000, −1.000] *" in text
    assert "less MAE is better" in " ".join(text.split())
    assert "%)" not in text


def with_clients(record, *, on="test", **by_method):
    """A comparison of runs that end with these accuracies of two clients, by method and seed."""
    histories = {
        method: {
            seed: [record(0, 0.5, client_accuracy={"0": a, "1": b}, client_accuracy_on=on)]
            for seed, (a, b) in enumerate(found)
        }
        for method, found in by_method.items()
    }
    return Comparison({m: {s: summarise(h) for s, h in found.items()} for m, found in histories.items()}, histories)


def test_fairness_stands_beside_the_mean_of_clients_with_tests_of_their_own(record):
    compared = with_clients(record, a=[(0.2, 0.6), (0.4, 0.8)], b=[(0.5, 0.5), (0.5, 0.5)])
    assert [row.fairness.spread for row in compared.rows] == pytest.approx([0.2, 0.0])
    assert [row.fairness.worst_decile for row in compared.rows] == pytest.approx([0.3, 0.5])
    header, _, first, second = compared.to_markdown().splitlines()[2:6]
    assert header.endswith("| spread | worst tenth | seeds |")
    assert first.endswith("| 20.00 | 30.00 | 2 |")
    assert second.endswith("| 0.00 | 50.00 | 2 |")
    assert "spread is that over clients" in compared.caption
    assert compared.to_json()["rows"][0]["fairness"]["spread"] == pytest.approx(0.2)


def test_virtual_time_stands_beside_the_metric_where_clients_have_speeds():
    def ends(*times):
        histories = ([RoundRecord(round=0, time=time, metrics={"accuracy": 0.5})] for time in times)
        return {seed: summarise(history) for seed, history in enumerate(histories)}

    header, _, first, second = Comparison({"a": ends(2.0, 3.0), "b": ends(None)}).to_markdown().splitlines()[2:6]
    assert header.endswith("| virtual time | seeds |")
    assert first.endswith("| 2.5 | 2 |")
    assert second.endswith("| – | 1 |")
    assert "virtual time" not in Comparison({"b": ends(None)}).to_markdown()


def test_clients_that_answer_training_examples_are_not_compared(record):
    compared = with_clients(record, on="train", a=[(0.2, 0.6)])
    assert "spread" not in compared.to_markdown().splitlines()[2]
    assert isnan(compared.rows[0].fairness.spread)


def test_plot_without_histories_shows_every_seed(three, tmp_path):
    axes = three.plot(tmp_path / "points.png").axes[0]
    assert list(axes.lines[0].get_xdata()) == list(FEDAVG.values())
    assert axes.lines[1].get_xdata()[0] == pytest.approx(0.32)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["FedAvg", "Better", "Unsure"]
    assert (tmp_path / "points.png").stat().st_size > 1000


def test_plot_with_histories_shows_curves(curve):
    histories = {"a": {0: curve([0.1, 0.2]), 1: curve([0.3, 0.4])}}
    comparison = Comparison({"a": {seed: summarise(h) for seed, h in histories["a"].items()}}, histories)
    assert list(comparison.plot().axes[0].lines[0].get_ydata()) == pytest.approx([0.2, 0.3])


def test_method_without_seeds_is_shown_as_unknown(compare):
    comparison = compare({"a": {0: 0.1}, "b": {}})
    assert comparison.to_json()["rows"][1]["mean"] is None
    assert str(comparison).splitlines()[4].split() == ["b", "–", "–", "0"]
    assert len(comparison.plot().axes[0].lines) == 3  # a's point and mean, b's absent points

from itertools import pairwise

import numpy as np
import pytest

from fedpace.analysis import (
    agreement_by_layer,
    chance_agreement,
    client_metric_curve,
    labelled_points,
    mean_agreement,
    metric_and_similarity,
    metric_and_similarity_of,
    metric_curves,
    save,
)
from fedpace.analysis._style import line_style, spread
from fedpace.core import ConfigError, RunFolderError


def visible(axes):
    return [line for line in axes.lines if not line.get_label().startswith("_")]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_curves_are_means_in_a_band_of_extremes(curve):
    figure = metric_curves({"a": [curve([0.1, 0.2]), curve([0.3, 0.6])], "b": [curve([0.5, 0.5])]})
    (axes,) = figure.axes
    a, b = visible(axes)
    assert list(a.get_ydata()) == pytest.approx([0.2, 0.4])
    assert list(b.get_ydata()) == [0.5, 0.5]
    (band,) = axes.collections  # one seed has no band
    corners = {(x, round(y, 6)) for x, y in band.get_paths()[0].vertices}
    assert corners == {(0, 0.1), (0, 0.3), (1, 0.2), (1, 0.6)}
    assert texts(axes) == ["a  40.0%", "b  50.0%"]
    assert "of its seeds" in axes.get_title(loc="left")


def test_many_methods_have_no_bands(curve):
    runs = [curve([0.1, 0.2]), curve([0.3, 0.6])]
    (axes,) = metric_curves(dict.fromkeys("abcdef", runs)).axes
    assert not axes.collections
    assert axes.get_title(loc="left") == "mean of 2 seeds"


def test_note_counts_the_seeds_that_all_methods_have(curve):
    runs = [curve([0.1]), curve([0.2])]
    assert "of 2 seeds" in metric_curves({"a": runs, "b": runs}).axes[0].get_title(loc="left")
    assert metric_curves({"a": runs[:1]}).axes[0].get_title(loc="left") == ""


def test_curves_skip_rounds_that_a_seed_did_not_measure(curve):
    figure = metric_curves({"a": [curve([0.1, None, 0.3]), curve([0.1, 0.9, 0.3, 0.4])]})
    line = visible(figure.axes[0])[0]
    assert list(line.get_xdata()) == [0, 2]
    assert list(line.get_ydata()) == pytest.approx([0.1, 0.3])


def test_method_that_measured_nothing_has_no_line(curve):
    figure = metric_curves({"a": [curve([None])], "b": [], "c": [curve([0.1])]}, title="T")
    assert [line.get_label() for line in visible(figure.axes[0])] == ["c"]
    assert figure.get_suptitle() == "T"


def test_accuracy_axis_is_in_percent(curve):
    axes = metric_curves({"a": [curve([0.1, 0.2])]}).axes[0]
    assert axes.yaxis.get_major_formatter()(0.125, None) == "12.5%"


def test_client_accuracy_is_the_mean_over_participants(record):
    found = [{"0": 0.2, "4": 0.6}, {}, None, {"1": 0.5}]
    records = [record(number, 0.9, client_accuracy=by_client) for number, by_client in enumerate(found)]
    assert client_metric_curve([*records, record(4, 0.9)]) == pytest.approx({0: 0.4, 3: 0.5})


def test_curves_of_something_else_than_held_out_accuracy(record):
    runs = [[record(0, 0.9, client_accuracy={"0": 0.2, "1": 0.4}), record(1, 0.9)]]
    (axes,) = metric_curves({"a": runs}, of=client_metric_curve, ylabel="training accuracy").axes
    assert visible(axes)[0].get_xydata().tolist() == [[0, pytest.approx(0.3)]]
    assert axes.get_ylabel() == "training accuracy"


def test_labels_do_not_overlap():
    placed = spread([0.30, 0.31, 0.1, 0.305, 0.9], gap=0.05)
    assert all(b - a >= 0.05 - 1e-9 for a, b in pairwise(sorted(placed)))
    assert (placed[2], placed[4]) == pytest.approx((0.1, 0.9))
    assert np.mean([placed[0], placed[1], placed[3]]) == pytest.approx(0.305)


def test_lines_of_many_methods_differ():
    assert len({line_style(index) for index in range(21)}) == 21


def test_accuracy_and_similarity_share_rounds(staged):
    upper, lower = metric_and_similarity(staged).axes
    (accuracy,) = upper.lines
    assert list(accuracy.get_xdata()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]  # round 3 was not evaluated
    drawn = {x: y for line in lower.lines if line.get_label() != "_zero" for x, y in line.get_xydata()}
    assert drawn == pytest.approx({n: 0.1 - 0.02 * n for n in range(12) if n != 7})
    assert [text.get_text() for text in lower.get_legend().get_texts()] == [
        "of updates",
        "of probe gradients",
        "of gradients",
    ]


def test_stages_are_shaded_and_named(staged):
    upper, lower = metric_and_similarity(staged).axes
    for axes in (upper, lower):
        edges = [(span.get_x(), span.get_x() + span.get_width()) for span in axes.patches]
        assert edges == [(1.5, 4.5), (5.5, 9.5), (9.5, 11.5)]
    assert texts(upper) == ["anneal", "dampen", "prune"]
    assert upper.get_xlim() == pytest.approx((-0.115, 11.615))  # a hundredth beyond the first round and the last stage


def test_names_of_narrow_stages_are_stacked(record):
    stages = ["fedavg"] * 50 + ["annealing", "dampening"] + ["fedavg"] * 50
    upper, _ = metric_and_similarity([record(i, 0.5, stage=stage) for i, stage in enumerate(stages)]).axes
    first, second = (text.xyann[1] for text in upper.texts)
    assert second - first >= 12


@pytest.mark.parametrize("accuracies", [[], [0.1]])
def test_a_run_without_rounds_or_similarity_says_so(curve, accuracies):
    _, lower = metric_and_similarity(curve(accuracies)).axes
    assert lower.get_legend() is None
    assert [text.get_text() for text in lower.texts] == ["no pair of updates to compare"]


def test_runs_side_by_side_have_a_column_each_on_the_same_scales(staged, record):
    low = [record(n, 0.01 * n, similarity={"kind": "update", "mean": -0.5}) for n in range(30)]
    figure = metric_and_similarity_of({"full": staged, "low": low}, title="T")
    uppers, lowers = figure.axes[:2], figure.axes[2:]
    assert [axes.get_title(loc="left") for axes in uppers] == ["full", "low"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["accuracy", "", "mean pairwise cosine", ""]
    assert list(uppers[1].lines[0].get_ydata()) == pytest.approx([0.01 * n for n in range(30)])
    for row in (uppers, lowers):
        assert row[0].get_ylim() == row[1].get_ylim()
        assert row[0].get_xlim() != row[1].get_xlim()  # a column keeps its own rounds
    low_end, high_end = uppers[0].get_ylim()
    assert low_end <= 0 < 0.32 <= high_end
    assert lowers[0].get_ylim()[0] <= -0.5
    assert figure.get_suptitle() == "T"


def test_each_column_makes_the_figure_wider(curve):
    widths = [metric_and_similarity_of({str(i): curve([0.1]) for i in range(n)}).get_figwidth() for n in (1, 2, 3)]
    assert widths == sorted(set(widths))
    assert widths[0] == metric_and_similarity(curve([0.1])).get_figwidth()


def test_a_stage_has_the_same_colour_in_every_column(staged):
    without = [record for record in staged if record.stage != "anneal"]
    full, ablated, *_ = metric_and_similarity_of({"full": staged, "without annealing": without}).axes
    assert [span.get_facecolor() for span in full.patches[1:]] == [span.get_facecolor() for span in ablated.patches]
    assert texts(ablated) == ["dampen", "prune"]


def test_headings_stand_level_above_the_names_of_stages(record):
    stages = ["fedavg"] * 50 + ["annealing", "dampening"] + ["fedavg"] * 50
    crowded = [record(i, 0.5, stage=stage) for i, stage in enumerate(stages)]
    figure = metric_and_similarity_of({"crowded": crowded, "plain": [record(0, 0.5)]})
    figure.draw_without_rendering()
    crowded_axes, plain_axes = figure.axes[:2]
    top = max(text.get_window_extent().y1 for text in crowded_axes.texts)
    bottoms = [axes._left_title.get_window_extent().y0 for axes in (crowded_axes, plain_axes)]
    assert top < bottoms[0] == pytest.approx(bottoms[1])


def test_legends_of_similarity_stay_in_their_column(staged):
    figure = metric_and_similarity_of({str(i): staged for i in range(4)})
    figure.draw_without_rendering()
    for axes in figure.axes[4:]:
        assert axes.get_legend().get_window_extent().x1 <= axes.get_window_extent().x1


def test_no_runs_side_by_side_is_an_error():
    with pytest.raises(ConfigError, match="expected at least one column"):
        metric_and_similarity_of({})


def test_mean_agreement_of_a_histogram():
    assert mean_agreement([1, 0, 2, 0, 1]) == pytest.approx((0 + 2 * 0.5 + 1) / 4)
    assert np.isnan(mean_agreement([0, 0, 0]))


@pytest.mark.parametrize("clients", [1, 2, 5, 10])
def test_chance_agreement_is_that_of_all_sign_patterns(clients):
    patterns = np.array(np.meshgrid(*[[-1, 1]] * clients)).reshape(clients, -1)
    assert chance_agreement(clients) == pytest.approx(np.abs(patterns.sum(0)).mean() / clients)


def test_agreement_by_layer_has_layers_down_and_rounds_across(staged):
    axes, _colours = agreement_by_layer(staged).axes
    values = axes.images[0].get_array()
    assert values.shape == (2, 12)
    assert values.mask[:, :6].all()
    # weight in round r: 20 - r coordinates at 1/3 and r at 1
    expected = [((20 - r) / 3 + r) / 20 for r in range(6, 12)]
    assert list(values[0, 6:]) == pytest.approx(expected)
    assert list(values[1, 6:]) == pytest.approx([1 / 3] * 6)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["conv.weight", "conv.bias"]
    assert axes.images[0].get_extent() == [-0.5, 11.5, 1.5, -0.5]
    assert axes.get_title(loc="left") == "grey: not measured"


def test_agreement_that_was_never_recorded(curve):
    with pytest.raises(ConfigError, match="no round of this run recorded it"):
        agreement_by_layer(curve([0.1]))


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures_are_written_into_new_folders(staged, tmp_path, suffix, start):
    path = tmp_path / "new" / f"figure.{suffix}"
    agreement_by_layer(staged, path)
    assert path.read_bytes().startswith(start)
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_equal_figures_are_equal_files(staged, tmp_path, monkeypatch, suffix):
    first, second = (tmp_path / f"{day}.{suffix}" for day in range(2))
    for path in (first, second):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(86400 * int(path.stem)))  # what Matplotlib takes for today
        agreement_by_layer(staged, path)
    assert first.read_bytes() == second.read_bytes()


def test_points_that_no_other_beats_in_both_are_joined():
    points = {"a": (0.2, 0.9), "b": (0.5, 0.5), "beaten": (0.4, 0.4), "c": (0.8, 0.1)}
    axes = labelled_points(points, xlabel="robust", ylabel="fair").axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[0.2, 0.9], [0.5, 0.5], [0.8, 0.1]]
    assert {text.get_text() for text in axes.texts} >= set(points)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("robust", "fair")


def test_unknown_suffix_is_one_line(curve, tmp_path):
    with pytest.raises(ConfigError, match=r"expected a name ending in \.png, \.svg, \.pdf, found '\.jpeg'") as caught:
        save(metric_curves({"a": [curve([0.1])]}), tmp_path / "new" / "a.jpeg")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_figure_that_cannot_be_written_is_one_line(curve, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(RunFolderError, match=r"taken/curves.png: cannot be written"):
        metric_and_similarity(curve([0.1, 0.2]), tmp_path / "taken" / "curves.png")

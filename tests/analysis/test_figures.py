from itertools import pairwise

import numpy as np
import pytest

from fedpace.analysis import (
    accuracy_and_similarity,
    accuracy_curves,
    agreement_by_layer,
    chance_agreement,
    mean_agreement,
    save,
)
from fedpace.analysis._style import line_style, spread
from fedpace.core import ConfigError


def visible(axes):
    return [line for line in axes.lines if not line.get_label().startswith("_")]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_curves_are_means_in_a_band_of_extremes(curve):
    figure = accuracy_curves({"a": [curve([0.1, 0.2]), curve([0.3, 0.6])], "b": [curve([0.5, 0.5])]})
    (axes,) = figure.axes
    a, b = visible(axes)
    assert list(a.get_ydata()) == pytest.approx([0.2, 0.4])
    assert list(b.get_ydata()) == [0.5, 0.5]
    (band,) = axes.collections  # one seed has no band
    corners = {(x, round(y, 6)) for x, y in band.get_paths()[0].vertices}
    assert corners == {(0, 0.1), (0, 0.3), (1, 0.2), (1, 0.6)}
    assert texts(axes) == ["a  40.0%", "b  50.0%"]
    assert "of its seeds" in axes.get_title(loc="left")


def test_note_counts_the_seeds_that_all_methods_have(curve):
    runs = [curve([0.1]), curve([0.2])]
    assert "of 2 seeds" in accuracy_curves({"a": runs, "b": runs}).axes[0].get_title(loc="left")
    assert accuracy_curves({"a": runs[:1]}).axes[0].get_title(loc="left") == ""


def test_curves_skip_rounds_that_a_seed_did_not_measure(curve):
    figure = accuracy_curves({"a": [curve([0.1, None, 0.3]), curve([0.1, 0.9, 0.3, 0.4])]})
    line = visible(figure.axes[0])[0]
    assert list(line.get_xdata()) == [0, 2]
    assert list(line.get_ydata()) == pytest.approx([0.1, 0.3])


def test_method_that_measured_nothing_has_no_line(curve):
    figure = accuracy_curves({"a": [curve([None])], "b": [], "c": [curve([0.1])]}, title="T")
    assert [line.get_label() for line in visible(figure.axes[0])] == ["c"]
    assert figure.get_suptitle() == "T"


def test_accuracy_axis_is_in_percent(curve):
    axes = accuracy_curves({"a": [curve([0.1, 0.2])]}).axes[0]
    assert axes.yaxis.get_major_formatter()(0.125, None) == "12.5%"


def test_labels_do_not_overlap():
    placed = spread([0.30, 0.31, 0.1, 0.305, 0.9], gap=0.05)
    assert all(b - a >= 0.05 - 1e-9 for a, b in pairwise(sorted(placed)))
    assert (placed[2], placed[4]) == pytest.approx((0.1, 0.9))
    assert np.mean([placed[0], placed[1], placed[3]]) == pytest.approx(0.305)


def test_lines_of_many_methods_differ():
    assert len({line_style(index) for index in range(21)}) == 21


def test_accuracy_and_similarity_share_rounds(staged):
    upper, lower = accuracy_and_similarity(staged).axes
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
    upper, lower = accuracy_and_similarity(staged).axes
    for axes in (upper, lower):
        edges = [(span.get_x(), span.get_x() + span.get_width()) for span in axes.patches]
        assert edges == [(1.5, 4.5), (5.5, 9.5), (9.5, 11.5)]
    assert texts(upper) == ["anneal", "dampen", "prune"]


def test_names_of_narrow_stages_are_stacked(record):
    stages = ["fedavg"] * 50 + ["annealing", "dampening"] + ["fedavg"] * 50
    upper, _ = accuracy_and_similarity([record(i, 0.5, stage=stage) for i, stage in enumerate(stages)]).axes
    first, second = (text.xyann[1] for text in upper.texts)
    assert second - first >= 12


def test_a_run_without_rounds_or_similarity_draws_empty_panels(curve):
    assert len(accuracy_and_similarity([]).axes) == 2
    assert accuracy_and_similarity(curve([0.1])).axes[1].get_legend() is None


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


def test_unknown_suffix_is_one_line(curve, tmp_path):
    with pytest.raises(ConfigError, match=r"expected a name ending in \.png, \.svg, \.pdf, found '\.jpeg'") as caught:
        save(accuracy_curves({"a": [curve([0.1])]}), tmp_path / "new" / "a.jpeg")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()

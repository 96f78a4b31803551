from itertools import pairwise
from math import inf, nan

import pytest

from fedpace.analysis import SweepPoint, sweep_figure
from fedpace.core import ConfigError

POINTS = [SweepPoint(16, 0.7, 0.4), SweepPoint(2, 0.5, 0.1), SweepPoint(0.5, 0.3, nan), SweepPoint(2, 0.6, 0.3)]


def drawn(axes, label):
    (line,) = (line for line in axes.lines if line.get_label() == label)
    return [tuple(point) for point in line.get_xydata()]


def ticks(axes):
    return [(tick, label.get_text()) for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)]


def test_every_seed_is_a_dot_and_means_are_joined():
    upper, lower = sweep_figure({"K": POINTS}).axes
    assert sorted(drawn(upper, "_seeds")) == [(0, 0.3), (1, 0.5), (1, 0.6), (2, 0.7)]
    assert drawn(upper, "mean") == [(0, 0.3), (1, pytest.approx(0.55)), (2, 0.7)]
    assert upper.get_title(loc="left") == "faint dot: one seed, line: mean"
    assert sweep_figure({"K": POINTS[:3]}).axes[0].get_title(loc="left") == ""
    assert lower.get_xlabel() == "K"


def test_lines_are_told_apart_in_every_column():
    lines = {
        name: [SweepPoint(x, 0.1 * x + up, up, line) for line, up in (("mean", 0), ("+ rule", 0.3)) for x in (1, 2)]
        for name in "ab"
    }
    figure = sweep_figure(lines)
    for upper, lower in zip(figure.axes[:2], figure.axes[2:], strict=True):
        assert drawn(upper, "+ rule") == [(0, pytest.approx(0.4)), (1, pytest.approx(0.5))]
        assert drawn(lower, "mean") == [(0, 0), (1, 0)]
        colours = {line.get_label(): line.get_color() for line in upper.lines if line.get_label()[0] != "_"}
        assert colours["mean"] != colours["+ rule"]
        assert {line.get_color() for line in lower.lines if line.get_label() == "mean"} == {colours["mean"]}
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["mean", "+ rule"]
    assert figure.axes[0].get_title(loc="left") == ""
    assert sweep_figure({"K": POINTS}).axes[0].get_legend() is None


def test_similarity_that_was_not_measured_is_left_out():
    _, lower = sweep_figure({"K": POINTS}).axes
    assert sorted(drawn(lower, "_seeds")) == [(1, 0.1), (1, 0.3), (2, 0.4)]
    assert drawn(lower, "mean") == [(1, pytest.approx(0.2)), (2, 0.4)]
    assert ticks(lower) == [(0, "0.5"), (1, "2"), (2, "16")]


def test_the_lower_axis_may_show_something_else_and_a_value_may_be_infinite():
    _, lower = sweep_figure({"ε": [SweepPoint(inf, 0.9, 0.3), SweepPoint(10, 0.5, 0.4)]}, below="agreement").axes
    assert lower.get_ylabel() == "agreement"
    assert ticks(lower) == [(0, "10"), (1, "∞")]
    assert sweep_figure({"K": POINTS}).axes[1].get_ylabel() == "mean pairwise cosine"


def test_a_column_per_parameter_on_the_same_scales():
    figure = sweep_figure({"K": POINTS, "β": [SweepPoint(0.01, 0.9, -0.8)], "none": []}, title="T")
    uppers, lowers = figure.axes[:3], figure.axes[3:]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "", "K", "β", "none"]
    assert [ticks(axes) for axes in lowers[1:]] == [[(0, "0.01")], []]
    for row, (low, high) in ((uppers, (0.3, 0.9)), (lowers, (-0.8, 0.4))):
        (limits,) = {axes.get_ylim() for axes in row}
        assert limits[0] < low < high < limits[1]
    assert uppers[0].yaxis.get_major_formatter()(0.125, None) == "12.5%"
    assert figure.get_suptitle() == "T"


def test_tick_labels_do_not_overlap():
    values = [0.00123, 0.01234, 0.1, 0.5, 1, 2.625, 10_000, 123_456, 1_234_567]
    figure = sweep_figure({"β": [SweepPoint(value, 0.5, 0.1) for value in values], "K": POINTS})
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for axes in figure.axes[2:] for label in axes.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_a_long_title_fits():
    figure = sweep_figure({"K": POINTS}, title="A title that is longer than one column of it is wide")
    figure.draw_without_rendering()
    (title,) = figure.texts
    assert title.get_window_extent().x1 < figure.bbox.x1


def test_a_sweep_is_written(tmp_path):
    sweep_figure({"K": POINTS}, tmp_path / "new" / "sweep.pdf")
    assert (tmp_path / "new" / "sweep.pdf").read_bytes().startswith(b"%PDF")


def test_no_sweep_is_an_error():
    with pytest.raises(ConfigError, match="expected at least one column"):
        sweep_figure({})

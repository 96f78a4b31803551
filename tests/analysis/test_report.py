"""The report is read back as a browser would: elements from the HTML, figures from the JSON inside it."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from fedpace.analysis import ReportedRun, write_report
from fedpace.analysis.report._html import number, round_axis
from fedpace.analysis.report.similarity import snapshots
from fedpace.analysis.runs import thinned
from fedpace.core import Agreement, ConfigError, RoundRecord, RunFolderError, Similarity

SECTIONS = ["comparison", "curves", "pairs", "layers", "clients", "events", "cost", "settings"]


class Page(HTMLParser):
    """Tags with their attributes, and for each section its text and its figures."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.figures = [], {}, {}
        self._section, self._script = "", None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"]
            self.text[self._section], self.figures[self._section] = "", []
        if tag == "script":
            self._script = dict(attrs).get("type", "code")

    def handle_endtag(self, tag):
        if tag == "section":
            self._section = ""
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if not self._section:
            return
        if self._script == "application/json":
            self.figures[self._section].append(json.loads(data))
        else:
            self.text[self._section] += f"{data}\n"


def write(runs, path, **given):
    return Page(write_report(runs, path / "report.html", **given).read_text(encoding="utf-8"))


def cells(text):
    return [line for line in text.splitlines() if line]


def measured(make, accuracies, cosine=-0.25, clients=(0, 1, 2), **given):
    """A history in which everything is measured; clients 0 and 2 are in conflict."""
    matrix = np.full((len(clients),) * 2, 0.1)
    matrix[0, -1] = matrix[-1, 0] = cosine
    np.fill_diagonal(matrix, 1)
    fields = {
        "cohort": list(clients),
        "similarity": {"kind": "update", "mean": cosine, "matrix": matrix.tolist()},
        "agreement": {"layers": {"conv.weight": [0, 15, 0, 5], "conv.bias": [0, 4, 0, 0]}},
        "client_accuracy": {str(client): 0.1 * (client % 10) for client in clients},
        "client_accuracy_on": "train",
        **given,
    }
    return [make(number, accuracy, **fields) for number, accuracy in enumerate(accuracies)]


@pytest.fixture
def runs(record):
    """Two methods with two seeds each, b better than a by 10 and 11 points."""
    config = {"method": "a", "rounds": 3, "data": {"source": "digits"}, "dampen": None, "local": {"lr": 0.1}}
    other = {**config, "method": "b", "description": "The <other>.", "dampen": {"first": 2, "rule": {"name": "x"}}}
    staged = measured(record, [0.2, 0.3, 0.51])
    staged[1:] = [
        replace(late, stage="dampen", similarity=replace(late.similarity, kind="gradient")) for late in staged[1:]
    ]
    return [
        ReportedRun("a", 0, config, measured(record, [0.1, 0.2, 0.4])),
        ReportedRun("a", 1, config, measured(record, [0.3, 0.2, 0.4])),
        ReportedRun("b", 0, other, measured(record, [0.2, 0.3, 0.5], cosine=-0.5)),
        ReportedRun("b", 1, other, staged),
    ]


def test_sections_stand_in_order_and_navigation_leads_to_them(runs, tmp_path):
    page = write(runs, tmp_path, title="My runs")
    assert list(page.text) == SECTIONS
    assert [given["href"] for tag, given in page.tags if tag == "a"] == [f"#{name}" for name in SECTIONS]
    assert "Not measured" not in "".join(page.text.values())


def test_runs_whose_clients_have_speeds_are_drawn_over_time(runs, tmp_path):
    """b is twice as fast as a."""
    timed = [
        replace(run, records=[replace(r, time=(r.round + 1.0) / (1 + (run.label == "b"))) for r in run.records])
        for run in runs
    ]
    page = write(timed, tmp_path)
    assert list(page.text) == [*SECTIONS[:2], "time", *SECTIONS[2:]]
    a, b = page.figures["time"][0]["data"]
    assert (a["name"], b["name"]) == ("a", "b")
    assert (a["x"][-1], b["x"][0], b["x"][-1]) == (3, 0.5, 1.5)
    assert a["x"][0] == pytest.approx(1, abs=0.01)
    assert (a["y"][0], b["y"][-1]) == (pytest.approx(0.2), pytest.approx(0.505))
    assert "3" in cells(page.text["cost"])
    assert "1.5" in cells(page.text["cost"])


def test_folders_are_made_and_the_path_is_returned(runs, tmp_path):
    path = tmp_path / "new" / "report.html"
    assert write_report(runs, str(path)) == path
    assert path.exists()


def test_nothing_comes_from_elsewhere(runs, tmp_path):
    page = write(runs, tmp_path)
    for tag, given in page.tags:
        assert tag not in ("link", "img", "iframe", "base", "object")
        assert not {"src", "srcset", "data"} & set(given), tag
        assert given.get("href", "#").startswith("#")
    policy = next(given["content"] for tag, given in page.tags if given.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "http" not in policy
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"@import|url\(", html[: html.index("</style>")])
    assert html.count("* plotly.js v") == 1
    assert 4e6 < len(html) < 6e6


def test_every_figure_follows_plotlys_schema(runs, tmp_path):
    import plotly.graph_objects as go

    figures = [figure for found in write(runs, tmp_path).figures.values() for figure in found]
    assert len(figures) == 1 + 2 + 2 + 2
    for figure in figures:
        go.Figure(figure)


def test_tables_compare_final_best_last_and_area(runs, tmp_path):
    found = cells(write(runs, tmp_path).text["comparison"])
    titles = [line for line in found if line.endswith("2 seeds")]
    assert [title.split(",")[0] for title in titles] == [
        "Final accuracy",
        "Best accuracy",
        "Mean accuracy of the last 10 measured rounds",
        "Area under the accuracy curve",
    ]
    row = found.index("b")
    # Differences 0.10 and 0.11: mean 10.5, half width 12.706 · 0.5 = 6.35 points
    assert found[row : row + 4] == ["b", "50.50 ± 0.71", "+10.50 [+4.15, +16.85] *", "2"]
    assert sum("*" in line for line in found if line.startswith(("+", "−"))) == 2  # final and best


def test_accuracy_is_a_mean_in_a_band(runs, tmp_path):
    ((figure),) = write(runs, tmp_path).figures["curves"]
    accuracy = [trace for trace in figure["data"] if trace["yaxis"] == "y"]
    bands, lines = accuracy[::2], accuracy[1::2]
    assert [line["name"] for line in lines] == ["a", "b"]
    assert lines[0]["y"] == [0.2, 0.2, 0.4]
    assert bands[0]["x"] == [0, 1, 2, 2, 1, 0]
    assert bands[0]["y"] == [0.1, 0.2, 0.4, 0.4, 0.2, 0.3]
    assert {trace["legendgroup"] for trace in figure["data"]} == {"a", "b"}  # the legend hides all of a method


def test_kinds_of_cosine_are_traces_of_their_own(runs, tmp_path):
    page = write(runs[3:], tmp_path)
    ((figure),) = page.figures["curves"]
    update, gradient = (trace for trace in figure["data"] if trace["yaxis"] == "y2")
    assert (update["x"], gradient["x"]) == ([0], [1, 2])
    assert update["marker"]["symbol"] != gradient["marker"]["symbol"]
    assert "gradients" in gradient["hovertemplate"]
    assert "circle: of updates, triangle: of gradients" in page.text["curves"]


def test_stages_are_bars_over_their_rounds(staged, tmp_path):
    ((figure),) = write([ReportedRun("a", 0, {}, staged)], tmp_path).figures["curves"]
    (bars,) = (trace for trace in figure["data"] if trace["type"] == "bar")
    assert list(zip(bars["text"], bars["base"], bars["x"], strict=True)) == [
        ("anneal", 1.5, 3),
        ("dampen", 5.5, 4),
        ("prune", 9.5, 2),
    ]


def test_matrices_move_with_one_slider(runs, tmp_path):
    page = write(runs, tmp_path)
    a, b = page.figures["pairs"]
    assert [frame["name"] for frame in a["frames"]] == ["mean of all rounds", "0", "1", "2"]
    assert b["data"][0]["z"] == [[None, 0.1, -0.5], [0.1, None, 0.1], [-0.5, 0.1, None]]
    assert a["data"][0]["zmax"] == b["data"][0]["zmax"] == 0.5  # one scale for all
    sliders = [given for tag, given in page.tags if tag == "input"]
    assert [(given["min"], given["max"]) for given in sliders] == [("0", "3")]
    found = cells(page.text["pairs"])
    row = len(found) - found[::-1].index("b") - 1
    assert found[row:] == ["b", "0 and 2", "−0.500", "3 of 3", "−0.500 in round 0"]


def test_rows_of_a_matrix_belong_to_the_clients_that_were_not_dropped(record):
    matrix = [[1.0, 0.5], [0.5, 1.0]]
    partly = record(0, cohort=[4, 7, 9], similarity={"matrix": matrix}, dropped=[{"client": 7, "reason": "NaN"}])
    unknown = record(1, cohort=[4, 7], similarity={"matrix": matrix}, dropped=[{"client": 7, "reason": "NaN"}])
    (shot,) = snapshots([partly, unknown])
    assert (shot.round, shot.clients) == (0, [4, 9])


def test_changing_cohorts_meet_in_the_mean(record, tmp_path):
    records = [
        *measured(record, [0.1], clients=(0, 1), cosine=0.2),
        *measured(record, [0.1], clients=(1, 5), cosine=-0.4),
        *measured(record, [0.1], clients=(0, 1), cosine=0.4),
    ]
    records = [replace(one, round=number) for number, one in enumerate(records)]
    ((figure),) = write([ReportedRun("a", 0, {}, records)], tmp_path).figures["pairs"]
    mean, first, second, _ = (frame["data"][0] for frame in figure["frames"])
    assert mean["x"] == ["0", "1", "5"]
    assert mean["z"] == [[None, 0.3, None], [0.3, None, -0.4], [None, -0.4, None]]
    assert (first["x"], second["x"]) == (["0", "1"], ["1", "5"])


def test_agreement_of_layers_is_a_heat_map_with_gaps(staged, tmp_path):
    page = write([ReportedRun("a", 0, {}, staged)], tmp_path)
    ((figure),) = page.figures["layers"]
    (heat,) = figure["data"]
    assert heat["y"] == ["conv.weight", "conv.bias"]
    assert heat["x"] == [6, 7, 8, 9, 10, 11]
    # weight: (20 − n) coordinates at 1/3 and n at 1
    assert heat["z"][0] == pytest.approx([(20 + 2 * n) / 60 for n in range(6, 12)], abs=1e-3)
    assert heat["z"][1] == pytest.approx([1 / 3] * 6, abs=1e-3)
    assert (
        "Least agreement: conv.bias, 0.33 on average; below chance in 6 of 6 rounds, first in round 6"
        in (page.text["layers"])
    )
    staged[8] = replace(staged[8], agreement=None)
    (heat,) = write([ReportedRun("a", 0, {}, staged)], tmp_path).figures["layers"][0]["data"]
    assert heat["z"][0][2] is None


def test_each_client_has_a_line(runs, tmp_path):
    page = write(runs, tmp_path)
    a, _ = page.figures["clients"]
    assert [(trace["name"], trace["y"]) for trace in a["data"]] == [
        ("client 0", [0.0] * 3),
        ("client 1", [0.1] * 3),
        ("client 2", [0.2] * 3),
    ]
    assert "own training examples" in page.text["clients"]
    assert "How evenly" not in page.text["clients"]


def test_how_evenly_clients_fare_on_tests_of_their_own(record, tmp_path):
    runs = [
        ReportedRun(
            "a", seed, {}, measured(record, [0.1], client_accuracy={"0": a, "1": 0.5}, client_accuracy_on="test")
        )
        for seed, a in enumerate((0.1, 0.3))
    ]
    text = write(runs, tmp_path).text["clients"]
    assert "own test examples" in text
    assert "How evenly clients fare" in text
    assert "35.00%" in text  # mean of 30 % and 40 %
    assert "15.00%" in text  # of 20 % and 10 %
    assert "20.00%" in text  # of 10 % and 30 %


def test_many_clients_are_rows_in_numerical_order(record, tmp_path):
    run = ReportedRun("a", 0, {}, measured(record, [0.1, 0.2], clients=range(12)))
    ((figure),) = write([run], tmp_path).figures["clients"]
    (heat,) = figure["data"]
    assert heat["type"] == "heatmap"
    assert heat["y"] == [str(client) for client in range(12)]


def test_of_very_many_clients_some_are_rows(record, tmp_path):
    records = [
        *measured(record, [0.1], clients=range(0, 3000, 10)),
        *measured(record, [0.1], clients=range(5, 3005, 10)),
    ]
    page = write([ReportedRun("a", 0, {}, [replace(one, round=i) for i, one in enumerate(records)])], tmp_path)
    ((figure),) = page.figures["clients"]
    (heat,) = figure["data"]
    assert (len(heat["y"]), heat["y"][0], heat["y"][-1]) == (200, "0", "2995")
    assert "Of 600 clients 200 are shown." in page.text["clients"]


def test_the_mean_of_very_many_clients_is_of_those_that_were_there_most(record, tmp_path):
    cohorts = [[0, 1, *range(10 * i + 2, 10 * i + 12)] for i in range(30)]
    records = [measured(record, [0.1], clients=cohort)[0] for cohort in cohorts]
    records = [replace(one, round=i) for i, one in enumerate(records)]
    ((figure),) = write([ReportedRun("a", 0, {}, records)], tmp_path).figures["pairs"]
    mean, first = (figure["frames"][i]["data"][0] for i in (0, 1))
    assert len(mean["x"]) == 100
    assert mean["x"][:2] == ["0", "1"]
    assert mean["z"][0][1] == pytest.approx(first["z"][0][1])
    assert first["x"] == [str(client) for client in cohorts[0]]


def test_search_pruning_drops_and_warnings_are_told(staged, runs, tmp_path):
    odd = [ReportedRun("odd", seed, {}, staged, ["annealing did nothing"]) for seed in (3, 4)]
    page = write([*runs, *odd], tmp_path)
    found = cells(page.text["events"])
    row = found.index("odd")
    assert found[row : row + 6] == [
        "odd",
        "3",
        "0 of 24 accepted",
        "5.00%",
        "–",
        "client 2: NaN in [update]: rounds 1–3, 7",
    ]
    assert found[-2:] == ["odd, seeds 3, 4", "annealing did nothing"]
    assert "a" not in found  # nothing happened to it
    assert "No search, no pruning" in write(runs, tmp_path).text["events"]


def test_what_a_private_run_told_is_told(record, runs, tmp_path):
    config = {"privacy": {"delta": 1e-3}}
    private = ReportedRun("private", 0, config, [record(0, 0.3, epsilon=1.5), record(1, 0.3, epsilon=2.25)])
    found = cells(write([*runs, private], tmp_path).text["events"])
    row = found.index("private")
    assert found[row + 6] == "ε 2.25 at δ = 0.001 after 2 rounds"


def test_what_clients_told_that_train_privately_is_told(record, tmp_path):
    config = {"local": {"private": {"delta": 1e-3}}}
    run = ReportedRun("private", 0, config, [record(0, 0.3, local_epsilon=1.5)])
    assert "local ε 1.5 at δ = 0.001 after 1 rounds" in cells(write([run], tmp_path).text["events"])


def test_cost_is_a_mean_over_seeds(curve, tmp_path):
    runs = [ReportedRun("a", 0, {}, curve([0.1] * 2)), ReportedRun("a", 1, {}, curve([0.1] * 4))]
    found = cells(write(runs, tmp_path).text["cost"])
    # three rounds on average, of 100 bytes up, 200 down, 1.5 and 0.5 seconds
    assert found[-9:] == ["a", "3", "300 bytes", "600 bytes", "6.0 s", "0.0 s", "4.5 s", "0.0 s", "1.5 s"]


def test_settings_are_said_once_and_then_only_differences(runs, tmp_path):
    third = replace(runs[0], label="c", config={**runs[0].config, "local": {"lr": 0.5}})
    found = cells(write([*runs, third], tmp_path).text["settings"])
    assert found[found.index("rounds") : found.index("a ")] == ["rounds", "3", "data.source", "digits"]
    assert found[found.index("a ") : found.index("b ")] == ["a ", "seeds 0, 1", "local.lr", "0.1"]
    own = ["b ", "seeds 0, 1", "The <other>.", "dampen.first", "2", "dampen.rule.name", "x"]
    assert found[found.index("b ") : found.index("c ")] == own
    assert found[found.index("c ") : -1] == ["c ", "seed 0", "local.lr", "0.5"]


def test_labels_and_warnings_cannot_inject_markup(record, tmp_path):
    evil = "</script><script>alert(1)</script>"
    run = ReportedRun(evil, 0, {"<b>": evil}, measured(record, [0.1, 0.2], stage=evil), [evil])
    page = write([run, replace(run, label="<img src=x>")], tmp_path, title=evil)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert "<img" not in html[: html.index("* plotly.js v")]
    assert evil in page.text["events"]
    figures = [figure for found in page.figures.values() for figure in found]
    assert figures
    names = [trace["name"] for figure in figures for trace in figure["data"] if "name" in trace]
    assert not any("<" in name.replace("<br>", "") for name in names)  # plotly would read it as mark-up


@pytest.mark.parametrize(
    "records",
    [
        [],
        [RoundRecord(round=0)],
        [RoundRecord(round=0, metrics={"accuracy": None}, client_metrics={0: {"accuracy": None}})],
        [RoundRecord(round=0, cohort=[0], similarity=Similarity(matrix=[[1.0]]), agreement=Agreement())],
        [RoundRecord(round=0, cohort=[0, 1], similarity=Similarity(matrix=[[None, None]] * 2))],
    ],
    ids=["no rounds", "bare", "null", "one client", "no direction"],
)
def test_what_was_not_measured_is_said_and_breaks_nothing(records, runs, tmp_path):
    empty = ReportedRun("empty", 0, {}, records)
    page = write([empty], tmp_path)
    assert "Not measured" in page.text["curves"]
    assert "Not measured" in page.text["layers"]
    assert "Not measured" in page.text["clients"]
    beside = write([empty, *runs], tmp_path)
    assert "Not measured." in beside.text["clients"]
    assert len(beside.figures["layers"]) == 2
    assert "–" in cells(beside.text["comparison"])


def test_one_client_and_one_round(record, tmp_path):
    one = record(0, 0.5, cohort=[0], client_accuracy={"0": 0.5}, agreement={"layers": {"w": [0, 7]}})
    page = write([ReportedRun("a", 0, {}, [one])], tmp_path)
    assert "Not measured" in page.text["pairs"]
    accuracy, *_ = page.figures["curves"][0]["data"]
    assert (accuracy["mode"], accuracy["y"]) == ("markers", [0.5])
    assert page.figures["layers"][0]["data"][0]["z"] == [[1.0]]


def test_a_report_about_nothing_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="at least one run"):
        write_report([], tmp_path / "report.html")


def test_many_runs_make_a_small_file(record, tmp_path):
    histories = [measured(record, np.linspace(0.1, 0.9, 50) + seed / 1e7) for seed in range(40)]
    layers = {f"features.{i}.weight": [0, 12345 + i, 0, 6789] for i in range(20)}
    histories = [[replace(one, agreement=Agreement(layers=layers)) for one in records] for records in histories]
    runs = [ReportedRun(f"local.lr={i}, dampen.first=20", 0, {"i": i}, records) for i, records in enumerate(histories)]
    path = write_report(runs, tmp_path / "report.html")
    assert path.stat().st_size < 10e6


def test_large_cohorts_are_thinned_by_rounds(record, tmp_path):
    records = measured(record, [0.1] * 300, clients=range(32))
    page = write([ReportedRun("a", 0, {}, records)], tmp_path)
    rounds = [frame["name"] for frame in page.figures["pairs"][0]["frames"][1:]]
    assert 100 < len(rounds) < 200
    assert (rounds[0], rounds[-1]) == ("0", "299")


def test_numbers_are_rounded_and_nan_is_null():
    assert number(0.123456) == 0.1235
    assert number(float("nan")) is None


@pytest.mark.parametrize(("last", "step"), [(0, 1), (9, 1), (12, 2), (49, 5), (99, 10), (499, 50), (1500, 200)])
def test_rounds_axis_has_about_ten_whole_numbers(last, step):
    assert round_axis([0, last])["dtick"] == step


def test_thinning_keeps_both_ends():
    assert thinned(range(100), 2) == [0, 99]
    assert thinned(range(100), 0) == [99]
    assert thinned(range(3), 5) == [0, 1, 2]


def test_the_first_screen_says_what_else_differs_between_methods(runs, tmp_path):
    path = tmp_path / "report.html"
    header = write_report(runs, path).read_text(encoding="utf-8").partition("</header>")[0]
    assert "are the same for all methods" in header
    longer = [replace(run, config={**run.config, "local": {"lr": 0.2}}) if run.label == "b" else run for run in runs]
    header = write_report(longer, path).read_text(encoding="utf-8").partition("</header>")[0]
    assert "<b>learning rate</b> a: 0.1; b: 0.2" in header
    alone = write_report(runs[:2], path).read_text(encoding="utf-8").partition("</header>")[0]
    assert "differ" not in alone


def test_a_page_that_cannot_be_written_is_one_line(record, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(RunFolderError, match=r"taken/report.html: cannot be written"):
        write_report([ReportedRun("fedavg", 0, {"seed": 0}, [record(0, 0.5)])], tmp_path / "taken" / "report.html")

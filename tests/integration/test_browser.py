"""The report opens in a browser that has no network: every chart is drawn, and nothing goes wrong."""

import json
import re
import shutil
import subprocess
from collections import Counter

import pytest

from fedpace.analysis import write_report
from fedpace.experiments.run import execute
from tests.experiments.helpers import fast_config

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = [
    "--headless",
    "--no-sandbox",  # a container's root cannot have one
    "--disable-gpu",
    "--disable-dev-shm-usage",  # a container's shared memory is small
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no network
    "--window-size=1400,10000",  # a chart is drawn when it comes near the screen: this screen shows them all
    "--virtual-time-budget=10000",  # in ms of a clock that stands still while the page works, so for any machine
    "--enable-logging=stderr",
    "--dump-dom",
]
MARKS = {
    "scatter": r'<path class="js-line" d="M[^"]*L',  # a line in the legend has no L
    "bar": r'<g class="trace bars"[^>]*><g class="points"><g class="point"><path [^>]*d="M',
    "heatmap": r'<g class="hm"><image [^>]*href="data:image/png;base64,',
}
"""What plotly draws for each trace of a type."""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on the PATH; `make browser` tries to install it")


def faults(page):
    """Opens a page and tells what it says to the console, what it asks of the network, and which charts it lacks."""
    log, profile = page.with_suffix(".log"), page.with_suffix(".profile")
    command = [BROWSER, *OPTIONS, f"--log-net-log={log}", f"--user-data-dir={profile}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr
    said = re.findall(r":CONSOLE\W.*", done.stderr)  # uncaught errors and violations of the page's policy among it
    # The browser has requests of its own; those of the page are kept apart under its address.
    asked = re.findall(r'"network_isolation_key":"file:.*"url":"([^"]*)"', log.read_text(encoding="utf-8"))
    drawn = {name: marks(svg) for name, svg in charts(done.stdout).items()}
    declared = {name: traces(script) for name, script in charts(page.read_text(encoding="utf-8")).items()}
    lacking = [f"{name}: {drawn.get(name)} of {due}" for name, due in declared.items() if drawn.get(name) != due]
    return said + asked + lacking


def charts(html):
    """What each chart's element holds (a script before it is drawn, pictures after), by the chart's description."""
    main = html.partition("</main>")[0]
    _, *found = re.split(r'<div class="plot(?: js-plotly-plot)?" [^>]*aria-label="([^"]*)">', main)
    return dict(zip(found[::2], found[1::2], strict=True))


def marks(svg):
    inside = svg.partition('class="main-svg"')[2]
    return +Counter({kind: len(re.findall(pattern, inside)) for kind, pattern in MARKS.items()})


def traces(script):
    data = json.loads(script[script.index("{") : script.index("</script>")])["data"]
    return Counter(trace["type"] for trace in data)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two methods with two seeds each, one of them with a stage, and everything measured."""
    methods = {"fedavg": {}, "fedpace": {}}
    runs = [
        execute(fast_config(method, rounds=4, seed=seed, measuring__per_client=5, **given)).reported(method)
        for method, given in methods.items()
        for seed in (0, 1)
    ]
    return write_report(runs, tmp_path_factory.mktemp("browser") / "report.html")


def test_every_chart_is_drawn_without_errors_and_without_a_network(report):
    html = report.read_text(encoding="utf-8")
    assert len(charts(html)) == html.count('<script type="application/json">')
    assert set(sum(map(traces, charts(html).values()), Counter())) == set(MARKS)
    assert "Not measured" not in html.partition("</main>")[0]  # every section that can have a chart has one
    assert faults(report) == []


def test_an_error_a_violation_a_request_and_a_missing_chart_are_found(report):
    html = report.read_text(encoding="utf-8").replace("img-src data:", "img-src https: data:")
    html = re.sub(r'"z":\[\[.*?\]\]', '"z":[]', html, count=1)  # the first heat map
    added = '<script>throw Error("thrown")</script><img src="https://a.invalid/b"><script src="https://a.invalid/c">'
    page = report.with_name("broken.html")
    page.write_text(html.replace("</main>", f"{added}</script></main>", 1), encoding="utf-8")
    found = faults(page)
    for fault in ("Uncaught Error: thrown", "a.invalid/c' violates", "https://a.invalid/b", "fedavg: Counter()"):
        assert any(fault in one for one in found), (fault, found)

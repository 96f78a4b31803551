from io import StringIO
from pathlib import Path

from rich.console import Console

from fedpace.core import RoundRecord
from fedpace.experiments import execute
from fedpace.experiments.progress import BatchProgress, RunProgress, note

from .helpers import fast_config


def shown(*, terminal):
    console = Console(file=StringIO(), force_terminal=terminal, width=120)
    with RunProgress(console) as progress:
        execute(fast_config(rounds=3), listeners=[progress])
        progress.warned("a [/stage] cannot act")
    return console.file.getvalue()


def test_a_terminal_sees_a_bar_and_the_warnings():
    text = shown(terminal=True)
    assert "fedavg · seed 0" in text
    assert "3/3" in text
    assert "a [/stage] cannot act" in text


def test_anything_else_sees_the_warnings_only():
    assert shown(terminal=False) == "warning: a [/stage] cannot act\n"


def test_a_round_that_measured_nothing_shows_its_stage():
    assert note(RoundRecord(round=0, stage="dampen")) == "[cyan]dampen[/]"
    assert note(RoundRecord(round=0, stage="a", metrics={"accuracy": 0.5})) == "[cyan]a[/] accuracy 50.00%"
    assert note(RoundRecord(round=0, stage="a", metrics={"MAE": 0.5})) == "[cyan]a[/] MAE 0.500"


def test_a_private_round_shows_its_epsilon():
    private = RoundRecord(round=0, stage="a", metrics={"accuracy": 0.5}, epsilon=1.234)
    assert note(private) == "[cyan]a[/] accuracy 50.00% ε 1.23"
    assert note(RoundRecord(round=0, stage="a", local_epsilon=5)) == "[cyan]a[/] local ε 5.00"


def test_a_batch_shows_all_rounds_and_only_the_runs_under_way():
    console = Console(file=StringIO(), force_terminal=True, width=120, height=40, color_system=None)
    folders = {Path(f"run{i}"): (f"fedavg · seed {i}", 4) for i in range(3)}
    with BatchProgress(console, folders) as progress:
        record = RoundRecord(round=0, metrics={"accuracy": 0.5})
        progress.show(Path("run0"), [record] * 4)
        progress.show(Path("run1"), [record] * 2)
        progress.show(Path("run2"), [])

        progress._bars.refresh()
    last = console.file.getvalue().rsplit("all runs", 1)[1]
    assert "6/12" in last
    assert "1 of 3 done" in last
    assert "fedavg · seed 1" in last
    assert "seed 0" not in last
    assert "seed 2" not in last

from io import StringIO

from rich.console import Console

from fedpace.experiments import execute
from fedpace.experiments.progress import RunProgress, note

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
    assert note({"stage": "dampen", "accuracy": None}) == "[cyan]dampen[/]"
    assert note({"stage": "dampen", "accuracy": 0.5}) == "[cyan]dampen[/] 50.00%"

import signal
import sys

import pytest

from fedpace.cli import ENDING, main

from .helpers import Ended


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The working folder of a command: empty, and without a terminal. Its own handlers of signals end with the test."""
    for name in ("FEDPACE_DATA", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    handlers = {number: signal.getsignal(number) for number in ENDING}
    yield folder
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def fedpace(monkeypatch, capfd):
    """Runs the command line in this process."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedpace", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return Ended(code, *capfd.readouterr())

    return call

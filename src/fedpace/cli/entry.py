"""From a command to its exit code: one line instead of a traceback."""

from __future__ import annotations

import signal
import sys
from typing import Any

import typer

from fedpace.cli.commands import app
from fedpace.cli.printing import err_console
from fedpace.core import FedpaceError, for_terminal, one_line

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
STOPPED = {128 + number for number in ENDING}  # exit codes after these signals; typer's after Ctrl-C is the same
UsageError: Any = typer.BadParameter.__base__  # click's, or the copy of it within typer


def main() -> None:
    """Entry point: one line instead of a traceback, unless ``--debug`` is given."""
    for number in ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:  # python handles Ctrl-C; nohup and & have signals ignored
            signal.signal(number, _unwind)
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        # Not standalone: typer would print a usage error as a box of five lines and swallow an interrupt.
        code = app(arguments, prog_name="fedpace", standalone_mode=False)
    except SystemExit as end:
        code = end.code
    except Exception as error:
        message = _one_line(error)
        if debug or message is None:
            raise
        if message:  # empty if the help was shown because there were no arguments
            err_console.print(f"[bold red]error:[/] {for_terminal(message)}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
    if code in STOPPED:
        err_console.print("stopped; finished rounds are kept: the same command goes on (run: with --resume)")
    raise SystemExit(code or 0)


def _unwind(number: int, _: object) -> None:
    """End orderly, so that worker processes end too; a terminal that closes may say so twice."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _one_line(error: Exception) -> str | None:
    """What to tell of a mistake of the user's; ``None`` for a defect of ours."""
    if isinstance(error, UsageError):
        error.ctx = None  # the message alone, without the usage
        return one_line(error.format_message())
    return str(error) if isinstance(error, FedpaceError) else None

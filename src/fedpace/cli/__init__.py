"""The command line: parses, calls, prints. Whatever a user can get wrong ends in one line and exit code 2."""

from fedpace.cli.commands import app
from fedpace.cli.entry import ENDING, main

__all__ = ["ENDING", "app", "main"]

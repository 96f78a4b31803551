"""Calls of the command line, and what they leave behind."""

import json
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

from ..processes import hears_signals

Ended = namedtuple("Ended", "code out err")

LINEAR = ("--model", "linear")
SHORT = ("--set", "executor=serial", "--set", "local.max_steps=1", "--set", "measuring.per_client=0")
FAST = (*LINEAR, *SHORT, "--rounds", "2")


def process(*arguments, **environment):
    """Runs the command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedpace", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=hears_signals,
    )


def ended(child):
    out, err = child.communicate(timeout=120)
    return Ended(child.returncode, out, err)


def strict(text):
    """JSON as other languages read it."""

    def refuse(token):
        raise AssertionError(f"{token} is no JSON")

    return json.loads(text, parse_constant=refuse)


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_json(folder):
    return json.loads((Path(folder) / "run.json").read_text())


def rounds_of(folder):
    file = Path(folder) / "rounds.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def losses(folder):
    return [json.loads(line)["metrics"]["loss"] for line in (Path(folder) / "rounds.jsonl").read_text().splitlines()]

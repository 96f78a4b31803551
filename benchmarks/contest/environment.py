"""A virtual environment of its own for the peers, in which fedpace runs, too: the same Python and torch for all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEERS = {  # what is imported → what is installed
    "pfl": "pfl>=0.6,<0.7",
    "blazefl": "blazefl[contrib,reproducibility]>=2,<3",
    "flwr": "flwr[simulation]>=1.41,<1.42",
}
PREFERRED = "python3.12"  # pfl takes no newer one, BlazeFL no older one
_LIST = (
    "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
)


@dataclass(frozen=True)
class Environment:
    """An interpreter, and the versions of what is installed for it; fedpace is that of this folder."""

    python: str
    versions: dict[str, str]

    def __str__(self) -> str:
        named = [f"{name} {self.versions[name]}" for name in ("torch", *PEERS, "ray") if name in self.versions]
        return ", ".join([f"fedpace {_commit()}", *named])


def prepared(folder: Path, python: str | None) -> Environment:
    """Create the environment where it is missing, and install what is missing there; tell what could not be had."""
    try:
        within = folder / "bin" / "python"
        if not within.exists():
            _run(python or _found(), "-m", "venv", str(folder))
        torch = next(line for line in (ROOT / "constraints.txt").read_text().split() if line.startswith("torch=="))
        versions = _installed(within)
        if versions.get("torch") != torch.removeprefix("torch=="):
            _pip(within, torch)
        if "fedpace" not in versions:
            _pip(within, "-c", str(ROOT / "constraints.txt"), "-e", str(ROOT))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no environment for peers ({_reason(error)}): those that are installed here take part")
        return Environment(sys.executable, _installed(sys.executable))
    for name in PEERS.keys() - versions.keys():
        try:
            _pip(within, torch, PEERS[name])  # torch again, so that pip keeps it
        except subprocess.CalledProcessError as error:
            print(f"{name} takes no part: {_reason(error)}")
    return Environment(str(within), _installed(within))


def _found() -> str:
    """The interpreter for which all peers can be had, else this one."""
    found = shutil.which(PREFERRED)
    works = found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0
    return PREFERRED if works else sys.executable


def _installed(python: Path | str) -> dict[str, str]:
    return dict(json.loads(_run(python, "-c", _LIST)))


def _pip(python: Path | str, *arguments: str) -> None:
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def _run(python: Path | str, *arguments: str) -> str:
    return subprocess.run([str(python), *arguments], capture_output=True, check=True, text=True).stdout


def _reason(error: Exception) -> str:
    said = error.stderr.strip().splitlines() if isinstance(error, subprocess.CalledProcessError) else []
    return said[-1] if said else str(error)


def _commit() -> str:
    """Which state of this folder is measured."""
    try:
        return _run("git", "-C", str(ROOT), "describe", "--always", "--dirty").strip()
    except (OSError, subprocess.CalledProcessError):
        return "without a commit"

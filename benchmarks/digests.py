"""Whether a change of the code changed a result: digests of every preset's final model, on three engines.

``python benchmarks/digests.py record FILE`` before the change, ``… check FILE`` after it. Digests hold on one machine
with one version of torch, so they are compared and not committed.
"""

from __future__ import annotations

import json
import sys
from hashlib import blake2b
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from fedpace.experiments import load_config, preset_names
from fedpace.experiments.engines import run_on
from fedpace.experiments.run import Result

ROUNDS = 8
SHORT = {"data.source": "digits", "local.max_steps": 3, "measuring.per_client": 10, "measuring.every": 2}
ENGINES = {"serial": "local", "processes": "local", "flower": "flower-inprocess"}


def digest(result: Result) -> str:
    """Of all tensors of the model, and of what was measured of the clients' models."""
    found = blake2b(digest_size=8)
    assert result.module is not None
    for name, tensor in result.module.state_dict().items():
        found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    found.update(json.dumps([record.metrics.get("loss") for record in result.records]).encode())
    return found.hexdigest()


def digests() -> dict[str, str]:
    """Preset and engine → digest."""
    found = {}
    for preset in track(preset_names(), "presets", console=Console(stderr=True)):
        for engine, where in ENGINES.items():
            executor = "processes" if engine == "processes" else "serial"
            config = load_config(preset, {**SHORT, "executor": executor}).shortened(ROUNDS)
            found[f"{preset} {engine}"] = digest(run_on(where, config))
    return found


def main(action: str, file: str) -> int:
    """Record, or check and print a table of what differs."""
    found, path = digests(), Path(file)
    if action == "record":
        path.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    known: dict[str, str] = json.loads(path.read_text())
    table = Table("run", "before", "now", title=f"{len(found)} runs")
    differs = [name for name in known.keys() | found.keys() if known.get(name) != found.get(name)]
    for name in sorted(differs):
        table.add_row(name, known.get(name, "–"), found.get(name, "–"))
    Console().print(table if differs else f"{len(found)} digests are the same")
    return 1 if differs else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("record", "check"):
        sys.exit("expected: digests.py record|check FILE")
    sys.exit(main(*sys.argv[1:]))

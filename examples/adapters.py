"""Adapters beside full training: a transformer that has read half of Shakespeare's roles learns the other half.

``python examples/adapters.py`` (FEDPACE_DATA holds ``shakespeare/input.txt``; needs ``pip install 'fedpace[llm]'``)
trains the model on every second role, then goes on with the other roles from its weights, with all weights and with
adapters (LoRA) alone, and prints perplexity and bytes. With ``--out FOLDER`` the table is written there as a page.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

import fedpace
from fedpace.analysis import Side, TextTable

SEEDS = (0, 1, 2)
MODEL = {"name": "tiny_transformer", "width": 48, "context": 40}
SETTINGS = {
    "executor": "serial",
    "cohort.number": 10,
    "local.lr": 0.003,
    "local.batch": 16,
    "local.weight_decay": 0.0,
    "local.max_steps": 1000,
    "measuring.every": 5,
    "measuring.per_client": 0,
}
RATES = "All weights are trained by Adam at a rate of 0.003, adapters at 0.01; neither was tuned for this table."
ROWS = {
    "all weights": {},
    "adapters, rank 4": {"adapter": {"rank": 4}},
    "adapters, rank 16": {"adapter": {"rank": 16, "alpha": 32}},
    "adapters, rank 4, and the head": {"adapter": {"rank": 4, "train_head": True}},
}


def halves() -> list[dict[str, np.ndarray]]:
    """The windows of every role that has 50 or more, by its name: every second role, and the others."""
    role = fedpace.load("shakespeare", length=40).train.column("role")
    windows = {name: np.flatnonzero(role.values == number) for number, name in enumerate(role.names)}
    kept = [(name, indices) for name, indices in windows.items() if len(indices) >= 50]
    return [dict(kept[first::2]) for first in (0, 1)]


def main(rounds: int, out: Path | None, runs: Path) -> None:
    """Train, and show what came out."""
    data = fedpace.load("shakespeare", length=40)
    before, after = halves()
    table: dict[str, list[tuple[float, float, int]]] = {row: [] for row in ROWS}
    for seed in SEEDS:
        read = runs / f"before-seed{seed}"
        options = {"rounds": 2 * rounds, "seed": seed, "settings": SETTINGS, "resume": True}
        fedpace.train(data.partition(before, test_share=0.2, seed=seed), "fedavg", model=MODEL, out=read, **options)
        others = data.partition(after, test_share=0.2, seed=seed)
        for row, more in ROWS.items():
            model = {**MODEL, "weights": str(read), **more}
            settings = {**SETTINGS, "local.lr": 0.003 if row == "all weights" else 0.01}
            found = fedpace.train(others, "fedavg", model=model, rounds=rounds, seed=seed, settings=settings)
            last = found.records[-1]
            table[row].append((last.metrics["perplexity"], found.final, last.bytes_up // len(last.cohort)))
    shown = shown_as(table, rounds)
    print(shown.plain())  # noqa: T201
    if out is not None:
        found = {"rounds": rounds, "settings": SETTINGS, "model": MODEL, "runs": table}
        (out / "text.adapters.json").write_text(json.dumps(found) + "\n")
        (out / "text.adapters.md").write_text(page(shown))


def shown_as(table: dict[str, list[tuple[float, float, int]]], rounds: int) -> TextTable:
    """Perplexity, accuracy and bytes of each row."""
    columns: dict[str, tuple[Side, list[str]]] = {
        "what is trained": ("left", list(table)),
        "perplexity": ("right", [_spread([perplexity for perplexity, _, _ in found]) for found in table.values()]),
        "accuracy (%)": ("right", [_spread([100 * share for _, share, _ in found]) for found in table.values()]),
        "bytes a client sends in a round": ("right", [f"{found[0][2]:,}" for found in table.values()]),
    }
    seeds = ", ".join(map(str, SEEDS))
    caption = f"± is the standard deviation over seeds {seeds}; {rounds} rounds of ten roles. {RATES}"
    return TextTable.of_columns("Roles that the model had not read", columns, caption)


def page(shown: TextTable) -> str:
    """What ``--out`` writes."""
    text = (__doc__ or "").partition("\n\n")[2]
    return f"# Adapters beside full training\n\n{text}\n{shown.markdown()}\n"


def _spread(values: list[float]) -> str:
    return f"{fmean(values):.2f} ± {stdev(values):.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/adapters"))
    given = parser.parse_args()
    main(given.rounds, given.out, given.runs)

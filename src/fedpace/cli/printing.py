"""What commands print: consoles, JSON, names of files."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from fedpace.core import printable

out_console, err_console = Console(), Console(stderr=True)


def print_json(content: Any) -> None:
    """Print for scripts: what JSON has no word for is null, or text."""

    def plain(value: Any) -> Any:
        return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)

    # Through JSON once more, because a dataclass may hold NaN, which is no JSON.
    standard = json.loads(json.dumps(content, default=plain), parse_constant=lambda _: None)
    typer.echo(json.dumps(standard, indent=2, allow_nan=False))


def print_files(**files: list[Path]) -> None:
    """Say where files are."""
    for what, paths in files.items():
        for path in paths:
            out_console.print(f"{what}:", printable(path), highlight=False, markup=False, soft_wrap=True)

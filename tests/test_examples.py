"""Pages that examples write."""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_on_adapters_says_what_its_numbers_say():
    example = runpy.run_path(str(ROOT / "examples" / "adapters.py"))
    results = ROOT / "docs" / "results"
    found = json.loads((results / "text.adapters.json").read_text())
    assert (
        example["page"](example["shown_as"](found["runs"], found["rounds"]))
        == (results / "text.adapters.md").read_text()
    )

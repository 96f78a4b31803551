import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def places(request, tmp_path, monkeypatch):
    """No test sees the machine's data or writes to the user's cache, except those on real data."""
    if "real_data" not in request.fixturenames:
        monkeypatch.delenv("FEDPACE_DATA", raising=False)
        monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)


@pytest.fixture
def real_data():
    return Path(os.environ.get("FEDPACE_DATA", ""))

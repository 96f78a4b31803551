import pytest


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Runs are written to the test's own folder; no test sees the machine's data or the user's cache."""
    monkeypatch.delenv("FEDPACE_DATA", raising=False)
    monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

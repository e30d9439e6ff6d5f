import pytest


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Download nothing but from the servers of tests."""
    monkeypatch.setenv("FEDBENCH_OFFLINE", "1")

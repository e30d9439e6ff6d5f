"""Fixtures of the tests of runs."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def file_calls(monkeypatch):
    """The names of synchronised files, and ``-> name`` for those that files are renamed to."""
    calls = []
    fsync = os.fsync
    replace = Path.replace

    def synchronised(handle):
        path = Path(f"/proc/self/fd/{handle}").readlink()
        calls.append(path.name.removesuffix(".part"))
        fsync(handle)

    def renamed(self, target):
        calls.append(f"-> {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synchronised)
    monkeypatch.setattr(Path, "replace", renamed)
    return calls

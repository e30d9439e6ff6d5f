"""Paths that a user types, and values in messages."""

from pathlib import Path

import pytest

from fedbench.core.errors import RequestError, shown
from fedbench.core.files import user_path


@pytest.mark.parametrize(
    ("value", "message"),
    [("a\0b", "without NUL"), ("~nobody-at-all/x", "names a home directory that cannot be found")],
)
def test_refused(value, message):
    with pytest.raises(RequestError, match=f"^results_dir .*{message}") as error:
        user_path("results_dir", value)
    assert len(str(error.value)) < 1000
    assert "\n" not in str(error.value)


def test_accepted(monkeypatch):
    monkeypatch.setenv("HOME", "/home/x")
    assert user_path("k", "~/a") == Path("/home/x/a")


def test_shown_is_short_whatever_the_value():
    deep = []
    for _ in range(5000):
        deep = [deep]
    for value in ("x" * 10**6, [1] * 10**6, deep, {str(k): k for k in range(10**4)}, 10**5000):
        assert len(shown(value)) < 1000
    assert shown("ab") == "'ab'"
    assert shown([1, "b"]) == "[1, 'b']"

"""docs/guarantees.md: every promise has a test, and the test exists."""

import ast
import re

from tools import ROOT

TEXT = (ROOT / "docs" / "guarantees.md").read_text()
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| (?!promise|---)", line)]


def test_every_promise_names_a_test_that_exists():
    assert len(ROWS) > 20
    for row in ROWS:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert named, row
        for path, function in named:
            tree = ast.parse((ROOT / path).read_text())
            assert function in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, row

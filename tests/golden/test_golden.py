"""Every method still gives the numbers that are stored; `make golden` stores new ones."""

import json

import pytest
from golden import HERE, NAMES, outcome


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_golden(name):
    path = HERE / f"{name}.json"
    assert path.exists(), f"there is no golden run of {name}; store one with make golden"
    stored = json.loads(path.read_text())
    found = outcome(name)
    assert found.keys() == stored.keys()
    for key, values in stored.items():
        assert found[key] == pytest.approx(values, rel=1e-9, abs=1e-12), key


@pytest.mark.golden
def test_one_file_per_method():
    assert sorted(p.stem for p in HERE.glob("*.json")) == NAMES

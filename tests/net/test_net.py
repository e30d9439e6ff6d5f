"""The net: what the code as it was said, compared with what it says now. tests/net/make.py writes
the references.
"""

import json
import re

import pytest

from net import make, present

NAMES = json.loads((present.HERE / "names.json").read_text())


@pytest.fixture(scope="module", autouse=True)
def readings():
    """All of them."""


@pytest.fixture(scope="module")
def digests():
    return present.Digests()


# one in how many is compared
EVERY = pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 31])


@EVERY
def test_experiments_have_the_digests_that_they_had_with_any_algorithm(digests, every):
    rows = present.read("digests.csv")
    assert {row["experiment"] for row in rows} <= set(present.experiments())
    pairs = [
        (row["experiment"], algo, row[algo]) for row in rows for algo in row if algo != "experiment"
    ]
    other = [
        (e, a)
        for e, a, digest in pairs[::every]
        if digests.of(f"experiment={e} algo={a}") != digest
    ]
    assert other == []


@EVERY
def test_planned_settings_have_the_digests_that_they_had(digests, every):
    rows = present.read("settings.csv")[::every]
    assert [
        r["setting"] for r in rows if digests.of(r["setting"], r["config_dir"]) != r["digest"]
    ] == []


def test_every_table_and_figure_needs_the_runs_that_it_needed():
    plans = make.plans()
    rows = present.read("plan.csv")
    assert [
        row
        for row in rows
        if make.hash_of(plans[row["profile"], row["part"], row["reading"]]) != row["hash"]
    ] == []


@pytest.mark.parametrize(
    "paper",
    [pytest.param(p, marks=[] if p == "fafed" else pytest.mark.slow) for p in present.PAPERS],
)
@pytest.mark.usefixtures("no_figures")
def test_published_runs_give_the_verdicts_and_numbers_that_they_gave(paper, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.reports.write.write_bundle", lambda *_: None)
    tables = present.report(paper, tmp_path / paper)
    other = []
    for kind, (rows_of, key) in present.KINDS.items():
        expected = {
            tuple(row[k] for k in key): row
            for row in present.read(f"{kind}.csv")
            if row["paper"] == paper
        }
        found = {tuple(row[k] for k in key): row for row in rows_of(tables, paper)}
        other += [f"{kind}: only {where}: {k}" for where, k in only_one(expected, found)]
        other += differences(kind, expected, found)
    assert other == []


def only_one(expected, found):
    return [("then", k) for k in expected.keys() - found.keys()] + [
        ("now", k) for k in found.keys() - expected.keys()
    ]


def differences(kind, expected, found):
    """Values that differ, as far as the one with fewer digits has them."""
    return [
        f"{kind}: {key}: {name}: {row[name]} is {found[key][name]}"
        for key, row in expected.items()
        for name in row.keys() - {"paper"}
        if key in found and not agree(row[name], found[key][name])
    ]


NUMBER = re.compile(r"[+-]?(\d+)(?:\.(\d*))?(?:e([+-]?\d+))?")


def agree(a, b):
    if a == b:
        return True
    numbers = [NUMBER.fullmatch(text) for text in (a, b)]
    if not all(numbers):
        return False
    last_places = [10.0 ** (int(n[3] or 0) - len(n[2] or "")) for n in numbers]
    return abs(float(a) - float(b)) <= max(0.5001 * max(last_places), 1e-9 * abs(float(a)))


def test_numbers_agree_to_the_digits_that_both_have():
    assert agree("0.0009765625", "0.0010")
    assert agree("9.5784123", "9.578")
    assert agree("1.2e-05", "1.2345e-05")
    assert agree("10", "10.0")
    assert not agree("0.0009765625", "0.0009")
    assert not agree("9.5784123", "9.5794123")
    assert not agree("holds", "fails")


def test_public_names_take_the_arguments_that_they_took():
    found = present.signatures()
    for name, arguments in NAMES["signatures"].items():
        assert [a for a in arguments if a not in found[name]] == [], name


def test_every_target_of_configurations_and_published_runs_resolves():
    assert [target for target in NAMES["targets"] if not present.resolves(target)] == []

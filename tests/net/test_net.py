"""The net: digests, plans and tables of the code as it was, compared with those of the code now.

tests/net/make.py writes the references; the tables are those of results/published.
"""

import json

import pytest
from table_readers import read_csv

from fedbench.cli import main
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
def test_published_runs_give_the_tables_that_were_published(paper, tmp_path, monkeypatch):
    """Verdicts, comparisons, readings and cells, but for rounding."""
    monkeypatch.setattr("fedbench.reports.write.write_bundle", lambda *_: None)
    published = present.PUBLISHED / paper
    assert main(["report", str(published), "--into", str(tmp_path)]) == 0
    names = {file.name for file in published.glob("tables/*.csv")}
    assert {file.name for file in tmp_path.glob("tables/*.csv")} == names
    for name in names:
        one, other = (read_csv((x / "tables" / name).read_text()) for x in (published, tmp_path))
        assert len(one) == len(other), name
        for then, now in zip(one, other, strict=True):
            changed = {key for key in then.keys() | now.keys() if not agree(then[key], now[key])}
            assert not changed, (name, then, now)


def agree(then, now):
    """Whether two cells are the same text, or numbers that differ by rounding."""
    try:
        return then == now or float(now) == pytest.approx(float(then), rel=1e-9)
    except ValueError:
        return False


def test_public_names_take_the_arguments_that_they_took():
    found = present.signatures()
    for name, arguments in NAMES["signatures"].items():
        assert [a for a in arguments if a not in found[name]] == [], name


def test_every_target_of_configurations_and_published_runs_resolves():
    assert [target for target in NAMES["targets"] if not present.resolves(target)] == []

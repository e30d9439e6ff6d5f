"""``fedbench reproduce known``: the grid first, then the runs that count, and a page that comes again byte for byte."""

import csv
import json
from dataclasses import replace

import pytest

from fedbench.papers.known import registry
from fedbench.papers.known.registry import Grid, Measure, Number, Published, Reference

TARGET = Measure("rounds_to", "accuracy_mean_weighted", target=0.2)


@pytest.fixture
def tiny(monkeypatch):
    """Two numbers of two rounds on synthetic data."""
    short = {"rounds": 2, "local.steps": 2, "eval_every": 1}
    first = Number(
        "rounds", "rounds to 20 %", "smoke", "fedavg", TARGET, (1.0, 2.0), 2, (Published("them", 2.0),), short,
        grid=Grid("local.lr", (1e-6, 0.1)),
    )  # fmt: skip
    best = Measure("best", "accuracy_mean_weighted")
    second = replace(first, id="lead", label="a lead", measure=best, band=(200.0, None), against="fedprox", grid=None)
    found = {"tiny": Reference("tiny", "A tiny benchmark", "a <source>", "its setup", "the weather", (first, second))}
    monkeypatch.setattr(registry, "references", lambda: found)
    return found


def test_the_grid_the_runs_and_the_page(fed, tmp_path, tiny):
    status, _, err = fed("reproduce", "known", "--profile", "full", "--jobs", "1")
    assert status == 0, err
    page = tmp_path / "results/report/known"
    rows = list(csv.DictReader((page / "known.csv").read_text().splitlines()))
    assert [r["number"] for r in rows] == ["rounds", "lead"]
    rates = {
        json.loads(p.read_text())["seed"]: p.parent.parent.name for p in tmp_path.glob("results/smoke/*/*/*/meta.json")
    }
    assert {0, 1, 1000} <= set(rates)
    assert len(list(tmp_path.glob("results/smoke/fedavg/*/seed_1000/DONE"))) == 2  # a run for every value
    assert rows[0]["settings"] == "tuned local.lr=0.1"  # with 1e-6 nothing is learnt
    assert rows[0]["seeds"] == rows[1]["seeds"] == "2"
    assert rows[1]["verdict"] == "differs"  # no lead is 200 points
    values = dict(pair.split(":") for pair in rows[1]["values"].split())
    assert float(rows[1]["mean"]) == pytest.approx(sum(map(float, values.values())) / 2)
    html = (page / "index.html").read_text()
    assert "a &lt;source&gt;" in html
    assert "the weather" in html
    before = {f.name: f.read_bytes() for f in page.iterdir()}
    assert set(before) == {"index.html", "known.csv", "known.md", "known.tex"}
    assert fed("reproduce", "known/tiny", "--profile", "full", "--jobs", "1")[0] == 0
    assert {f.name: f.read_bytes() for f in page.iterdir()} == before


def test_a_plan_trains_nothing(fed, tmp_path, tiny):
    status, lines, _ = fed("reproduce", "known", "--plan", "--profile", "full")
    assert status == 0
    assert [line.split()[:4] for line in lines[1:]] == [
        ["known/tiny", "rounds", "4", "0"],
        ["known/tiny", "lead", "4", "0"],
    ]
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["known", "fedfa"], "known numbers and papers are reproduced by a command each"),
        (["known/nothing"], "unknown reference 'known/nothing'"),
    ],
)
def test_what_is_refused(fed, tiny, args, message):
    status, _, err = fed("reproduce", *args)
    assert (status, message in err) == (2, True)

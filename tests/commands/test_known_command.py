"""``fedbench reproduce known``: the grid first, then the runs that count, and a page that comes again byte for byte."""

import csv
import json
import re
import shutil
from dataclasses import replace

import pandas as pd
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


@pytest.fixture
def published(fed, tmp_path, tiny):
    """The report of all runs but one of seed 1, and its directory."""
    assert fed("reproduce", "known", "--profile", "full", "--jobs", "1")[0] == 0
    (run,) = tmp_path.glob("results/smoke/fedprox/*/seed_1")
    shutil.rmtree(run)
    status, lines, err = fed("report", "results", "--paper", "known", "--into", "published")
    assert (status, lines[-1]) == (0, "written: published"), err
    shutil.rmtree(tmp_path / "results")
    return tmp_path / "published"


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_published_report_is_written_again_without_its_runs(fed, published):
    names = {name.split("/")[0] for name in contents(published)}
    assert names == {"index.html", "known.csv", "known.md", "known.tex", "runs.parquet", "evidence"}
    assert fed("report", "published", "--into", "again")[0] == 0
    assert contents(published.parent / "again") == contents(published)
    assert fed("report", "published")[0] == 0
    below = contents(published / "report")
    assert below == {n: c for n, c in contents(published).items() if not n.startswith(("evidence/", "report/"))}


def test_what_the_published_page_says(published):
    rows = list(csv.DictReader((published / "known.csv").read_text().splitlines()))
    assert [(r["verdict"], r["seeds"], r["wanted"]) for r in rows[1:]] == [("incomplete", "1", "2")]
    tried = dict(pair.rsplit(":", 1) for pair in rows[0]["grid"].split())
    assert tried["local.lr=1e-06"] == "not_reached"
    assert 1 <= float(tried["local.lr=0.1"]) <= 2
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", (published / "index.html").read_text()))
    assert "1 of 2 seeds is done; a number has a verdict once all are." in page
    assert "The chosen value is at the edge of the grid" in page
    assert "0.1: " in page and ", chosen" in page
    assert "One run with seed 1000 for each value, in rounds" in page
    runs = pd.read_parquet(published / "evidence" / "runs.parquet")
    assert len(runs) == 2 + 2 + 2 + 1  # the grid, two seeds at its rate, two of FedAvg for the lead, and one of FedProx


def test_a_bundle_whose_runs_fit_no_number_any_more_is_refused(fed, published, tiny):
    tiny["tiny"] = replace(tiny["tiny"], numbers=tiny["tiny"].numbers[:1])
    status, _, err = fed("report", "published", "--into", "again")
    assert status == 2
    assert "3 of 7 runs fit no known number on record" in err
    assert not (published.parent / "again").exists()


def test_a_directory_without_runs_of_known_numbers_is_refused(fed, tmp_path):
    (tmp_path / "results").mkdir()
    status, _, err = fed("report", "results", "--paper", "known")
    assert (status, "has no runs of known numbers" in err) == (2, True)


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

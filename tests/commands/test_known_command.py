"""``fedbench reproduce known``: the grid first, then the runs that count, and a page that comes again byte for byte."""

import csv
import json
import re
import shutil
from dataclasses import replace

import pandas as pd
import pytest
from fake_runs import fake

from fedbench.papers.known import registry
from fedbench.papers.known.plan import wanted
from fedbench.papers.known.registry import Grid, Measure, Number, Published, Reference, chosen_references
from fedbench.papers.plan import locate

TARGET = Measure("rounds_to", "accuracy_mean_weighted", target=0.2)


@pytest.fixture
def tiny(monkeypatch):
    """Two numbers of two rounds on synthetic data."""
    short = {"rounds": 2, "local.steps": 2, "eval_every": 1}
    first = Number(
        "rounds", "rounds to 20 %", "smoke", "fedavg", TARGET, 2, (1.0, 2.0), (Published("them", 2.0),), short,
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


@pytest.fixture
def shelf(tmp_path, fed):
    """Made-up runs of NIID-Bench's numbers where fedbench looks for them, published, and gone; and their page."""
    for number in wanted(chosen_references(["known/niid_bench"]), "full"):
        for run in locate([r for algo in number.number.algos for r in number.runs(algo, None)], ["results_dir=runs"]):
            (path,) = fake(tmp_path / "made", run.experiment, run.algo, run.keys, seeds=(run.seed,))
            run.path.parent.mkdir(parents=True, exist_ok=True)
            path.rename(run.path)
    assert fed("report", "runs", "--paper", "known", "--into", "results/published/known")[0] == 0
    assert fed("reproduce", "known/niid_bench", "--profile", "full", "results_dir=runs")[0] == 0
    return tmp_path / "results"


def test_published_runs_are_not_made_again(fed, shelf, tmp_path):
    """In a results directory with the published report alone, without data."""
    status, lines, err = fed("reproduce", "known/niid_bench", "--plan", "--profile", "full")
    assert (status, err) == (0, "")
    assert [line.split()[2:] for line in lines[1:]] == [["3", "3", "–"]] * 6
    assert fed("reproduce", "known/niid_bench", "--profile", "full", "data_dir=none", "data.download=false")[0] == 0
    assert contents(shelf / "report" / "known") == contents(tmp_path / "runs" / "report" / "known")
    assert {p.name for p in shelf.iterdir()} == {"published", "report"}


def test_runs_on_disk_and_published_ones_are_reported_together(fed, shelf, tmp_path):
    """Of three seeds one is on disk, with other accuracies than the published one, and counts."""
    for file in sorted((tmp_path / "runs" / "known").rglob("rounds.jsonl")):
        if file.parent.name == "seed_1":
            here = shelf / file.parent.relative_to(tmp_path / "runs")
            shutil.copytree(file.parent, here)
            rows = [json.loads(line) | {"accuracy_mean_weighted": 0.5} for line in file.read_text().splitlines()]
            (here / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert fed("report", "results", "--paper", "known", "--into", "out")[0] == 0
    found = {r["number"]: r["values"] for r in csv.DictReader((tmp_path / "out/known.csv").read_text().splitlines())}
    before = csv.DictReader((tmp_path / "runs/report/known/known.csv").read_text().splitlines())
    for number, values in ((r["number"], r["values"].split()) for r in before):
        assert found[number].split() == [values[0], "1:50.0", values[2]], number
    assert len(pd.read_parquet(tmp_path / "out" / "evidence" / "runs.parquet")) == 18


def test_a_damaged_bundle_is_named_and_its_runs_are_to_do(fed, shelf):
    (shelf / "published/known/evidence/rounds.parquet").write_bytes(b"PAR1")
    why = "fedbench: left out: published/known/evidence: rounds.parquet is not the file"
    status, lines, err = fed("reproduce", "known/niid_bench", "--plan", "--profile", "full")
    assert (status, [line.split()[3] for line in lines[1:]]) == (0, ["0"] * 6)
    assert err.startswith(why)
    assert err.count("\n") == 1
    status, _, err = fed("report", "results", "--paper", "known")
    assert status == 2
    assert why.removeprefix("fedbench: ") in err


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

"""Published reports: the bundle of a report alone gives the same bytes, file by file."""

import json
import shutil

import pandas as pd
import pytest
import yaml
from fake_runs import change_facts, fake, fake_row, fake_run
from report_runs import ADAM, call_report, differing, files, fill, leave_runs

from fedbench.papers.registry import papers
from fedbench.reports.write import write_report
from fedbench.runs.results import Results

CKA = [
    [1.0, 0.25, None],
    [0.25, 1.0, 0.5],
    [None, 0.5, 1.0],
]


def fill_figures(root):
    """Runs of everything that a report shows, also of clients at all rounds and of moments."""
    fill(root)
    for name, figure, moments in (
        ("adafed", "figure3", None),
        ("fedcada", "figure2", CKA),
    ):
        paper = papers()[name]
        rows = {
            (
                r.setup,
                r.algo,
                str(r.hyperparameters),
            ): r
            for r in paper.figures[figure].rows
        }
        for row in list(rows.values())[:4]:
            fake_row(root, paper, row, seeds=(0, 1), moments=moments)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A report of everything, after its runs have gone."""
    root = tmp_path_factory.mktemp("runs")
    into = tmp_path_factory.mktemp("published") / "all"
    fill_figures(root)
    write_report(root, into)
    shutil.rmtree(root)
    return into


@pytest.mark.slow
def test_a_published_report_is_written_again_from_its_bundle_alone(published, tmp_path):
    write_report(published, tmp_path / "again")
    one = files(published)
    other = files(tmp_path / "again")
    assert differing(one, other) == set()
    kinds = {name.partition("/")[0] for name in one}
    assert kinds == {"index.html", "runs.parquet", "summary.json", "tables", "figures", "evidence"}
    assert "figures/adafed_figure3.svg" in one
    assert b"rounds.jsonl" in one["index.html"]  # the damaged run is still named


@pytest.mark.usefixtures("no_figures")
def test_a_report_of_one_paper_and_its_numbers(tmp_path):
    runs, one, two = (tmp_path / name for name in ("runs", "one", "two"))
    preset = {"algo.alpha": 1.0, "results_dir": str(tmp_path)}
    for row in ADAM.tables["table4"].rows:
        fake_row(runs, ADAM, row, preset=preset)
    fake(runs, "smoke", "fedavg")
    write_report(runs, one, "adafedadam")
    write_report(one, two)
    whole = files(one)
    assert whole == files(two)
    experiments = [run.meta["experiment"] for run in Results(two)]
    assert all(experiment.startswith("adafedadam/") for experiment in experiments)
    assert "config.results_dir" not in pd.read_parquet(one / "runs.parquet")

    # the report below it has no bundle of its own
    status, said, _ = call_report(two)
    assert status == 0
    assert said.endswith(f"written: {two / 'report' / 'index.html'}\n")
    bundle = {name for name in whole if name.startswith("evidence/")}
    assert files(two / "report") == {name: whole[name] for name in whole.keys() - bundle}


@pytest.mark.usefixtures("no_figures")
def test_a_published_report_names_no_directory_of_the_machine(tmp_path):
    """A damaged run is named by its path below the runs, in reports that it would be part of."""
    runs = tmp_path / "runs"
    fake_row(runs, ADAM, ADAM.tables["table4"].rows[0])
    for experiment in ("adafedadam/table5_synthetic", "fedcada/table1_device_cifar10_iid", None):
        (place,) = fake(runs, experiment, "fedavg", seeds=(7,))
        (place / "rounds.jsonl").write_text("torn")
    into = tmp_path / "report"
    write_report(runs, into, "adafedadam")
    assert str(tmp_path).encode() not in b"".join(files(into).values())
    (damaged,) = json.loads((into / "evidence" / "bundle.json").read_text())["damaged"]
    assert damaged.startswith("adafedadam/table5_synthetic/fedavg/")
    page = (into / "index.html").read_text()
    assert page.count("/seed_7: ") == 1


OWN = "/home/some one/data"
# keys that name files: the value of a run and the published one
NAMED = yaml.safe_load(
    """
    data.file: [/home/some one/data/x y.npz, x y.npz]
    data.root: [/srv/photos/, photos/]
    init.path: [/srv/w.safetensors, w.safetensors]
    data.codes: ["/srv/Jörg's = run/x, y/codes", codes]
    data.here: [., .]
    data.partition.file: [/srv/parts.json, parts.json]
    note: [/srv/n, n]
    """
)
KEYS = {key: value for key, (value, _) in NAMED.items()}
KEYS["data.train"] = ["/srv/a.json", "/srv/b.json"]
FACTS = {
    "files": {key: 64 * "a" for key in KEYS if key != "note"},
    "sources": ["NumPy archive: /srv/x.npz"],
    "overrides": [f"data.file='{OWN}/x y.npz'", "init.path=/srv/w.safetensors", "q=0.1"],
}


@pytest.mark.slow
def test_a_published_report_names_files_of_the_user_without_their_directories(tmp_path):
    """In all facts of a run; texts without an absolute path stay as they are."""
    runs, one, two = (tmp_path / name for name in ("runs", "one", "two"))
    lines = f"OSError: no '{OWN}/x y.npz'\n/srv/code/r=1/ö/mine.py line 3 of 3 /4"
    error = f"{lines}; see https://one.org/a/b, n/a"
    fake_run(runs, None, "fedavg", keys=KEYS)
    fake_run(
        runs,
        None,
        "qfedavg",
        keys=KEYS,
        status="failed",
        error=error,
    )
    change_facts(runs, **FACTS)
    write_report(runs, one)
    for name, content in files(one).items():
        parts = (b"/srv", b"/home", b"some one", b"J\xc3", b"u00f6")
        assert not [part for part in parts if part in content], name

    row = pd.read_parquet(one / "runs.parquet").iloc[0]
    assert json.loads(row["config.data.train"]) == ["a.json", "b.json"]
    for key, (_, published) in NAMED.items():
        assert row[f"config.{key}"] == published
    done, failed = sorted(Results(one), key=lambda run: run.meta["algo"])
    assert done.meta["overrides"] == ["data.file='x y.npz'", "init.path=w.safetensors", "q=0.1"]
    assert done.meta["sources"] == ["NumPy archive: x.npz"]
    assert set(done.meta["files"].values()) == {64 * "a"}
    assert done.meta["departures"]["data.train"] == [None, ["a.json", "b.json"]]
    message = "OSError: no 'x y.npz'\nmine.py line 3 of 3 /4; see https://one.org/a/b, n/a"
    assert failed.meta["error"] == message
    write_report(one, two)
    assert files(one) == files(two)


@pytest.mark.usefixtures("no_figures")
def test_a_report_leaves_no_files_of_an_earlier_one(tmp_path):
    """Runs that are gone take their tables with them; other files beside the tables stay."""
    runs = tmp_path / "runs"
    into = tmp_path / "out"
    fake_run(runs, None, "fedavg")
    write_report(runs, into)
    alone = files(into)
    fake(runs, "smoke", "fedavg")
    write_report(runs, into)
    assert {"tables/smoke.tex", "tables/smoke.csv"} <= files(into).keys() - alone.keys()
    (into / "mine.yaml").write_text("mine")
    shutil.rmtree(runs / "smoke")
    write_report(runs, into)
    assert files(into) == {**alone, "mine.yaml": b"mine"}


@pytest.mark.parametrize("words", ["--into runs/../runs", "--into .", "--into runs --latex"])
def test_a_report_is_not_published_into_a_directory_with_its_runs(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    leave_runs(tmp_path / "runs", "fedavg")
    status, _, said = call_report("runs", *words.split())
    assert status == 2
    assert "contains the runs; it must be another directory" in said


def test_a_page_that_is_no_report_is_not_replaced(tmp_path):
    leave_runs(tmp_path / "runs", "fedavg")
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("mine")
    status, _, said = call_report(
        tmp_path / "runs",
        "--into",
        site,
    )
    assert status == 2
    assert "index.html is not the page of a report; name another directory with --into" in said
    assert files(site) == {"index.html": b"mine"}

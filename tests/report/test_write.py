"""The report of a results directory, from made-up runs: marks, bytes, links and refusals."""

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
import yaml
from fake_runs import ROUNDS, fake_run, measured, measured_curve
from report_runs import (
    ADAM,
    OWN_ROWS,
    PAPERS_ROWS,
    PLAIN,
    TITLES,
    call_report,
    differing,
    files,
    leave_runs,
    links_of,
    rows_of,
    tables_in,
    text_of,
)

from fedbench.analysis.run_rows import run_rows
from fedbench.reports.write import write_report

REDUCED = {**PAPERS_ROWS, **OWN_ROWS}


@pytest.fixture
def small(tmp_path):
    """Runs of two methods that belong to no paper."""
    leave_runs(tmp_path / "small", "fedavg", "qfedavg")
    return tmp_path / "small"


@pytest.fixture(scope="module")
def page(mixed):
    return (mixed.report / "index.html").read_text()


# ---- the same again


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes_anywhere(mixed, tmp_path, monkeypatch):
    """Copied to another place, file by file in the reverse order, and named by a relative path."""
    for path in sorted(mixed.root.rglob("*"), reverse=True):
        if path.is_file() and not path.is_relative_to(mixed.report):
            copy = tmp_path / "elsewhere" / path.relative_to(mixed.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    monkeypatch.chdir(tmp_path)
    said, _ = write_report(Path("elsewhere"))

    one = files(mixed.report)
    other = files(tmp_path / "elsewhere" / "report")
    assert differing(one, other) == set()
    assert said.replace("elsewhere", "ROOT") == mixed.said.replace(
        str(mixed.root),
        "ROOT",
    )


FIGURES = "figure2 figure2_distribution figure3 figure3_curves"


def test_the_files_of_a_report(mixed):
    tables = {
        *(f"adafedadam_{table}" for table in ADAM.tables),
        "fafed_table_s1",
        # runs that match a row of a paper's table are only in that table
        "fafed_figure2_mnist_low",
        "smoke",
        "synthetic_leaf",
    }
    claims = {
        f"{paper}_{kind}.csv"
        for paper in ("adafedadam", "fafed")
        for kind in ("claims", "comparisons", "readings")
    }
    figures = {
        *(f"adafedadam_{figure}" for figure in FIGURES.split()),
        "fafed_figure2",
        *(
            f"{runs}_{kind}"
            for runs in ("smoke", "synthetic_leaf")
            for kind in ("clients", "curves")
        ),
    }
    assert set(files(mixed.report)) == {
        "index.html",
        "runs.parquet",
        "summary.json",
        *(f"tables/{file}" for file in claims),
        *(f"tables/{table}.{end}" for table in tables for end in ("md", "csv", "tex")),
        *(f"figures/{figure}.{end}" for figure in figures for end in ("png", "svg")),
    }


def test_a_row_per_run_that_can_be_read(mixed):
    rows = pd.read_parquet(mixed.report / "runs.parquet").set_index("path")
    failed = [path for path in rows.index if path.startswith(f"{PLAIN}/fed")]
    assert len(failed) == 2
    assert rows.loc[failed, "accuracy_mean":].isna().all(axis=None)
    whole = {path.parent for path in mixed.root.rglob("DONE")}
    torn = {path.parent for path in mixed.root.rglob("rounds.jsonl") if path.read_text() == "torn"}
    assert {mixed.root / path for path in rows.index.difference(failed)} == whole - torn
    (own,) = rows[rows.index.str.contains("synthetic_leaf/qfedavg/.*/seed_1")].iloc
    assert own["accuracy_mean"] == measured(None, "qfedavg", {}, 1, "accuracy_mean")
    assert own["round"] == ROUNDS[-1]


def test_the_text_has_papers_in_a_line_each_and_other_runs_as_tables(mixed):
    lines = mixed.said.splitlines()
    assert lines[-1] == f"written: {mixed.report / 'index.html'}"
    assert "adafedadam/table7_synthetic_momentum" not in mixed.said
    assert [line for line in lines if line.startswith("| qfedavg")]
    assert [line for line in lines if f"; {len(ADAM.claims)} claims: " in line]
    assert "left out: " not in mixed.said
    assert "left out: synthetic_leaf/fedavg/" in mixed.warned


# ---- reduced, wherever it appears


@pytest.mark.parametrize("ending", ["csv", "md", "tex"])
def test_every_row_with_a_reduced_number_is_marked_and_no_other(mixed, ending):
    marked = set()
    whole = set()
    for path in tables_in(mixed.tables, ending):
        for row in rows_of(path):
            status = row.get("status", "full")
            if not int(row["seeds"]):
                assert status in ("not run", "failed")
                continue
            reduced = row["reduced"] if ending == "csv" else status == "reduced"
            rows = marked if reduced else whole
            rows.add((path.stem, row["method"]))
    assert marked == {(table, row) for table, _, row in REDUCED}
    assert whole == {
        ("adafedadam_table4", "AdaFedAdam"),
        ("adafedadam_table5", "AdaFedAdam"),
        ("adafedadam_table7", "AdaFedAdam"),
        ("synthetic_leaf", "qfedavg"),
    }


@pytest.mark.parametrize(
    ("ending", "sign"),
    [("md", "- "), ("tex", r"\par{\footnotesize ")],
)
def test_reductions_are_listed_below_a_table(mixed, ending, sign):
    for (table, _, row), cuts in REDUCED.items():
        lines = (mixed.tables / f"{table}.{ending}").read_text().splitlines()
        (note,) = [line for line in lines if line.startswith(f"{sign}reduced, {row}: ")]
        assert all(cut in note for cut in cuts)


def test_reductions_stand_in_the_row_of_a_csv_file(mixed):
    reductions = {
        (
            path.stem,
            row["setup"],
            row["method"],
        ): set(row["reduced"].split("; "))
        for path in tables_in(mixed.tables, "csv")
        for row in rows_of(path)
        if row["reduced"] and "setup" in row
    }
    assert reductions == PAPERS_ROWS


def test_the_page_marks_the_same_rows(page):
    rows = re.findall(r'<tr class="row"([^>]*)>(.*?)(?=<tr class="row"|</tbody>)', page, re.S)
    marked = [text_of(row) for attributes, row in rows if "data-reduced" in attributes]
    others = [text_of(row) for attributes, row in rows if "data-reduced" not in attributes]
    assert len(marked) == len(REDUCED)
    for (_, _, method), cuts in REDUCED.items():
        assert [row for row in marked if method in row and all(cut in row for cut in cuts)]
    assert others
    assert not [row for row in others if "reduced" in row]


def test_figures_of_reduced_runs_are_marked(page):
    figures = re.findall(r"<figure.*?</figure>", page, re.S)
    captions = [text_of(figure) for figure in figures if "reduced" in text_of(figure)]
    assert len(captions) == 4  # FAFED's figure, both of smoke, and the points
    (cut,) = [caption for caption in captions if "rounds 20 (paper 1000)" in caption]
    assert "FedAvg on MNIST" in cut


# ---- numbers


def test_a_row_per_run_has_every_key_of_its_configuration(tmp_path):
    """Lists are JSON text, and values of several types are text."""
    first = {"local.epochs": [1, 5], "local.batch_size": "full", "algo.on": True}
    second = {"local.batch_size": 10, "algo.q": 1, "algo.L": None}
    fake_run(tmp_path, None, "fedavg", first)
    runs = leave_runs(tmp_path, "qfedavg", keys=second, seeds=(0,))
    run_rows(runs, tmp_path).to_parquet(tmp_path / "runs.parquet")

    rows = pd.read_parquet(tmp_path / "runs.parquet").set_index("algo")
    one = rows.loc["fedavg"]
    assert one["config.local.epochs"] == "[1, 5]"
    assert one["config.local.batch_size"] == "full"
    assert one[["config.algo.on", "config.rounds"]].tolist() == [True, 1000]
    two = rows.loc["qfedavg"]
    assert two["config.local.batch_size"] == "10"
    assert two["config.algo.q"] == 1.0


def test_the_best_round_is_in_the_row_of_a_run_where_a_table_prints_it(tmp_path):
    best = "fedcada/table1_device_cifar10_iid"
    runs = leave_runs(tmp_path, "fedavg", experiment=best, seeds=(0,))
    (row,) = run_rows(runs, tmp_path).iloc
    curve = measured_curve(best, "fedavg", {}, 0, "accuracy_mean")
    assert row["best_accuracy_mean"] == max(curve)
    assert row["best_round"] == ROUNDS[curve.index(max(curve))]


def test_a_failed_run_is_named_in_its_row(mixed, page):
    rows = rows_of(mixed.tables / "adafedadam_table5.csv")
    status = {row["method"]: row["status"] for row in rows if row["setup"] == TITLES[PLAIN]}
    assert status["FedNova"] == "failed"
    assert status["FedAdam"] == "failed"
    assert status["FedAvg"] == "not run"
    text = (mixed.tables / "adafedadam_table5.md").read_text()
    assert "- FedNova: seed 0 failed; RuntimeError: 100 % of &lt;it> & #1\n" in text
    assert "100 % of &lt;it&gt; &amp; #1" in page


def test_links_lead_to_runs_that_are_there(mixed, page):
    links = [unquote(link) for link in links_of(page) if not link.startswith("#")]
    assert all((mixed.report / link / "rounds.jsonl").exists() for link in links)
    of_paper = {link for link in links if link.startswith("../adafedadam/")}
    assert len(of_paper) == 3 * 3 + 2 + 1  # Table 4, which others repeat, and two that are cut


def test_a_paper_without_runs_is_a_report(tmp_path):
    said, _ = write_report(tmp_path, parts=("fafed",))
    assert "FAFED" in said
    assert len(pd.read_parquet(tmp_path / "report" / "runs.parquet")) == 0
    rows = rows_of(tmp_path / "report" / "tables" / "fafed_table_s1.csv")
    assert {row["status"] for row in rows} == {"not run"}


# ---- the command


@pytest.mark.slow
def test_into_another_place_without_links(small, tmp_path):
    place = tmp_path / "a" / "b"
    status, out, _ = call_report(
        small,
        "--into",
        place,
    )
    assert status == 0
    assert out.endswith(f"written: {place / 'index.html'}\n")
    assert not (small / "report").exists()
    published = files(place)
    assert str(small).encode() not in b"".join(published.values())
    links = links_of(published["index.html"].decode())
    assert all(link.startswith("#") for link in links)

    call_report(small)
    default = files(small / "report")
    shared = {name for name in published if not name.startswith("evidence/")}
    assert {name for name in shared if default[name] != published[name]} == {"index.html"}


@pytest.mark.usefixtures("no_figures")
def test_the_working_directory_can_be_the_place_and_keeps_other_files(small, tmp_path, monkeypatch):
    place = tmp_path / "here"
    own = [place / name for name in ("tables/mine.csv", "figures/mine.pdf", "mine.txt")]
    for file in own:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    monkeypatch.chdir(place)
    for _ in range(2):
        write_report(small, Path())
        assert Path("index.html").exists()
    assert {file.read_text() for file in own} == {"mine"}


WRONG = """
nowhere: nowhere is not a directory
empty: empty contains no runs; it must be a results_dir of earlier runs
small --into small/file: "small/file cannot be written: "
small --paper fedadam: --paper must be one of adafed, adafedadam, fafed
small --latex --paper adafed: --latex and --paper cannot be combined
small --compare algo --metric accuracy: accuracy
"""


@pytest.mark.parametrize(("words", "message"), yaml.safe_load(WRONG).items())
def test_a_wrong_request_is_one_line(small, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (small / "file").touch()
    before = files(tmp_path)
    status, out, err = call_report(*words.split())
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert files(tmp_path) == before

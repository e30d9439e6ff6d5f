"""The report of a results directory, from runs made up here: marks, bytes, links, and what cannot be reported."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean, stdev
from urllib.parse import unquote

import pandas as pd
import pytest
from fake_runs import ROUNDS, fake, fake_row, measured
from report_runs import (
    ADAM,
    CUTS,
    FIGURE_ONLY,
    HETERO,
    MOMENTUM,
    OWN_ROWS,
    PAPERS_ROWS,
    PLAIN,
    TITLES,
    call,
    files,
    rows_of,
    tables_in,
)  # fmt: skip
from table_readers import read_csv

from fedbench.analysis.run_rows import run_rows
from fedbench.reports.write import write_report
from fedbench.runs.results import Results


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Runs at the papers' settings alone, with all seeds."""
    root = tmp_path_factory.mktemp("full") / "results"
    for row in (*ADAM.tables["table4"].rows, *ADAM.tables["table2"].rows):
        fake_row(root, ADAM, row)
    fake(root, None, "fedavg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
        write_report(root)
    return root / "report"


@pytest.fixture
def small(tmp_path):
    """Two methods of one's own."""
    for algo in ("fedavg", "qfedavg"):
        fake(tmp_path / "small", None, algo)
    return tmp_path / "small"


# ---- the same again


def test_the_same_runs_give_the_same_bytes_anywhere(mixed, tmp_path, monkeypatch):
    """Copied to another place, file by file in the reverse order, and named by a relative path."""
    for path in sorted(mixed.root.rglob("*"), reverse=True):
        if path.is_file() and not path.is_relative_to(mixed.report):
            copy = tmp_path / "elsewhere" / path.relative_to(mixed.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    monkeypatch.chdir(tmp_path)
    said = write_report(Path("elsewhere"))[0]
    one, other = files(mixed.report), files(tmp_path / "elsewhere" / "report")
    assert set(one) == set(other)
    for name in one:
        assert one[name] == other[name], name
    assert said.replace("elsewhere", "ROOT") == mixed.said.replace(str(mixed.root), "ROOT")


def test_what_is_written(mixed):
    names = set(files(mixed.report))
    tables = {f"adafedadam_{t}" for t in ADAM.tables} | {
        "fafed_table_s1",
        "smoke",
        "synthetic_leaf",
    }
    # runs that match a row of a paper's table are only in that table
    tables.add(FIGURE_ONLY.replace("/", "_"))
    ends = ("claims.csv", "comparisons.csv", "readings.csv")
    claims = {f"tables/{p}_{e}" for p in ("adafedadam", "fafed") for e in ends}
    drawn = [
        "adafedadam_figure2",
        "adafedadam_figure2_distribution",
        "adafedadam_figure3",
        "adafedadam_figure3_curves",
    ]
    drawn += [
        "fafed_figure2",
        *(f"{x}_{k}" for x in ("smoke", "synthetic_leaf") for k in ("curves", "clients")),
    ]
    assert names == {
        "index.html",
        "runs.parquet",
        "summary.json",
        *claims,
        *(f"tables/{t}.{e}" for t in tables for e in ("md", "csv", "tex")),
        *(f"figures/{f}.{e}" for f in drawn for e in ("png", "svg")),
    }
    rows = pd.read_parquet(mixed.report / "runs.parquet")
    done = [
        p.parent
        for p in mixed.root.rglob("DONE")
        if "torn" not in (p.parent / "rounds.jsonl").read_text()
    ]
    failed = [p for p in rows["path"] if p.startswith((f"{PLAIN}/fedadam", f"{PLAIN}/fednova"))]
    assert len(failed) == 2
    assert {mixed.root / p for p in rows["path"]} == {*done, *(mixed.root / p for p in failed)}
    line = rows[rows["path"].str.contains("qfedavg")].sort_values("seed").iloc[1]
    assert line["accuracy_mean"] == measured(None, "qfedavg", {}, 1, "accuracy_mean")
    assert line["round"] == ROUNDS[-1]
    assert rows.set_index("path").loc[failed, "accuracy_mean":].isna().all(axis=None)


def test_what_is_said(mixed):
    assert "left out: " not in mixed.said
    assert "fedavg" in next(x for x in mixed.warned.splitlines() if "left out: " in x)
    assert mixed.said.splitlines()[-1] == f"written: {mixed.report / 'index.html'}"
    # papers in a line each, one's own as tables
    assert "adafedadam/table7_synthetic_momentum" not in mixed.said
    assert [x for x in mixed.said.splitlines() if x.startswith("| qfedavg")]
    (short,) = [x for x in mixed.said.splitlines() if x.startswith("AdaFedAdam: ")]
    distinct = {
        (
            ADAM.setups[r.setup].experiment,
            r.algo,
            str(sorted(ADAM.overrides(r).items())),
            column,
            printed,
        )
        for t in ADAM.tables.values()
        for r in t.rows
        for column, printed in r.values.items()
    }
    assert f" of {len(distinct)} distinct printed numbers measured, " in short
    assert "0 in full" not in short and "0 reduced" not in short
    total, _, states = short.partition("; ")[2].partition("; scaled-down")[0].partition(" claims: ")
    assert (
        sum(int(state.split()[0]) for state in states.split(", ")) == int(total) == len(ADAM.claims)
    )


# ---- reduced, wherever it appears


@pytest.mark.parametrize("ending", ["csv", "md", "tex"])
def test_every_row_with_a_reduced_number_is_marked_and_no_other(mixed, ending):
    """Reductions are listed in the row or below the table."""
    wanted = {(table, row): cuts for (table, _, row), cuts in {**PAPERS_ROWS, **OWN_ROWS}.items()}
    marked, whole = set(), set()
    for path in tables_in(mixed.tables, ending):
        for r in rows_of(path):
            status = (
                ("reduced" if r["reduced"] else "full")
                if ending == "csv"
                else r.get("status", "full")
            )
            assert r.get("status", status) in (
                ("reduced", "full") if int(r["seeds"]) else ("not run", "failed")
            )
            if int(r["seeds"]):
                (marked if status == "reduced" else whole).add((path.stem, r["method"]))
    assert marked == set(wanted)
    assert whole == {
        *((f"adafedadam_{t}", "AdaFedAdam") for t in ("table4", "table5", "table7")),
        ("synthetic_leaf", "qfedavg"),
    }  # fmt: skip
    for (table, row), cuts in wanted.items():
        lines = (mixed.tables / f"{table}.{ending}").read_text().splitlines()
        if ending == "csv":
            stating = [x for x in lines if row in x and all(c in x for c in cuts)]
        else:
            notes = [x for x in lines if x.startswith(("- reduced", r"\par{\footnotesize reduced"))]
            stating = [x for x in notes if f"{row}: " in x and all(c in x for c in cuts)]
        assert len(stating) == 1, (table, row)


def test_the_block_of_a_reduced_row_is_right(mixed):
    found = {
        (p.stem, r["setup"], r["method"]): set(r["reduced"].split("; "))
        for p in tables_in(mixed.tables, "csv")
        for r in rows_of(p)
        if r["reduced"] and "setup" in r
    }
    assert found == PAPERS_ROWS


class Page(HTMLParser):
    """The rows of the page's tables, (the table's id, whether marked, text with what stands below), and captions."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.captions, self.claims, self.links = [], [], [], []
        self.table, self.into = "", None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "section" and str(given.get("class")).startswith("table"):
            self.table = given["id"]
        if tag == "tr":
            if given.get("class") == "row":
                self.rows.append([self.table, "data-reduced" in given, ""])
            self.into = self.rows if given.get("class") in ("row", "more") else None
        if tag == "figure":
            self.captions.append([""])
            self.into = self.captions
        if tag == "li" and str(given.get("class")).startswith("claim"):
            self.claims.append([""])
            self.into = self.claims
        if tag == "a":
            self.links.append(given["href"])

    def handle_endtag(self, tag):
        if tag in ("figure", "tbody", "ol"):
            self.into = None

    def handle_data(self, data):
        if self.into is not None:
            self.into[-1][-1] += f" {data}"


def test_the_page_marks_the_same_rows_and_figures(mixed):
    page = Page((mixed.report / "index.html").read_text())
    marked = [(table, " ".join(text.split())) for table, reduced, text in page.rows if reduced]
    shown = {**PAPERS_ROWS, **OWN_ROWS}
    assert len(marked) == len(shown)
    for (table, _, row), cuts in shown.items():
        number_or_name = table.removeprefix("adafedadam_").replace("_", "-")
        (text,) = [t for at, t in marked if at.endswith(number_or_name)]
        assert row in text
        assert "reduced" in text
        assert all(c in text for c in cuts)
    for _, reduced, text in page.rows:
        assert reduced or "reduced" not in text.replace("results/", "")
    captions = [" ".join(c.split()) for (c,) in page.captions]
    # FAFED's, both of smoke, and the points
    assert len([c for c in captions if "reduced" in c]) == 1 + 2 + 1
    assert "FedAvg on MNIST" in next(c for c in captions if "rounds 20 (paper 1000)" in c)
    drawn = {
        p.stem: "reduced setting" in p.read_text() for p in (mixed.report / "figures").glob("*.svg")
    }
    assert {k for k, v in drawn.items() if v} == {"fafed_figure2", "smoke_curves", "smoke_clients"}


def test_nothing_is_marked_where_all_is_as_in_the_paper(full):
    for ending in ("csv", "md", "tex"):
        for path in tables_in(full / "tables", ending):
            for r in rows_of(path):
                assert not r.get("reduced")
                assert r.get("status", "full") == ("full" if int(r["seeds"]) else "not run")
            assert "reduced" not in path.read_text().split("\n", 1)[1 if ending == "csv" else 0]
    page = Page((full / "index.html").read_text())
    assert len(page.rows) > 50
    assert not [r for r in page.rows if r[1] or "reduced" in r[2]]
    assert not [c for c in (*page.captions, *page.claims) if "reduced" in c[0]]
    assert not [p for p in (full / "figures").glob("*.svg") if "reduced" in p.read_text()]


def test_claims_on_reduced_runs_have_no_verdict(tmp_path, no_figures):
    """Table 2 with all methods, cut: claims about it have a scaled-down check, and those on full runs a verdict."""
    for row in ADAM.tables["table2"].rows:
        fake_row(tmp_path, ADAM, row, cut=CUTS[HETERO])
    for row in ADAM.tables["table4"].rows:
        fake_row(tmp_path, ADAM, row)
    write_report(tmp_path)
    tables = tmp_path / "report" / "tables"
    claims = {c["id"]: c for c in read_csv((tables / "adafedadam_claims.csv").read_text())}
    assert (claims["c05"]["verdict"], claims["c05"]["counted"]) == ("not run", "False")
    assert claims["c05"]["scaled"] in ("same direction", "opposite direction", "mixed", "unclear")
    assert claims["c05"]["reduced"] == "; ".join(
        sorted(PAPERS_ROWS["adafedadam_table2", TITLES[HETERO], "FedNova"])[:2]
    )
    assert (
        claims["c14"]["verdict"] != "not run",
        claims["c14"]["scaled"],
        claims["c14"]["reduced"],
    ) == (True, "", "")
    marked = {
        c["claim"]
        for c in read_csv((tables / "adafedadam_comparisons.csv").read_text())
        if c["reduced"] == "True"
    }
    assert "c05" in marked
    assert "c14" not in marked


# ---- numbers


def test_cells_are_means_over_seeds_next_to_printed_numbers(mixed):
    (row,) = [
        r for r in rows_of(mixed.tables / "adafedadam_table4.csv") if r["setup"] == TITLES[MOMENTUM]
    ]
    metrics, printed = (
        ADAM.metrics,
        next(r for r in ADAM.tables["table4"].rows if r.setup == "synthetic_momentum"),
    )
    for column in ADAM.tables["table4"].columns:
        values = [
            100 * measured(MOMENTUM, "adafedadam", {}, s, metrics[column].field) for s in range(3)
        ]
        name, paper = metrics[column].field, printed.values[column]
        found = {
            k: float(row[f"{name}_{k}"])
            for k in ("mean", "std", "n", "paper", "paper_std", "difference")
        }
        wanted = {
            "mean": mean(values),
            "std": stdev(values),
            "n": 3,
            "paper": paper.mean,
            "paper_std": paper.std,
        }
        assert found == pytest.approx(
            {**wanted, "difference": mean(values) - paper.mean}, rel=1e-12
        )
    own = next(r for r in rows_of(mixed.tables / "synthetic_leaf.csv") if r["method"] == "qfedavg")
    values = [100 * measured(None, "qfedavg", {}, s, "accuracy_mean") for s in (0, 1)]
    assert float(own["accuracy_mean_mean"]) == pytest.approx(mean(values))
    assert float(own["accuracy_mean_std"]) == pytest.approx(stdev(values))
    assert "accuracy_mean_paper" not in own


def test_numbers_in_csv_files_are_numbers(mixed):
    """Every column of a metric can be read as numbers, with empty cells where something is missing."""
    endings = ("_mean", "_std", "_n", "_lower", "_upper", "_paper", "_difference")
    for path in tables_in(mixed.tables, "csv"):
        cells = [
            (name, text)
            for r in rows_of(path)
            for name, text in r.items()
            if name.endswith(endings) and text
        ]
        assert cells
        assert all(re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?", text) for _, text in cells), path


def test_a_row_per_run_has_every_key_of_its_configuration(tmp_path):
    """Lists are JSON text, and what is of several types is text; best rounds are there where a table prints them."""
    fake(
        tmp_path,
        None,
        "fedavg",
        {"local.epochs": [1, 5], "local.batch_size": "full", "algo.on": True},
        seeds=(0,),
    )
    fake(
        tmp_path, None, "qfedavg", {"local.batch_size": 10, "algo.q": 1, "algo.L": None}, seeds=(0,)
    )
    best = "fedcada/table1_device_cifar10_iid"
    fake(tmp_path, best, "fedavg", {"algo.q": 0.5}, seeds=(0,))
    run_rows(list(Results(tmp_path)), tmp_path).to_parquet(tmp_path / "runs.parquet")
    rows = pd.read_parquet(tmp_path / "runs.parquet").set_index("path")
    one, two = (
        next(r for p, r in rows.iterrows() if f"synthetic_leaf/{algo}/" in p)
        for algo in ("fedavg", "qfedavg")
    )
    assert (one["config.local.epochs"], one["config.local.batch_size"], two["config.local.batch_size"]) == (
        "[1, 5]", "full", "10",
    )  # fmt: skip
    assert (one["config.algo.on"], two["config.algo.q"], one["config.rounds"]) == (True, 1.0, 1000)
    assert pd.isna(one["best_accuracy_mean"])
    (third,) = [r for p, r in rows.iterrows() if p.startswith(best)]
    curve = {t: measured(best, "fedavg", {"algo.q": 0.5}, 0, "accuracy_mean", t) for t in ROUNDS}
    assert third["best_accuracy_mean"] == max(curve.values())
    assert third["best_round"] == max(curve, key=curve.get)


def test_settings_of_an_experiment_that_are_no_row_are_a_table_of_their_own(tmp_path, monkeypatch):
    """Figure 3 sweeps alpha; the sweep is whole, and methods of which all is in a paper's table are not repeated."""
    monkeypatch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
    fake(tmp_path, PLAIN, "fedavg")
    for alpha in (3.0, 0.0, 2.0):
        fake(tmp_path, PLAIN, "adafedadam", {"algo.alpha": alpha})
    fake(tmp_path, PLAIN, "adafedadam", preset={"algo.alpha": 1.0})
    write_report(tmp_path)
    rows = rows_of(tmp_path / "report" / "tables" / f"{PLAIN.replace('/', '_')}.csv")
    assert [(r["method"], r["settings"]) for r in rows] == [
        ("AdaFedAdam", f"algo.alpha={a}") for a in range(4)
    ]


def test_what_went_wrong_is_said_in_its_row(mixed):
    rows = {
        (r["setup"], r["method"]): r["status"]
        for r in rows_of(mixed.tables / "adafedadam_table5.csv")
    }
    synthetic = TITLES[PLAIN]
    assert rows[synthetic, "FedNova"] == "failed"
    assert rows[synthetic, "FedAdam"] == "failed"  # its run says so
    assert rows[synthetic, "FedAvg"] == "not run"
    assert (
        "- FedNova: seed 0 failed; RuntimeError: 100 % of &lt;it> & #1\n"
        in (mixed.tables / "adafedadam_table5.md").read_text()
    )
    page = (mixed.report / "index.html").read_text()
    assert "100 % of &lt;it&gt; &amp; #1" in page


def test_links_lead_to_runs_that_are_there(mixed):
    page = Page((mixed.report / "index.html").read_text())
    runs = {unquote(x) for x in page.links if x and x.startswith("../")}
    own = {
        x
        for x in runs
        if x.startswith("../mnist") or "/synthetic_leaf" in x or not x.startswith("../adafedadam")
    }
    # of Table 4, which others repeat, and the two that are cut
    assert len(runs - own) == 3 * 3 + 2 + 1
    assert all((mixed.report / x / "rounds.jsonl").exists() for x in runs)
    assert not [x for x in page.links if x and not x.startswith(("#", "../"))]


def test_a_paper_without_runs_is_a_report(tmp_path):
    """No data were available: no row of the page has runs."""
    said = write_report(tmp_path, parts=("fafed",))[0]
    assert "FAFED" in said
    assert len(pd.read_parquet(tmp_path / "report" / "runs.parquet")) == 0
    rows = rows_of(tmp_path / "report" / "tables" / "fafed_table_s1.csv")
    assert {r["status"] for r in rows} == {"not run"}


# ---- the word


def test_into_another_place_without_links(small, tmp_path):
    status, out, _ = call("report", str(small), "--into", str(tmp_path / "a" / "b"))
    assert status == 0
    assert out.endswith(f"written: {tmp_path / 'a' / 'b' / 'index.html'}\n")
    assert not (small / "report").exists()
    there = files(tmp_path / "a" / "b")
    assert {
        "index.html",
        "runs.parquet",
        "tables/synthetic_leaf.csv",
        "figures/synthetic_leaf_curves.svg",
    } <= set(there)
    assert not [x for x in Page(there["index.html"].decode()).links if x and not x.startswith("#")]
    assert str(small).encode() not in b"".join(there.values())
    call("report", str(small))
    default = files(small / "report")
    # the bundle
    there = {name: content for name, content in there.items() if not name.startswith("evidence/")}
    assert {name for name in there if default[name] != there[name]} == {"index.html"}
    assert [
        x
        for x in Page(default["index.html"].decode()).links
        if x and x.startswith("../synthetic_leaf")
    ]


def test_files_of_ones_own_stay_and_the_working_directory_can_be_the_place(
    small, tmp_path, monkeypatch
):
    place = tmp_path / "here"
    for name in ("tables/mine.csv", "figures/mine.pdf", "mine.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    monkeypatch.chdir(place)
    for _ in range(2):
        write_report(small, Path())
        assert (Path.cwd() / "index.html").exists()
    assert (
        (place / "tables" / "mine.csv").read_text()
        == (place / "figures" / "mine.pdf").read_text()
        == "mine"
    )
    (place / "tables" / "left.md").write_text("of an earlier report")
    summary = place / "summary.json"
    summary.write_text(
        summary.read_text()
        .replace('"files":[', '"files":["tables/left.md",')
        .replace('"files": [', '"files": ["tables/left.md",')
    )
    write_report(small, Path())
    assert not (place / "tables" / "left.md").exists()
    assert (place / "mine.txt").read_text() == "mine"


def test_one_paper_alone(mixed, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
    status, _, _ = call(
        "report", str(mixed.root), "--paper", "fafed", "--into", str(tmp_path / "one")
    )
    assert status == 0
    assert {p.name.split("_")[0] for p in (tmp_path / "one" / "tables").iterdir()} == {"fafed"}
    assert "AdaFedAdam" not in (tmp_path / "one" / "index.html").read_text()
    assert pd.read_parquet(tmp_path / "one" / "runs.parquet")["experiment"].unique().tolist() == [
        FIGURE_ONLY
    ]
    assert (
        call("report", str(mixed.root), "--paper", "adafedadam", "--into", str(tmp_path / "other"))[
            0
        ]
        == 0
    )
    page = Page((tmp_path / "other" / "index.html").read_text())
    assert len([r for r in page.rows if r[1]]) == len(PAPERS_ROWS)
    # to runs that may not be there
    assert not [x for x in page.links if x and not x.startswith("#")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere"], "nowhere is not a directory"),
        (
            ["empty"],
            "empty contains no runs; it must be a results_dir of earlier runs, such as results",
        ),
        (["small", "--into", "small/file"], "small/file cannot be written: "),
        (
            ["small", "--paper", "fedadam"],
            "--paper must be one of adafed, adafedadam, fafed, fedcada, fedfa",
        ),
        (
            ["small", "--latex", "--paper", "adafed"],
            "--latex and --paper cannot be combined",
        ),
        (["small", "--compare", "algo", "--metric", "accuracy"], "accuracy"),
        (["small", "--foo"], "unknown flag --foo; see `fedbench report --help`"),
        (["small", "--alpha", "much"], "invalid float value: 'much'"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_wrong_request_is_one_line(small, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (small / "file").touch()
    before = files(tmp_path)
    status, out, err = call("report", *args)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert files(tmp_path) == before

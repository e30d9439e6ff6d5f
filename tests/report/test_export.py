"""Tables and claims as Markdown, CSV and LaTeX: by hand, and as programs that read such files understand them."""

import math
from dataclasses import replace

import pytest
from page_example import example_claim
from table_readers import latex_tables, markdown_tables, read_csv

from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.tables import Block, Cell, Column, TableData, paper_table
from fedbench.analysis.tables import Line as TableLine
from fedbench.papers.ledger import Entry, Ledger, read_ledger, write_ledger
from fedbench.papers.registry import papers
from fedbench.papers.schema import PrintedMetric, Reported, Setup
from fedbench.report import present
from fedbench.report.export import (
    claims_csv,
    claims_markdown,
    comparisons_csv,
    readings_csv,
    table_csv,
    table_latex,
    table_markdown,
)
from fedbench.report.present import paper_view
from fedbench.report.views import (
    BlockView,
    CellView,
    ClaimView,
    GroupView,
    LineView,
    MultiverseView,
    ReadingView,
    TableView,
)

# ---- by hand


def cell(own="", paper="", difference="", verdict="none", note=""):
    return CellView(own, paper, difference, verdict, None, note)


def line(label, *cells, settings="", status="full", reduced=(), seeds=3, note=""):
    return LineView(label, settings, seeds, status, reduced, cells, (), f"fedbench -m algo={label} seed=0,1", note)


VIEW = TableView(
    "p/table1", "Paper, Table 1", "Two methods", ("avg %", "STD"),
    (
        BlockView("One", (
            line("A_1", cell("1.00 ± 0.10", "2.00 ± 0.20", "-1.00", "outside"), cell("3.00")),
            line("B", cell("4.00", "5.00", "-1.00", "single"), cell(), seeds=1, status="reduced", settings="q=1",
                 reduced=("rounds 2 (paper 9)", "seeds 1 (paper 3)")),
        )),
        BlockView("Two", (
            line("A_1", cell(verdict="missing", paper="7.00"), cell("8.00", "9.00", "-1.00", "impossible",
                 "n = 3: outside. No accuracies have them: at least 4.5"), note="seed 0 failed; OSError: full"),
        )),
    ),
    ("avg %: the mean",),
)  # fmt: skip


def test_markdown_by_hand():
    text = table_markdown(VIEW)
    assert text.startswith("## Paper, Table 1\n\nTwo methods. Mean ± sample STD over seeds; in or OUT: ")
    (one, first), (two, second) = markdown_tables(text)
    assert (one, two) == ("### One", "### Two")
    heads = ["seeds", "avg %", "paper", "diff.", "", "STD", "paper", "diff.", "", "status"]
    assert first == [
        ["method", "settings", *heads],
        ["A_1", "", "3", "1.00 ± 0.10", "2.00 ± 0.20", "-1.00", "OUT", "3.00", "–", "–", "", "full"],
        ["B", "q=1", "1", "4.00", "5.00", "-1.00", "", "–", "–", "–", "", "reduced"],
    ]
    assert second == [
        ["method", *heads],
        ["A_1", "3", "–", "7.00", "–", "", "8.00", "9.00", "-1.00", "impossible", "full"],
    ]
    assert [x for x in text.splitlines() if x.startswith("- ")] == [
        "- reduced (B q=1): rounds 2 (paper 9), seeds 1 (paper 3)",
        "- A_1: seed 0 failed; OSError: full",
        "- avg %: the mean",
        "- Two, A_1: No accuracies have them: at least 4.5",
    ]


def test_latex_by_hand():
    text = table_latex(VIEW)
    (one, first), (two, second) = latex_tables(text)
    assert one == "% reduced (B q=1): rounds 2 (paper 9), seeds 1 (paper 3)"
    assert two == "% A_1: seed 0 failed; OSError: full"
    assert first[1] == ["A_1", "", "3", "1.00 ± 0.10", "2.00 ± 0.20", "-1.00", "OUT", "3.00", "--", "--", "", "full"]
    assert first[2][-1] == "reduced"
    assert (
        r"\end{tabular}" + "\n" + r"\par{\footnotesize reduced (B q=1): rounds 2 (paper 9), seeds 1 (paper 3)}" in text
    )
    assert second[0] == ["method", "seeds", "avg %", "paper", "diff.", "", "STD", "paper", "diff.", "", "status"]
    assert r"A\_1 & " in text
    assert r"avg \% &" in text
    assert text.endswith("% avg %: the mean\n")


def test_signs_that_latex_reserves():
    """As themselves in the picture, and read back as they were."""
    label = r"1 + z^2 & {x}_1 ~ 5 % of #1 $"
    view = TableView("n", "t", "c", ("STD ± Σ",), (BlockView("One", (line(label, cell("1.00")),)),), ())
    ((_, (heads, row)),) = latex_tables(table_latex(view))
    assert (row[0], heads[2]) == (label, "STD ± Σ")
    assert r"1 + z\^{}2 \& \{x\}\_1 \~{} 5 \% of \#1 \$ & 3 & 1.00" in table_latex(view)


def test_numbers_that_the_paper_does_not_print_come_below_them():
    """In the same order of rows, without a column for the paper; where no row has any, nothing is shown."""
    with_more = replace(line("A", cell("1.00", "2.00", "-1.00", "outside")), further=("5.00", "0.1000"))
    block, empty = BlockView("One", (with_more,)), BlockView("Two", (replace(with_more, further=("", "")),))
    view = TableView("n", "t", "c", ("avg",), (block, empty), (), ("STD", "KL"))
    for tables in (markdown_tables(table_markdown(view)), latex_tables(table_latex(view))):
        main, further, other = (rows for _, rows in tables)
        assert main[1] == other[1] == ["A", "3", "1.00", "2.00", "-1.00", "OUT", "full"]
        assert further == [["method", "seeds", "STD", "KL", "status"], ["A", "3", "5.00", "0.1000", "full"]]


def test_a_table_of_runs_of_no_paper():
    own = TableView("n", "synthetic", "percent", ("mean",), (BlockView("", (line("a", cell("1.00")),)),), (), (), False)
    text = table_markdown(own)
    assert text.startswith("synthetic: percent\n\n| method")
    assert markdown_tables(text)[0][1] == [["method", "seeds", "mean"], ["a", "3", "1.00"]]


def test_csv_by_hand():
    """Three seeds at 1, 2 and 6: mean 3, STD √7, half width t(0.975, 2) √7 / √3; the paper prints 4 ± 0.5."""
    metric = PrintedMetric("avg", "average %", "higher", "accuracy_mean")
    columns = (Column(metric, printed=True), Column(PrintedMetric("kl", "KL", "lower", "kl_uniform", 1.0)))
    found = MatchedRuns({})
    lines = (
        TableLine("a", "A", {"q": 0.5}, found, (Cell((1.0, 2.0, 6.0), Reported(4.0, 0.5)), Cell((0.25,))), "full"),
        TableLine("b", "B", {}, found, (Cell((), Reported(7.0, None)), Cell()), "not run"),
    )
    setup = Setup("s", "One", "p/one", 3, 3, 5)
    paper = papers()["fedfa"]
    table = TableData("p/t", columns, (Block(setup, lines),), paper, next(iter(paper.tables.values())))
    first, second = read_csv(table_csv(table, present.view(table)))
    half = 0.95 / math.sqrt(2 * 0.975 * 0.025) * math.sqrt(7 / 3)
    numbers = {"mean": 3, "std": math.sqrt(7), "n": 3, "lower": 3 - half, "upper": 3 + half}
    numbers |= {"paper": 4, "paper_std": 0.5, "difference": -1}
    assert {k: float(first[f"accuracy_mean_{k}"]) for k in numbers} == pytest.approx(numbers, rel=1e-12)
    assert (first["setup"], first["method"], first["settings"]) == ("One", "A", "q=0.5")
    assert (first["accuracy_mean_agreement"], first["kl_uniform_mean"], first["kl_uniform_std"]) == (
        "inside",
        "0.25",
        "",
    )
    assert "kl_uniform_paper" not in first
    missing = {k: second[f"accuracy_mean_{k}"] for k in ("mean", "std", "lower", "upper", "paper_std", "difference")}
    assert set(missing.values()) == {""}
    assert (second["accuracy_mean_n"], second["accuracy_mean_paper"]) == ("0", "7.0")
    assert (second["accuracy_mean_agreement"], second["status"]) == ("missing", "not run")


def test_claims_by_hand():
    claims = [
        ClaimView(
            *("c1", "A | B, and more", "Sec. 1", "holds", 'p = 0.01 "of A"', True, "supports", "runs", "A to B"),
            counts="2 comparisons",
            multiverse=MultiverseView("depends on", ": split"),
        ),
        ClaimView("c2", "C", "Table 2", "not run", "", False, "not tabulated"),
        ClaimView("c3", "D", "Sec. 3", "holds", "test_d", False, "not tabulated", "proof"),
        ClaimView("c4", "E", "Table 4", "fails", "differ", False, "contradicts", "print"),
    ]
    text = claims_markdown(claims, "Paper")
    assert text.startswith("## Paper: claims\n\n")
    ((_, (heads, *rows)),) = markdown_tables(text)
    assert heads == ["claim", "verdict", "readings", "printed numbers", "text", "where", "comparisons", "evidence"]
    where = ["supports", "A / B, and more", "Sec. 1"]
    assert rows[0] == ["c1", "holds (reduced)", "depends on: split", *where, "2 comparisons", 'p = 0.01 "of A"']
    assert [r[1] for r in rows[1:]] == ["not run", "shown by a proof", "printed numbers disagree"]
    assert read_csv(claims_csv(claims))[0] == {
        "id": "c1", "text": "A | B, and more", "where": "Sec. 1", "verdict": "holds", "evidence": 'p = 0.01 "of A"',
        "reduced": "True", "printed": "supports", "basis": "runs", "readings": "depends on: split", "tested": "A to B",
        "beyond": "", "refuted": "", "needs": "", "counts": "2 comparisons",
    }  # fmt: skip


def test_comparisons_and_readings_are_rows_of_their_own():
    given = [example_claim(i) for i in range(2)]
    rows = read_csv(comparisons_csv(given))
    assert [(r["claim"], r["label"]) for r in rows] == [(c.id, x.label) for c in given for x in c.comparisons]
    assert rows[0]["interval"] == "+0.10 to +0.68"
    rows = read_csv(readings_csv(given))
    assert [r["claim"] for r in rows] == ["C1"] * 6 + ["C2"] * 6
    assert list(rows[1].items()) == [
        ("claim", "C1"), ("weighting", "weighted"), ("round", "last"), ("data splits", "0 to 4"), ("settings", ""),
        ("adopted", "False"), ("verdict", "fails"), ("blocks", "10 seeds"), ("counts", "36 of 36 significant"),
    ]  # fmt: skip


def test_columns_of_readings_are_the_same_whichever_axes_a_paper_varies():
    found = MultiverseView("robust", (), ("round",), (ReadingView(("last",), "holds", "", "10 seeds"),))
    claim = ClaimView("c1", "A", "", "holds", "", False, "supports", multiverse=found)
    axes = ["weighting", "round", "data splits", "settings"]
    (row,) = read_csv(readings_csv([claim]))
    assert list(row) == ["claim", *axes, "adopted", "verdict", "blocks", "counts"]
    assert [row[axis] for axis in (*axes, "blocks")] == ["", "last", "", "", "10 seeds"]


def test_the_claims_as_text_have_the_verdict_and_the_headline_of_each_setup():
    groups = (GroupView("One", "holds", "1", "depends on: split"), GroupView("Two", "not run", "", "not run"))
    claim = ClaimView("c1", "A", "", "partly measured", "", False, "supports", counts="2 comparisons", groups=groups)
    ((_, (_, row)),) = markdown_tables(claims_markdown([claim], "P"))
    assert "2 comparisons; One: holds (depends on: split); Two: not run" in row


# ---- every table of every paper


@pytest.mark.parametrize("paper", list(papers()))
def test_everything_on_record_can_be_read_back(paper):
    """Without a run: what is printed stands where it belongs in all three files."""
    p = papers()[paper]
    tables = [paper_table(p, t, Evidence([]), Ledger()) for t in p.tables.values()]
    view = paper_view(p, tables, (), Evidence([]), None)
    for shown, data, table in zip(view.tables, tables, p.tables.values(), strict=True):
        rows = read_csv(table_csv(data, shown))
        ordered = [r for s in table.setups for r in table.rows if r.setup == s]
        assert [(r["setup"], r["method"]) for r in rows] == [
            (p.setups[r.setup].title, p.methods[r.algo].label) for r in ordered
        ]
        for mine, row in zip(rows, ordered, strict=True):
            assert (mine["status"], mine["seeds"], mine["reduced"]) == ("not run", "0", "")
            for column in table.columns:
                printed = row.values.get(column)
                name = ("best_" if table.round == "best" else "") + p.metrics[column].field
                assert mine[f"{name}_mean"] == ""
                numbers = [float(x) for x in (mine[f"{name}_paper"], mine[f"{name}_paper_std"]) if x]
                assert numbers == ([] if printed is None else [x for x in (printed.mean, printed.std) if x is not None])
        for found in (markdown_tables(table_markdown(shown)), latex_tables(table_latex(shown))):
            assert [len(t) - 1 for _, t in found] == [sum(r.setup == s for r in table.rows) for s in table.setups]
            assert all(r[-1] == "not run" for _, t in found for r in t[1:])
    ((_, claims),) = markdown_tables(claims_markdown(view.claims, view.title))
    assert [c[0] for c in claims[1:]] == [c.id for c in p.claims]
    assert [c["text"] for c in read_csv(claims_csv(view.claims))] == [c.text for c in p.claims]


# ---- the record of a plan


def test_a_plan_is_read_back_as_it_was_written(tmp_path):
    assert read_ledger(tmp_path) == Ledger(())
    entries = [Entry("b/x", "fedavg", {"local.lr": 0.1, "algo.q": 1.0}, 2, "failed", "why"), Entry("a/x", "q", {}, 0)]
    write_ledger(tmp_path / "new", entries)
    assert read_ledger(tmp_path / "new") == Ledger(tuple(entries[::-1]))
    assert read_ledger(tmp_path / "new").of("b/x", "fedavg", {"algo.q": 1.0, "local.lr": 0.1}) == [entries[0]]
    for other in (("b/x", "fedavg", {}), ("b/x", "q", entries[0].set), ("a/x", "fedavg", entries[0].set)):
        assert read_ledger(tmp_path / "new").of(*other) == []


def test_other_plans_stay_on_record(tmp_path):
    """The order of the calls does not matter but for the run that both name."""
    one, two = Entry("a/x", "fedavg", {}, 0, "done"), Entry("a/x", "fedavg", {}, 1, "planned")
    write_ledger(tmp_path, [two, one])
    write_ledger(tmp_path, [Entry("a/x", "fedavg", {}, 1, "failed", "why"), Entry("a/w", "z", {}, 0)])
    found = read_ledger(tmp_path)
    assert [(e.experiment, e.seed, e.status) for e in found.entries] == [
        ("a/w", 0, "planned"), ("a/x", 0, "done"), ("a/x", 1, "failed"),
    ]  # fmt: skip
    assert {p.name for p in tmp_path.iterdir()} == {"plan.json"}

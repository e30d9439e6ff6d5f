"""One table in four forms: by hand, and as programs that read such files understand them."""

import math

import pytest
from table_readers import latex_tables, markdown_tables, read_csv

from fedbench.analysis.build_tables import paper_table
from fedbench.analysis.claims.judge import judge
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.table_model import Cell as Measured
from fedbench.analysis.table_model import Column, Line, RowGroup, TableData
from fedbench.papers.readings import ADOPTED
from fedbench.papers.registry import papers
from fedbench.papers.schema import PrintedMetric, Reported, Setup
from fedbench.reports.paper import PaperReport, claims_rows
from fedbench.reports.table_pages import table_csv, table_latex, table_markdown
from fedbench.reports.text_table import (
    Cell,
    Table,
    csv_text,
    latex,
    latex_text,
    markdown,
    markdown_text,
    table_of,
    table_rows,
)

TABLE = Table(
    "One_1",
    ("method", "x %"),
    (
        (Cell("a_b"), Cell("1 ± 2", 1.0, std=2.0)),
        (Cell("long | one"), Cell("10.25", 10.25, best=True)),
    ),
    "what it is",
    ("p < 0.05 & more",),
)


def test_markdown_is_aligned_as_plain_text():
    assert markdown([TABLE], "Both", "lead", ["end"]) == (
        "## Both\n\nlead\n\n### One_1\n\nwhat it is\n\n"
        "| method      |    x % |\n| ----------- | -----: |\n| a_b         |  1 ± 2 |\n| long \\| one | *10.25 |\n\n"
        "- p < 0.05 & more\n\n- end\n"
    )


def test_latex_has_the_best_number_in_bold():
    text = latex([TABLE])
    assert text.startswith(
        "% One_1\n% what it is\n\\begin{tabular}{lr}\n\\toprule\nmethod & x \\% \\\\\n"
    )
    assert r"a\_b & 1 $\pm$ 2 \\" in text
    assert r"long $\vert$ one & \textbf{10.25} \\" in text
    assert text.endswith("\\par{\\footnotesize p $<$ 0.05 \\& more}\n")


def test_the_rows_of_tables_have_plain_numbers():
    other = table_of("Two", ("method", "n"), [("a", 3)])
    assert table_rows([TABLE, other]) == [
        {"table": "One_1", "method": "a_b", "x %": 1.0, "x % STD": 2.0},
        {"table": "One_1", "method": "long | one", "x %": 10.25},
        {"table": "Two", "method": "a", "n": 3},
    ]


@pytest.mark.parametrize("sign", ["\n", "\r\n", "\x85", "\u2028"])
def test_text_stays_on_its_line(sign):
    assert markdown_text(f"a{sign}b") == latex_text(f"a{sign}b") == "a b"


def test_text_is_no_markup():
    assert markdown_text("<b> &amp; p < 1") == "&lt;b> &amp;amp; p < 1"
    assert latex_text("100 % of #1_{}") == r"100 \% of \#1\_\{\}"
    assert latex_text("ε ≤ 1") == r"$\varepsilon$ $\leq$ 1"


def test_csv_has_every_column():
    assert csv_text([{"a": 1}, {"a": 2, "b": "x,y"}]) == 'a,b\n1,\n2,"x,y"\n'


def test_numbers_in_full_precision_by_hand():
    """Three seeds at 1, 2 and 6: mean 3, STD √7, half width t(0.975, 2) √7 / √3; the paper prints 4 ± 0.5."""
    metric = PrintedMetric("avg", "average %", "higher", "accuracy_mean")
    columns = (
        Column(metric, printed=True),
        Column(PrintedMetric("kl", "KL", "lower", "kl_uniform", 1.0)),
    )
    measured = (Measured((1.0, 2.0, 6.0), Reported(4.0, 0.5)), Measured((0.25,)))
    lines = (
        Line("a", "A", {"q": 0.5}, MatchedRuns(dict.fromkeys(range(3))), measured),
        Line("b", "B", {}, MatchedRuns({}), (Measured((), Reported(7.0, None)), Measured())),
    )
    paper = papers()["fedfa"]
    setup = Setup("s", "One", "p/one", 3, 3, 5)
    table = TableData(
        "p/t",
        "P, Table",
        columns,
        (RowGroup(setup, lines),),
        paper,
        next(iter(paper.tables.values())),
    )
    first, second = read_csv(table_csv(table))
    half = 0.95 / math.sqrt(2 * 0.975 * 0.025) * math.sqrt(7 / 3)
    numbers = {"mean": 3, "std": math.sqrt(7), "n": 3, "lower": 3 - half, "upper": 3 + half}
    numbers |= {"paper": 4, "paper_std": 0.5, "difference": -1}
    assert {k: float(first[f"accuracy_mean_{k}"]) for k in numbers} == pytest.approx(
        numbers, rel=1e-12
    )
    assert (first["setup"], first["method"], first["settings"]) == ("One", "A", "q=0.5")
    assert (
        first["accuracy_mean_agreement"],
        first["kl_uniform_mean"],
        first["kl_uniform_std"],
    ) == (
        "inside",
        "0.25",
        "",
    )
    assert "kl_uniform_paper" not in first
    assert (
        second["accuracy_mean_mean"],
        second["accuracy_mean_n"],
        second["accuracy_mean_paper"],
    ) == ("", "0", "7.0")
    assert (second["accuracy_mean_agreement"], second["status"]) == ("missing", "not run")
    ((_, (heads, one, two)),) = markdown_tables(table_markdown(table))
    assert heads == ["method", "settings", "seeds", "average %", "status"]
    assert one[3:] == ["3.00 ± 2.65 ≈ 4.00 ± 0.50", "full"]
    assert two[3:] == ["– / 7.00", "not run"]


@pytest.mark.parametrize("paper", ["adafed", "fedcada"])
def test_everything_on_record_can_be_read_back(paper):
    """Without a run: what is printed stands where it belongs in all three files."""
    p = papers()[paper]
    tables = [paper_table(t, Evidence(p, [])) for t in p.tables.values()]
    for data, table in zip(tables, p.tables.values(), strict=True):
        rows = read_csv(table_csv(data))
        ordered = [r for s in table.setups for r in table.rows if r.setup == s]
        assert [(r["setup"], r["method"]) for r in rows] == [
            (p.setups[r.setup].title, p.methods[r.algo].label) for r in ordered
        ]
        for mine, row in zip(rows, ordered, strict=True):
            assert (mine["status"], mine["seeds"], mine["reduced"]) == ("not run", "0", "")
            for column in table.columns:
                printed = row.values.get(column)
                name = ("best_" if table.round == "best" else "") + p.metrics[column].field
                numbers = [
                    float(x) for x in (mine[f"{name}_paper"], mine[f"{name}_paper_std"]) if x
                ]
                assert numbers == (
                    []
                    if printed is None
                    else [x for x in (printed.mean, printed.std) if x is not None]
                )
        for found in (markdown_tables(table_markdown(data)), latex_tables(table_latex(data))):
            assert [len(t) - 1 for _, t in found] == [
                sum(r.setup == s for r in table.rows) for s in table.setups
            ]
            assert all(r[-1] == "not run" for _, t in found for r in t[1:])
    report = PaperReport(
        p,
        tuple(tables),
        (),
        tuple((c, {ADOPTED: judge(c, Evidence(p, []))}) for c in p.claims.values()),
    )
    assert [c["id"] for c in claims_rows(report)] == list(p.claims)
    assert [c["text"] for c in claims_rows(report)] == [c.text for c in p.claims.values()]

"""One table in four forms: by hand, and as programs that read such files understand them."""

import math

import pytest
from table_readers import latex_tables, markdown_tables, read_csv

from fedbench.analysis.build_tables import paper_table
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.table_model import Cell as Measured
from fedbench.analysis.table_model import Column, Line, RowGroup, TableData
from fedbench.papers.registry import papers
from fedbench.papers.schema import PrintedMetric, Reported, Setup
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
    "a caption",
    ("p < 0.05 & more",),
)
MARKDOWN = r"""## Both

lead

### One_1

a caption

| method      |    x % |
| ----------- | -----: |
| a_b         |  1 ± 2 |
| long \| one | *10.25 |

- p < 0.05 & more

- end
"""
LATEX = r"""% One_1
% a caption
\begin{tabular}{lr}
\toprule
method & x \% \\
\midrule
a\_b & 1 $\pm$ 2 \\
long $\vert$ one & \textbf{10.25} \\
\bottomrule
\end{tabular}
\par{\footnotesize p $<$ 0.05 \& more}
"""


def test_markdown_is_aligned_as_plain_text():
    assert markdown([TABLE], "Both", "lead", ["end"]) == MARKDOWN


def test_latex_has_the_best_number_in_bold():
    assert latex([TABLE]) == LATEX


def test_the_rows_of_tables_have_plain_numbers():
    other = table_of("Two", ("method", "n"), [("a", 3)])
    assert table_rows([TABLE, other]) == [
        {"table": "One_1", "method": "a_b", "x %": 1.0, "x % STD": 2.0},
        {"table": "One_1", "method": "long | one", "x %": 10.25},
        {"table": "Two", "method": "a", "n": 3},
    ]


@pytest.mark.parametrize("sign", ["\n", "\r\n", "\x85", "\u2028"])
def test_text_stays_on_its_line(sign):
    assert markdown_text(f"a{sign}b") == "a b"
    assert latex_text(f"a{sign}b") == "a b"


def test_text_is_no_markup():
    assert markdown_text("<b> &amp; p < 1") == "&lt;b> &amp;amp; p < 1"
    assert latex_text("100 % of #1_{}") == r"100 \% of \#1\_\{\}"
    assert latex_text("ε ≤ 1") == r"$\varepsilon$ $\leq$ 1"


def test_csv_has_every_column():
    assert (
        csv_text(
            [
                {"a": 1},
                {"a": 2, "b": "x,y"},
            ]
        )
        == 'a,b\n1,\n2,"x,y"\n'
    )


def two_methods():
    """A table of two metrics: method A has three seeds, and B was not run."""
    accuracy = PrintedMetric("avg", "average %", "higher", "accuracy_mean")
    kl = PrintedMetric("kl", "KL", "lower", "kl_uniform", 1.0)
    runs = MatchedRuns(dict.fromkeys(range(3)))
    measured = (
        Measured((1.0, 2.0, 6.0), Reported(4.0, 0.5)),
        Measured((0.25,)),
    )
    missing = (Measured((), Reported(7.0, None)), Measured())
    lines = (
        Line("a", "A", {"q": 0.5}, runs, measured),
        Line("b", "B", {}, MatchedRuns({}), missing),
    )
    paper = papers()["fedfa"]
    return TableData(
        "p/t",
        "P, Table",
        (Column(accuracy, printed=True), Column(kl)),
        (
            RowGroup(
                Setup("s", "One", "p/one", 3, 3, 5),
                lines,
            ),
        ),
        paper,
        next(iter(paper.tables.values())),
    )


def test_numbers_in_full_precision_by_hand():
    """Seeds at 1, 2 and 6: mean 3, STD √7, half width t(0.975, 2) √7 / √3; 4 ± 0.5 is printed."""
    first, second = read_csv(table_csv(two_methods()))
    half = 0.95 / math.sqrt(2 * 0.975 * 0.025) * math.sqrt(7 / 3)
    numbers = {
        "mean": 3,
        "std": math.sqrt(7),
        "n": 3,
        "lower": 3 - half,
        "upper": 3 + half,
        "paper": 4,
        "paper_std": 0.5,
        "difference": -1,
    }
    shown = {name: float(first[f"accuracy_mean_{name}"]) for name in numbers}
    assert shown == pytest.approx(numbers, rel=1e-12)
    assert (
        first["setup"],
        first["method"],
        first["settings"],
    ) == ("One", "A", "q=0.5")
    assert first["accuracy_mean_agreement"] == "inside"
    assert (first["kl_uniform_mean"], first["kl_uniform_std"]) == ("0.25", "")
    assert "kl_uniform_paper" not in first

    assert (second["accuracy_mean_mean"], second["accuracy_mean_n"]) == ("", "0")
    assert second["accuracy_mean_paper"] == "7.0"
    assert second["accuracy_mean_agreement"] == "missing"
    assert second["status"] == "not run"


def test_columns_that_a_paper_prints_are_in_markdown():
    (
        (
            _,
            (heads, one, two),
        ),
    ) = markdown_tables(table_markdown(two_methods()))
    assert heads == ["method", "settings", "seeds", "average %", "status"]
    assert one[3:] == ["3.00 ± 2.65 ≈ 4.00 ± 0.50", "full"]
    assert two[3:] == ["– / 7.00", "not run"]


def text(number):
    return "" if number is None else str(number)


@pytest.mark.parametrize("name", ["adafed", "fedcada"])
def test_printed_numbers_can_be_read_back(name):
    """Without a run: they stand where they belong in all three files."""
    paper = papers()[name]
    for table in paper.tables.values():
        data = paper_table(table, Evidence(paper, []))
        best = "best_" if table.round == "best" else ""
        printed = sorted(table.rows, key=lambda row: table.setups.index(row.setup))
        for shown, row in zip(read_csv(table_csv(data)), printed, strict=True):
            assert shown["setup"] == paper.setups[row.setup].title
            assert shown["method"] == paper.methods[row.algo].label
            for column, number in row.values.items():
                field = f"{best}{paper.metrics[column].field}_paper"
                assert shown[field] == text(number.mean)
                assert shown[f"{field}_std"] == text(number.std)
        for tables in (markdown_tables(table_markdown(data)), latex_tables(table_latex(data))):
            rows = [row for _, (_, *rows) in tables for row in rows]
            assert [row[-1] for row in rows] == ["not run"] * len(printed)

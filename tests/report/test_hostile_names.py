"""Names with the signs of mathematics, markup and spreadsheets are shown as they are."""

import html
import re
from functools import partial

import numpy as np
import pytest
import yaml
from fake_runs import change_facts
from report_runs import call_report, leave_runs, tables_in
from table_readers import markdown_tables, read_csv

from fedbench.reports.canvas import Look, draw
from fedbench.reports.panels import Panel, Series
from fedbench.reports.plots import curves, means
from fedbench.reports.text_table import csv_text, markdown, table_of

SIGNS = r"a$\frac%$b & c_d {e}^f~g#h <i>j|k`l"
ALGO = "$mine%$"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Runs whose data, method and values have such names, and their report."""
    root = tmp_path_factory.mktemp("signs") / "runs"
    for value in (SIGNS, "=1+1"):
        leave_runs(
            root,
            "fedavg",
            ALGO,
            keys={"algo.note": value},
            seeds=(0, 1),
        )
    change_facts(root, data=SIGNS)
    assert call_report(root)[::2] == (0, "")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--compare algo", "--latex"])
def test_a_report_shows_them(root, tmp_path, words):
    status, _, error = call_report(
        root,
        *words.split(),
        "--into",
        tmp_path / "out",
    )
    assert (status, error) == (0, "")


@pytest.mark.parametrize(
    "picture",
    [curves, partial(curves, log_y=True), means],
)
def test_a_picture_has_no_formulas(tmp_path, picture):
    """Also in the ticks of large and small numbers."""
    x = np.arange(1.0, 6.0)
    y = np.outer([1, 2], 10.0 ** (3 * x - 9))
    series = Series(
        SIGNS,
        x,
        y,
        Look("#112233"),
        texts=(SIGNS,) * 5,
    )
    panel = Panel(SIGNS, [series], SIGNS, SIGNS)
    _, svg = draw(tmp_path / "p", picture, SIGNS, [panel])
    texts = re.findall(r">([^<]+)</text>", svg.read_text())
    assert "frac%$b" in " ".join(texts)
    assert len([text for text in texts if re.fullmatch(r"[\d.]+", text)]) > 4
    assert not [text for text in texts if re.search(r"math|\$\d|10\^", text)]


def test_tables_have_them_in_every_form(root):
    tables = root / "report" / "tables"
    for path in tables_in(tables, "md"):
        ((_, (_, *rows)),) = markdown_tables(path.read_text())
        assert [row[0] for row in rows] == [r"\$mine%\$"] * 2 + ["fedavg"] * 2
    for path in tables_in(tables, "tex"):
        text = path.read_text()
        assert text.count(r"\$mine\%\$ & algo.note=") == 2
        assert r"a\$\textbackslash{}frac\%\$b \& c\_d \{e\}\^{}f\~{}g\#h $<$i$>$j$\vert$k`l" in text
    for path in tables_in(tables, "csv"):
        assert {row["algo"] for row in read_csv(path.read_text())} == {"fedavg", ALGO}
    page = (root / "report" / "index.html").read_text()
    assert "<i>j" not in page
    assert html.escape(SIGNS) in page


def test_cells_of_markdown_hold_no_code_or_formula():
    text = markdown(
        [
            table_of(
                "",
                ("m",),
                [("a|b`c`$d$",)],
            )
        ]
    )
    assert r"| a\|b\`c\`\$d\$ |" in text


@pytest.mark.parametrize(
    "text",
    ["=1+1", "@x", "+x", "-x", "\tx", "-1+1"],
)
def test_no_text_of_a_csv_file_is_a_formula(text):
    assert csv_text([{"a": text, "b": 1}]) == f"a,b\n'{text},1\n"


# a value and its cell
NUMBERS = """
- [x=1, x=1]
- ["-0.5", "-0.5"]
- ["+1e-3", "+1e-3"]
- [-1.0e-300, "-1e-300"]
- [-3, "-3"]
- [-.inf, "-inf"]
- [null, ""]
- [true, "True"]
"""


@pytest.mark.parametrize(("value", "cell"), yaml.safe_load(NUMBERS))
def test_numbers_of_a_csv_file_stay_numbers(value, cell):
    assert csv_text([{"a": value, "b": 1}]) == f"a,b\n{cell},1\n"

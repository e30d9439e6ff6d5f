"""Names with signs that mean something to matplotlib, LaTeX, Markdown, HTML or a spreadsheet are shown as they are."""

import html
import json
import re

import matplotlib
import numpy as np
import pytest
from fake_runs import edit, fake
from report_runs import call, tables_in
from table_readers import markdown_tables, read_csv

from fedbench.reports import canvas, plots
from fedbench.reports.canvas import Look, draw
from fedbench.reports.plots import Panel, Series
from fedbench.reports.text_table import Cell, csv_text, markdown, table_of

SIGNS = r"a$\frac%$b & c_d {e}^f~g#h <i>j|k`l"
ALGO = "$mine%$"


def named(paths):
    for path in paths:
        edit(path / "meta.json", lambda text: json.dumps(json.loads(text) | {"data": SIGNS}))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Runs whose data, method and values have such names."""
    root = tmp_path_factory.mktemp("signs") / "runs"
    for algo in ("fedavg", ALGO):
        for value in (SIGNS, "=1+1"):
            named(fake(root, None, algo, keys={"algo.note": value}, seeds=(0, 1)))
    return root


@pytest.mark.parametrize("words", [(), ("--compare", "algo"), ("--latex",)], ids=" ".join)
def test_a_report_shows_them(root, words):
    status, _, error = call("report", str(root), *words)
    assert (status, error) == (0, "")


def test_a_picture_shows_them_and_its_axes_stay_numbers(root, tmp_path):
    out = tmp_path / "a.svg"
    assert (
        call(
            "plot", str(root), "--by", "algo.note", "--log", "--y", "train_loss", "--out", str(out)
        )[0]
        == 0
    )
    texts = [html.unescape(text) for text in re.findall(r">([^<]+)</text>", out.read_text())]
    words = " ".join(texts)
    assert "frac%$b" in words
    ticks = [text for text in texts if re.fullmatch(r"[\d.]+", text)]
    assert len(ticks) > 4
    assert not [text for text in texts if "mathdefault" in text or "10^" in text]


def test_every_kind_of_picture_and_axis(tmp_path):
    """The ticks of large and small numbers, are the ones that they were with mathematics."""
    x = np.arange(1.0, 6.0)
    series = Series(
        SIGNS, x, np.outer([1, 2], 10.0 ** (3 * x - 9)), Look("#112233"), texts=(SIGNS,) * 5
    )
    panel = Panel(SIGNS, [series], SIGNS, SIGNS)
    for name in ("curves", "means"):
        for file in draw(tmp_path / name, getattr(plots, name), SIGNS, [panel]):
            assert file.stat().st_size > 1000
        text = (tmp_path / f"{name}.svg").read_text()
        assert not re.search(r">[^<]*(\\math|\$\d)", text)


def test_a_style_of_pictures_reads_no_formulas():
    with matplotlib.style.context(canvas.STYLE, after_reset=True):
        assert matplotlib.rcParams["text.parse_math"] is False
        assert matplotlib.rcParams["axes.formatter.use_mathtext"] is False


def test_tables_have_them_in_every_form(root):
    call("report", str(root))
    tables = root / "report" / "tables"
    for path in tables_in(tables, "md"):
        ((_, (heads, *rows)),) = markdown_tables(path.read_text())
        assert (heads[0], [row[0] for row in rows]) == (
            "method",
            [r"\$mine%\$"] * 2 + ["fedavg"] * 2,
        )
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
    (row,) = re.findall(r"^\| a.*$", markdown([table_of("", ("m",), [("a|b`c`$d$",)])]), re.M)
    assert row == r"| a\|b\`c\`\$d\$ |"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"), ("@x", "'@x"), ("+x", "'+x"), ("-x", "'-x"), ("\tx", "'\tx"), ("-1+1", "'-1+1"),
        ("x=1", "x=1"), ("-0.5", "-0.5"), ("+1e-3", "+1e-3"), (-0.5, "-0.5"), (-1e-300, "-1e-300"), (-3, "-3"),
        (float("-inf"), "-inf"), (None, ""), (True, "True"),
    ],
)  # fmt: skip
def test_no_text_of_a_csv_file_is_a_formula_and_numbers_stay_numbers(value, cell):
    assert csv_text([{"a": value, "b": 1}]) == f"a,b\n{cell},1\n"


def test_cells_are_guarded_wherever_a_csv_file_comes_from(root):
    fake(root.parent / "more", None, "=cmd()", seeds=(0, 1))
    fake(root.parent / "more", None, "fedavg", seeds=(0, 1))
    assert call("report", str(root.parent / "more"), "--compare", "algo")[0] == 0
    files = list((root.parent / "more" / "report").rglob("*.csv"))
    assert len(files) == 3
    cells = [cell for file in files for row in read_csv(file.read_text()) for cell in row.values()]
    assert "'=cmd()" in cells
    assert not [cell for cell in cells if cell[:1] in ("=", "@")]
    assert Cell("=cmd()").text == "=cmd()"  # the page and the other files have the name itself

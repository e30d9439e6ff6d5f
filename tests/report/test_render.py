"""What a spreadsheet, LaTeX or Markdown would carry out is text in reports."""

import csv
import io

import pytest

from fedbench.report.render import csv_text, escape, in_markdown, latex, markdown, one_line


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1"])
def test_formulas_are_neutralised(cell):
    (row,) = csv.DictReader(io.StringIO(csv_text([{"a": cell}]), newline=""))
    assert row["a"] == f"'{cell}"


def test_a_carriage_return_ends_no_row():
    assert csv_text([{"a": "x\r=1"}]) == "a\nx =1\n"


@pytest.mark.parametrize("cell", [-0.5, 3, None, "-0.5", "+1e-3", "+0.10 to +0.68", "a=b", "–"])
def test_numbers_and_other_text_stay(cell):
    (row,) = csv.DictReader(io.StringIO(csv_text([{"a": cell, "b": 1}])))
    assert row["a"] == ("" if cell is None else str(cell))


def test_markdown():
    assert in_markdown("<script>x</script> & &lt; 1 < 2\nb") == "&lt;script>x&lt;/script> & &amp;lt; 1 < 2 b"
    lines = markdown(["method"], [["a|b"], ["c\n| d"]]).splitlines()
    assert lines[2:] == [r"| a\|b   |", r"| c \| d |"]


def test_latex_is_one_line_per_row():
    assert one_line("a\r\nb\u2028c\x0cd") == "a b c d"
    assert escape("a\n\\input{x}") == r"a \textbackslash{}input\{x\}"
    assert escape("p <= 0.05 > 0") == "p $<$= 0.05 $>$ 0"  # < is another sign in LaTeX's default encoding
    assert len(latex(["method"], [["a\n\nb"]]).splitlines()) == 7

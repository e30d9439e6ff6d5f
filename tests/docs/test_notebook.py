"""The notebook of the documentation runs, and its stored outputs are what it prints."""

import ast
import json

import matplotlib.pyplot as plt
import pytest
from tools import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "first_results.ipynb"


def cells():
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [c for c in found if c["cell_type"] == "code"]


def value(source, names):
    """The value of a cell's last expression, as a notebook shows it; None if it ends otherwise."""
    *before, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        before, last = [*before, last], None
    exec(compile(ast.Module(before, []), "cell", "exec"), names)
    return (
        None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    )


def test_the_value_of_a_cell():
    names = {}
    assert value("a = 2\na + 1", names) == 3
    assert value("b = a", names) is None
    assert names["b"] == 2


@pytest.mark.slow
def test_the_notebook_prints_what_it_shows(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", plt.close)
    names = {}
    for cell in cells():
        shown = [
            o["data"]["text/plain"] for o in cell["outputs"] if o["output_type"] == "execute_result"
        ]
        found = value("".join(cell["source"]), names)
        assert [repr(found)] == ["".join(s) for s in shown] if shown else found is None
        assert not [o for o in cell["outputs"] if o["output_type"] in ("error", "stream")]


def test_the_notebook_names_no_place_or_time_of_its_making():
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not [word for word in ("/tmp", "/home", "/Users", "iopub") if word in text]

"""The notebook of the documentation runs, and its stored outputs are those that it prints."""

import ast
import json

import matplotlib.pyplot as plt
import pytest
from tools import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "first_results.ipynb"


def value(source, names):
    """The value of a cell's last expression, as a notebook shows it; None if it ends otherwise."""
    cell = ast.parse(source)
    last = None
    if isinstance(cell.body[-1], ast.Expr):
        last = ast.Expression(cell.body.pop().value)
    exec(compile(cell, "cell", "exec"), names)
    return last and eval(compile(last, "cell", "eval"), names)


@pytest.mark.slow
def test_the_notebook_prints_its_stored_outputs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", plt.close)
    names = {}
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        printed = value("".join(cell["source"]), names)
        results = []
        for output in cell["outputs"]:
            assert output["output_type"] not in ("error", "stream")
            if output["output_type"] == "execute_result":
                results.append("".join(output["data"]["text/plain"]))
        assert results == ([] if printed is None else [repr(printed)])


def test_the_notebook_names_no_place_or_time_of_its_making():
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not [word for word in ("/tmp", "/home", "/Users", "iopub") if word in text]

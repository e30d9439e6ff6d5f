"""Interactive charts: Vega-Lite accepts them, and they have the numbers of their panels."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import vl_convert

from fedbench.analysis.compare import Difference
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import MatchedRuns
from fedbench.analysis.stats import paired
from fedbench.analysis.table_model import Cell, Column, Line, RowGroup, TableData
from fedbench.core.metrics import metric_info
from fedbench.papers.registry import papers
from fedbench.papers.schema import Reported
from fedbench.reports.canvas import Look, looks
from fedbench.reports.charts import (
    VEGA_LITE,
    curve_chart,
    dumbbells,
    heat_map,
    label_matrix,
    library,
    mean_chart,
)
from fedbench.reports.panels import Panel, Series
from fedbench.reports.table_pages import main_table

LOOK = looks({"FedAvg": "fedavg", "FedFa": "fedfa"}, subject="fedfa")
NAN, INF = float("nan"), float("inf")


def panel(*series):
    return Panel("Synthetic", series, "round", "training loss")


def curve(values, label="FedAvg", x=None):
    y = np.atleast_2d(np.array(values, float))
    rounds = np.arange(y.shape[1]) if x is None else np.array(x)
    return Series(label, rounds, y, LOOK[label])


def compiled(spec):
    """The specification in Vega, which Vega-Lite makes of it; it refuses an invalid one."""
    return vl_convert.vegalite_to_vega(dict(spec, width=300), vl_version=VEGA_LITE)


def test_a_curve_has_the_mean_the_lowest_and_the_highest_seed():
    spec = curve_chart(panel(curve([[1, 2, 4], [3, 2, 8]]), curve([[5, 5, 5]], "FedFa")))
    first, second = spec["data"]["values"]
    assert first == {
        "name": "FedAvg",
        "seeds": [2, 2, 2],
        "x": [0, 1, 2],
        "mean": [2, 2, 6],
        "low": [1, 2, 4],
        "high": [3, 2, 8],
    }
    assert (second["name"], second["seeds"], second["mean"]) == ("FedFa", [1, 1, 1], [5, 5, 5])
    assert compiled(spec)["marks"]


def test_rounds_without_a_finite_number_are_left_out():
    spec = curve_chart(panel(curve([[1, NAN, INF, 4], [3, NAN, INF, NAN]], x=[0, 5, 10, 15])))
    (line,) = spec["data"]["values"]
    assert (line["x"], line["mean"], line["seeds"]) == ([0, 15], [2, 4], [2, 1])


def test_long_curves_are_thinned_and_keep_their_ends():
    spec = curve_chart(panel(curve([np.arange(5000)])))
    (line,) = spec["data"]["values"]
    assert len(line["x"]) == 120
    assert (line["x"][0], line["x"][-1]) == (0, 4999)
    assert line["x"] == line["mean"] == sorted(set(line["x"]))


def test_numbers_have_five_digits():
    spec = curve_chart(panel(curve([[0.123456789, 1234567]])))
    assert spec["data"]["values"][0]["mean"] == [0.12346, 1234600]


def test_lines_have_the_colours_and_dashes_of_the_picture():
    dashed = replace(LOOK["FedFa"], dashes=(0, (5, 1.5)))
    spec = curve_chart(panel(curve([1, 2]), replace(curve([1, 2], "FedFa"), look=dashed)))
    colours = spec["encoding"]["color"]["scale"]
    assert colours["domain"] == ["FedAvg", "FedFa"]
    assert colours["range"] == [LOOK["FedAvg"].colour, LOOK["FedFa"].colour]
    line = spec["layer"][1]["encoding"]["strokeDash"]["scale"]
    assert line["range"] == [[1, 0], [10, 3]]


@pytest.mark.parametrize("log", [False, True])
def test_a_logarithmic_axis_leaves_out_what_it_cannot_show(log):
    spec = curve_chart(panel(curve([[0, 1, 10]])), log_y=log)
    scales = [layer["encoding"]["y"]["scale"] for layer in spec["layer"]]
    assert scales == [{"type": "log"} if log else {"zero": False}] * 3
    assert ({"filter": "datum.low > 0"} in spec["transform"]) == log
    assert compiled(spec)


def test_means_have_bars_of_one_std():
    look = Look("#123456")
    swept = Series(
        "a", np.array([[1.0, 2], [3, 2]]), np.array([[10.0, NAN], [14, NAN]]), look, ("0",)
    )
    single = Series("b", np.array([7.0, INF]), np.array([[1.0, 2]]), look)
    spec = mean_chart(panel(swept, single))
    first, second = spec["data"]["values"]
    spread = 8**0.5  # of 10 and 14
    assert (first["x"], first["y"], first["text"], first["seeds"]) == (2, 12, "0", 2)
    assert first["y_low"] == pytest.approx(12 - spread, rel=1e-4)
    assert first["x_high"] == pytest.approx(2 + 2**0.5, rel=1e-4)
    assert (second["name"], second["y_low"], second["y_high"]) == ("b", 1, 1)
    assert "text" not in second
    assert compiled(spec)


def table_with(*cells):
    """A table with a column; each row has one of the cells."""
    paper = papers()["adafedadam"]
    setup = next(iter(paper.setups.values()))
    column = Column(paper.metrics["avg"], printed=True)
    lines = tuple(
        Line("fedavg", f"method {i}", {}, MatchedRuns({}), (cell,)) for i, cell in enumerate(cells)
    )
    return TableData("t", "T", (column,), (RowGroup(setup, lines),), paper)


def test_dumbbells_have_the_rows_with_both_numbers():
    printed = Reported(90.0, None)
    spec, *others = dumbbells(
        table_with(
            Cell((88.0, 90.0), printed),
            Cell((), printed),
            Cell((88.0,)),
            Cell((INF,), printed),
            Cell((91.0,), printed),
        )
    )
    assert not others
    rows = spec["data"]["values"]
    assert [row["row"].split(",")[0] for row in rows] == ["method 0", "method 4"]
    both, single = rows
    assert (both["printed"], both["measured"], both["splits"], both["is"]) == (90, 89, 2, "inside")
    # t(0.975, 1) * s * sqrt(1 + 1/2) with s = sqrt(2)
    assert both["high"] - 89 == pytest.approx(12.706 * 2**0.5 * 1.5**0.5, rel=1e-3)
    assert (single["low"], single["high"], single["is"]) == (91, 91, "single")
    assert compiled(spec)
    assert dumbbells(table_with(Cell((1.0,)))) == []


def measured(count, departs=()):
    """A table whose row has the given number of measured numbers."""
    paper = papers()["adafedadam"]
    setup = next(iter(paper.setups.values()))
    columns = [Column(metric, printed=True) for metric in list(paper.metrics.values())[:3]]
    values = [(1.0,)] * count + [()] * (3 - count)
    cells = [Cell(numbers, Reported(1.0, None)) for numbers in values]
    runs = MatchedRuns({Unit(0, 0): None}, reduced=departs)
    line = Line("fedavg", "FedAvg", {}, runs, tuple(cells))
    return TableData("t", "T", tuple(columns), (RowGroup(setup, (line,)),), paper)


def test_the_main_table_has_the_most_numbers_at_the_settings_of_the_paper():
    reduced = measured(3, ("rounds 2 (paper 9)",))
    few, many = measured(1), measured(2)
    assert main_table([few, many, reduced]) is many
    assert main_table([measured(0), reduced]) is reduced


def test_the_library_is_one_script_and_is_made_once():
    assert "vegaEmbed" in library()
    assert "</script" not in library()
    assert library() is library()


# ---- gains over a baseline


def leads(first, seeds, ahead):
    return Difference(first, "fedavg", paired(seeds), 0.25, ahead)


def compared(baseline, *blocks):
    given = {"metric": metric_info("accuracy_std"), "baseline": baseline, "blocks": blocks}
    return SimpleNamespace(**given)


def test_a_heat_map_has_the_gains_with_undecided_ones_in_grey():
    """A smaller STD is a gain."""
    blocks = (
        SimpleNamespace(title="iid", differences=(leads("afl", [-2.0, -1.0], True),)),
        SimpleNamespace(title="dir", differences=(leads("afl", [4.0, 5.0], None),)),
    )
    spec = heat_map(compared("fedavg", *blocks))
    first, second = spec["data"]["values"]
    assert first == {
        "setting": "iid",
        "method": "afl",
        "gain": 1.5,
        "is": "better",
        "p": 0.25,
        "n": 2,
    }
    assert (second["gain"], second["is"]) == (-4.5, "undecided")
    colour = spec["layer"][0]["encoding"]["color"]
    assert colour["scale"]["domain"] == [-4.5, 4.5]
    assert "undecided" in colour["condition"]["test"]
    assert compiled(spec)


def test_there_is_no_heat_map_without_a_baseline_or_for_one_setting():
    block = SimpleNamespace(title="iid", differences=())
    assert heat_map(compared(None, block, block)) is None
    assert heat_map(compared("fedavg", block)) is None


def test_a_label_matrix_has_the_classes_that_clients_have():
    spec = label_matrix(np.array([[3, 1], [0, 0], [0, 2]]))
    assert spec["data"]["values"] == [
        {"client": 0, "class": 0, "examples": 3, "share": 0.75},
        {"client": 0, "class": 1, "examples": 1, "share": 0.25},
        {"client": 2, "class": 1, "examples": 2, "share": 1.0},
    ]
    assert compiled(spec)

"""Interactive charts of a page as Vega-Lite specifications, which the page's script shows.

A chart has the data of a panel of a picture (``fedbench.reports.plots``), rounded to five digits
and with at most 120 points per line. Lines whose names are in the parameter ``hidden`` are left
out.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
import vl_convert

from fedbench.analysis.compare import ComparedRuns, Difference
from fedbench.analysis.table_model import Cell, TableData
from fedbench.reports.canvas import Look
from fedbench.reports.panels import Panel, Series, thinned

Spec = Mapping[str, Any]  # a Vega-Lite specification
VEGA_LITE = "6.1"  # 6.4 shows "undefined" for the nearest point
_POINTS = 120  # maximum number of points of a line
_SIZE = {
    "width": "container",
    "height": 250,
    "autosize": {"type": "fit", "contains": "padding"},
}
_SHOWN = {"filter": "indexof(hidden, datum.name) < 0"}


@cache
def library() -> str:
    """Return the JavaScript of Vega, Vega-Lite and Vega-Embed, which defines ``vegaEmbed``."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)


# ---- curves


def curve_chart(panel: Panel, log_y: bool = False) -> Spec:
    """Return a chart of means over seeds by x, with bands from the lowest to the highest seed."""
    mean = _axis("mean", panel.y_label, log_y)
    band = {
        "mark": {"type": "area", "opacity": 0.18},
        "encoding": {"y": _axis("low", panel.y_label, log_y), "y2": {"field": "high"}},
    }
    line = {
        "mark": {"type": "line", "clip": True},
        "encoding": {
            "y": mean,
            "strokeDash": _by_line(panel, [_dashes(series.look) for series in panel.series]),
        },
    }
    nearest = {
        "type": "point",
        "on": "pointermove",
        "nearest": True,
        "clear": "pointerout",
    }
    points = {
        "mark": {"type": "point", "filled": True, "size": 70},
        "params": [{"name": "nearest", "select": nearest}],
        "encoding": {
            "y": mean,
            "opacity": {"condition": {"param": "nearest", "empty": False, "value": 1}, "value": 0},
            "tooltip": [
                _shown("name", "line"),
                _shown("x", panel.x_label),
                _shown("mean", panel.y_label),
                _shown("low", "lowest seed"),
                _shown("high", "highest seed"),
                _shown("seeds", "seeds"),
            ],
        },
    }
    positive = [{"filter": "datum.low > 0"}] if log_y else []
    return {
        **_chart(panel, map(_curve, panel.series)),
        "transform": [_SHOWN, {"flatten": ["x", "mean", "low", "high", "seeds"]}, *positive],
        "layer": [band, line, points],
    }


def _curve(series: Series) -> dict[str, Any]:
    """Return a line's name, and the mean, the lowest and the highest value by x."""
    values = thinned(_finite(series.y.T).set_axis(series.x).dropna(how="all"), _POINTS)
    return {
        "name": series.label,
        "seeds": values.count(axis=1).tolist(),
        "x": _rounded(values.index),
        "mean": _rounded(values.mean(axis=1)),
        "low": _rounded(values.min(axis=1)),
        "high": _rounded(values.max(axis=1)),
    }


# ---- means


def mean_chart(panel: Panel) -> Spec:
    """Return a chart of means over seeds, with bars of one STD, in the plane of two measures."""
    x = _axis("x", panel.x_label)
    y = _axis("y", panel.y_label)
    line = {
        "mark": "line",
        "encoding": {"y": y, "order": {"field": "at"}},
    }
    upright = {
        "mark": "rule",
        "encoding": {"y": _axis("y_low", panel.y_label), "y2": {"field": "y_high"}},
    }
    level = {
        "mark": "rule",
        "encoding": {"x": _axis("x_low", panel.x_label), "x2": {"field": "x_high"}, "y": y},
    }
    points = {
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {
            "x": x,
            "y": y,
            "tooltip": [
                _shown("name", "line"),
                _shown("text", "value"),
                _shown("x", panel.x_label),
                _shown("y", panel.y_label),
                _shown("seeds", "seeds"),
            ],
        },
    }
    rows = [row for series in panel.series for row in _means(series)]
    return {
        **_chart(panel, rows),
        "transform": [_SHOWN],
        "layer": [line, upright, level, points],
    }


def _means(series: Series) -> list[dict[str, Any]]:
    """Return the points of a line with their means and the ends of their bars."""
    x = _finite(np.atleast_2d(series.x))
    y = _finite(series.y)
    rows = []
    for place in range(y.shape[1]):
        seeds = int(y[place].count())
        if not seeds or not x[place].count():
            continue
        row: dict[str, Any] = {"name": series.label, "at": place, "seeds": seeds}
        if place < len(series.texts):
            row["text"] = series.texts[place]
        for axis, numbers in (("x", x[place]), ("y", y[place])):
            mean = numbers.mean()
            spread = numbers.std()
            if np.isnan(spread):
                spread = 0.0
            ends = _rounded([mean, mean - spread, mean + spread])
            row[axis], row[f"{axis}_low"], row[f"{axis}_high"] = ends
        rows.append(row)
    return rows


# ---- printed and measured numbers

_AGREEMENT = {
    "inside": "#17633f",
    "outside": "#a3330f",
    "impossible": "#5c3b99",
    "single": "#765000",
}


def dumbbells(table: TableData) -> list[Spec]:
    """Return a chart per column of a paper: printed next to measured numbers of each row."""
    charts = []
    for place, column in enumerate(table.columns):
        rows = []
        for block in table.blocks:
            for line in block.lines:
                cell = line.cells[place]
                if cell.printed is not None and cell.mean is not None and isfinite(cell.mean):
                    setup = block.setup.title if block.setup else ""
                    rows.append(_pair(f"{line.name}, {setup}", cell))
        if rows:
            charts.append(_dumbbell(column.metric.label, rows))
    return charts


def _pair(name: str, cell: Cell) -> dict[str, Any]:
    """Return the two numbers of a cell, and what a pointer shows with them."""
    assert cell.printed is not None and cell.mean is not None
    low, high = cell.prediction or (cell.mean, cell.mean)
    printed, measured, low, high = _rounded([cell.printed.mean, cell.mean, low, high])
    return {
        "row": name,
        "printed": printed,
        "measured": measured,
        "low": low,
        "high": high,
        "is": cell.agreement,
        "splits": cell.n,
    }


def _dumbbell(title: str, rows: Sequence[Mapping[str, Any]]) -> Spec:
    shown = [
        _shown("row", "row"),
        _shown("printed", "printed"),
        _shown("measured", "measured"),
        _shown("low", "another run, from"),
        _shown("high", "to"),
        _shown("is", "printed number"),
        _shown("splits", "splits"),
    ]
    measured = {
        "x": _axis("measured", ""),
        "tooltip": shown,
        "color": {
            "field": "is",
            "scale": {"domain": list(_AGREEMENT), "range": list(_AGREEMENT.values())},
            "legend": None,
        },
    }
    printed = {"x": _axis("printed", ""), "tooltip": shown}
    interval = {"x": _axis("low", ""), "x2": {"field": "high"}}
    return {
        **_SIZE,
        "height": 22 * len(rows) + 50,
        "title": {"text": title, "anchor": "start"},
        "data": {"values": rows},
        "encoding": {
            "y": {"field": "row", "sort": None, "title": None, "axis": {"labelLimit": 220}}
        },
        "layer": [
            {"mark": {"type": "rule", "opacity": 0.35, "strokeWidth": 3}, "encoding": interval},
            {"mark": {"type": "point", "size": 80, "color": "#666b73"}, "encoding": printed},
            {"mark": {"type": "point", "size": 60, "filled": True}, "encoding": measured},
        ],
    }


# ---- gains over a baseline

_UNDECIDED = "#d5d2ca"


def heat_map(compared: ComparedRuns) -> Spec | None:
    """Return the gains of methods over the baseline by setting; undecided ones are grey.

    The result is None unless there are a baseline and several settings.
    """
    if compared.baseline is None or len(compared.blocks) < 2:
        return None
    cells = []
    for block in compared.blocks:
        for difference in block.differences:
            if isfinite(difference.paired.mean):  # JSON has no infinity
                cells.append({"setting": block.title, **_gain(difference, compared.metric.sign)})
    largest = max((abs(cell["gain"]) for cell in cells), default=0.0) or 1.0
    title = f"gain over {compared.baseline}: {compared.metric.axis}"
    shown = [
        _shown("setting", "setting"),
        _shown("method", "method"),
        _shown("gain", title),
        _shown("is", "adjusted for the setting"),
        _shown("p", "adjusted p"),
        _shown("n", "pairs"),
    ]
    colour = {
        "condition": {"test": "datum.is == 'undecided'", "value": _UNDECIDED},
        "field": "gain",
        "type": "quantitative",
        "scale": {"scheme": "redblue", "domain": [-largest, largest]},
        "title": None,
    }
    number = {"field": "gain", "type": "quantitative", "format": "+.3g"}
    return {
        **_SIZE,
        "height": 24 * len(compared.blocks) + 110,
        "title": {"text": title, "anchor": "start"},
        "data": {"values": cells},
        "encoding": {
            "x": {"field": "method", "type": "nominal", "title": None, "sort": None},
            "y": {
                "field": "setting",
                "type": "nominal",
                "title": None,
                "sort": None,
                "axis": {"labelLimit": 260},
            },
        },
        "layer": [
            {"mark": "rect", "encoding": {"color": colour, "tooltip": shown}},
            {"mark": {"type": "text", "fontSize": 10}, "encoding": {"text": number}},
        ],
    }


def _gain(difference: Difference, sign: int) -> dict[str, Any]:
    """Return a method's gain over the baseline, its p-value, and what it is."""
    words = {True: "better", False: "worse", None: "undecided"}
    gain, p = _rounded([sign * difference.paired.mean, difference.adjusted])
    return {
        "method": difference.first,
        "gain": gain,
        "is": words[difference.ahead],
        "p": p,
        "n": difference.paired.n,
    }


# ---- labels of clients


def label_matrix(counts: np.ndarray) -> Spec:
    """Return a chart of the share of each class in each client's examples.

    Args:
        counts: The examples of each class per client, [N, classes].
    """
    sizes = counts.sum(1)
    cells = []
    for client, label in zip(*map(np.ndarray.tolist, counts.nonzero()), strict=True):
        count = int(counts[client, label])
        cell = {
            "client": client,
            "class": label,
            "examples": count,
            "share": round(count / int(sizes[client]), 4),
        }
        cells.append(cell)
    colour = {
        "field": "share",
        "type": "quantitative",
        "scale": {"scheme": "viridis", "type": "sqrt", "domain": [0, 1]},
    }
    shown = [
        _shown("client", "client"),
        _shown("class", "class"),
        _shown("examples", "examples"),
        _shown("share", "share"),
    ]
    return {
        **_SIZE,
        "height": 60 + max(200, 8 * counts.shape[1]),
        "data": {"values": cells},
        "encoding": {"x": _place("client"), "y": _place("class")},
        "layer": [{"mark": "rect", "encoding": {"color": colour, "tooltip": shown}}],
    }


def _place(field: str) -> Spec:
    """Return the encoding of a number by place, without gaps between neighbours."""
    return {
        "field": field,
        "type": "ordinal",
        "axis": {"labelOverlap": True, "labelAngle": 0},
    }


# ---- parts of charts


def _chart(panel: Panel, values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the charts of all panels have in common."""
    return {
        **_SIZE,
        "title": {"text": panel.title, "anchor": "start"},
        "data": {"values": list(values)},
        "params": [{"name": "hidden", "value": []}],
        "encoding": {
            "x": _axis("x", panel.x_label),
            "color": _by_line(panel, [series.look.colour for series in panel.series]),
        },
    }


def _by_line(panel: Panel, values: Sequence[Any]) -> Spec:
    """Return an encoding that gives each line of a panel its own value."""
    names = [series.label for series in panel.series]
    return {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": names, "range": list(values)},
        "legend": None,
    }


def _axis(
    field: str,
    title: str,
    log: bool = False,
) -> Spec:
    """Return the encoding of a field by place."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log"} if log else {"zero": False},
    }


def _shown(field: str, title: str) -> Spec:
    """Return an entry of the text that a pointer shows."""
    return {"field": field, "title": title}


def _dashes(look: Look) -> list[float]:
    """Return the dashes of a line in the unit of Vega-Lite."""
    return [1, 0] if isinstance(look.dashes, str) else [2 * length for length in look.dashes[1]]


def _finite(values: np.ndarray) -> pd.DataFrame:
    """Return values as a table, with NaN for infinite ones, which JSON lacks."""
    return pd.DataFrame(values).replace([np.inf, -np.inf], np.nan)


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]

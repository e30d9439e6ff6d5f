"""Interactive charts of the page of a benchmark: the data of the specifications in ``assets``."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from fedbench.analysis.benchmark import Lead, Results, profile
from fedbench.analysis.trials import RATE, Search
from fedbench.core.config_values import config_value
from fedbench.core.metrics import MetricInfo
from fedbench.reports.canvas import method_look
from fedbench.reports.charts import Spec
from fedbench.reports.templates import yaml_asset

_DARKEST = 90  # percentile of the absolute gains from which on a colour is the darkest
_ROW = 17  # height of a row in pixels

Row = dict[str, Any]


@dataclass(frozen=True)
class Names:
    """Names of the methods on a page.

    Attributes:
        own: The user's own methods, which are marked.
        baseline: The baseline.
        shown: The methods whose lines are shown at first.
    """

    own: Collection[str]
    baseline: str
    shown: Collection[str]

    def label(self, method: str) -> str:
        """Return the name of a method, with a mark for the user's own."""
        return f"▸ {method}" if method in self.own else method

    def row(self, method: str) -> Row:
        """Return the name and the role of a method for a chart."""
        role = "baseline" if method == self.baseline else "other"
        return {
            "name": self.label(method),
            "role": "own" if method in self.own else role,
        }


def bar_chart(
    title: str,
    results: Results,
    metric: str,
    names: Names,
) -> Spec:
    """Return the means of all methods with 95 % intervals over seeds, the best on top.

    Methods with a diverged run are below all others, and those with missing seeds at the bottom.
    """

    def order(method: str) -> tuple[bool, float]:
        score = results[method].score(metric)
        return score is None, -(score or 0.0)

    rows = []
    for method in sorted(results, key=order):
        cell = results[method].cell(metric)
        row = names.row(method)
        row["seeds"] = cell.n
        row["note"] = results[method].reason
        row["mean"] = cell.mean
        if cell.bounds is not None:
            row["low"], row["high"] = cell.bounds
        rows.append(row)
    return _chart("bars", title, rows)


def gain_chart(
    title: str,
    leads: Mapping[str, Mapping[str, Lead]],
    order: Sequence[str],
    names: Names,
) -> Spec:
    """Return a heat map of gains with a row per method and a column per setting.

    Args:
        title: Title of the chart.
        leads: The leads by setting and method.
        order: Order of the rows.
        names: Names of the methods.
    """
    cells = []
    for method in order:
        for setting, by_method in leads.items():
            if method in by_method:
                lead = by_method[method]
                difference = lead.difference
                cell: dict[str, Any] = {
                    "setting": setting,
                    "gain": difference.mean,
                    "low": difference.low,
                    "high": difference.high,
                    "n": difference.n,
                    "p": lead.p,
                    "state": lead.state,
                }
                cells.append(names.row(method) | cell)

    gains = [abs(cell["gain"]) for cell in cells if isfinite(cell["gain"])]
    darkest = (np.percentile(gains, _DARKEST) if gains else 0.0) or 1.0
    for cell in cells:
        gain = cell.pop("gain")  # JSON has no infinity
        cell["text"] = f"{gain:+.1f}" if isfinite(gain) else "diverged"
        cell["colour"] = float(np.clip(gain / darkest, -1, 1))
    return _chart("gains", title, cells)


# ---- lines


def profile_chart(
    title: str,
    scores: Mapping[str, Sequence[float]],
    metric: MetricInfo,
    names: Names,
) -> Spec:
    """Return the performance profile of every method as steps."""
    gaps = profile(scores)
    end = max(gap for row in gaps.values() for gap in (0.0, *row) if isfinite(gap))
    lines = {}
    for method, row in gaps.items():
        points = [{"x": 0.0, "y": 0.0}]
        for number, gap in enumerate(filter(isfinite, row), 1):
            points.append({"x": gap, "y": number / len(row)})
        lines[method] = [*points, {"x": end, "y": points[-1]["y"]}]
    unit = metric.difference_unit or metric.label
    titles = f"gap τ to the best ({unit})", "share of settings"
    return _lines(
        "steps",
        title,
        lines,
        names,
        *titles,
    )


def value_chart(
    title: str,
    searches: Iterable[Search],
    metric: MetricInfo,
    names: Names,
) -> Spec:
    """Return the expected best score by number of trials with its interval."""
    lines = {}
    for search in searches:
        points = []
        for number, scores in enumerate(search.value.T, 1):
            y, low, high = (shown(score, metric) for score in scores)
            points.append(
                {
                    "x": number,
                    "y": y,
                    "low": low,
                    "high": high,
                }
            )
        lines[search.method] = points
    return _lines(
        "lines",
        title,
        lines,
        names,
        "trials",
        metric.axis,
    )


def rate_chart(
    title: str,
    searches: Iterable[Search],
    metric: MetricInfo,
    names: Names,
) -> Spec:
    """Return the score of every method by the client's learning rate."""
    lines: dict[str, list[Row]] = {}
    for search in searches:
        lines[search.method] = []
        for key, value, score in search.points:
            if key == RATE:
                lines[search.method].append({"x": value, "y": shown(score, metric)})
    return _lines(
        "rates",
        title,
        lines,
        names,
        RATE,
        metric.axis,
    )


def key_chart(
    title: str,
    searches: Iterable[Search],
    metric: MetricInfo,
    names: Names,
) -> Spec:
    """Return the scores of the methods' own keys by value, with a row per key."""
    rows = []
    for search in searches:
        for key, value, score in search.points:
            if key != RATE:
                row = {
                    "name": f"{names.label(search.method)}: {key.removeprefix('algo.')}",
                    "value": value,
                    "text": config_value(value),
                    "x": shown(score, metric),
                }
                rows.append(row)
    return _chart(
        "keys",
        title,
        rows,
        metric.axis,
    )


def _lines(
    kind: str,
    title: str,
    lines: Mapping[str, Sequence[Row]],
    names: Names,
    *axes: str,
) -> Spec:
    rows = [names.row(method) | point for method, points in lines.items() for point in points]
    spec = _chart(
        kind,
        title,
        rows,
        *axes,
    )
    spec["params"][0]["value"] = [names.label(m) for m in lines if m not in names.shown]
    spec["encoding"]["color"]["scale"] = {
        "domain": [names.label(method) for method in lines],
        "range": [method_look(method).colour for method in lines],
    }
    return spec


def shown(score: float, metric: MetricInfo) -> float:
    """Return a score, of which higher is better, in the displayed unit of its metric."""
    return metric.sign * metric.factor * score


def _chart(
    kind: str,
    title: str,
    rows: Sequence[Row],
    *axes: str,
) -> Row:
    """Return a specification with titles, data rounded to five digits, and a height for rows."""
    spec: Row = yaml_asset("benchmark_charts.yaml")[kind]
    spec["title"] = {"text": title, "anchor": "start"}
    for axis, text in zip("xy", axes, strict=False):
        spec["encoding"][axis]["title"] = text
    for row in rows:
        for key, value in row.items():
            if isinstance(value, float):
                row[key] = float(f"{value:.5g}")
    spec["data"] = {"values": rows}
    if "height" not in spec:
        spec["height"] = 90 + _ROW * len({row["name"] for row in rows})
    return spec

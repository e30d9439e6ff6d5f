"""What is seen in a picture, in words: the alternative texts of figures, from the data that are drawn.

The functions take the arguments of the drawing function of ``fedbench.report.plots``, without the title.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbench.report.plots import Clients, Panel, Point, Spread, Swept

_NAMED = 8  # most lines whose values are listed


def of_curves(panels: Sequence[Panel]) -> str:
    """Return, per panel, the values at the end of all lines, the highest first."""
    return " ".join(_ranked(panel, "Lines over the rounds", "at the end") for panel in panels)


def of_sweep(panels: Sequence[Panel]) -> str:
    """Return, per panel and line, the values of the parameter with the highest and the lowest mean."""
    parts = []
    for panel in panels:
        for series in panel.series:
            mean = _means(series.y)
            known = np.flatnonzero(~np.isnan(mean))
            if not len(known):
                continue
            low, high = (known[pick(mean[known])] for pick in (np.argmin, np.argmax))
            ends = [f"{word} at {panel.x_label} {series.x[i]:g} with {mean[i]:.4g}" for word, i in
                    (("highest", high), ("lowest", low))]  # fmt: skip
            parts.append(f"{_about(panel)}, {series.label} over {panel.x_label}: {', '.join(ends)}.")
    return " ".join(parts)


def of_clients(panels: Sequence[Spread]) -> str:
    """Return, per panel and method, the median accuracy of the clients and that of the client at 10 %."""
    parts = []
    for panel in panels:
        rows = [row for row in panel.rows if np.isfinite(row.accuracy).any()]
        texts = [_quantiles(row) for row in sorted(rows, key=lambda row: -float(np.nanquantile(row.accuracy, 0.1)))]
        parts.append(
            f"{panel.title}: accuracy of the clients as a histogram and by rank; "
            f"the accuracy that 10 % and 50 % of the clients stay at or below: {_listed(texts)}."
        )
    return " ".join(parts)


def of_front(points: Sequence[Point], connected: Sequence[Swept], x_label: str, y_label: str) -> str:
    """Return the place of each method and of the ends of each swept line."""
    texts = [f"{p.label} at {np.nanmean(p.x):.4g} and {np.nanmean(p.y):.4g}" for p in points]
    for row in connected:
        x, y = (_means(v.T) for v in (row.x, row.y))
        ends = [f"{row.texts[i]} at {x[i]:.4g} and {y[i]:.4g}" for i in (0, -1)]
        texts.append(f"{row.label} from {ends[0]} to {ends[1]}")
    return f"Methods by {x_label} (across) and {y_label} (upwards): {_listed(texts)}."


def of_labels(panels: Sequence[tuple[str, np.ndarray]]) -> str:
    """Return, per panel, the numbers of clients and classes and the mean number of classes of a client."""
    return " ".join(
        f"{title}: examples of {counts.shape[1]} classes at {counts.shape[0]} clients; "
        f"a client has {(counts > 0).sum(1).mean():.1f} classes on average."
        for title, counts in panels
    )


def of_matrices(panels: Sequence[tuple[str, np.ndarray]]) -> str:
    """Return, per matrix, the range of its values off the diagonal."""
    parts = []
    for title, values in panels:
        others = values[~np.eye(len(values), dtype=bool)]
        known = others[np.isfinite(others)]
        span = f"from {known.min():.2f} to {known.max():.2f}" if len(known) else "unknown"
        parts.append(f"{title}: similarity of {len(values)} clients as a matrix of colours; off the diagonal {span}.")
    return " ".join(parts)


def _ranked(panel: Panel, kind: str, when: str) -> str:
    last = []
    for series in panel.series:
        mean = _means(series.y)
        known = mean[~np.isnan(mean)]
        if len(known):
            last.append((float(known[-1]), series.label))
    ordered = [f"{label} {value:.4g}" for value, label in sorted(last, key=lambda entry: -entry[0])]
    if len(last) > 1 and f"{max(last)[0]:.4g}" != f"{min(last)[0]:.4g}":
        ordered[0], ordered[-1] = f"{ordered[0]} (highest)", f"{ordered[-1]} (lowest)"
    note = f" {panel.note[0].upper()}{panel.note[1:]}." if panel.note else ""
    return f"{_about(panel)}. {kind}; {when}: {_listed(ordered)}.{note}"


def _about(panel: Panel) -> str:
    return f"{panel.title}, {panel.y_label}" if panel.title else panel.y_label


def _listed(texts: Sequence[str]) -> str:
    if len(texts) <= _NAMED:
        return ", ".join(texts)
    return ", ".join([*texts[: _NAMED - 1], f"{len(texts) - _NAMED} more", texts[-1]])


def _quantiles(row: Clients) -> str:
    tenth, half = np.nanquantile(row.accuracy, (0.1, 0.5))
    return f"{row.label} {tenth:.0f} % and {half:.0f} %"


def _means(y: np.ndarray) -> np.ndarray:
    """Return the mean over seeds of y [S, T]; NaN where no seed has a value."""
    known = ~np.isnan(y)
    counts = known.sum(0)
    return np.where(counts > 0, np.where(known, y, 0.0).sum(0) / np.maximum(counts, 1), np.nan)

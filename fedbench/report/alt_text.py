"""What is seen in a picture, in words: the alternative texts of figures, from the data that are drawn."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedbench.report.plots import Panel, Point, Spread, Swept, mean_of

_NAMED = 8  # most values that a sentence lists


def sentence(title: str, values: Iterable[tuple[str, float]]) -> str:
    """Return a sentence with the values of a picture, the highest first; of many, those in the middle are left out."""
    known = sorted((entry for entry in values if np.isfinite(entry[1])), key=lambda entry: -entry[1])
    texts = [f"{label} {value:.4g}" for label, value in known]
    if len(texts) > _NAMED:
        texts = [*texts[: _NAMED - 1], f"{len(texts) - _NAMED} more", texts[-1]]
    return f"{title}: {', '.join(texts)}."


def _ends(panel: Panel) -> list[tuple[str, float]]:
    """Return the last known mean of every line."""
    last = [(series.label, mean_of(series.y, 0)) for series in panel.series]
    return [(label, float(mean[~np.isnan(mean)][-1])) for label, mean in last if not np.isnan(mean).all()]


def of_curves(panels: Iterable[Panel]) -> str:
    """Return, per panel, the values at the end of all lines, and what is not drawn."""
    texts = []
    for panel in panels:
        texts.append(
            sentence(f"{panel.title}, {panel.y_label} at the end of the lines".removeprefix(", "), _ends(panel))
        )
        texts += [f"{panel.note[0].upper()}{panel.note[1:]}."] if panel.note else []
    return " ".join(texts)


def of_sweep(panels: Iterable[Panel]) -> str:
    """Return, per panel, the mean at every value of the parameter."""
    texts = []
    for panel in panels:
        means = [(s.label, x, y) for s in panel.series for x, y in zip(s.x, mean_of(s.y, 0), strict=True)]
        points = [(f"{label} at {x:g}", float(y)) for label, x, y in means]
        texts.append(sentence(f"{panel.title}, {panel.y_label} over {panel.x_label}", points))
    return " ".join(texts)


def of_clients(panels: Iterable[Spread]) -> str:
    """Return, per panel and method, the accuracy of the client at 10 %."""
    return " ".join(
        sentence(
            f"{panel.title}: accuracy (%) that the worst 10 % of the clients stay at or below",
            [(row.label, float(np.nanquantile(row.accuracy, 0.1))) for row in panel.rows if len(row.accuracy)],
        )
        for panel in panels
    )


def of_front(points: Iterable[Point], connected: Iterable[Swept], x_label: str, y_label: str) -> str:
    """Return the place of each method and of the points of each swept line."""
    places = [(f"{p.label} at {np.nanmean(p.x):.4g}", float(np.nanmean(p.y))) for p in points]
    for row in connected:
        means = zip(row.texts, mean_of(row.x, 1), mean_of(row.y, 1), strict=True)
        places += [(f"{row.label} {text} at {x:.4g}", float(y)) for text, x, y in means]
    return sentence(f"{y_label} by {x_label}", places)


def of_labels(panels: Iterable[tuple[str, np.ndarray]]) -> str:
    """Return, per panel of counts [clients, classes], the mean number of classes of a client."""
    classes = [(title, float((counts > 0).sum(1).mean())) for title, counts in panels]
    return sentence("Examples per client and class; mean number of classes of a client", classes)


def of_matrices(panels: Iterable[tuple[str, np.ndarray]]) -> str:
    """Return, per matrix [N, N], the mean of its values off the diagonal."""
    others = [(title, values[~np.eye(len(values), dtype=bool)]) for title, values in panels]
    means = [(title, float(v[np.isfinite(v)].mean())) for title, v in others if np.isfinite(v).any()]
    return sentence("Similarity of clients as a matrix of colours; mean off the diagonal", means)

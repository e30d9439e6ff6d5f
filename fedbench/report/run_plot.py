"""A figure of the curves of runs, on request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbench.analysis.run_curves import POSITIONS, RunCurve
from fedbench.core.errors import RequestError
from fedbench.core.metrics import metric_info
from fedbench.report import plots
from fedbench.report.looks import looks
from fedbench.report.plots import Panel, Series

BANDS = {"t": "band: 95 % t interval over seeds", "range": plots.RANGE, "none": ""}
_MOST_PANELS, _MOST_LINES = 12, 24  # more cannot be told apart


def draw_curves(
    file: Path, curves: Sequence[RunCurve], x: str, y: str, band: str = "t", log_y: bool = False
) -> list[Path]:
    """Draw the mean over seeds of every curve, a panel per setting, and return the files.

    Args:
        file: The file, which ends in .pdf, .png or .svg.
        curves: The curves.
        x: One of ``POSITIONS``.
        y: The metric.
        band: One of ``BANDS``: what is drawn around a mean over several seeds.
        log_y: Whether the axis of the metric is logarithmic.

    Raises:
        RequestError: If there are too many settings or lines, or none of the values of a logarithmic axis is above 0.
        NotWritten: If the file cannot be written.
    """
    settings = list(dict.fromkeys(c.setting for c in curves))
    most = max(sum(c.setting == s for c in curves) for s in settings)
    if len(settings) > _MOST_PANELS or most > _MOST_LINES:
        raise RequestError(
            f"{len(settings)} settings with up to {most} lines each are too many to tell apart (at most {_MOST_PANELS} "
            f"and {_MOST_LINES}); choose some with --where KEY=VALUE, such as --where data={settings[0].split()[0]}"
        )
    shown = looks([(c.algo, c.name) for c in curves])
    label, axis = POSITIONS[x][0], metric_info(y).axis
    panels = [
        Panel(
            setting if len(settings) > 1 else "",
            [
                Series(c.name, c.x, c.y, shown[c.algo, c.name], band=_band(c, band))
                for c in curves
                if c.setting == setting
            ],
            label,
            axis,
        )
        for setting in settings
    ]
    if log_y and not any((s.y > 0).any() for p in panels for s in p.series):
        raise RequestError(f"--log needs values above 0, and {y} has none")
    title = settings[0] if len(settings) == 1 else ""
    return plots.curves(file, title, panels, log_y=log_y, band_label=BANDS[band])


def _band(curve: RunCurve, band: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ends of the band around a mean; None for a single seed."""
    if band == "none" or len(curve.y) < 2:
        return None
    return curve.t_interval() if band == "t" else (np.nanmin(curve.y, 0), np.nanmax(curve.y, 0))

"""``fedbench plot DIR``: draw a figure with curves of runs."""

from collections.abc import Sequence
from pathlib import Path

from fedbench.commands.result import CommandResult
from fedbench.core.errors import RequestError
from fedbench.core.files import existing_directory, user_path
from fedbench.reports import plots
from fedbench.reports.canvas import KINDS, draw
from fedbench.reports.figures import curve_panels
from fedbench.reports.write import runs_below, selected

_MOST_LINES = 24
_MOST_PANELS = 12


def plot(
    folder: str | Path = "results",
    *,
    x: str = "round",
    y: str = "accuracy_mean",
    by: str = "algo",
    where: Sequence[str] = (),
    log: bool = False,
    out: str | Path | None = None,
) -> CommandResult:
    """Plot a metric of the runs in a directory, like ``fedbench plot``.

    Args:
        folder: Directory of the runs.
        x: Horizontal axis: ``round``, ``bytes``, ``seconds`` or a metric.
        y: The metric.
        by: Key that separates the lines, one line per value.
        where: Filters ``KEY=VALUE``; only runs with these values are drawn.
        log: Whether the metric's axis is logarithmic.
        out: Output file. If None, a file in the subdirectory ``plots`` is written.

    Returns:
        The result. Its ``page`` is the file; its ``status`` is 1 if runs were left out.

    Raises:
        NotWritten: If the figure cannot be written.
        RequestError: If an argument is invalid or there is nothing to draw.
    """
    folder = existing_directory("DIR", folder)
    name = f"{y}_over_{x}_by_{by}.png".replace("/", "_").replace(":", "_")
    file = user_path("--out", out) if out else folder / "plots" / name
    if file.suffix.removeprefix(".") not in KINDS:
        raise RequestError(
            f"--out must end in {', '.join('.' + kind for kind in KINDS)}; got {file}"
        )

    runs, left_out = runs_below(folder)
    runs = selected(runs, where)
    panels = curve_panels(runs, [y], x, by)
    lines = max(len(panel.series) for panel in panels)
    if len(panels) > _MOST_PANELS or lines > _MOST_LINES:
        raise RequestError(
            f"{len(panels)} settings with up to {lines} lines each are too many to tell apart "
            f"(at most {_MOST_PANELS} and {_MOST_LINES}); "
            "choose some with --where KEY=VALUE, such as --where algo=fedavg"
        )
    series = [series for panel in panels for series in panel.series]
    if log and not any((line.y > 0).any() for line in series):
        raise RequestError(f"--log needs values above 0, and {y} has none")

    (page,) = draw(file, plots.curves, "", panels, log_y=log)
    print(f"written: {page}")
    return CommandResult(1 if left_out else 0, page)


execute = plot

"""The frame of all pictures: style, size, title, legend, and files with the same bytes for the same data.

A panel is 3.3 inches wide in print, with no text smaller than 8 pt (the unit of font sizes).
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from fedbench.core.errors import RequestError
from fedbench.core.files import replace_bytes
from fedbench.report.looks import Look

WIDTH = 3.3  # width of a panel, inches
SIZE = (WIDTH, 2.4)
_SIZES = ("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
STYLE: dict[Any, Any] = {
    **dict.fromkeys((*_SIZES, "legend.title_fontsize"), 8),
    **{"axes.titlesize": 9, "axes.titlelocation": "left", "figure.titlesize": 10},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6},
    **{"axes.grid": True, "axes.axisbelow": True, "grid.color": "0.9", "grid.linewidth": 0.5},
    **{"legend.frameon": False, "legend.handlelength": 2.8},
    **{"lines.linewidth": 1.3, "lines.markersize": 3.5, "errorbar.capsize": 2},
    **{"svg.fonttype": "none", "svg.hashsalt": "fedbench"},
    **{"pdf.fonttype": 42},  # TrueType: publishers refuse fonts of type 3
}
KINDS = {  # of files, with the metadata that would differ between machines and days
    "png": ("Software",),
    "svg": ("Date", "Creator"),
    "pdf": ("Creator", "Producer", "CreationDate"),
}

_P = ParamSpec("_P")
Figure = Any  # matplotlib's Figure: its annotations differ between the supported versions


def picture(draw: Callable[_P, Figure]) -> Callable[Concatenate[Path, _P], list[Path]]:
    """Wrap a drawing function so that it writes its files in this module's style, whatever the user's settings.

    A path that ends in one of ``KINDS`` is written as this file alone; any other one gets the endings .png and .svg.
    """

    @wraps(draw)
    def written(base: Path, /, *args: _P.args, **kwargs: _P.kwargs) -> list[Path]:
        try:
            import matplotlib
        except ModuleNotFoundError as error:
            raise RequestError("pictures need matplotlib; run: pip install matplotlib") from error
        files = {}
        kinds = {base.with_name(f"{base.name}.{kind}"): kind for kind in ("png", "svg")}
        kinds = {base: alone} if (alone := base.suffix.removeprefix(".")) in KINDS else kinds
        with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE}):
            figure = draw(*args, **kwargs)
            for path, kind in kinds.items():
                buffer = io.BytesIO()
                figure.savefig(buffer, format=kind, dpi=150, metadata=dict.fromkeys(KINDS[kind]))
                files[path] = buffer.getvalue()
        base.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            replace_bytes(path, content)
        return list(files)

    return written


def sheet(
    title: str, reduced: bool, number: int, legend: Sequence[Any], columns: int = 0, size: Sequence[float] = SIZE
) -> tuple[Figure, list[Any]]:
    """Return a figure and its ``number`` axes of ``size`` in inches, with the title above and the legend below."""
    from matplotlib.figure import Figure

    check(number, title, "", "there is nothing to draw")
    columns = columns or (2 if number == 4 else min(3, number))
    rows, width = -(-number // columns), columns * size[0]
    above = wrap(title, width - 0.2 - reduced, 10) or " "  # a blank reserves the row of the label
    for handle in legend:
        handle.set_label(wrap(handle.get_label(), width - 0.7))
    longest = max((len(line) for handle in legend for line in handle.get_label().split("\n")), default=0)
    below = -(-len(legend) // max(1, int(72 * width / (8 * (0.6 * longest + 6)))))  # rows of the legend
    height = rows * size[1] + 0.2 * (above.count("\n") + 1) + 0.17 * below
    figure = Figure(figsize=(width, height), layout="constrained")
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in places[number:]:
        spare.remove()
    figure.suptitle(above, x=0.05 / width, ha="left")
    if reduced:
        figure.text(1 - 0.05 / width, 1 - 0.05 / height, "reduced setting", ha="right", va="top", style="italic")
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=-(-len(legend) // below))
    return figure, places[:number]


def lines(entries: Iterable[tuple[str, Look]], **other: Any) -> list[Any]:
    """Return the legend's lines, each once."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=label, **{**line_look(look), **other}) for label, look in dict.fromkeys(entries)]


def line_look(look: Look) -> dict[str, Any]:
    """Return matplotlib's arguments for a look."""
    on_top = {"linewidth": 1.9, "zorder": 3} if look.subject else {}
    return {"color": look.colour, "linestyle": look.dashes, "marker": look.marker, **on_top}


def wrap(text: str, inches: float, size: float = 8) -> str:
    """Return text with line breaks such that it fits a width at a font size."""
    return textwrap.fill(text, max(8, int(72 * inches / (0.58 * size))), break_on_hyphens=False)


def integer_ticks(*axes: Any) -> None:
    """Put ticks only at integers."""
    for axis in axes:
        axis.get_major_locator().set_params(integer=True)


def plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers, since small exponents are illegible; a short axis has more ticks."""
    from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if low > 0 and high < 30 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 4 * low else AutoLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def check(fits: object, name: str, label: str, fault: str) -> None:
    """Raise ``ValueError`` with the names of the panel and the line if something does not fit."""
    if not fits:
        raise ValueError(f"{name!r}{f', {label!r}' if label else ''}: {fault}")

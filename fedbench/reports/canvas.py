"""The common frame of all pictures: size, title, legend, line styles and files.

A panel is 3.3 inches wide in print, with no text smaller than 8 pt (the unit of font sizes).

A method has the same style in every figure of every paper. The colours were found by a search:
methods that a paper draws together are at least 15 apart in OKLab (times 100), and at least 7 apart
as seen by readers without red or green cones (Machado et al., 2009); any two methods are at least 8
apart, and every colour has a contrast of at least 2.5 with white. In addition, no two methods share
both dashes and marker.
"""

import colorsys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any
from zlib import crc32

import matplotlib.figure
import matplotlib.style
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from fedbench.core.atomic_files import replacing, writing
from fedbench.reports.filters import grouped
from fedbench.reports.templates import ASSETS, yaml_asset

WIDTH = 3.3  # width of a panel, inches
SIZE = (WIDTH, 2.4)
STYLE = ASSETS / "pictures.mplstyle"
KINDS = {  # file types, with the metadata that would vary with machine and date
    "png": ("Software",),
    "svg": ("Date", "Creator"),
    "pdf": ("Creator", "Producer", "CreationDate"),
}

Dashes = str | tuple[float, tuple[float, ...]]
_DASHES: tuple[Dashes, ...] = (
    "solid",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
)
_MARKERS = tuple("os^DvPX<>*phd")
_COLOURS: dict[str, str] = yaml_asset("colours.yaml")

Figure = Any  # type annotations differ between the supported versions of matplotlib


@dataclass(frozen=True)
class Look:
    """Appearance of a line.

    Attributes:
        colour: Colour as ``#RRGGBB``.
        dashes: Line style in matplotlib's notation.
        marker: Marker in matplotlib's notation.
        subject: Whether the line shows the paper's own method, which is drawn on top and thicker.
    """

    colour: str
    dashes: Dashes = "solid"
    marker: str = "o"
    subject: bool = False

    @property
    def line(self) -> dict[str, Any]:
        """The line's keyword arguments for matplotlib."""
        on_top = {"linewidth": 1.9, "zorder": 3} if self.subject else {}
        return {
            "color": self.colour,
            "linestyle": self.dashes,
            "marker": self.marker,
            **on_top,
        }


def draw(
    base: Path,
    picture: Callable[..., Figure],
    *args: Any,
    **options: Any,
) -> list[Path]:
    """Draw a picture in the style of this package, and return its files.

    Args:
        base: Path of the file if its suffix is one of ``KINDS``; otherwise, .png and .svg files are
            written with these suffixes added to the path.
        picture: Drawing function, such as those of ``fedbench.reports.plots``.
        args: Positional arguments of the drawing function.
        options: Keyword arguments of the drawing function.

    Raises:
        NotWritten: If a file cannot be written.
    """
    kind = base.suffix.removeprefix(".")
    files = {kind: base}
    if kind not in KINDS:
        files = {kind: base.with_name(f"{base.name}.{kind}") for kind in ("png", "svg")}
    with writing(base):
        base.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.style.context(STYLE, after_reset=True):
        figure = picture(*args, **options)
        for kind, file in files.items():
            with replacing(file) as part:
                figure.savefig(
                    part,
                    format=kind,
                    metadata=dict.fromkeys(KINDS[kind]),
                )
    return [*files.values()]


def sheet(
    title: str,
    panels: Sequence[Any],
    legend: Sequence[Any] = (),
    reduced: bool = False,
    size: tuple[float, float] = SIZE,
) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, one per panel, with the title above and the legend below.

    Args:
        title: Title of the figure.
        panels: The panels with their labels, as in ``fedbench.reports.panels``.
        legend: The entries of the legend.
        reduced: Whether to write "reduced setting" in the corner.
        size: Width and height of a panel in inches.
    """
    # each row holds the panels of one setting
    fields = len({panel.y_label for panel in panels})
    columns = fields if fields in (2, 3) else min(3, len(panels))
    rows = ceil(len(panels) / columns)
    panel_width, panel_height = size
    width = columns * panel_width
    heading = wrap(title, width - 1.2, 10) or " "  # a blank reserves space for the label

    longest = max((len(handle.get_label()) for handle in legend), default=0)
    entries = max(1, int(15 * width / (longest + 10)))  # per legend row
    for handle in legend:
        handle.set_label(wrap(handle.get_label(), width - 0.7))

    height = rows * panel_height
    height += 0.2 * len(heading.splitlines())
    height += 0.17 * ceil(len(legend) / entries)
    figure = matplotlib.figure.Figure(figsize=(width, height))
    left = 0.05 / width
    figure.suptitle(heading, x=left, ha="left")
    if reduced:
        figure.text(
            1 - left,
            1 - 0.05 / height,
            "reduced setting",
            ha="right",
            va="top",
            style="italic",
        )
    if legend:
        figure.legend(
            handles=legend,
            loc="outside lower center",
            ncols=entries,
        )

    every_axes = []
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, number)
        axes.set(
            title=wrap(panel.title, panel_width - 0.8, 9),
            xlabel=wrap(panel.x_label, panel_width - 0.8),
            ylabel=wrap(panel.y_label, panel_height - 0.5),
        )
        every_axes.append(axes)
    return figure, every_axes


def legend_lines(entries: Iterable[tuple[str, Look]], **other: Any) -> list[Any]:
    """Return the distinct lines of a legend."""
    lines = []
    for label, look in dict.fromkeys(entries):
        appearance = look.line | other
        lines.append(Line2D([], [], label=label, **appearance))
    return lines


def wrap(
    text: str,
    inches: float,
    size: float = 8,
) -> str:
    """Return text with line breaks so that it fits a width in inches at a font size."""
    columns = int(72 * inches / (0.58 * size))
    return textwrap.fill(
        text,
        max(8, columns),
        break_on_hyphens=False,
    )


def plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers, because small exponents are illegible."""
    low, high = axis.get_view_interval()
    digits = (1, 2, 5) if high < 30 * low else (1,)
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


# ---- line styles


def method_look(algo: str) -> Look:
    """Return the line style of a method.

    The style of a method outside fedbench depends only on its name.
    """
    if algo in _COLOURS:
        number = list(_COLOURS).index(algo)
        colour = _COLOURS[algo]
    else:
        number = crc32(algo.encode())
        rgb = colorsys.hls_to_rgb(number % 360 / 360, 0.4, 0.75)
        colour = to_hex(rgb).upper()
    return Look(
        colour,
        dashes=_DASHES[number % len(_DASHES)],
        marker=_MARKERS[number % len(_MARKERS)],
    )


def looks(lines: Mapping[str, str], subject: str = "") -> dict[str, Look]:
    """Return the styles of all lines in a figure by label.

    A method's only line has the style of the method; several lines have shades of its colour.

    Args:
        lines: The method of each line by label, in the order of the legend.
        subject: Method whose lines are drawn on top; empty for none.
    """
    labels_of = grouped((algo, label) for label, algo in lines.items())
    by_label: dict[str, Look] = {}
    for algo, labels in labels_of.items():
        look = replace(method_look(algo), subject=algo == subject)
        shades = [look] if len(labels) == 1 else _shades(look, len(labels))
        by_label |= dict(zip(labels, shades, strict=True))
    return {label: by_label[label] for label in lines}


def _shades(look: Look, count: int) -> list[Look]:
    """Return styles in dark to light shades of a colour, each with its own dashes and marker."""
    colours = LinearSegmentedColormap.from_list("", ["black", look.colour, "white"], 257)
    shades = np.linspace(0.2, 0.8, count)
    shown = []
    for shade, dashes, marker in zip(shades, cycle(_DASHES), cycle(_MARKERS), strict=False):
        colour = to_hex(colours(shade)).upper()
        shown.append(replace(look, colour=colour, dashes=dashes, marker=marker))
    return shown

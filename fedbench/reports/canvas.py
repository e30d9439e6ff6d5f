"""The frame of all pictures: size, title, legend, the looks of lines, and their files.

A panel is 3.3 inches wide in print, with no text smaller than 8 pt (the unit of font sizes).

A method looks the same in every figure of every paper. Colours were found by search: methods that a
paper draws together are at least 15 apart in OKLab (times 100), and at least 7 as readers without
red or green cones see them (Machado et al., 2009); any two methods are at least 8 apart, and every
colour has a contrast of at least 2.5 with white. No two methods share their dashes and marker
either.
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

from fedbench.core.atomic_files import replacing
from fedbench.reports.filters import grouped
from fedbench.reports.templates import ASSETS, yaml_asset

WIDTH = 3.3  # width of a panel, inches
SIZE = (WIDTH, 2.4)
STYLE = ASSETS / "pictures.mplstyle"
KINDS = {  # of files, with the metadata that would differ between machines and days
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

Figure = Any  # its annotations differ between the supported versions of matplotlib


@dataclass(frozen=True)
class Look:
    """Appearance of a line.

    Attributes:
        colour: Colour as ``#RRGGBB``.
        dashes: Line style, as matplotlib takes it.
        marker: Marker, as matplotlib takes it.
        subject: Whether it is the subject of the paper, which is drawn on top and with a thicker
            line.
    """

    colour: str
    dashes: Dashes = "solid"
    marker: str = "o"
    subject: bool = False

    @property
    def line(self) -> dict[str, Any]:
        """The arguments of matplotlib for it."""
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
        base: A path that ends in one of ``KINDS``, for this file alone; any other one gets the
            endings .png and .svg.
        picture: Drawing function, such as those of ``fedbench.reports.plots``.
        args: Its arguments.
        options: Its named arguments.

    Raises:
        NotWritten: If a file cannot be written.
    """
    kind = base.suffix.removeprefix(".")
    files = {kind: base}
    if kind not in KINDS:
        files = {kind: base.with_name(f"{base.name}.{kind}") for kind in ("png", "svg")}
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
    """Return a figure and its axes, a panel each, with the title above and the legend below.

    Args:
        title: Title of the figure.
        panels: The panels, such as those of ``fedbench.reports.plots``, with their labels.
        legend: The entries of the legend.
        reduced: Whether "reduced setting" is written in the corner.
        size: Width and height of a panel in inches.
    """
    # the panels of a setting are in one row
    fields = len({panel.y_label for panel in panels})
    columns = fields if fields in (2, 3) else min(3, len(panels))
    rows = ceil(len(panels) / columns)
    panel_width, panel_height = size
    width = columns * panel_width
    heading = wrap(title, width - 1.2, 10) or " "  # a blank reserves the row of the label

    longest = max((len(handle.get_label()) for handle in legend), default=0)
    entries = max(1, int(15 * width / (longest + 10)))  # in a row of the legend
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
    """Return the lines of a legend, each once."""
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
    """Return text with line breaks such that it fits a width at a font size."""
    columns = int(72 * inches / (0.58 * size))
    return textwrap.fill(
        text,
        max(8, columns),
        break_on_hyphens=False,
    )


def plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers, since small exponents are illegible."""
    low, high = axis.get_view_interval()
    digits = (1, 2, 5) if high < 30 * low else (1,)
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


# ---- looks of lines


def method_look(algo: str) -> Look:
    """Return the look of a method.

    A method that is not part of fedbench has one that depends on its name only.
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
    """Return the looks of all lines of a figure by label.

    A method with one line has its own look. The lines of a method with several have shades of its
    colour.

    Args:
        lines: The method of each line by label, in the order of the legend.
        subject: Method whose lines are drawn on top; empty if the figure has none.
    """
    labels_of = grouped((algo, label) for label, algo in lines.items())
    by_label: dict[str, Look] = {}
    for algo, labels in labels_of.items():
        look = replace(method_look(algo), subject=algo == subject)
        shades = [look] if len(labels) == 1 else _shades(look, len(labels))
        by_label |= dict(zip(labels, shades, strict=True))
    return {label: by_label[label] for label in lines}


def _shades(look: Look, count: int) -> list[Look]:
    """Return looks from dark to light shades of a colour, each with its own dashes and marker."""
    colours = LinearSegmentedColormap.from_list("", ["black", look.colour, "white"], 257)
    shades = np.linspace(0.2, 0.8, count)
    shown = []
    for shade, dashes, marker in zip(shades, cycle(_DASHES), cycle(_MARKERS), strict=False):
        colour = to_hex(colours(shade)).upper()
        shown.append(replace(look, colour=colour, dashes=dashes, marker=marker))
    return shown

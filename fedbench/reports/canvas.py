"""The frame of all pictures: style, size, title, legend, the looks of lines, and files with the same bytes again.

A panel is 3.3 inches wide in print, with no text smaller than 8 pt (the unit of font sizes).

A method looks the same in every figure of every paper. Colours were found by search: methods that a paper draws
together are at least 15 apart in OKLab (times 100), and at least 7 as readers without red or green cones see them
(Machado et al., 2009); any two methods are at least 8 apart, and every colour has a contrast of at least 2.5 with
white. No two methods share their dashes and marker either.
"""

from __future__ import annotations

import colorsys
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import matplotlib
import matplotlib.figure
import matplotlib.style
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from fedbench.core.atomic_files import replace_file
from fedbench.core.config_values import from_yaml

WIDTH = 3.3  # width of a panel, inches
SIZE = (WIDTH, 2.4)
_ASSETS = Path(__file__).parent / "assets"
STYLE = _ASSETS / "pictures.mplstyle"
KINDS = {  # of files, with the metadata that would differ between machines and days
    "png": ("Software",),
    "svg": ("Date", "Creator"),
    "pdf": ("Creator", "Producer", "CreationDate"),
}

Dashes = str | tuple[float, tuple[float, ...]]
_DASHES: tuple[Dashes, ...] = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h", "d")

Figure = Any  # its annotations differ between the supported versions of matplotlib


@dataclass(frozen=True)
class Look:
    """Appearance of a line.

    Attributes:
        colour: Colour as ``#RRGGBB``.
        dashes: Line style, as matplotlib takes it.
        marker: Marker, as matplotlib takes it.
        subject: Whether it is the subject of the paper, which is drawn on top and with a thicker line.
    """

    colour: str
    dashes: Dashes = "solid"
    marker: str = "o"
    subject: bool = False

    @property
    def line(self) -> dict[str, Any]:
        """The arguments of matplotlib for it."""
        on_top = {"linewidth": 1.9, "zorder": 3} if self.subject else {}
        return {"color": self.colour, "linestyle": self.dashes, "marker": self.marker, **on_top}


def draw(base: Path, picture: Callable[..., Figure], *args: Any, **options: Any) -> list[Path]:
    """Draw a picture in the style of this module, whatever the user's settings, and return its files.

    Args:
        base: A path that ends in one of ``KINDS``, for this file alone; any other one gets the endings .png and .svg.
        picture: Drawing function, such as those of ``fedbench.reports.plots``.
        args: Its arguments.
        options: Its named arguments.

    Raises:
        NotWritten: If a file cannot be written.
    """
    alone = base.suffix.removeprefix(".")
    kinds = {base: alone} if alone in KINDS else {base.with_name(f"{base.name}.{k}"): k for k in ("png", "svg")}
    base.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.style.context(STYLE, after_reset=True):
        figure = picture(*args, **options)
        for path, kind in kinds.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=150, metadata=dict.fromkeys(KINDS[kind]))
            replace_file(path, buffer.getvalue())
    return list(kinds)


def sheet(
    title: str, reduced: bool, number: int, legend: Sequence[Any], columns: int = 0, size: Sequence[float] = SIZE
) -> tuple[Figure, list[Any]]:
    """Return a figure and its ``number`` axes of ``size`` in inches, with the title above and the legend below."""
    columns = columns or (2 if number == 4 else min(3, number))
    rows, width = -(-number // columns), columns * size[0]
    above = wrap(title, width - 0.2 - reduced, 10) or " "  # a blank reserves the row of the label
    for handle in legend:
        handle.set_label(wrap(handle.get_label(), width - 0.7))
    longest = max((len(line) for handle in legend for line in handle.get_label().split("\n")), default=0)
    below = -(-len(legend) // max(1, int(72 * width / (8 * (0.6 * longest + 6)))))  # rows of the legend
    height = rows * size[1] + 0.2 * (above.count("\n") + 1) + 0.17 * below
    figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in places[number:]:
        spare.remove()
    figure.suptitle(above, x=0.05 / width, ha="left")
    if reduced:
        figure.text(1 - 0.05 / width, 1 - 0.05 / height, "reduced setting", ha="right", va="top", style="italic")
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=-(-len(legend) // below))
    return figure, places[:number]


def legend_lines(entries: Iterable[tuple[str, Look]], **other: Any) -> list[Any]:
    """Return the lines of a legend, each once."""
    return [Line2D([], [], label=label, **{**look.line, **other}) for label, look in dict.fromkeys(entries)]


def wrap(text: str, inches: float, size: float = 8) -> str:
    """Return text with line breaks such that it fits a width at a font size."""
    return textwrap.fill(text, max(8, int(72 * inches / (0.58 * size))), break_on_hyphens=False)


def plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers, since small exponents are illegible."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 30 * low else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


# ---- looks of lines


def method_look(algo: str) -> Look:
    """Return the look of a method; a method that is not part of fedbench has one that depends on its name only."""
    known = _colours()
    if algo in known:
        place = list(known).index(algo)
        return Look(known[algo], _DASHES[place % len(_DASHES)], _MARKERS[place % len(_MARKERS)])
    key = crc32(algo.encode())
    colour = to_hex(colorsys.hls_to_rgb(key % 360 / 360, 0.3 + 0.1 * (key // 360 % 3), 0.75)).upper()
    return Look(colour, _DASHES[key // 7 % len(_DASHES)], _MARKERS[key // 11 % len(_MARKERS)])


@cache
def _colours() -> dict[str, str]:
    return dict(from_yaml((_ASSETS / "colours.yaml").read_text(encoding="utf-8")))


def looks(entries: Sequence[tuple[str, str]], subject: str = "") -> dict[tuple[str, str], Look]:
    """Return the looks of all lines of a figure.

    A method with one line has its own look. The lines of a method with several have shades of its colour; if no other
    method is drawn, they have the colours of viridis, from dark to as light as a line on white can be.

    Args:
        entries: Method and label of each line, in the order of the legend; equal entries are one line.
        subject: Method whose lines are drawn on top; empty if the figure has none.
    """
    lines = list(dict.fromkeys(entries))
    found: dict[tuple[str, str], Look] = {}
    for algo in dict.fromkeys(algo for algo, _ in lines):
        own, look = [entry for entry in lines if entry[0] == algo], method_look(algo)
        if len(own) == 1:
            found[own[0]] = replace(look, subject=algo == subject)
            continue
        alone = len(own) == len(lines) > 2
        for i, entry in enumerate(own):
            share = i / (len(own) - 1)
            colour = matplotlib.colormaps["viridis"](0.75 * share) if alone else _shades(look.colour)(share)
            dashes, marker = _DASHES[i % len(_DASHES)], _MARKERS[i % len(_MARKERS)]
            found[entry] = Look(to_hex(colour).upper(), dashes, marker, algo == subject and not alone)
    return found


def _shades(colour: str) -> LinearSegmentedColormap:
    """Return the colours from a dark shade of a colour over the colour itself to a light shade."""
    rgb = np.array(to_rgb(colour))
    return LinearSegmentedColormap.from_list("", [0.35 * rgb, rgb, 0.5 + 0.5 * rgb], 257)

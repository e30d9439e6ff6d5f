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
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec
from zlib import crc32

import matplotlib
import matplotlib.figure
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D
from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullFormatter

from fedbench.core.files import from_yaml, replace_file

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

Dashes = str | tuple[float, tuple[float, ...]]
_DASHES: tuple[Dashes, ...] = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_FURTHER_MARKERS = ("*", "p", "h", "d")  # for methods after the first 36, which take every pair of the above
# matplotlib's viridis from its dark end to where it becomes too faint for a line on white
_SEQUENCE = ("#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C", "#28AE80", "#5EC962")


_P = ParamSpec("_P")
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


def picture(draw: Callable[_P, Figure]) -> Callable[Concatenate[Path, _P], list[Path]]:
    """Wrap a drawing function so that it writes its files in this module's style, whatever the user's settings.

    A path that ends in one of ``KINDS`` is written as this file alone; any other one gets the endings .png and .svg.
    """

    @wraps(draw)
    def written(base: Path, /, *args: _P.args, **kwargs: _P.kwargs) -> list[Path]:
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
            replace_file(path, content)
        return list(files)

    return written


def sheet(
    title: str, reduced: bool, number: int, legend: Sequence[Any], columns: int = 0, size: Sequence[float] = SIZE
) -> tuple[Figure, list[Any]]:
    """Return a figure and its ``number`` axes of ``size`` in inches, with the title above and the legend below."""
    check(number, title, "", "there is nothing to draw")
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


def lines(entries: Iterable[tuple[str, Look]], **other: Any) -> list[Any]:
    """Return the legend's lines, each once."""
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
    low, high = axis.get_view_interval()
    if low > 0 and high < 30 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 4 * low else AutoLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def check(fits: object, name: str, label: str, fault: str) -> None:
    """Raise ``ValueError`` with the names of the panel and the line if something does not fit."""
    if not fits:
        raise ValueError(f"{name!r}{f', {label!r}' if label else ''}: {fault}")


# ---- looks of lines


def method_look(algo: str) -> Look:
    """Return the look of a method; a method that is not part of fedbench has one that depends on its name only."""
    known = _colours()
    if algo in known:
        place = list(known).index(algo)
        return Look(known[algo], _DASHES[place % len(_DASHES)], _marker(place))
    key = crc32(algo.encode())
    colour = to_hex(colorsys.hls_to_rgb(key % 360 / 360, 0.3 + 0.1 * (key // 360 % 3), 0.75)).upper()
    return Look(colour, _DASHES[key // 7 % len(_DASHES)], _MARKERS[key // 11 % len(_MARKERS)])


def _marker(place: int) -> str:
    """Return the marker of the method at a place of the list of colours."""
    pairs = len(_DASHES) * len(_MARKERS)
    return _MARKERS[place % len(_MARKERS)] if place < pairs else _FURTHER_MARKERS[(place - pairs) // len(_DASHES)]


@cache
def _colours() -> dict[str, str]:
    file = Path(__file__).parent / "assets" / "colours.yaml"
    return dict(from_yaml(file.read_text(encoding="utf-8")))


def looks(entries: Sequence[tuple[str, str]], subject: str = "") -> dict[tuple[str, str], Look]:
    """Return the looks of all lines of a figure.

    A method with one line has its own look. The lines of a method with several have shades of its colour; if no other
    method is drawn, they have a sequence of colours from dark to light in the given order.

    Args:
        entries: Method and label of each line, in the order of the legend; equal entries are one line.
        subject: Method whose lines are drawn on top; empty if the figure has none.
    """
    lines = list(dict.fromkeys(entries))
    found: dict[tuple[str, str], Look] = {}
    for algo in dict.fromkeys(algo for algo, _ in lines):
        own = [entry for entry in lines if entry[0] == algo]
        alone = len(own) == len(lines) > 2
        for i, entry in enumerate(own):
            look = replace(method_look(algo), subject=algo == subject and not alone)
            if len(own) > 1:
                colour = _shade(_SEQUENCE if alone else _shades(look.colour), i / (len(own) - 1))
                look = replace(look, colour=colour, dashes=_DASHES[i % len(_DASHES)], marker=_MARKERS[i % 9])
            found[entry] = look
    return found


def _shades(colour: str) -> tuple[str, ...]:
    """Return a dark shade of a colour, the colour itself and a light shade."""
    return _shade(("#000000", colour), 0.35), colour, _shade(("#FFFFFF", colour), 0.5)


def _shade(colours: Sequence[str], share: float) -> str:
    """Return the colour at a share, in [0, 1], of the way through colours at equal distances."""
    stops = np.linspace(0, 1, len(colours))
    red, green, blue = (np.interp(share, stops, channel) for channel in zip(*map(to_rgb, colours), strict=True))
    return to_hex((red, green, blue)).upper()

"""Colours, dashes and markers of methods: a method looks the same in every figure of every paper.

The colours were found by search: methods that a paper draws together are at least 15 apart in OKLab (times 100), and
at least 7 as readers without red or green cones see them (Machado et al., 2009); any two methods are at least 8 apart,
and every colour has a contrast of at least 2.5 with white. No two methods share their dashes and marker either.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from zlib import crc32

from fedbench.core.trees import from_yaml

Dashes = str | tuple[float, tuple[float, ...]]
_DASHES: tuple[Dashes, ...] = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_FURTHER_MARKERS = ("*", "p", "h", "d")  # for methods after the first 36, which take every pair of the above
# matplotlib's viridis from its dark end to where it becomes too faint for a line on white
_SEQUENCE = ("#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C", "#28AE80", "#5EC962")


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


def method_look(algo: str) -> Look:
    """Return the look of a method; a method that is not part of fedbench has one that depends on its name only."""
    known = _colours()
    if algo in known:
        place = list(known).index(algo)
        return Look(known[algo], _DASHES[place % len(_DASHES)], _marker(place))
    key = crc32(algo.encode())
    colour = _hex(colorsys.hls_to_rgb(key % 360 / 360, 0.3 + 0.1 * (key // 360 % 3), 0.75))
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
    """Return the looks of all lines of a figure, none of which share a colour.

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
                share = i / (len(own) - 1)
                colour = _between(_SEQUENCE, share) if alone else _shade(look.colour, share)
                look = replace(look, colour=colour, dashes=_DASHES[i % len(_DASHES)], marker=_MARKERS[i % 9])
            found[entry] = look
    return _apart(found)


def _apart(found: dict[tuple[str, str], Look]) -> dict[tuple[str, str], Look]:
    """Return the looks with colours that occur twice, which only a shade can do, moved to the next unused ones."""
    used: set[str] = set()
    out = {}
    for entry, look in found.items():
        colour = look.colour
        while colour in used:
            colour = f"#{(int(colour[1:], 16) + 0x050505) % 0xFFFFFF:06X}"
        used.add(colour)
        out[entry] = replace(look, colour=colour)
    return out


def _shade(colour: str, share: float) -> str:
    """Return a colour between a dark and a light shade of the given one, which is half-way."""
    dark = tuple(0.35 * c for c in _rgb(colour))
    light = tuple(1 - 0.5 * (1 - c) for c in _rgb(colour))
    return _between((_hex(dark), colour, _hex(light)), share)


def _between(colours: Sequence[str], share: float) -> str:
    """Return the colour at a share, in [0, 1], of the way through colours at equal distances."""
    at = share * (len(colours) - 1)
    low = min(int(at), len(colours) - 2)
    one, two = _rgb(colours[low]), _rgb(colours[low + 1])
    return _hex(tuple(a + (at - low) * (b - a) for a, b in zip(one, two, strict=True)))


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def _hex(rgb: Sequence[float]) -> str:
    return "#" + "".join(f"{round(255 * c):02X}" for c in rgb)

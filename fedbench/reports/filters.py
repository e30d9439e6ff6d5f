"""Functions that templates call by name to format numbers, names and links."""

import base64
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar
from urllib.parse import quote

from fedbench.analysis.table_model import Coverage
from fedbench.core.config_values import config_value

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in the given order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def reduced_texts(rows: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return each set of departures from the paper once, with the names of its rows.

    Args:
        rows: The name and the departures of every row.
    """
    rows = list(rows)
    reductions = grouped((tuple(departures), name) for name, departures in rows if departures)
    texts = []
    for departures, names in reductions.items():
        everywhere = len(names) == len(rows) > 1
        members = "all runs" if everywhere else ", ".join(dict.fromkeys(names))
        texts.append(f"{members}: {', '.join(departures)}")
    return tuple(texts)


def plural(count: int, word: str) -> str:
    """Return a count with its noun: '1 seed', '6 splits'."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def p_text(p: float | None) -> str:
    """Return a p-value as text, in scientific notation below 0.0001; empty for None."""
    if p is None:
        return ""
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def with_spread(
    mean: float | None,
    std: float | None,
    digits: int,
) -> str:
    """Return mean ± sample STD as text; empty if there is no mean."""
    if mean is None:
        return ""
    text = f"{mean:.{digits}f}"
    return text if std is None else f"{text} ± {std:.{digits}f}"


def capitalised(text: str) -> str:
    """Return text with its first letter capitalised."""
    return text[:1].upper() + text[1:]


def coverage_text(coverage: Coverage) -> str:
    """Return the coverage of printed numbers as text."""
    return (
        f"{coverage.measured} of {coverage.total} distinct printed numbers measured, "
        f"{coverage.as_printed} as printed, {coverage.retuned} retuned and "
        f"{coverage.reduced} reduced"
    )


def one_line_value(value: object) -> str:
    """Return a configuration value in command-line syntax, on one line."""
    return " ".join(config_value(value).split())


# ---- pages


def anchor(*words: str) -> str:
    """Return the id of a part of a page, determined by the given words."""
    text = " ".join(words).lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "part"


def href(path: str) -> str:
    """Return a path as an href that can only point to a file relative to the page."""
    safe = quote(path, safe="/%=,+@()~!;$*&'")  # escapes :, # and backslash, but not quotes
    return f"./{safe}" if safe.startswith("//") else safe


def unbroken(number: str) -> str:
    """Return a mean with its spread, with no line break after the ± sign."""
    return number.replace("± ", "±\N{NO-BREAK SPACE}")


def image(svg: str) -> str:
    """Return an SVG file as a data URI.

    An SVG in an image element cannot run scripts, and its ids cannot clash with others.
    """
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")

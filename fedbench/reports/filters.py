"""Functions that templates call by name: numbers, names and links as pages and texts show them."""

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
    """Return the values of each key, in their order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def reduced_texts(rows: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return each departure from the paper once, with the rows that have it.

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
    """Return a number of things as text: '1 seed', '6 splits'."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def p_text(p: float | None) -> str:
    """Return a p-value as text, with an exponent below 0.0001; empty for None."""
    if p is None:
        return ""
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def with_spread(
    mean: float | None,
    std: float | None,
    digits: int,
) -> str:
    """Return a mean ± sample STD as text; empty without a mean."""
    if mean is None:
        return ""
    text = f"{mean:.{digits}f}"
    return text if std is None else f"{text} ± {std:.{digits}f}"


def capitalised(text: str) -> str:
    """Return text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def coverage_text(coverage: Coverage) -> str:
    """Return the coverage of printed numbers as text."""
    return (
        f"{coverage.measured} of {coverage.total} distinct printed numbers measured, "
        f"{coverage.full} in full and {coverage.reduced} reduced"
    )


def one_line_value(value: object) -> str:
    """Return a configuration value as it is typed, in one line."""
    return " ".join(config_value(value).split())


# ---- pages


def anchor(*words: str) -> str:
    """Return the id of a part of a page: the same for the same words."""
    text = " ".join(words).lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "part"


def href(path: str) -> str:
    """Return a path as an href that can only point to a file relative to the page."""
    safe = quote(path, safe="/%=,+@()~!;$*&'")  # no scheme, fragment or backslash; quotes stay
    return f"./{safe}" if safe.startswith("//") else safe


def unbroken(number: str) -> str:
    """Return a mean with its spread in which a line may break before the ± sign, not after it."""
    return number.replace("± ", "±\N{NO-BREAK SPACE}")


def image(svg: str) -> str:
    """Return an SVG file as a data URI.

    As an image it cannot run scripts, and its ids cannot clash with others.
    """
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")

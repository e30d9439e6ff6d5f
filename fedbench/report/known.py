"""Known numbers next to what was measured: a page, and tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from fedbench.analysis.known import KnownResult, unit_of
from fedbench.core.trees import config_value
from fedbench.core.writing import replace_file
from fedbench.report.page import assets, environment
from fedbench.report.render import csv_text, latex, markdown

HEADINGS = ("number", "unit", "published", "band", "measured", "seeds", "difference", "verdict", "settings")
TONES = {"agrees": "good", "differs": "bad", "incomplete": "warn", "not run": "mute"}


def write_known(results: Sequence[KnownResult], folder: Path) -> str:
    """Write the page and the tables of known numbers and return the table as text.

    Args:
        results: The numbers, those of a reference one after another.
        folder: Directory to write into.

    Raises:
        NotWritten: If a file cannot be written.
    """
    rows = [known_row(r) for r in results]
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(HEADINGS, rows)
    parts = [
        (reference, list(zip(members, map(known_row, members), strict=True)))
        for reference, members in (
            (key, list(group)) for key, group in groupby(results, key=lambda r: r.wanted.reference)
        )
    ]
    template = environment().get_template("known.html")
    html = template.render(parts=parts, headings=HEADINGS, tones=TONES, **assets())
    replace_file(folder / "index.html", html)
    replace_file(folder / "known.md", text)
    replace_file(folder / "known.csv", known_csv(results))
    replace_file(folder / "known.tex", latex(HEADINGS, rows))
    return text


def known_row(result: KnownResult) -> list[str]:
    """Return the cells of a number, in the order of ``HEADINGS``."""
    number, wanted = result.wanted.number, result.wanted
    unit = unit_of(number.measure, number.against is not None)
    published = "; ".join(
        p.by if p.value is None else f"{_text(p.value)}{'' if p.std is None else f' ± {p.std:g}'} ({p.by})"
        for p in number.published
    )
    done = f"{len(result.values)} of {wanted.seeds}"
    lost = f", {len(result.diverged)} diverged" if result.diverged else ""
    differences = "; ".join(f"{v:+.3g} ({by})" for by, v in result.differences)
    return [
        f"{wanted.reference.id}: {number.label}",
        unit,
        published or "–",
        _band(number.band),
        _measured(result),
        done + lost,
        differences or "–",
        f"{result.verdict}{', reduced' if result.reduced and result.values else ''}",
        _settings(result),
    ]


def known_csv(results: Sequence[KnownResult]) -> str:
    """Return a row per number, published value and seed count with plain numbers; the seeds' values are one cell."""
    return csv_text(
        [
            {
                "reference": r.wanted.reference.id,
                "number": r.wanted.number.id,
                "unit": unit_of(r.wanted.number.measure, r.wanted.number.against is not None),
                "published_by": p.by if p else "",
                "published": p.value if p else None,
                "published_std": p.std if p else None,
                "band_low": r.wanted.number.band[0],
                "band_high": r.wanted.number.band[1],
                "mean": r.mean,
                "std": r.std,
                "low": min(r.values.values(), default=None),
                "high": max(r.values.values(), default=None),
                "seeds": len(r.values),
                "wanted": r.wanted.seeds,
                "diverged": len(r.diverged),
                "values": " ".join(f"{seed}:{v!r}" for seed, v in r.values.items()),
                "verdict": r.verdict,
                "reduced": r.reduced,
                "settings": _settings(r),
                "seconds": r.seconds,
            }
            for r in results
            for p in (r.wanted.number.published or (None,))
        ]
    )


def _measured(result: KnownResult) -> str:
    if result.mean is None:
        return "–"
    values = list(result.values.values())
    reached = [v for v in values if math.isfinite(v)]
    if len(reached) < len(values):
        return f"reached by {len(reached)} of {len(values)} seeds"
    spread = "" if result.std is None else f" ± {_text(result.std)} ({_text(min(values))} to {_text(max(values))})"
    return _text(result.mean) + spread


def _settings(result: KnownResult) -> str:
    """Return what was chosen by a grid, what the profile cuts, and which data are not the publisher's."""
    grid = result.wanted.number.grid
    tuned = [] if grid is None else [f"{grid.key}={config_value(v)}" for v in result.tuned.values() if v is not None]
    cut = [f"{k}={config_value(v)}" for k, v in result.wanted.cut.items()]
    return ", ".join([*(f"tuned {t}" for t in tuned), *cut, *result.unofficial])


def _band(band: Sequence[float | None]) -> str:
    low, high = band
    if low is None:
        return f"at most {_text(high)}" if high is not None else "–"
    return f"above {_text(low)}" if high is None else f"{_text(low)} to {_text(high)}"


def _text(value: float) -> str:
    return f"{value:.4g}"

"""Known numbers next to what was measured: a page, and tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from fedbench.analysis.known import KnownResult, Tried, TunedGrid, unit_of
from fedbench.core.trees import config_value
from fedbench.core.writing import replace_file
from fedbench.report.page import assets, environment
from fedbench.report.render import csv_text, latex, markdown

HEADINGS = ("number", "unit", "published", "band", "measured", "seeds", "difference", "verdict", "settings")


def write_known(results: Sequence[KnownResult], folder: Path, notes: Sequence[str] = ()) -> str:
    """Write the page and the tables of known numbers and return the table as text.

    Args:
        results: The numbers, those of a reference one after another.
        folder: Directory to write into.
        notes: Messages about runs that are left out.

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
    html = template.render(
        title="fedbench: known numbers",
        parts=parts,
        notes=notes,
        summary=summary_text(results),
        sentence=sentence,
        grid_rows=grid_rows,
        number_text=number_text,
        unit=_unit,
        hours=sum(r.seconds for r in results) / 3600,
        **assets("front.css"),
    )
    replace_file(folder / "index.html", html)
    replace_file(folder / "known.md", text)
    replace_file(folder / "known.csv", known_csv(results))
    replace_file(folder / "known.tex", latex(HEADINGS, rows))
    return text


def summary_text(results: Sequence[KnownResult]) -> str:
    """Return how many numbers agree, differ, and so on, as text: '13 numbers: 2 agree, 1 differs, 10 not run'."""
    counts = Counter(r.verdict for r in results)
    words = {"agrees": ("agrees", "agree"), "differs": ("differs", "differ")}
    said = [
        f"{n} {words[v][n > 1] if v in words else v}"
        for v in ("agrees", "differs", "measured", "incomplete", "not run")
        if (n := counts[v])
    ]
    return f"{len(results)} number{'' if len(results) == 1 else 's'}: {', '.join(said)}"


def sentence(result: KnownResult) -> str:
    """Return what a verdict rests on, as a sentence."""
    wanted, values = result.wanted.seeds, list(result.values.values())
    done = len(values) + len(result.diverged)
    if result.verdict == "not run":
        return f"None of {wanted} seeds has run{_tried(result)}."
    missed = sum(not math.isfinite(v) for v in values)
    if result.verdict == "incomplete" and done == wanted:
        return (
            f"{missed} of {done} seeds did not reach the target in {result.rounds} rounds, fewer than the band allows: "
            f"{band_text(result)}."
        )
    if result.verdict == "incomplete":
        return f"{done} of {wanted} seeds {'is' if done == 1 else 'are'} done; a number has a verdict once all are."
    over = f"over {done} seed{'' if done == 1 else 's'}"
    if result.diverged:
        return f"{len(result.diverged)} of {done} seeds diverged."
    if missed:
        return f"{missed} of {done} seeds did not reach the target within the rounds on record."
    assert result.mean is not None
    if result.verdict == "measured":
        return f"The mean {over} is {number_text(result.mean)} {_unit(result)}; no published number stands beside it."
    where = "lies within the band" if result.verdict == "agrees" else "lies outside the band"
    return f"The mean {over}, {number_text(result.mean)} {_unit(result)}, {where}: {band_text(result)}."


def _tried(result: KnownResult) -> str:
    """Return how much of the grids has been run, if the numbers wait for it."""
    values = [t for grid in result.grids.values() for t in grid.tried]
    ended = sum(t.state != "not run" for t in values)
    keys = ", ".join(sorted({grid.key for grid in result.grids.values()}))
    return f"; {ended} of {len(values)} values of {keys} have been tried" if values else ""


def grid_rows(grid: TunedGrid) -> list[tuple[str, str, bool]]:
    """Return the values of a grid as (value, what its run measured, whether it was chosen)."""
    chosen = grid.chosen
    return [(config_value(t.value), _tried_text(t), chosen is not None and t.value == chosen) for t in grid.tried]


def _tried_text(tried: Tried) -> str:
    if tried.measured is None:
        return tried.state
    return number_text(tried.measured) if math.isfinite(tried.measured) else "not reached"


def known_row(result: KnownResult) -> list[str]:
    """Return the cells of a number, in the order of ``HEADINGS``."""
    number, wanted = result.wanted.number, result.wanted
    published = "; ".join(
        p.by if p.value is None else f"{number_text(p.value)}{'' if p.std is None else f' ± {p.std:g}'} ({p.by})"
        for p in number.published
    )
    done = f"{len(result.values)} of {wanted.seeds}"
    lost = f", {len(result.diverged)} diverged" if result.diverged else ""
    differences = "; ".join(f"{v:+.3g} ({by})" for by, v in result.differences)
    return [
        f"{wanted.reference.id}: {number.label}",
        _unit(result),
        published or "–",
        band_text(result),
        measured_text(result),
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
                "unit": _unit(r),
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
                "values": _pairs([(str(seed), repr(v)) for seed, v in r.values.items()]),
                "grid": _pairs([(f"{g.key}={v}", text) for g in r.grids.values() for v, text, _ in grid_rows(g)]),
                "verdict": r.verdict,
                "reduced": r.reduced,
                "settings": _settings(r),
                "seconds": r.seconds,
            }
            for r in results
            for p in (r.wanted.number.published or (None,))
        ]
    )


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{name}:{value.replace(' ', '_')}" for name, value in pairs)


def _unit(result: KnownResult) -> str:
    number = result.wanted.number
    return unit_of(number.measure, number.against is not None)


def measured_text(result: KnownResult) -> str:
    """Return the mean with its spread over seeds as text."""
    if result.mean is None:
        return "–"
    values = list(result.values.values())
    reached = [v for v in values if math.isfinite(v)]
    if len(reached) < len(values):
        return f"reached by {len(reached)} of {len(values)} seeds"
    spread = (
        ""
        if result.std is None
        else f" ± {number_text(result.std)} ({number_text(min(values))} to {number_text(max(values))})"
    )
    return number_text(result.mean) + spread


def _settings(result: KnownResult) -> str:
    """Return what was chosen by a grid, what the profile cuts, and which data are not the publisher's."""
    tuned = [
        f"tuned {grid.key}={config_value(grid.chosen)}" for grid in result.grids.values() if grid.chosen is not None
    ]
    cut = [f"{k}={config_value(v)}" for k, v in result.wanted.cut.items()]
    return ", ".join([*tuned, *cut, *result.unofficial])


def band_text(result: KnownResult) -> str:
    """Return the bounds of a band as text."""
    low, high = result.wanted.number.band
    if low is None:
        return f"at most {number_text(high)}" if high is not None else "–"
    return f"above {number_text(low)}" if high is None else f"{number_text(low)} to {number_text(high)}"


def number_text(value: float) -> str:
    """Return a number with four digits."""
    return f"{value:.4g}"

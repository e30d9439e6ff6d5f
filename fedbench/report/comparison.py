"""Tests of own runs as tables: means and differences of every setting, counts over settings, and best values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedbench.analysis.best_values import BestValues
from fedbench.analysis.compare import ComparedBlock, ComparedRuns, Difference, OverBlocks
from fedbench.analysis.stats import seeds_needed
from fedbench.analysis.table import Cell as Measured
from fedbench.core.metrics import MetricInfo
from fedbench.report.format import best_names, p_text, plural
from fedbench.report.table import Cell, Table, markdown

_LISTED = 3  # number of blocks with nothing to compare that are listed
_TONES = {"better": "good", "worse": "bad"}


def compared_text(compared: ComparedRuns) -> str:
    """Return a comparison as Markdown."""
    return markdown(compared_tables(compared), lead=lead_of(compared), notes=loose_ends(compared)).rstrip()


def lead_of(compared: ComparedRuns) -> str:
    """Return what is compared."""
    metric = compared.metric
    better = f"{metric.direction} is better" if metric.direction else "neither direction is better"
    label = metric.label[:1].upper() + metric.label[1:] + (f" in {metric.unit}" if metric.unit else "")
    return f"{label} ({metric.name}) at the last round of the values of {compared.key}; {better}"


def loose_ends(compared: ComparedRuns) -> list[str]:
    """Return which runs are compared with nothing."""
    notes = [f"{title}: nothing to compare, {content}" for title, content in compared.alone[:_LISTED]]
    if more := len(compared.alone[_LISTED:]):
        notes.append(f"{plural(more, 'more setting')} with nothing to compare")
    if compared.without:
        notes.append(f"left out: {plural(compared.without, 'run')} without {compared.key}")
    return notes


def compared_tables(compared: ComparedRuns) -> list[Table]:
    """Return the tables of a comparison: means and differences of every setting, then the counts over settings.

    Differences have their interval at 1 - alpha, the two-sided p of the sign-flip test, and this p adjusted over the
    table. Three values or more in two settings or more also have average ranks (Demšar, JMLR 2006).
    """
    tables = []
    for block in compared.blocks:
        tables.append(_means(compared, block))
        tables += [_differences(compared, block)] if block.differences else []
    if compared.over_blocks is not None:
        tables += _over_blocks(compared, compared.over_blocks)
    return tables


def _means(compared: ComparedRuns, block: ComparedBlock) -> Table:
    metric, best = compared.metric, best_of(block, compared.metric)
    notes = [f"{a} and {b} have no seed in common" for a, b in block.unpaired]
    if block.without_baseline:
        notes.append(f"{compared.baseline} has no runs in this setting")
    rows = tuple(
        (Cell(name), Cell(str(cell.n), cell.n), Cell(mean_text(cell, metric), cell.mean, name in best))
        for name, cell in block.numbers.items()
    )
    heads = (("method", False), ("seeds", True), (metric.axis, True))
    notes += block_notes(block, metric)
    return Table(f"{block.title}: {metric.label}", heads, rows, "mean ± sample STD over seeds", tuple(notes))


def mean_text(cell: Measured, metric: MetricInfo) -> str:
    """Return a mean with its sample STD over seeds as text."""
    return metric.text(cell.mean) + ("" if cell.std is None else f" ± {metric.text(cell.std)}")


def best_of(block: ComparedBlock, metric: MetricInfo) -> set[str]:
    """Return the methods with the best printed mean; none if neither direction of the metric is better.

    A method with a run that diverged is not among them: its mean leaves out its worst run.
    """
    means = {m: c.mean for m, c in block.numbers.items() if c.mean is not None and m not in block.lost}
    return best_names(means, metric)


def block_notes(block: ComparedBlock, metric: MetricInfo) -> list[str]:
    """Return what distinguishes the runs of a setting besides the compared key, and those that do not count."""
    notes = [f"the local solvers differ in {', '.join(block.unequal)}"] if block.unequal else []
    notes += [f"reduced: {r}" for r in block.reduced]
    if lost := [f"{name} with seed {', '.join(map(str, seeds))}" for name, seeds in block.lost.items()]:
        counted = "not in any mean" + (", counted as worse by the largest difference" if metric.direction else "")
        notes.append(f"diverged, {counted}: {'; '.join(lost)}")
    return notes + ([f"left out: {block.left_out}"] if block.left_out else [])


def _differences(compared: ComparedRuns, block: ComparedBlock) -> Table:
    metric, alpha = compared.metric, compared.alpha
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    numeric = ("seeds", f"difference{unit}", f"{100 * (1 - alpha):g} % interval", "p", "p (Holm)")
    heads = (("method", False), ("minus", False), *((head, True) for head in numeric), ("verdict", False))
    caption = (
        "mean differences, paired by seed; p: two-sided sign-flip test; p (Holm): adjusted over the table; verdict: "
        f"p (Holm) ≤ {alpha:g}"
    )
    rows = tuple(_difference(d, metric) for d in block.differences)
    notes = too_few(block.short, len(block.differences), alpha)
    return Table(f"{block.title}: differences in {metric.label}", heads, rows, caption, tuple(notes))


def _difference(difference: Difference, metric: MetricInfo) -> tuple[Cell, ...]:
    d, word = difference.paired, verdict_of(difference, metric)
    ends = "–" if d.low is None else f"{metric.text(d.low, '+')} to {metric.text(d.high, '+')}"
    return (
        Cell(difference.first),
        Cell(difference.second),
        Cell(str(d.n), d.n),
        Cell(metric.text(d.mean, "+"), d.mean),
        Cell(ends, d.low),
        Cell(p_text(d.two_sided), d.two_sided),
        Cell(p_text(difference.adjusted), difference.adjusted),
        Cell(word, tone=_TONES.get(word, "")),
    )


def verdict_of(difference: Difference, metric: MetricInfo) -> str:
    """Return what a test says of the first method: better, worse or undecided; higher or lower if neither is better."""
    ahead, behind = ("better", "worse") if metric.direction else ("higher", "lower")
    return "undecided" if difference.ahead is None else ahead if difference.ahead else behind


def too_few(short: Iterable[int], tests: int, alpha: float) -> list[str]:
    """Return a note on numbers of pairs that are too small for any verdict, and on the number of seeds needed."""
    if not (counts := sorted(set(short))):
        return []
    enough = seeds_needed(alpha, tests)
    adjusted = f" after Holm's adjustment over {tests} differences" if tests > 1 else ""
    seeds = "seed" if counts == [1] else "seeds"
    return [
        f"always undecided with {' or '.join(map(str, counts))} {seeds} (n seeds give no p below 2^(1-n)): "
        f"p ≤ {alpha:g}{adjusted} needs " + (f"{enough} seeds" if enough else "more than 16 seeds")
    ]


def _over_blocks(compared: ComparedRuns, over: OverBlocks) -> list[Table]:
    names, directed = compared.names, compared.metric.direction is not None
    won = "won/undecided/lost" if directed else "higher/undecided/lower"
    caption = (
        f"{won} by the method of the row; a setting is decided if its two-sided p ≤ {compared.alpha:g}, not adjusted"
    )
    heads = (("method", False), *((name, True) for name in names))
    rows = tuple((Cell(a), *(_counts(over.counts.get((a, b))) for b in names)) for a in names)
    notes = too_few(over.short, 1, compared.alpha)
    if over.ranks is None and len(names) > 2:
        notes.append(f"no average ranks: they need 2 settings with all methods, got {over.full}")
    counted = Table(f"Over {len(compared.blocks)} settings", heads, rows, caption, tuple(notes))
    return [counted, *([] if over.ranks is None else [_ranks(compared, over, directed)])]


def _counts(counts: tuple[int, int, int] | None) -> Cell:
    return Cell("–") if counts is None else Cell("/".join(map(str, counts)), counts[0])


def _ranks(compared: ComparedRuns, over: OverBlocks, directed: bool) -> Table:
    test = over.ranks
    assert test is not None
    caption = (
        f"over {over.full} settings with all methods, 1 is {'best' if directed else 'highest'}; Friedman's test: "
        f"chi-square {test.statistic:.2f}, p = {p_text(test.p)}; Nemenyi's critical difference at 0.05: "
        f"{test.critical_difference:.2f}"
    )
    rows = tuple(
        (Cell(name), Cell(f"{rank:.2f}", rank, directed and rank == min(test.ranks)))
        for name, rank in zip(compared.names, test.ranks, strict=True)
    )
    notes = ("a method with a diverged run is last in its setting",) if over.diverged else ()
    return Table("Average ranks", (("method", False), ("average rank", True)), rows, caption, notes)


# ---- files, and best values


def means_rows(compared: ComparedRuns) -> list[dict[str, Any]]:
    """Return a row per setting and method with plain numbers; ``best`` is 1 where the mean is the best as printed."""
    return [
        {
            "setting": block.title,
            "method": method,
            "metric": compared.metric.name,
            "seeds": cell.n,
            "mean": cell.mean,
            "std": cell.std,
            "best": int(method in best_of(block, compared.metric)),
        }
        for block in compared.blocks
        for method, cell in block.numbers.items()
    ]


def difference_rows(compared: ComparedRuns) -> list[dict[str, Any]]:
    """Return a row per tested pair with plain numbers; the interval is the one at 1 - alpha."""
    return [
        {
            "setting": block.title,
            "method": d.first,
            "minus": d.second,
            "metric": compared.metric.name,
            "seeds": d.paired.n,
            "difference": d.paired.mean,
            "lower": d.paired.low,
            "upper": d.paired.high,
            "p": d.paired.two_sided,
            "p_holm": d.adjusted,
            "verdict": verdict_of(d, compared.metric),
        }
        for block in compared.blocks
        for d in block.differences
    ]


def best_text(best: BestValues) -> str:
    """Return the best values of a key as Markdown: the chosen value per setting, and what it reaches."""
    rows, notes = [], []
    for s in best.settings:
        texts = [s.title, s.value, str(len(s.tried)), str(s.shown.n)]
        texts += [mean_text(s.judged, best.by), mean_text(s.shown, best.metric), "yes" if s.edge else ""]
        rows.append(tuple(map(Cell, texts)))
        notes += [f"{s.title}: {best.key}={v} has runs that diverged or are not done" for v in s.left_out]
    numeric = (best.key, "tried", "seeds", best.by.name, best.metric.name)
    heads = (("setting", False), *((head, True) for head in numeric), ("edge", False))
    caption = (
        f"{best.key} with the best mean of {best.by.name} at the last round; mean ± sample STD over seeds; edge: the "
        "first or last of the values tried, beyond which there may be better ones"
    )
    return markdown([Table("", heads, tuple(rows), caption, tuple(notes))]).rstrip()

"""Comparisons of runs as a chapter of the page."""

from __future__ import annotations

from fedbench.analysis.compare import ComparedBlock, ComparedRuns, Difference, OverBlocks
from fedbench.core.metrics import MetricInfo
from fedbench.report.compared import block_notes, loose_ends, p_text, too_few, verdict_of
from fedbench.report.latex_tables import best_of
from fedbench.report.views import ChapterView, GridCell, GridView

_TONES = {"better": "good", "worse": "bad"}


def compared_chapter(compared: ComparedRuns) -> ChapterView:
    """Return a comparison as a chapter: means and differences of every setting, then the counts over settings."""
    grids = [grid for block in compared.blocks for grid in _of_block(compared, block)]
    if compared.over_blocks is not None:
        grids += _over_blocks(compared, compared.over_blocks)
    metric = compared.metric
    direction = f"{metric.direction} is better" if metric.direction else "neither direction is better"
    lead = f"{metric.axis} at the last round of the values of {compared.key}; {direction}"
    notes = tuple(("note", text) for text in loose_ends(compared))
    return ChapterView("Comparison", lead[:1].upper() + lead[1:], tuple(grids), facts=notes)


def _of_block(compared: ComparedRuns, block: ComparedBlock) -> list[GridView]:
    metric = compared.metric
    notes = [f"{a} and {b} have no seed in common" for a, b in block.unpaired]
    if block.without_baseline:
        notes.append(f"{compared.baseline} has no runs in this setting")
    notes += block_notes(block, metric)
    best = best_of(block, metric)
    rows = []
    for name, cell in block.numbers.items():
        spread = "" if cell.std is None else f" ± {metric.text(cell.std)}"
        number = GridCell(metric.text(cell.mean) + spread, cell.mean, name in best)
        rows.append((GridCell(name), GridCell(str(cell.n), cell.n), number))
    heads = ((compared.key, False), ("seeds", True), (metric.axis, True))
    means = GridView(f"{block.title}: {metric.label}", "mean ± sample STD over seeds", heads, tuple(rows), tuple(notes))
    return [means, _differences(block, metric, compared.alpha)] if block.differences else [means]


def _differences(block: ComparedBlock, metric: MetricInfo, alpha: float) -> GridView:
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    heads = (
        *(("method", False), ("minus", False), ("seeds", True), (f"difference{unit}", True)),
        *((f"{100 * (1 - alpha):g} % interval", True), ("p", True), ("p (Holm)", True), ("verdict", False)),
    )
    caption = (
        "mean differences, paired by seed; p: two-sided sign-flip test; p (Holm): adjusted over the table; verdict: "
        f"p (Holm) ≤ {alpha:g}"
    )
    rows = tuple(_difference(d, metric) for d in block.differences)
    notes = too_few(block.short, len(block.differences), alpha)
    return GridView(f"{block.title}: differences in {metric.label}", caption, heads, rows, tuple(notes))


def _difference(difference: Difference, metric: MetricInfo) -> tuple[GridCell, ...]:
    d, word = difference.paired, verdict_of(difference, metric)
    ends = "–" if d.low is None else f"{metric.text(d.low, '+')} to {metric.text(d.high, '+')}"
    return (
        GridCell(difference.first),
        GridCell(difference.second),
        GridCell(str(d.n), d.n),
        GridCell(metric.text(d.mean, "+"), d.mean),
        GridCell(ends, d.low),
        GridCell(p_text(d.two_sided), d.two_sided),
        GridCell(p_text(difference.adjusted), difference.adjusted),
        GridCell(word, tone=_TONES.get(word, "")),
    )


def _over_blocks(compared: ComparedRuns, over: OverBlocks) -> list[GridView]:
    names, directed = compared.names, compared.metric.direction is not None
    won = "won/undecided/lost" if directed else "higher/undecided/lower"
    caption = (
        f"{won} by the method of the row; a setting is decided if its two-sided p ≤ {compared.alpha:g}, not adjusted"
    )
    heads = (("method", False), *((name, True) for name in names))
    rows = tuple((GridCell(a), *(_counts(over.counts.get((a, b))) for b in names)) for a in names)
    notes = too_few(over.short, 1, compared.alpha)
    found = [GridView(f"Over {len(compared.blocks)} settings", caption, heads, rows, tuple(notes))]
    if (f := over.ranks) is not None:
        ranks = tuple(f.ranks)
        caption = (
            f"over {over.full} settings with all methods, 1 is {'best' if directed else 'highest'}; Friedman test: "
            f"chi-square {f.statistic:.2f}, p = {p_text(f.p)}; Nemenyi critical difference at 0.05: "
            f"{f.critical_difference:.2f}"
        )
        cells = [(n, GridCell(f"{r:.2f}", r, directed and r == min(ranks))) for n, r in zip(names, ranks, strict=True)]
        last = ("a method with a diverged run is last in its setting",) if over.diverged else ()
        rows = tuple((GridCell(n), cell) for n, cell in cells)
        found.append(GridView("Average ranks", caption, (("method", False), ("average rank", True)), rows, last))
    return found


def _counts(counts: tuple[int, int, int] | None) -> GridCell:
    return GridCell("–") if counts is None else GridCell("/".join(map(str, counts)), counts[0])

"""Tests of own runs as tables: means and differences of every setting, counts over settings, and best values."""

from __future__ import annotations

from collections.abc import Iterable

from fedbench.analysis.best import BestValues
from fedbench.analysis.compare import ComparedBlock, ComparedRuns, Difference
from fedbench.analysis.stats import least_blocks, least_p
from fedbench.analysis.table_model import Cell as Measured
from fedbench.core.metrics import MetricInfo
from fedbench.reports.format import best_names, p_text, plural
from fedbench.reports.page import Chapter
from fedbench.reports.text_table import Cell, Table, Values, csv_text, markdown, table_of, table_rows

_LISTED = 3  # number of blocks with nothing to compare that are listed
_TONES = {"better": "good", "worse": "bad"}


def compared_text(compared: ComparedRuns) -> str:
    """Return a comparison as Markdown."""
    return markdown(compared_tables(compared), lead=lead_of(compared), notes=unpaired_runs(compared)).rstrip()


def lead_of(compared: ComparedRuns) -> str:
    """Return the title: what is compared."""
    metric = compared.metric
    better = f"{metric.direction} is better" if metric.direction else "neither direction is better"
    label = metric.label[:1].upper() + metric.label[1:] + (f" in {metric.unit}" if metric.unit else "")
    return f"{label} ({metric.name}) at the last round of the values of {compared.key}; {better}"


def unpaired_runs(compared: ComparedRuns) -> list[str]:
    """Return which runs are compared with nothing."""
    notes = [f"{title}: nothing to compare, {content}" for title, content in compared.alone[:_LISTED]]
    if more := len(compared.alone[_LISTED:]):
        notes.append(f"{plural(more, 'more setting')} with nothing to compare")
    if compared.without:
        notes.append(f"left out: {plural(compared.without, 'run')} without {compared.key}")
    return notes


def compared_tables(compared: ComparedRuns) -> list[Table]:
    """Return the tables of a comparison: means and differences of every setting, then the counts over settings."""
    tables = []
    for block in compared.blocks:
        tables += [means_table(compared, block), *difference_tables(compared, block)]
    return [*tables, *_over_blocks(compared)]


def means_table(compared: ComparedRuns, block: ComparedBlock) -> Table:
    """Return the means of the methods of a setting."""
    metric, best = compared.metric, best_of(block, compared.metric)
    notes = [f"{a} and {b} have no seed in common" for a, b in block.unpaired]
    if block.without_baseline:
        notes.append(f"{compared.baseline} has no runs in this setting")
    rows = [(name, n.n, mean_cell(n, metric, name in best)) for name, n in block.numbers.items()]
    title, heads = f"{block.title}: {metric.label}", ("method", "seeds", metric.axis)
    return table_of(title, heads, rows, "mean ± sample STD over seeds", [*notes, *block_notes(block, metric)])


def mean_cell(measured: Measured, metric: MetricInfo, best: bool = False, mark: str = "") -> Cell:
    """Return a mean with its sample STD over seeds, and with a mark."""
    spread = "" if measured.std is None else f" ± {metric.text(measured.std)}"
    return Cell(metric.text(measured.mean) + spread + mark, measured.mean, best, std=measured.std)


def best_of(block: ComparedBlock, metric: MetricInfo) -> set[str]:
    """Return the methods with the best printed mean; none if neither direction of the metric is better.

    A method with a run that diverged is not among them: its mean leaves out its worst run.
    """
    means = {m: c.mean for m, c in block.numbers.items() if c.mean is not None and m not in block.lost}
    return best_names(means, metric)


def block_notes(block: ComparedBlock, metric: MetricInfo) -> list[str]:
    """Return what distinguishes the runs of a setting besides the compared key, and those that do not count."""
    notes = [f"the local solvers differ in {', '.join(block.unequal)}"] if block.unequal else []
    notes += [*(f"reduced: {r}" for r in block.reduced), *block.unofficial]
    if lost := [f"{name} with seed {', '.join(map(str, seeds))}" for name, seeds in block.lost.items()]:
        counted = "not in any mean" + (", counted as worse by the largest difference" if metric.direction else "")
        notes.append(f"diverged, {counted}: {'; '.join(lost)}")
    return notes + ([f"left out: {block.left_out}"] if block.left_out else [])


def difference_tables(compared: ComparedRuns, block: ComparedBlock) -> list[Table]:
    """Return the table of differences between the methods of a setting; none if there are none.

    They have their interval at 1 - alpha, the two-sided p of the sign-flip test, and this p adjusted over the table.
    """
    metric, alpha = compared.metric, compared.alpha
    if not block.differences:
        return []
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    heads = ("method", "minus", "seeds", f"difference{unit}", "lower", "upper", "p", "p (Holm)", "verdict")
    caption = (
        f"mean differences, paired by seed; lower, upper: {100 * (1 - alpha):g} % interval; p: two-sided sign-flip "
        f"test; p (Holm): adjusted over the table; verdict: p (Holm) ≤ {alpha:g}"
    )
    rows: list[Values] = []
    for difference in block.differences:
        d, word = difference.paired, verdict_of(difference, metric)
        ends = [Cell("–") if end is None else Cell(metric.text(end, "+"), end) for end in (d.low, d.high)]
        tests = [Cell(p_text(p), p) for p in (d.two_sided, difference.adjusted)]
        mean = Cell(metric.text(d.mean, "+"), d.mean)
        verdict = Cell(word, tone=_TONES.get(word, ""))
        rows.append((difference.first, difference.second, d.n, mean, *ends, *tests, verdict))
    notes = too_few(block.short, len(block.differences), alpha)
    return [table_of(f"{block.title}: differences in {metric.label}", heads, rows, caption, notes)]


def verdict_of(difference: Difference, metric: MetricInfo) -> str:
    """Return what a test says of the first method: better, worse or undecided; higher or lower if neither is better."""
    ahead, behind = ("better", "worse") if metric.direction else ("higher", "lower")
    return "undecided" if difference.ahead is None else ahead if difference.ahead else behind


def too_few(short: Iterable[int], tests: int, alpha: float) -> list[str]:
    """Return a note on numbers of pairs that are too small for any verdict, and on the number of seeds needed."""
    if not (counts := sorted(set(short))):
        return []
    enough = least_blocks(2 * tests, alpha)
    adjusted = f" after Holm's adjustment over {tests} differences" if tests > 1 else ""
    seeds = "seed" if counts == [1] else "seeds"
    least = " or ".join(f"{2 * least_p(n):.3g}" for n in counts)
    return [
        f"always undecided with {' or '.join(map(str, counts))} {seeds} (the least p is {least}): "
        f"p ≤ {alpha:g}{adjusted} needs " + (f"{enough} seeds" if enough else "more than 16 seeds")
    ]


def _over_blocks(compared: ComparedRuns) -> list[Table]:
    """Return the counts over settings; of three methods or more also their average ranks (Demšar, JMLR 2006)."""
    over, names, directed = compared.over_blocks, compared.names, compared.metric.direction is not None
    if over is None:
        return []
    won = "won/undecided/lost" if directed else "higher/undecided/lower"
    caption = (
        f"{won} by the method of the row; a setting is decided if its two-sided p ≤ {compared.alpha:g}, not adjusted"
    )
    rows: list[Values] = []
    for a in names:
        counts = [over.counts.get((a, b)) for b in names]
        rows.append((a, *(Cell("–") if n is None else Cell("/".join(map(str, n)), n[0]) for n in counts)))
    notes = too_few(over.short, 1, compared.alpha)
    if over.ranks is None and len(names) > 2:
        notes.append(f"no average ranks: they need 2 settings with all methods, got {over.full}")
    tables = [table_of(f"Over {len(compared.blocks)} settings", ("method", *names), rows, caption, notes)]
    if (test := over.ranks) is not None:
        caption = (
            f"over {over.full} settings with all methods, 1 is {'best' if directed else 'highest'}; Friedman's test: "
            f"chi-square {test.statistic:.2f}, p = {p_text(test.p)}; Nemenyi's critical difference at 0.05: "
            f"{test.critical_difference:.2f}"
        )
        best = min(test.ranks) if directed else None
        ranks = [(n, Cell(f"{r:.2f}", r, r == best)) for n, r in zip(names, test.ranks, strict=True)]
        notes = ["a method with a diverged run is last in its setting"] if over.diverged else []
        tables.append(table_of("Average ranks", ("method", "average rank"), ranks, caption, notes))
    return tables


# ---- a comparison in a report


def compared_chapter(compared: ComparedRuns) -> Chapter:
    """Return the chapter of a comparison on the page."""
    notes = tuple(("note", text) for text in unpaired_runs(compared))
    return Chapter("Comparison", lead_of(compared), tuple(compared_tables(compared)), facts=notes)


def compared_files(compared: ComparedRuns) -> dict[str, str]:
    """Return the files of a comparison by name."""
    means = [means_table(compared, block) for block in compared.blocks]
    differences = [table for block in compared.blocks for table in difference_tables(compared, block)]
    tables = {"means.csv": csv_text(table_rows(means)), "differences.csv": csv_text(table_rows(differences))}
    return {"compared.md": compared_text(compared) + "\n", **tables}


# ---- best values


def best_text(best: BestValues) -> str:
    """Return the best values of a key as Markdown: the chosen value per setting, and what it reaches."""
    rows: list[Values] = []
    notes: list[str] = []
    for s in best.settings:
        means = (mean_cell(s.judged, best.by), mean_cell(s.shown, best.metric))
        rows.append((s.title, s.value, len(s.tried), s.shown.n, *means, "yes" if s.edge else ""))
        notes += [f"{s.title}: {best.key}={v} has runs that diverged or are not done" for v in s.left_out]
    if best.unjudged:
        paths = ", ".join(best.unjudged[:_LISTED]) + (", ..." if best.unjudged[_LISTED:] else "")
        notes.append(f"without {best.by.name}, and left out: {plural(len(best.unjudged), 'run')} ({paths})")
    heads = ("setting", best.key, "tried", "seeds", best.by.name, best.metric.name, "edge")
    caption = (
        f"{best.key} with the best mean of {best.by.name} at the last round; mean ± sample STD over seeds; edge: the "
        "first or last of the values tried, beyond which there may be better ones"
    )
    return markdown([table_of("", heads, rows, caption, notes)]).rstrip()

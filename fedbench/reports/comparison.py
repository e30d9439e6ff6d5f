"""Comparisons of the user's runs as tables: means, differences and counts over settings."""

from collections.abc import Callable, Iterable

from fedbench.analysis.compare import LISTED, ComparedBlock, ComparedRuns, Difference, OverBlocks
from fedbench.analysis.stats import least_blocks, least_p
from fedbench.analysis.table_model import Cell as Measured
from fedbench.core.metrics import MetricInfo
from fedbench.reports.charts import heat_map
from fedbench.reports.filters import capitalised, p_text, with_spread
from fedbench.reports.page import Chapter
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.table_pages import best_names
from fedbench.reports.templates import note_lines
from fedbench.reports.text_table import (
    Cell,
    Table,
    Values,
    csv_text,
    markdown,
    table_of,
    table_rows,
)

_TONES = {"better": "good", "worse": "bad"}


def compared_text(compared: ComparedRuns) -> str:
    """Return a comparison as Markdown."""
    return markdown(
        compared_tables(compared), lead=lead_of(compared), notes=unpaired_runs(compared)
    ).rstrip()


def lead_of(compared: ComparedRuns) -> str:
    """Return the lead sentence, which names the metric and the key whose values are compared."""
    metric = compared.metric
    label = capitalised(metric.label)
    unit = f" in {metric.unit}" if metric.unit else ""
    better = metric.direction or "neither direction"
    return (
        f"{label}{unit} ({metric.name}) at the last round of the values of {compared.key}; "
        f"{better} is better"
    )


def unpaired_runs(compared: ComparedRuns) -> list[str]:
    """Return notes on runs that could not be compared."""
    return note_lines("unpaired.txt", compared=compared, listed=LISTED)


def compared_tables(compared: ComparedRuns) -> list[Table]:
    """Return the tables of a comparison: one set per setting, then the counts over settings."""
    tables = []
    for block in compared.blocks:
        tables += [means_table(compared, block), *difference_tables(compared, block)]
    return [*tables, *_over_blocks(compared)]


# ---- tables of a setting


def means_table(compared: ComparedRuns, block: ComparedBlock) -> Table:
    """Return the table of the methods' means in a setting."""
    metric = compared.metric
    best = best_methods(block, metric)
    rows = [
        (name, cell.n, mean_cell(cell, metric, name in best))
        for name, cell in block.numbers.items()
    ]
    return table_of(
        f"{block.title}: {metric.label}",
        ("method", "seeds", metric.axis),
        rows,
        caption="mean ± sample STD over seeds",
        notes=block_notes(compared, block),
    )


def mean_cell(
    measured: Measured,
    metric: MetricInfo,
    best: bool = False,
    mark: str = "",
) -> Cell:
    """Return a mean with its sample STD over seeds and a mark."""
    text = with_spread(measured.mean, measured.std, metric.digits) or "–"
    return Cell(
        text + mark,
        measured.mean,
        best,
        std=measured.std,
    )


def best_methods(block: ComparedBlock, metric: MetricInfo) -> set[str]:
    """Return the methods with the best printed mean.

    The set is empty if neither direction of the metric is better. Methods with a diverged run are
    excluded, because their means leave out the worst run.
    """
    means = {}
    for method, cell in block.numbers.items():
        if cell.mean is not None and method not in block.lost:
            means[method] = cell.mean
    return best_names(means, metric)


def block_notes(
    compared: ComparedRuns, block: ComparedBlock, label_of: Callable[[str], str] = str
) -> list[str]:
    """Return notes on a setting: other differences between its runs, and omitted runs.

    Args:
        compared: The comparison.
        block: The setting.
        label_of: Function from the name of a method to its label.
    """
    return note_lines(
        "compared_notes.txt",
        compared=compared,
        block=block,
        label_of=label_of,
    )


def difference_tables(compared: ComparedRuns, block: ComparedBlock) -> list[Table]:
    """Return a list with the table of differences between the methods of a setting.

    A row shows the difference, its interval at level 1 - alpha, the two-sided p-value of the
    sign-flip test, and the p-value adjusted over the table. If there are no differences, the list
    is empty.
    """
    metric = compared.metric
    alpha = compared.alpha
    if not block.differences:
        return []
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    heads = (
        *("method", "minus", "seeds"),
        *(f"difference{unit}", "lower", "upper"),
        *("p", "p (Holm)", "verdict"),
    )
    caption = (
        f"mean differences, paired by seed; lower, upper: {100 * (1 - alpha):g} % interval; "
        "p: two-sided sign-flip test; p (Holm): adjusted over the table; "
        f"verdict: p (Holm) ≤ {alpha:g}"
    )
    return [
        table_of(
            f"{block.title}: differences in {metric.label}",
            heads,
            [_difference_row(difference, metric) for difference in block.differences],
            caption,
            too_few(block.short, len(block.differences), alpha),
        )
    ]


def _difference_row(difference: Difference, metric: MetricInfo) -> Values:
    """Return the names of two methods, their number of pairs, and the cells for the difference."""
    paired = difference.paired
    bounds = (paired.mean, paired.low, paired.high)
    p_values = (paired.two_sided, difference.adjusted)
    verdict = verdict_of(difference, metric)
    return (
        difference.first,
        difference.second,
        paired.n,
        *(Cell(metric.text(value, "+"), value) for value in bounds),
        *(Cell(p_text(p), p) for p in p_values),
        Cell(verdict, tone=_TONES.get(verdict, "")),
    )


def verdict_of(difference: Difference, metric: MetricInfo) -> str:
    """Return the verdict of a test on the first method: better, worse or undecided.

    If neither direction of the metric is better, the verdict is higher, lower or undecided.
    """
    if difference.ahead is None:
        return "undecided"
    words = ("worse", "better") if metric.direction else ("lower", "higher")
    return words[difference.ahead]


def too_few(
    short: Iterable[int],
    tests: int,
    alpha: float,
) -> list[str]:
    """Return a note on pair counts too small for any verdict, and the number of seeds needed."""
    counts = sorted(set(short))
    if not counts:
        return []
    seeds = "seed" if counts == [1] else "seeds"
    given = " or ".join(map(str, counts))
    least = " or ".join(f"{2 * least_p(n):.3g}" for n in counts)
    adjusted = f" after Holm's adjustment over {tests} differences" if tests > 1 else ""
    needed = least_blocks(2 * tests, alpha) or "more than 16"
    return [
        f"always undecided with {given} {seeds} (the least p is {least}): "
        f"p ≤ {alpha:g}{adjusted} needs {needed} seeds"
    ]


# ---- tables over settings


def _over_blocks(compared: ComparedRuns) -> list[Table]:
    """Return the tables over settings: counts and, for three or more methods, average ranks.

    Average ranks follow Demšar (JMLR 2006).
    """
    over = compared.over_blocks
    if over is None:
        return []
    won = "won/undecided/lost" if compared.metric.direction else "higher/undecided/lower"
    notes = too_few(over.short, 1, compared.alpha)
    if not over.ranks and len(compared.names) > 2:
        notes.append(f"no average ranks: they need 2 settings with all methods, got {over.full}")
    counts = table_of(
        f"Over {len(compared.blocks)} settings",
        ("method", *compared.names),
        [(first, *_counts(over, first, compared.names)) for first in compared.names],
        f"{won} by the method of the row; "
        f"a setting is decided if its two-sided p ≤ {compared.alpha:g}, not adjusted",
        notes,
    )
    return [counts, *_rank_tables(compared, over)]


def _counts(
    over: OverBlocks,
    first: str,
    names: Iterable[str],
) -> list[Cell]:
    """Return the numbers of settings won, undecided and lost by a method against each method."""
    cells = []
    for second in names:
        cell = Cell("–")
        if (first, second) in over.counts:
            counts = over.counts[first, second]
            cell = Cell("/".join(map(str, counts)), counts[0])
        cells.append(cell)
    return cells


def _rank_tables(compared: ComparedRuns, over: OverBlocks) -> list[Table]:
    """Return a list with the table of average ranks; it is empty if there are no ranks."""
    if not over.ranks:
        return []
    directed = compared.metric.direction is not None
    best = min(over.ranks) if directed else None
    caption = (
        f"over {over.full} settings with all methods, 1 is {'best' if directed else 'highest'}"
    )
    rows = []
    for name, rank in zip(compared.names, over.ranks, strict=True):
        rows.append((name, Cell(f"{rank:.2f}", rank, rank == best)))
    notes = ["a method with a diverged run is last in its setting"] if over.diverged else []
    return [
        table_of(
            "Average ranks",
            ("method", "average rank"),
            rows,
            caption,
            notes,
        )
    ]


# ---- comparisons in a report


def compared_chapter(compared: ComparedRuns) -> Chapter:
    """Return a comparison as a chapter of the page."""
    gains = heat_map(compared)
    figures = []
    if gains is not None:
        figures.append(DrawnFigure("gains", "Gains by setting", charts=(gains,)))
    return Chapter(
        "Comparison",
        lead_of(compared),
        tuple(compared_tables(compared)),
        tuple(figures),
        notes=tuple(unpaired_runs(compared)),
    )


def compared_files(compared: ComparedRuns) -> dict[str, str]:
    """Return the files of a comparison by name."""
    means = []
    differences = []
    for block in compared.blocks:
        means.append(means_table(compared, block))
        differences += difference_tables(compared, block)
    return {
        "compared.md": compared_text(compared) + "\n",
        "means.csv": csv_text(table_rows(means)),
        "differences.csv": csv_text(table_rows(differences)),
    }

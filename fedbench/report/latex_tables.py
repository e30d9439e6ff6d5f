"""Comparisons of methods as LaTeX tables for a paper: mean ± std, the best in bold, significant differences marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedbench.analysis.compare import ComparedBlock, ComparedRuns
from fedbench.analysis.tables import Cell
from fedbench.core.metrics import MetricInfo
from fedbench.report.compared import block_notes, too_few
from fedbench.report.render import best_names, escape

BETTER, WORSE = r"$^{\ast}$", r"$^{\dagger}$"
_WIDEST = 4  # columns of numbers that fit one column of a two-column page


@dataclass(frozen=True)
class LatexTable:
    """A table of a paper.

    Attributes:
        name: Name of its file, and of its label after ``tab:``.
        text: The float with caption, label and tabular, for the package booktabs.
    """

    name: str
    text: str


def tables_of(compared: Sequence[ComparedRuns]) -> list[LatexTable]:
    """Return a table per setting, with a column per metric, and for several settings one per metric with all of them.

    Args:
        compared: The comparisons of the same runs by each metric.
    """
    first = compared[0]
    tables = [
        _of_setting(f"setting_{i}" if len(first.blocks) > 1 else "setting", i - 1, compared)
        for i in range(1, len(first.blocks) + 1)
    ]
    return tables + ([_over_settings(c) for c in compared] if len(first.blocks) > 1 else [])


def _of_setting(name: str, number: int, compared: Sequence[ComparedRuns]) -> LatexTable:
    """Return the table of one setting."""
    blocks = [c.blocks[number] for c in compared]
    methods = [n for n in compared[0].names if n in blocks[0].numbers]
    columns = [marked(c, b) for c, b in zip(compared, blocks, strict=True)]
    rows = [[escape(m), *(column[m] for column in columns)] for m in methods]
    heads = [_heading(c.metric) for c in compared]
    caption = f"{escape(blocks[0].title)}, test metrics at the last round: {_caption(compared[0], blocks)}"
    notes = dict.fromkeys(n for c, b in zip(compared, blocks, strict=True) for n in _notes(c, b))
    return LatexTable(name, _float(name, caption, heads, rows, list(notes)))


def _over_settings(compared: ComparedRuns) -> LatexTable:
    """Return the table of one metric with a column per setting."""
    name = f"all_{compared.metric.name}"
    columns = [marked(compared, b) for b in compared.blocks]
    rows = [[escape(m), *(column.get(m, "--") for column in columns)] for m in compared.names]
    heads = [escape(b.title) for b in compared.blocks]
    label = escape(compared.metric.axis)
    caption = f"{label[:1].upper()}{label[1:]} at the last round: {_caption(compared, compared.blocks)}"
    notes = [f"{b.title}: {n}" for b in compared.blocks for n in _notes(compared, b)]
    return LatexTable(name, _float(name, caption, heads, rows, notes))


def marked(compared: ComparedRuns, block: ComparedBlock) -> dict[str, str]:
    """Return the cell of every method of a setting: mean ± sample std, the best mean in bold, and its mark.

    Means that are printed alike are best together. Marks are those of ``compared``: against the baseline if there is
    one, else against the best. A metric without a better direction has no best, and marks against a baseline only.
    """
    metric = compared.metric
    best = best_of(block, metric)
    against = {compared.baseline} if compared.baseline is not None else best
    cells = {}
    for method, cell in block.numbers.items():
        text = _cell(cell, metric)
        text = rf"\textbf{{{text}}}" if method in best else text
        cells[method] = text + _mark(block, method, against)
    return cells


def best_of(block: ComparedBlock, metric: MetricInfo) -> set[str]:
    """Return the methods with the best printed mean; none if neither direction of the metric is better.

    A method with a run that diverged is not among them: its mean leaves out its worst run.
    """
    means = {m: c.mean for m, c in block.numbers.items() if c.mean is not None and m not in block.lost}
    return best_names(means, metric)


def _cell(cell: Cell, metric: MetricInfo) -> str:
    if cell.mean is None:
        return "--"
    return metric.text(cell.mean) + ("" if cell.std is None else rf" $\pm$ {metric.text(cell.std)}")


def _mark(block: ComparedBlock, method: str, against: set[str]) -> str:
    """Return the mark of a method that is significantly better or worse than one of ``against``."""
    for d in block.differences:
        if d.ahead is not None and method not in against and {d.first, d.second} & against:
            if method == d.first:
                return BETTER if d.ahead else WORSE
            if method == d.second:
                return WORSE if d.ahead else BETTER
    return ""


def _heading(metric: MetricInfo) -> str:
    arrow = {"higher": r" $\uparrow$", "lower": r" $\downarrow$", None: ""}[metric.direction]
    unit = f" ({metric.unit})" if metric.unit else ""
    return escape(f"{metric.heading}{unit}") + arrow


def _caption(compared: ComparedRuns, blocks: Sequence[ComparedBlock]) -> str:
    """Return what the numbers and the marks are."""
    counts = sorted({c.n for b in blocks for c in b.numbers.values()})
    seeds = (
        f"{counts[0]} seed{'s' if counts[0] > 1 else ''}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    )
    parts = [rf"mean $\pm$ sample standard deviation over {seeds}" if counts[-1] > 1 else seeds]
    directed = compared.metric.direction is not None
    parts += ["the best mean is bold"] if directed else []
    tests = sorted({len(b.differences) for b in blocks})
    over = f"{tests[0]}" if len(tests) == 1 else f"up to {tests[-1]}"
    how = (
        rf"two-sided sign-flip test, paired by seed, $p \leq {compared.alpha:g}$ after Holm's adjustment over the "
        f"{over} differences of a column"
    )
    if compared.baseline is not None:
        parts.append(rf"{BETTER} better and {WORSE} worse than {escape(compared.baseline)} ({how})")
    elif directed:
        parts.append(rf"{WORSE} worse than the best ({how})")
    return "; ".join(parts) + "."


def _notes(compared: ComparedRuns, block: ComparedBlock) -> list[str]:
    """Return what a reader of the table must know besides."""
    few = too_few(block.short, len(block.differences), compared.alpha) if block.differences else []
    return [*block_notes(block, compared.metric), *few]


def _float(name: str, caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """Return a float of one column, or of both where it would not fit one."""
    star = "*" if len(heads) > _WIDEST or sum(map(len, heads)) > _WIDEST * 26 else ""
    lines = [
        rf"\begin{{table{star}}}[t]",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{name}}}",
        r"\small",
        rf"\begin{{tabular}}{{l{'c' * len(heads)}}}",
        r"\toprule",
        " & ".join(["Method", *heads]) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip{{\footnotesize {escape(note)}.}}" for note in notes),
        rf"\end{{table{star}}}",
    ]
    return "\n".join(lines) + "\n"

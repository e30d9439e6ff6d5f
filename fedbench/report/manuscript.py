"""What a manuscript takes from runs: tables in LaTeX, figures as PDF of one column, and a reproducibility statement."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbench.analysis.compare import ComparedBlock, ComparedRuns, compare
from fedbench.core.errors import RequestError
from fedbench.core.files import replace_file, replaced_folder
from fedbench.core.metrics import MetricInfo
from fedbench.report import plots
from fedbench.report.canvas import draw
from fedbench.report.comparison import best_of, block_notes, mean_text, too_few
from fedbench.report.figures import curve_panels
from fedbench.report.format import plural
from fedbench.report.statement import Cite, statement
from fedbench.report.table import Cell, Table, latex_text, tabular
from fedbench.runs.run import Run

METRICS = ("accuracy_mean", "accuracy_worst30", "accuracy_std")
BETTER, WORSE = "\N{ASTERISK OPERATOR}", "†"
_FIRST = "% Written by fedbench report --latex, which replaces this file and those that it names"
_WIDEST = 4  # columns of numbers that fit one column of a two-column page
_FIGURE = r"""\begin{{figure}}[t]
\centering
\includegraphics[width=\columnwidth]{{{name}}}
\caption{{Mean over seeds; bands from the lowest to the highest seed.}}
\end{{figure}}"""


@dataclass(frozen=True)
class ManuscriptOptions:
    """What the tables of a manuscript show.

    Attributes:
        key: Configuration key whose values are compared.
        metrics: Keys of ``rounds.jsonl``, a column each.
        baseline: The value that all others are compared with; None marks differences from the best.
        alpha: Level of the tests.
    """

    key: str = "algo"
    metrics: tuple[str, ...] = METRICS
    baseline: str | None = None
    alpha: float = 0.05


def write_manuscript(runs: Sequence[Run], target: Path, options: ManuscriptOptions, cite: Cite) -> list[str]:
    """Write tables, figures and statement, and return the names of the files.

    Args:
        runs: The runs; unfinished ones count in the statement only.
        target: Directory to write into, new or written by an earlier call.
        options: What the tables show.
        cite: Returns licence and reference of the source that a ``_target_`` names; None for one that is unknown.

    Raises:
        RequestError: If there is nothing to compare, a metric was not measured, or the directory has another main.tex.
        DamagedRun: If a run cannot be read; nothing has changed then.
        NotWritten: If a file cannot be written.
    """
    compared = [compare(runs, options.key, m, options.baseline, options.alpha) for m in options.metrics]
    tables = manuscript_tables(compared)
    main = target / "main.tex"
    if main.exists() and not main.read_text(encoding="utf-8", errors="replace").startswith(_FIRST):
        raise RequestError(f"{main} was not written by fedbench; name another directory with --into")
    with replaced_folder(target) as new:
        for part in ("tables", "figures"):
            shutil.rmtree(new / part, ignore_errors=True)
        (new / "tables").mkdir()
        for name, text in tables.items():
            replace_file(new / "tables" / f"{name}.tex", text)
        figures = _figures(runs, compared, new)
        found = statement(runs, options.alpha, cite)
        replace_file(new / "statement.md", found.markdown)
        replace_file(new / "statement.tex", found.latex)
        replace_file(new / "main.tex", _main(list(tables), figures))
    return ["main.tex", *(f"tables/{name}.tex" for name in tables), *figures, "statement.md", "statement.tex"]


def manuscript_tables(compared: Sequence[ComparedRuns]) -> dict[str, str]:
    """Return the floats by name: one per setting with a column per metric; of several settings also one per metric.

    Args:
        compared: The comparisons of the same runs by each metric.
    """
    settings = len(compared[0].blocks)
    names = [f"setting_{i + 1}" if settings > 1 else "setting" for i in range(settings)]
    tables = {name: _of_setting(name, i, compared) for i, name in enumerate(names)}
    if settings > 1:
        tables |= {f"all_{c.metric.name}": _over_settings(c) for c in compared}
    return tables


def _of_setting(name: str, number: int, compared: Sequence[ComparedRuns]) -> str:
    blocks = [c.blocks[number] for c in compared]
    methods = [n for n in compared[0].names if n in blocks[0].numbers]
    columns = [marked(c, b) for c, b in zip(compared, blocks, strict=True)]
    rows = tuple((Cell(m), *(column[m] for column in columns)) for m in methods)
    heads = (("Method", False), *((_heading(c.metric), True) for c in compared))
    caption = f"{blocks[0].title}, test metrics at the last round: {_caption(compared[0], blocks)}"
    notes = tuple(dict.fromkeys(n for c, b in zip(compared, blocks, strict=True) for n in _notes(c, b)))
    return _float(name, Table("", heads, rows, caption, notes))


def _over_settings(compared: ComparedRuns) -> str:
    columns = [marked(compared, b) for b in compared.blocks]
    rows = tuple((Cell(m), *(column.get(m, Cell("–")) for column in columns)) for m in compared.names)
    heads = (("Method", False), *((b.title, True) for b in compared.blocks))
    label = compared.metric.axis
    caption = f"{label[:1].upper()}{label[1:]} at the last round: {_caption(compared, compared.blocks)}"
    notes = tuple(f"{b.title}: {n}" for b in compared.blocks for n in _notes(compared, b))
    return _float(f"all_{compared.metric.name}", Table("", heads, rows, caption, notes))


def marked(compared: ComparedRuns, block: ComparedBlock) -> dict[str, Cell]:
    """Return the cell of every method of a setting: mean ± sample STD with its mark, the best mean in bold.

    Means that are printed alike are best together. Marks are those of ``compared``: against the baseline if there is
    one, else against the best. A metric without a better direction has no best, and marks against a baseline only.
    """
    best = best_of(block, compared.metric)
    against = {compared.baseline} if compared.baseline is not None else best
    return {
        method: Cell(mean_text(cell, compared.metric) + _mark(block, method, against), cell.mean, method in best)
        for method, cell in block.numbers.items()
    }


def _mark(block: ComparedBlock, method: str, against: set[str]) -> str:
    """Return the mark of a method that is significantly better or worse than one of ``against``."""
    for d in block.differences:
        pair = {d.first, d.second}
        if d.ahead is not None and method in pair - against and pair & against:
            return BETTER if d.ahead == (method == d.first) else WORSE
    return ""


def _heading(metric: MetricInfo) -> str:
    arrow = {"higher": " ↑", "lower": " ↓", None: ""}[metric.direction]
    return metric.heading + (f" ({metric.unit})" if metric.unit else "") + arrow


def _caption(compared: ComparedRuns, blocks: Sequence[ComparedBlock]) -> str:
    """Return what the numbers and the marks are."""
    counts = sorted({c.n for b in blocks for c in b.numbers.values()})
    seeds = plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    parts = [f"mean ± sample standard deviation over {seeds}" if counts[-1] > 1 else seeds]
    directed = compared.metric.direction is not None
    parts += ["the best mean is bold"] if directed else []
    tests = sorted({len(b.differences) for b in blocks})
    over = f"{tests[0]}" if len(tests) == 1 else f"up to {tests[-1]}"
    how = (
        f"two-sided sign-flip test, paired by seed, p ≤ {compared.alpha:g} after Holm's adjustment over the {over} "
        "differences of a column"
    )
    if compared.baseline is not None:
        parts.append(f"{BETTER} better and {WORSE} worse than {compared.baseline} ({how})")
    elif directed:
        parts.append(f"{WORSE} worse than the best ({how})")
    return "; ".join(parts) + "."


def _notes(compared: ComparedRuns, block: ComparedBlock) -> list[str]:
    few = too_few(block.short, len(block.differences), compared.alpha) if block.differences else []
    return [*block_notes(block, compared.metric), *few]


def _float(name: str, table: Table) -> str:
    """Return a table as a float of one column, or of both where it would not fit one."""
    heads = [heading for heading, _ in table.columns[1:]]
    star = "*" if len(heads) > _WIDEST or sum(map(len, heads)) > _WIDEST * 26 else ""
    lines = [
        rf"\begin{{table{star}}}[t]",
        r"\centering",
        rf"\caption{{{latex_text(table.caption)}}}",
        rf"\label{{tab:{name}}}",
        r"\small",
        tabular(table).rstrip(),
        *(rf"\par\smallskip{{\footnotesize {latex_text(note)}.}}" for note in table.notes),
        rf"\end{{table{star}}}",
    ]
    return "\n".join(lines) + "\n"


def _figures(runs: Sequence[Run], compared: Sequence[ComparedRuns], folder: Path) -> list[str]:
    """Draw the curves of every metric, a file per setting that is compared, and return their names."""
    names = []
    for of in compared:
        blocks = {block.title: block for block in of.blocks}
        for panel in curve_panels(runs, [of.metric.name], by=of.key):
            if panel.title in blocks:
                name = f"figures/{of.metric.name}_{list(blocks).index(panel.title) + 1}.pdf"
                draw(folder / name, plots.curves, "", [panel], reduced=bool(blocks[panel.title].reduced))
                names.append(name)
    return names


def _main(tables: Sequence[str], figures: Sequence[str]) -> str:
    """Return a document that shows all of it, from which parts are copied."""
    lines = [
        _FIRST,
        r"\documentclass[twocolumn]{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage{booktabs,graphicx,url}",
        r"\begin{document}",
        *(rf"\input{{tables/{name}}}" for name in tables),
        *(_FIGURE.format(name=name) for name in figures),
        r"\input{statement}",
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"

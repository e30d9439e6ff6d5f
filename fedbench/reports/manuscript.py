"""What a manuscript takes from runs: tables in LaTeX, figures as PDF of one column, and a reproducibility statement.

The statement answers the questions of the NeurIPS paper checklist: experimental setting, significance, compute,
licences, and what is needed to repeat the results.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedbench.analysis.compare import ComparedBlock, ComparedRuns
from fedbench.config.comments import citation
from fedbench.core.atomic_files import move_files, replace_file, replaced_folder
from fedbench.core.errors import RequestError
from fedbench.core.metrics import MetricInfo
from fedbench.reports import plots
from fedbench.reports.canvas import draw
from fedbench.reports.comparison import best_of, block_notes, mean_cell, too_few
from fedbench.reports.figures import curve_panels
from fedbench.reports.format import plural
from fedbench.reports.methods import described, in_print, listed, printed_names
from fedbench.reports.page import render_text
from fedbench.reports.text_table import Cell, Values, latex_text, table_of, tabular
from fedbench.runs.run import Run

METRICS = ("accuracy_mean", "accuracy_worst30", "accuracy_std")
BETTER, WORSE = "\N{ASTERISK OPERATOR}", "†"
_FIRST = "% Written by fedbench report --latex, which replaces this file and those that it names"
_WIDEST = 49  # characters that fit one column of a two-column page; the space of a column counts as 2.6 of them


def write_manuscript(runs: Sequence[Run], target: Path, compared: Sequence[ComparedRuns]) -> list[str]:
    """Write tables, figures and statement, and return the names of the files.

    Args:
        runs: The runs; unfinished ones count in the statement only.
        target: Directory to write into, new or written by an earlier call.
        compared: The comparisons of the runs by each metric.

    Raises:
        RequestError: If the directory has another main.tex.
        DamagedRun: If a run cannot be read; nothing has changed then.
        NotWritten: If a file cannot be written.
    """
    main = target / "main.tex"
    if main.exists() and not main.read_text(encoding="utf-8", errors="replace").startswith(_FIRST):
        raise RequestError(f"{main} was not written by fedbench; name another directory with --into")
    with replaced_folder(target) as new:
        fresh = new / ".fresh"
        (fresh / "tables").mkdir(parents=True)
        names = printed_names(runs)
        tables = manuscript_tables(compared, names)
        for name, text in tables.items():
            replace_file(fresh / "tables" / name, text)
        figures = _figures(runs, compared, names, fresh)
        move_files(fresh, new, _shown(new / "main.tex"))
        replace_file(new / "statement.tex", statement(runs, compared[0].alpha))
        inputs = [f"tables/{name.removesuffix('.tex')}" for name in tables]
        replace_file(new / "main.tex", render_text("main.tex", first=_FIRST, tables=inputs, figures=figures))
    return ["main.tex", *(f"tables/{name}" for name in tables), *figures, "statement.tex"]


def manuscript_tables(compared: Sequence[ComparedRuns], names: Mapping[str, str]) -> dict[str, str]:
    """Return the floats by file: one per setting with a column per metric; of several settings also one per metric.

    Args:
        compared: The comparisons of the same runs by each metric.
        names: Those of the configuration in print, see ``printed_names``.
    """
    settings, tables = len(compared[0].blocks), {}
    for i in range(settings):
        name, title = f"setting_{i + 1}" if settings > 1 else "setting", compared[0].blocks[i].title
        columns = [(_heading(c.metric), c, c.blocks[i]) for c in compared]
        what = listed((c.metric.label for c in compared), "metrics")
        tables[f"{name}.tex"] = _float(name, f"{what[:1].upper()}{what[1:]} on {title}", columns, names)
    for c in compared if settings > 1 else ():
        name, label = f"all_{c.metric.name}", c.metric.axis
        on = listed((block.title for block in c.blocks), "settings")
        columns = [(block.title, c, block) for block in c.blocks]
        tables[f"{name}.tex"] = _float(name, f"{label[:1].upper()}{label[1:]} on {on}", columns, names)
    return tables


def _float(
    name: str, what: str, columns: Sequence[tuple[str, ComparedRuns, ComparedBlock]], names: Mapping[str, str]
) -> str:
    """Return a table as a float of one column of the page, or of both where it would not fit one.

    Args:
        name: Name of its label.
        what: What the numbers are.
        columns: Heading, comparison and setting of every column.
        names: Those of the configuration in print.
    """
    cells = [marked(compared, block) for _, compared, block in columns]
    methods = [m for m in columns[0][1].names if any(m in column for column in cells)]
    rows: list[Values] = [(in_print(m, names), *(column.get(m, Cell("–")) for column in cells)) for m in methods]
    heads = [in_print(head, names) for head, _, _ in columns]
    said: dict[str, None] = {}
    for head, compared, block in columns:
        where = f"{block.title}: " if head == block.title else ""
        few = too_few(block.short, len(block.differences), compared.alpha) if block.differences else []
        said |= dict.fromkeys(f"{where}{note}" for note in [*block_notes(block, compared.metric), *few])
    caption = in_print(f"{what} at the last round: {_caption(columns)}", names)
    notes = [latex_text(in_print(note, names)) for note in said]
    table = table_of("", ("Method", *heads), rows)
    wide = sum(
        2.6 + max(map(len, (head, *(row[i].text for row in table.rows)))) for i, head in enumerate(table.columns)
    )
    parts = {"caption": latex_text(caption), "star": "*" if wide > _WIDEST else "", "tabular": tabular(table)}
    return render_text("float.tex", name=name, notes=notes, **parts)


def marked(compared: ComparedRuns, block: ComparedBlock) -> dict[str, Cell]:
    """Return the cell of every method of a setting: mean ± sample STD with its mark, the best mean in bold.

    Means that are printed alike are best together. Marks are those of ``compared``: against the baseline if there is
    one, else against the best. A metric without a better direction has no best, and marks against a baseline only.
    """
    best = best_of(block, compared.metric)
    against = {compared.baseline} if compared.baseline is not None else best
    return {
        method: mean_cell(numbers, compared.metric, method in best, _mark(block, method, against))
        for method, numbers in block.numbers.items()
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


def _caption(columns: Sequence[tuple[str, ComparedRuns, ComparedBlock]]) -> str:
    """Return the caption: what the numbers and the marks are."""
    compared, metrics = columns[0][1], [c.metric for _, c, _ in columns]
    counts = sorted({c.n for _, _, block in columns for c in block.numbers.values()})
    seeds = plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    parts = [f"mean ± sample standard deviation over {seeds}" if counts[-1] > 1 else seeds]
    directed = any(m.direction is not None and not m.spread for m in metrics)
    but = ", but no spread over clients, which is low too where accuracies are"
    parts += [f"the best mean is bold{but * any(m.spread for m in metrics)}"] if directed else []
    how = (
        f"two-sided sign-flip test, paired by seed, p ≤ {compared.alpha:g} after Holm's adjustment over the "
        "differences of a column"
    )
    if compared.baseline is not None:
        parts.append(f"{BETTER} better and {WORSE} worse than {compared.baseline} ({how})")
    elif directed:
        parts.append(f"{WORSE} worse than the best ({how})")
    return "; ".join(parts) + "."


def _figures(
    runs: Sequence[Run], compared: Sequence[ComparedRuns], names: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Draw the curves of every metric, a file per setting that is compared, and return their captions by file."""
    figures = {}
    for of in compared:
        blocks = {block.title: block for block in of.blocks}
        for panel in curve_panels(runs, [of.metric.name], by=of.key):
            if panel.title in blocks:
                name = f"figures/{of.metric.name}_{list(blocks).index(panel.title) + 1}.pdf"
                title = in_print(panel.title, names)
                lines = [replace(s, label=in_print(s.label, names)) for s in panel.series]
                shown = replace(panel, title=title, series=lines)
                draw(folder / name, plots.curves, "", [shown], reduced=bool(blocks[panel.title].reduced))
                figures[name] = latex_text(f"{panel.y_label[:1].upper()}{panel.y_label[1:]} on {title}")
    return figures


def _shown(main: Path) -> list[str]:
    """Return the files that the document of an earlier call shows."""
    text = main.read_text(encoding="utf-8") if main.exists() else ""
    tables = [f"{name}.tex" for name in re.findall(r"\\input\{(tables/[^}]+)\}", text)]
    return [*tables, *re.findall(r"figures/[^}]+\.pdf", text)]


# ---- the reproducibility statement


def statement(runs: Sequence[Run], alpha: float) -> str:
    """Return the reproducibility statement on runs as LaTeX, as the checklists of conferences ask for it.

    Args:
        runs: All runs that the results rest on, those that did not end well too.
        alpha: Level of the tests.

    Raises:
        DamagedRun: If a run cannot be read.
    """
    done = [run for run in runs if run.done]
    outcomes = sorted(Counter(run.outcome for run in runs).items())
    counted = ", ".join(f"{n} {what}" for what, n in outcomes)
    sentences = [
        f"{len(runs)} runs: {counted}; runs that diverged are in no mean and count as worse in the tests",
        *described(done),
        "numbers are means ± sample standard deviations (n - 1) over seeds at the last round; bands in figures reach "
        "from the lowest to the highest seed",
        "differences are tested with two-sided exact sign-flip tests, paired by seed, with Holm's adjustment over the "
        f"differences of a setting, at level {alpha:g}",
        f"{sum(run.seconds for run in done) / 3600:.3g} hours of training and evaluation, without runs that are not "
        "reported, such as trials of a search",
    ]
    for data, target in sorted({(run.meta["data"], run.flat.get("data.source._target_", "")) for run in done}):
        found = citation(target)
        what = (
            f"licence: {found.licence}; reference: {found.reference}" if found else "to be added: licence and reference"
        )
        sentences.append(f"{data}: {what}")
    sentences += dict.fromkeys(text for run in done for text in (*run.meta.get("sources", ()), *run.unofficial))
    items = [rf"  \item {latex_text(sentence)}" for sentence in sentences]
    head = [r"\section*{Reproducibility statement}", r"\begin{itemize}"]
    return "\n".join([*head, *items, r"\end{itemize}"]) + "\n"

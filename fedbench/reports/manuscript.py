"""Parts of a manuscript: tables in LaTeX, figures as PDF, and a reproducibility statement.

The statement answers the questions of the NeurIPS paper checklist: experimental setting,
significance, compute, licences, and what is needed to repeat the results.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from fedbench.analysis.compare import ComparedBlock, ComparedRuns
from fedbench.config.comments import citation, method_name
from fedbench.core.atomic_files import move_files, replace_file, replaced_folder
from fedbench.core.errors import RequestError
from fedbench.core.metrics import MetricInfo
from fedbench.papers.registry import home_of
from fedbench.reports import plots
from fedbench.reports.canvas import draw
from fedbench.reports.comparison import best_methods, block_notes, mean_cell, too_few
from fedbench.reports.figures import curve_panels
from fedbench.reports.filters import capitalised
from fedbench.reports.methods import described, listed
from fedbench.reports.templates import render
from fedbench.reports.text_table import Cell, Values, markdown_rows, table_of
from fedbench.runs.run import Run

METRICS = ("accuracy_mean", "accuracy_worst30", "accuracy_std")
BETTER, WORSE = "\N{ASTERISK OPERATOR}", "†"
_FIRST = "% Written by fedbench report --latex, which replaces this file and those that it names"
_WIDEST = 51  # characters of a row in Markdown that fit one column of a two-column page
_ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}
_KEYS = {
    "data.clients": "{} clients",
    "rounds": "{} rounds",
    "local.lr": "local learning rate {}",
    "local.epochs": "local epochs {}",
    "local.steps": "local steps {}",
    "local.batch_size": "batch size {}",
}

Column = tuple[str, ComparedRuns, ComparedBlock]  # heading, comparison and setting


def write_manuscript(
    runs: Sequence[Run], target: Path, compared: Sequence[ComparedRuns]
) -> list[str]:
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
    earlier = main.read_text(encoding="utf-8", errors="replace") if main.exists() else _FIRST
    if not earlier.startswith(_FIRST):
        raise RequestError(
            f"{main} was not written by fedbench; name another directory with --into"
        )
    with replaced_folder(target) as new:
        fresh = new / ".fresh"
        (fresh / "tables").mkdir(parents=True)
        tables = {f"tables/{name}": text for name, text in manuscript_tables(compared).items()}
        for name, text in tables.items():
            replace_file(fresh / name, text)
        figures = _figures(runs, compared, fresh)
        move_files(fresh, new, re.findall(r"\{((?:tables|figures)/[^}]+)\}", earlier))
        replace_file(new / "statement.tex", statement(runs, compared[0].alpha))
        replace_file(
            new / "main.tex", render("main.tex", first=_FIRST, tables=tables, figures=figures)
        )
    return ["main.tex", *tables, *figures, "statement.tex"]


# ---- names in print


def printed_label(label: str) -> str:
    """Return the label of a row or a setting as papers print it, with its keys in words.

    'qfedavg algo.q=1 local.lr=0.1' becomes 'q-FedAvg (q=1, local learning rate 0.1)'.
    """
    name, pairs = re.findall(r"(?s)\A(.*?)((?:(?:\A| )[\w.]+=[^\s()]+)*)\Z", label)[0]
    name = ", ".join(map(_printed_name, name.split(", ")))
    words = []
    for pair in pairs.split():
        key, _, value = pair.partition("=")
        words.append(
            _KEYS[key].format(value) if key in _KEYS else f"{key.rpartition('.')[2]}={value}"
        )
    keys = ", ".join(words)
    return f"{name} ({keys})" if name and keys else name or keys


def _printed_name(name: str) -> str:
    """Return the title of an experiment of a paper, or the name of a method."""
    home = home_of(name)
    return method_name(name) if home is None else home.setup.title


# ---- tables


def manuscript_tables(compared: Sequence[ComparedRuns]) -> dict[str, str]:
    """Return the floats by file: one per setting with a column per metric.

    If there are several settings, there is also one per metric.

    Args:
        compared: The comparisons of the same runs by each metric.
    """
    settings = [printed_label(block.title) for block in compared[0].blocks]
    metrics = listed((comparison.metric.label for comparison in compared), "metrics")
    tables = {}
    for i, setting in enumerate(settings):
        name = "setting" if len(settings) == 1 else f"setting_{i + 1}"
        columns = [(_heading(c.metric), c, c.blocks[i]) for c in compared]
        tables[f"{name}.tex"] = _float(name, f"{metrics} on {setting}", columns)
    if len(settings) > 1:
        for c in compared:
            name = f"all_{c.metric.name}"
            columns = list(zip(settings, [c] * len(settings), c.blocks, strict=True))
            tables[f"{name}.tex"] = _float(
                name, f"{c.metric.axis} on {listed(settings, 'settings')}", columns
            )
    return tables


def _heading(metric: MetricInfo) -> str:
    unit = f" ({metric.unit})" if metric.unit else ""
    return f"{metric.heading}{unit}{_ARROWS[metric.direction]}"


def _float(name: str, title: str, columns: Sequence[Column]) -> str:
    """Return a table as a float of one column of the page, or of both where it would not fit one.

    Args:
        name: Name of its label.
        title: Metrics and settings.
        columns: Heading, comparison and setting of every column.
    """
    heads = [head for head, _, _ in columns]
    compared = columns[0][1]
    cells = [marked(comparison, block) for _, comparison, block in columns]
    methods = [method for method in compared.names if any(method in column for column in cells)]
    rows: list[Values] = [
        (printed_label(method), *(column.get(method, Cell("–")) for column in cells))
        for method in methods
    ]
    table = table_of("", ("Method", *heads), rows, notes=_notes(columns))
    counts = [cell.n for _, _, block in columns for cell in block.numbers.values()]
    return render(
        "float.tex",
        name=name,
        title=capitalised(title),
        table=table,
        alpha=compared.alpha,
        baseline=printed_label(compared.baseline or ""),
        star="*" if markdown_rows(table).index("\n") > _WIDEST else "",
        fewest=min(counts),
        most=max(counts),
        metrics=[comparison.metric for _, comparison, _ in columns],
    )


def _notes(columns: Sequence[Column]) -> list[str]:
    """Return the notes of all columns, each once."""
    notes: dict[str, None] = {}
    for head, compared, block in columns:
        setting = printed_label(block.title)
        few = too_few(block.short, len(block.differences), compared.alpha)
        for note in [*block_notes(block, compared.metric, printed_label), *few]:
            notes[f"{setting}: {note}" if head == setting else note] = None
    return list(notes)


def marked(compared: ComparedRuns, block: ComparedBlock) -> dict[str, Cell]:
    """Return the cell of every method of a setting: mean ± sample STD with its mark.

    Means that are printed alike are best together. Marks are those of ``compared``: against the
    baseline if there is one, else against the best. A metric without a better direction has no
    best, and marks against a baseline only.
    """
    best = best_methods(block, compared.metric)
    against = best if compared.baseline is None else {compared.baseline}
    return {
        method: mean_cell(numbers, compared.metric, method in best, _mark(block, method, against))
        for method, numbers in block.numbers.items()
    }


def _mark(block: ComparedBlock, method: str, against: Collection[str]) -> str:
    """Return the mark of a method that is significantly better or worse than one of ``against``."""
    if method in against:
        return ""
    for d in block.differences:
        if d.ahead is None:
            continue
        if d.first == method and d.second in against:
            return BETTER if d.ahead else WORSE
        if d.second == method and d.first in against:
            return WORSE if d.ahead else BETTER
    return ""


# ---- figures and statement


def _figures(runs: Sequence[Run], compared: Sequence[ComparedRuns], folder: Path) -> dict[str, str]:
    """Draw the curves of every metric and setting, and return their captions by file."""
    captions = {}
    for comparison in compared:
        metric = comparison.metric
        titles = [block.title for block in comparison.blocks]
        for panel in curve_panels(runs, [metric.name], by=comparison.key):
            if panel.title not in titles:
                continue
            place = titles.index(panel.title)
            name = f"figures/{metric.name}_{place + 1}.pdf"
            title = printed_label(panel.title)
            series = [replace(line, label=printed_label(line.label)) for line in panel.series]
            printed = replace(panel, title=title, series=series)
            draw(
                folder / name,
                plots.curves,
                "",
                [printed],
                reduced=bool(comparison.blocks[place].reduced),
            )
            captions[name] = f"{capitalised(panel.y_label)} on {title}"
    return captions


def statement(runs: Sequence[Run], alpha: float) -> str:
    """Return the reproducibility statement on runs as LaTeX, as conferences ask for it.

    Args:
        runs: All runs that the results rest on, including those that did not end well.
        alpha: Level of the tests.

    Raises:
        DamagedRun: If a run cannot be read.
    """
    done = [run for run in runs if run.done]
    sources = {(run.meta["data"], run.flat.get("data.source._target_", "")) for run in done}
    notes = dict.fromkeys(
        text for run in done for text in (*run.meta.get("sources", ()), *run.unofficial)
    )
    return render(
        "statement.tex",
        runs=runs,
        alpha=alpha,
        methods=described(done),
        hours=sum(run.seconds for run in done) / 3600,
        sources=[(data, citation(target)) for data, target in sorted(sources)],
        notes=notes,
    )

"""Parts of a manuscript: tables in LaTeX, figures as PDF, and a reproducibility statement.

The statement answers the questions of the NeurIPS paper checklist about experimental setting,
significance, compute, licences and reproducibility.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from fedbench.analysis.compare import ComparedBlock, ComparedRuns
from fedbench.analysis.settings import blocks_of
from fedbench.config.descriptions import citation, method_name
from fedbench.core.atomic_files import move_files, replace_file, replaced_folder
from fedbench.core.config_values import keys_text
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
_WIDEST = 51  # characters per Markdown row that fit a column of a two-column page
_ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}
_KEYS = {
    "data.clients": "{} clients",
    "rounds": "{} rounds",
    "local.lr": "local learning rate {}",
    "local.epochs": "local epochs {}",
    "local.steps": "local steps {}",
    "local.batch_size": "batch size {}",
}

Column = tuple[str, ComparedRuns, ComparedBlock]  # heading, comparison and setting's block


def write_manuscript(
    runs: Sequence[Run], target: Path, compared: Sequence[ComparedRuns]
) -> list[str]:
    """Write tables, figures and the statement, and return the names of the files.

    Args:
        runs: The runs; unfinished runs appear only in the statement.
        target: Directory to write into, new or written by an earlier call.
        compared: Comparisons of the runs, one per metric.

    Raises:
        RequestError: If the directory contains a main.tex that fedbench did not write.
        DamagedRun: If a run cannot be read; the directory is then unchanged.
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
        tables["tables/values.tex"] = values_table(runs)
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
    """Return the label of a row or a setting for print, with its keys in words.

    For example, 'qfedavg algo.q=1 local.lr=0.1' becomes 'q-FedAvg (q=1, local learning rate 0.1)'.
    """
    name, pairs = re.findall(r"(?s)\A(.*?)((?:(?:\A| )[\w.]+=[^\s()]+)*)\Z", label)[0]
    name = ", ".join(map(_printed_name, name.split(", ")))
    words = []
    for pair in pairs.split():
        key, _, value = pair.partition("=")
        plain = key.rpartition(".")[2] + "={}"
        words.append(_KEYS.get(key, plain).format(value))
    keys = ", ".join(words)
    return f"{name} ({keys})" if name and keys else name or keys


def _printed_name(name: str) -> str:
    """Return the title of a paper's experiment, or the printed name of a method."""
    home = home_of(name)
    return method_name(name) if home is None else home.setup.title


# ---- tables


def manuscript_tables(compared: Sequence[ComparedRuns]) -> dict[str, str]:
    """Return the floats by file: one per setting, with a column per metric.

    If there are several settings, there is also one float per metric, with a column per setting.

    Args:
        compared: Comparisons of the same runs, one per metric.
    """
    settings = [printed_label(block.title) for block in compared[0].blocks]
    metrics = listed((comparison.metric.label for comparison in compared), "metrics")
    tables = {}
    for i, setting in enumerate(settings):
        name = "setting" if len(settings) == 1 else f"setting_{i + 1}"
        columns = [
            (_heading(comparison.metric), comparison, comparison.blocks[i])
            for comparison in compared
        ]
        tables[f"{name}.tex"] = _float(name, f"{metrics} on {setting}", columns)
    if len(settings) > 1:
        every_setting = listed(settings, "settings")
        for comparison in compared:
            name = f"all_{comparison.metric.name}"
            columns = [
                (setting, comparison, block)
                for setting, block in zip(settings, comparison.blocks, strict=True)
            ]
            title = f"{comparison.metric.axis} on {every_setting}"
            tables[f"{name}.tex"] = _float(name, title, columns)
    return tables


def _heading(metric: MetricInfo) -> str:
    unit = f" ({metric.unit})" if metric.unit else ""
    return f"{metric.heading}{unit}{_ARROWS[metric.direction]}"


def _float(
    name: str,
    title: str,
    columns: Sequence[Column],
) -> str:
    """Return a table as a float that spans one page column, or both if one is too narrow.

    Args:
        name: Name of the float's label.
        title: Metrics and settings.
        columns: Heading, comparison and setting of every column.
    """
    heads = [head for head, _, _ in columns]
    compared = columns[0][1]
    cells = [marked(comparison, block) for _, comparison, block in columns]
    rows: list[Values] = []
    for method in compared.names:
        if any(method in column for column in cells):
            row = [column.get(method, Cell("–")) for column in cells]
            rows.append((printed_label(method), *row))
    table = table_of(
        "",
        ("Method", *heads),
        rows,
        notes=_notes(columns),
    )
    seeds = [cell.n for _, _, block in columns for cell in block.numbers.values()]
    width = markdown_rows(table).index("\n")
    return render(
        "float.tex",
        name=name,
        title=capitalised(title),
        table=table,
        alpha=compared.alpha,
        baseline=printed_label(compared.baseline or ""),
        star="*" if width > _WIDEST else "",
        fewest=min(seeds),
        most=max(seeds),
        metrics=[comparison.metric for _, comparison, _ in columns],
    )


def _notes(columns: Sequence[Column]) -> list[str]:
    """Return the distinct notes of all columns."""
    texts = []
    for head, compared, block in columns:
        setting = printed_label(block.title)
        notes = block_notes(compared, block, printed_label)
        notes += too_few(block.short, len(block.differences), compared.alpha)
        texts += [f"{setting}: {note}" if head == setting else note for note in notes]
    return list(dict.fromkeys(texts))


def marked(compared: ComparedRuns, block: ComparedBlock) -> dict[str, Cell]:
    """Return the cell of every method in a setting: mean ± sample STD with a mark.

    Means that are printed alike share the best place. Marks show significant differences in
    ``compared`` from the baseline or, if there is none, from the best methods. For a metric without
    a better direction, there is no best method and marks require a baseline.
    """
    best = best_methods(block, compared.metric)
    against = best if compared.baseline is None else {compared.baseline}
    cells = {}
    for method, numbers in block.numbers.items():
        mark = "" if method in against else _mark(block, method, against)
        cells[method] = mean_cell(
            numbers,
            compared.metric,
            method in best,
            mark,
        )
    return cells


def _mark(
    block: ComparedBlock,
    method: str,
    against: Collection[str],
) -> str:
    """Return the mark for a method's significant difference from one of ``against``, or none."""
    for difference in block.differences:
        if difference.ahead is None:
            continue
        winner, loser = difference.first, difference.second
        if not difference.ahead:
            winner, loser = loser, winner
        if method == winner and loser in against:
            return BETTER
        if method == loser and winner in against:
            return WORSE
    return ""


def values_table(runs: Sequence[Run]) -> str:
    """Return a float with the learning rate and the keys of every method in every setting."""
    rows = []
    for block in blocks_of(runs, "algo"):
        for row in block.rows.values():
            method = method_name(row.base)
            names = [key for key in row.facts if key.startswith("algo.")]
            keys = {}
            for key in ["local.lr", *names]:
                value = row.facts.get(key, "null")
                if value != "null" and key != "algo._target_":
                    keys[key] = value
            rows.append((printed_label(block.title), method, printed_label(keys_text(keys))))
    table = table_of("", ("Setting", "Method", "Values"), rows)
    return render("values.tex", table=table)


# ---- figures and statement


def _figures(
    runs: Sequence[Run],
    compared: Sequence[ComparedRuns],
    folder: Path,
) -> dict[str, str]:
    """Draw the curves of every metric and setting, and return their captions by file."""
    captions = {}
    for comparison in compared:
        metric = comparison.metric.name
        drawn = curve_panels(
            runs,
            [metric],
            by=comparison.key,
        )
        panels = {panel.title: panel for panel in drawn}
        for place, block in enumerate(comparison.blocks, 1):
            if block.title not in panels:
                continue
            panel = panels[block.title]
            title = printed_label(block.title)
            series = [replace(line, label=printed_label(line.label)) for line in panel.series]
            printed = replace(panel, title=title, series=series)
            name = f"figures/{metric}_{place}.pdf"
            draw(
                folder / name,
                plots.curves,
                "",
                [printed],
                reduced=bool(block.reduced),
            )
            captions[name] = f"{capitalised(panel.y_label)} on {title}"
    return captions


def statement(runs: Sequence[Run], alpha: float) -> str:
    """Return the reproducibility statement for runs, as required by conferences, in LaTeX.

    Args:
        runs: All runs behind the results, including unsuccessful ones.
        alpha: Significance level of the tests.

    Raises:
        DamagedRun: If a run cannot be read.
    """
    done = [run for run in runs if run.done]
    sources = set()
    notes: list[str] = []
    for run in done:
        sources.add((run.meta["data"], run.flat.get("data.source._target_", "")))
        notes += run.meta.get("sources", ())
        notes += run.unofficial
    return render(
        "statement.tex",
        runs=runs,
        alpha=alpha,
        methods=described(done),
        hours=sum(run.seconds for run in done) / 3600,
        sources=[(data, citation(target)) for data, target in sorted(sources)],
        notes=dict.fromkeys(notes),
    )

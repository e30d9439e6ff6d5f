"""What a paper takes from runs: tables in LaTeX, figures as PDF of one column, and a reproducibility statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbench.analysis.compare import compare
from fedbench.analysis.tables import run_tables
from fedbench.core.errors import RequestError
from fedbench.core.files import replace_file, replaced_folder
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.report import plots
from fedbench.report.figures import curve_panels
from fedbench.report.latex_tables import tables_of
from fedbench.report.stale import file_name
from fedbench.report.statement import Cite, statement
from fedbench.runs.run import Run

METRICS = ("accuracy_mean", "accuracy_worst30", "accuracy_std")
_FIRST = "% Written by fedbench report --latex, which replaces this file and those that it names"
_NAMED = re.compile(r"\{((?:tables|figures)/[^{}/]+)\}")


@dataclass(frozen=True)
class PaperOptions:
    """What tables for a paper show.

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

    def words(self) -> list[str]:
        """Return the options as they are typed."""
        typed = ["--latex", "--metric", ",".join(self.metrics), "--alpha", f"{self.alpha:g}"]
        typed += [] if self.key == "algo" else ["--compare", self.key]
        return typed + ([] if self.baseline is None else ["--baseline", self.baseline])


def write_for_paper(runs: Sequence[Run], target: Path, options: PaperOptions, cite: Cite) -> list[str]:
    """Write tables, figures and statement, and return the names of the files.

    Args:
        runs: The runs; unfinished ones count in the statement only.
        target: Directory to write into; files of an earlier call are replaced, other files stay.
        options: What the tables show.
        cite: Returns licence and reference of the source that a ``_target_`` names; None for one that is unknown.

    Raises:
        RequestError: If there is nothing to compare, a metric was not measured, or the directory has another main.tex.
        DamagedRun: If a run cannot be read; nothing has changed then.
        NotWritten: If a file cannot be written.
    """
    compared = [compare(runs, options.key, m, options.baseline, options.alpha) for m in options.metrics]
    tables = tables_of(compared)
    earlier = _earlier(target)
    with replaced_folder(target) as new:
        for name in earlier:
            (new / name).unlink(missing_ok=True)
        for table in tables:
            (new / "tables").mkdir(exist_ok=True)
            replace_file(new / "tables" / f"{table.name}.tex", table.text)
        figures = [name for m in options.metrics for name in _figures(runs, metric_info(m), new)]
        text = statement(runs, options.alpha, cite)
        replace_file(new / "statement.md", text.markdown)
        replace_file(new / "statement.tex", text.latex)
        replace_file(new / "main.tex", _main([t.name for t in tables], figures))
    return ["main.tex", *(f"tables/{t.name}.tex" for t in tables), *figures, "statement.md", "statement.tex"]


def _earlier(target: Path) -> list[str]:
    """Return the tables and figures of an earlier call; refuse a directory with a document that is the user's."""
    main = target / "main.tex"
    if not main.exists():
        return []
    text = main.read_text(encoding="utf-8", errors="replace")
    if not text.startswith(_FIRST):
        raise RequestError(f"{main} was not written by fedbench; name another directory with --into")
    return [name if name.endswith(".pdf") else f"{name}.tex" for name in _NAMED.findall(text)]


def _figures(runs: Sequence[Run], metric: MetricInfo, folder: Path) -> list[str]:
    """Draw the curves of a metric, a file per setting and number of rounds, and return their names."""
    names = []
    for table in run_tables(runs):
        panels = curve_panels(table, metric.name)
        for i, panel in enumerate(panels, 1):
            part = f"_{i}" if len(panels) > 1 else ""
            name = f"figures/{file_name(table.name)}_{metric.name}{part}.pdf"
            reduced = any(line.found.reduced for line in table.lines)
            plots.curves(folder / name, "", [panel], reduced=reduced)
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
        *(
            "\\begin{figure}[t]\n\\centering\n"
            rf"\includegraphics[width=\columnwidth]{{{name}}}"
            "\n\\caption{Mean over seeds; bands from the lowest to the highest seed.}\n\\end{figure}"
            for name in figures
        ),
        r"\input{statement}",
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"

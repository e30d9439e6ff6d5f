"""Comparisons of runs as files: the text, numbers in full precision, and tables in LaTeX."""

from __future__ import annotations

from pathlib import Path

from fedbench.analysis.compare import ComparedRuns
from fedbench.core.files import replace_file
from fedbench.report.compared import compared_text, verdict_of
from fedbench.report.latex_tables import best_of, tables_of
from fedbench.report.render import csv_text
from fedbench.runs.run import Fields

FOLDER = "compared"  # in a report
_WRITTEN = ("compared.md", "means.csv", "differences.csv", "setting*.tex", "all_*.tex")


def write_compared(compared: ComparedRuns | None, report: Path) -> None:
    """Write a comparison into the directory of a report, in place of an earlier one; None leaves none there.

    Raises:
        NotWritten: If a file cannot be written.
    """
    folder = report / FOLDER
    if (folder / "compared.md").exists():
        for old in [file for name in _WRITTEN for file in folder.glob(name)]:
            old.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    if compared is None:
        return
    folder.mkdir(exist_ok=True)
    files = {
        "compared.md": compared_text(compared) + "\n",
        "means.csv": csv_text(_means(compared)),
        "differences.csv": csv_text(_differences(compared)),
        **{f"{table.name}.tex": table.text for table in tables_of([compared])},
    }
    for name, text in files.items():
        replace_file(folder / name, text)


def _means(compared: ComparedRuns) -> list[Fields]:
    """Return a row per setting and method; ``best`` is 1 where the mean is the best as printed."""
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


def _differences(compared: ComparedRuns) -> list[Fields]:
    """Return a row per tested pair; the interval is the one at 1 - alpha."""
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

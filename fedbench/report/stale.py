"""Files of an earlier report that a new one has not written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

import pandas as pd

from fedbench.papers.registry import papers

_ENDS = {"tables": ("md", "csv", "tex"), "figures": ("svg", "png")}
_OF_PAPERS = {
    "tables": r"table[a-z0-9_]*\.(md|csv|tex)|claims\.(md|csv)|(comparisons|readings)\.csv",
    "figures": r"figure[a-z0-9_]*\.(svg|png)",
}
_PARTS = {"tables": ("",), "figures": ("_curves", "_clients")}  # of what a report makes of runs outside the papers


def file_name(name: str) -> str:
    """Return the name of the files of a table or figure, without an end: ``<paper>_<table>``."""
    return name.replace("/", "_")


def earlier_runs(target: Path) -> set[str]:
    """Return the names of the tables of runs that the report in a directory may have: experiments and data sets."""
    file = target / "runs.parquet"
    if not file.exists():
        return set()
    rows = pd.read_parquet(file)
    kept = [rows[column].dropna() for column in ("experiment", "data") if column in rows]
    return {file_name(str(name)) for column in kept for name in column}


def remove_stale(target: Path, tables: Iterable[str], figures: Iterable[str], earlier: Collection[str]) -> None:
    """Remove the files of an earlier report that are not part of this one; all others stay.

    Args:
        target: Directory of the report.
        tables: Names of its tables, and of the files of claims with their ends.
        figures: Names of its figures.
        earlier: ``earlier_runs`` of the directory before this report was written.
    """
    for folder, written in (("tables", set(tables)), ("figures", set(figures))):
        of_paper = re.compile(f"({'|'.join(map(re.escape, papers()))})_({_OF_PAPERS[folder]})")
        of_runs = {f"{name}{part}.{end}" for name in earlier for part in _PARTS[folder] for end in _ENDS[folder]}
        kept = {*written, *(f"{name}.{end}" for name in written for end in _ENDS[folder])}
        for file in (target / folder).glob("*"):
            if file.name not in kept and file.is_file() and (of_paper.fullmatch(file.name) or file.name in of_runs):
                file.unlink()

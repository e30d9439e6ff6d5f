"""Compare two report directories number by number: ``python scripts/compare_reports.py OLD NEW``.

Tables are read from ``tables/*.csv``, in the current form (``<metric>_mean``, ``_std``, ``_paper``, ...) and in the two
previous forms (texts such as "89.38 ± 0.32" under the paper's headings, and ``<metric>``, ``<metric>_seed_std``).
Rows are matched by setup, method and settings, columns by heading or metric; numbers agree if they are equal to the
digits of the less precise one. Older reports named settings differently and had a table per experiment in addition to
the paper's: such a row is matched by its numbers with the rows of its method, in that table and in the blocks of its
setup; if it matches no row of the paper now, the paper's numbers that were next to it are not required.
``runs.parquet`` is compared run by run, claims verdict by verdict, figures by name. Differences are printed; the exit
status is 1 if there are any.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedbench.papers.registry import papers

Numbers = dict[str, tuple[float, float]]  # name -> value, half of the last digit that it is given with
_ENDS = ("mean", "std", "n", "lower", "upper", "paper", "paper_std", "difference")
_TEXT = ("setup", "method", "algo", "settings", "seeds", "status", "reduced", "note", "command")


@dataclass(frozen=True)
class Row:
    """A row of a table: its identity, and its numbers by ``<metric>_<end>``."""

    table: str
    setup: str
    method: str
    algo: str
    settings: str
    numbers: Numbers


def rows_of(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file of either form."""
    headings = _fields(path.stem)
    with path.open(encoding="utf-8", newline="") as file:
        for r in csv.DictReader(file):
            numbers: Numbers = {}
            for name, text in r.items():
                numbers |= _read(name, text, headings)
            numbers["seeds"] = (float(r["seeds"]), 0.0)
            yield Row(
                path.stem,
                r.get("setup", ""),
                r["method"],
                r.get("algo", r["method"]),
                _settings(r["settings"]),
                numbers,
            )


def _fields(table: str) -> dict[str, str]:
    """Return the name in today's form for each heading of a paper's table."""
    for paper in papers().values():
        for t in paper.tables.values():
            if f"{paper.id}_{t.id}" == table:
                best = "best_" if t.round == "best" else ""
                return {paper.metrics[c].label: best + paper.metrics[c].field for c in t.columns}
    return {}


def _read(name: str, text: str, headings: Mapping[str, str]) -> Numbers:
    if name in _TEXT or not text or name.endswith(("_agreement", " verdict")):
        return {}
    for heading, field in headings.items():
        ends = {heading: ("mean", "std"), f"{heading} paper": ("paper", "paper_std")}
        ends[f"{heading} difference"] = ("difference", "")
        if name in ends:
            return {f"{field}_{e}": _number(t) for e, t in zip(ends[name], text.split(" ± "), strict=False) if e}
    before, _, end = name.rpartition("_")
    if name.endswith("_seed_std"):
        return {f"{name.removesuffix('_seed_std')}_std": _number(text)}
    if name.endswith("_paper_std") or (end in _ENDS and before not in ("accuracy", "")):
        return {name: _number(text)}
    return {f"{name}_mean": _number(text)}


def _number(text: str) -> tuple[float, float]:
    digits = len(text.partition(".")[2])
    return float(text), 0.5000001 * 10.0**-digits if digits < 6 else 1e-9 * max(1.0, abs(float(text)))


def _settings(text: str) -> str:
    """Return settings in a fixed order with numbers in a common format."""
    pairs = [word.partition("=") for word in text.split()]
    return " ".join(sorted(f"{k}={_plain(v)}" for k, _, v in pairs))


def _plain(text: str) -> str:
    try:
        return f"{float(text):.12g}"
    except ValueError:
        return text.lower()


def compare_tables(old: Path, new: Path) -> tuple[int, list[str]]:
    """Return the number of compared numbers, and the differences."""
    ours = [row for path in _tables(new) for row in rows_of(path)]
    compared, faults = 0, []
    for path in _tables(old):
        for row in rows_of(path):
            candidates = [r for r in ours if _same_row(row, r)] or [r for r in ours if _may_be(row, r)]
            where = " ".join(filter(None, (row.table, row.setup, row.method, row.settings)))
            if not candidates:
                faults.append(f"{where}: no such row")
                continue
            compared += len(row.numbers)
            found = [_differences(row, r) for r in candidates]
            faults += [f"{where}: {text}" for text in min(found, key=len)]
    return compared, faults


def _tables(folder: Path) -> list[Path]:
    others = ("_claims", "_comparisons", "_readings")
    return [p for p in sorted((folder / "tables").glob("*.csv")) if not p.stem.endswith(others)]


def _same_row(old: Row, new: Row) -> bool:
    return (old.table, old.setup, old.method, old.settings) == (new.table, new.setup, new.method, new.settings)


def _may_be(old: Row, new: Row) -> bool:
    """Return whether a row of an experiment's table may correspond to another row."""
    if old.setup or old.algo != new.algo:
        return False
    titles = {s.experiment.replace("/", "_"): s.title for p in papers().values() for s in p.setups.values()}
    return new.table == old.table or (bool(new.setup) and titles.get(old.table) == new.setup)


def _differences(old: Row, new: Row) -> list[str]:
    out = []
    for name, (value, slack) in old.numbers.items():
        other = new.numbers.get(name)
        if other is None:
            if new.setup or not name.endswith(("_paper", "_paper_std", "_difference")):
                out.append(f"{name} {value:g} is missing")
        elif not math.isclose(value, other[0], rel_tol=1e-9, abs_tol=max(slack, other[1])):
            out.append(f"{name} {value!r} is {other[0]!r}")
    return out


def compare_runs(old: Path, new: Path) -> tuple[int, list[str]]:
    """Return the number of compared numbers of runs, and the differences; new columns are ignored."""
    one, two = (pd.read_parquet(folder / "runs.parquet").set_index("path") for folder in (old, new))
    faults = [f"runs.parquet: {path} is missing" for path in one.index.difference(two.index)]
    faults += [f"runs.parquet: column {name} is missing" for name in one.columns.difference(two.columns)]
    both, columns = one.index.intersection(two.index), one.columns.intersection(two.columns)
    for path in both:
        for name in columns:
            a, b = one.loc[path, name], two.loc[path, name]
            if not (_normal_text(a) == _normal_text(b) or (pd.isna(a) and pd.isna(b))):
                faults.append(f"runs.parquet: {path}: {name} {a!r} is {b!r}")
    return len(both) * len(columns), faults


def _normal_text(value: object) -> object:
    """Return text with null and false as written today; return other values unchanged."""
    return value.replace(" none", " null").replace(" False", " false") if isinstance(value, str) else value


def compare_claims(old: Path, new: Path) -> tuple[int, list[str]]:
    """Return the number of compared verdicts, and the differences."""
    compared, faults = 0, []
    for path in sorted((old / "tables").glob("*_claims.csv")):
        one, two = (_by_id(folder / "tables" / path.name) for folder in (old, new))
        compared += len(one)
        for name, claim in one.items():
            for key in ("verdict", "reduced", "printed", "basis"):
                if two.get(name, {}).get(key) != claim[key]:
                    faults.append(f"{path.stem} {name}: {key} {claim[key]} is {two.get(name, {}).get(key)}")
    return compared, faults


def _by_id(path: Path) -> dict[str, dict[str, str]]:
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {r["id"]: r for r in csv.DictReader(file)}


def compare_figures(old: Path, new: Path) -> tuple[int, list[str]]:
    """Return the number of old figures, and the missing ones."""
    one, two = ({p.name for p in (folder / "figures").glob("*.svg")} for folder in (old, new))
    return len(one), [f"figures: {name} is missing" for name in sorted(one - two)]


def main(argv: list[str]) -> int:
    """Print the differences and return the exit status."""
    if len(argv) != 2:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    old, new = map(Path, argv)
    status = 0
    for what, compare in (
        ("numbers of tables", compare_tables),
        ("numbers of runs", compare_runs),
        ("claims", compare_claims),
        ("figures", compare_figures),
    ):
        count, faults = compare(old, new)
        print("\n".join([*faults, f"{count} {what} compared, {len(faults)} differ"]))
        status |= bool(faults)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

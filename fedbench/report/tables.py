"""From runs to tables: one per experiment or data set, mean ± sample STD over seeds beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedbench.errors import RequestError
from fedbench.papers import Known, Reported, find_known
from fedbench.report.render import csv_text, latex, markdown
from fedbench.store import ResultStore, Row, Run, replace_file
from fedbench.trees import leaves

# (metric of rounds.jsonl, heading, factor to what is printed)
COLUMNS = (
    ("accuracy_mean_weighted", "mean (w)", 100.0),
    ("accuracy_std_weighted", "STD (w)", 100.0),
    ("accuracy_worst30_weighted", "worst 30% (w)", 100.0),
    ("accuracy_mean", "mean", 100.0),
    ("accuracy_std", "STD", 100.0),
    ("accuracy_worst30", "worst 30%", 100.0),
    ("angle_degrees", "angle", 1.0),
    ("kl_uniform", "KL", 1.0),
)
# what tells no settings apart
_ASIDE = (
    "seed",
    "device",
    "data_dir",
    "results_dir",
    "force",
    "engine.mode",
    "engine.cohort",
    "engine.work",
    "tracker",
)
_IDENTITY = ("seed", "hash", "algo", "data", "model", "experiment", "status")


@dataclass(frozen=True)
class Cell:
    """A measured number over seeds, in the unit that is printed.

    Attributes:
        values: one per seed.
        paper: what the paper prints, or None.
    """

    values: tuple[float, ...]
    paper: Reported | None = None

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return mean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Measured minus reported."""
        return self.mean - self.paper.mean if self.paper and self.mean is not None else None


@dataclass(frozen=True)
class Line:
    """One row of a table: an algorithm with its settings, over seeds.

    Attributes:
        algo: its name.
        settings: what tells it from other rows of the same algorithm.
        seeds: those that are done.
        cells: by metric.
        reduced: what is not as in the paper; empty if everything is, or if nothing is known of a paper.
    """

    algo: str
    settings: str
    seeds: tuple[int, ...]
    cells: dict[str, Cell]
    reduced: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """All runs of one experiment or data set.

    Attributes:
        name: of the experiment or the data set.
        lines: the rows.
        known: what a paper reports of it, or None.
        notes: below the table.
    """

    name: str
    lines: list[Line]
    known: Known | None
    notes: list[str] = field(default_factory=list)


def tabulate(runs: Iterable[Run]) -> list[Table]:
    """Return the tables of the runs, by name; runs that are not done are named in the notes."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.meta["experiment"] or run.meta["data"], []).append(run)
    return [_table(name, members) for name, members in sorted(by_name.items())]


def _table(name: str, runs: list[Run]) -> Table:
    known = find_known(name)
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.meta["algo"], run.meta["hash"]), []).append(run)
    order = known.algorithms if known else []
    keys = sorted(groups, key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k))
    lines = [_line(groups[k], _settings(groups, k), known) for k in keys]
    notes = [
        f"{r.meta['algo']} seed {r.meta['seed']}: {r.meta['status'] if r.meta['status'] != 'done' else 'not finished'}"
        for r in sorted(runs, key=lambda r: (r.meta["algo"], r.meta["seed"]))
        if not _counts(r)
    ]
    sources = sorted({s for r in runs for s in r.meta.get("sources", []) if "not the official" in s})
    return Table(name, [line for line in lines if line.seeds], known, notes + sources)


def _counts(run: Run) -> bool:
    return run.done and run.meta["status"] == "done"


def _line(runs: list[Run], settings: str, known: Known | None) -> Line:
    done = sorted((r for r in runs if _counts(r)), key=lambda r: r.meta["seed"])
    algo, last = runs[0].meta["algo"], [r.last_round() for r in done]
    cells = {
        metric: Cell(
            tuple(row[metric] * factor for row in last if row[metric] is not None),
            known.cells.get((algo, metric)) if known else None,
        )
        for metric, _, factor in COLUMNS
    }
    reduced = [f"{k} {_show(here)} (paper {_show(there)})" for k, (there, here) in runs[0].meta["departures"].items()]
    if known and len(done) < known.seeds:
        reduced.append(f"seeds {len(done)} (paper {known.seeds})")
    return Line(algo, settings, tuple(r.meta["seed"] for r in done), cells, tuple(reduced))


def _settings(groups: dict[tuple[str, str], list[Run]], key: tuple[str, str]) -> str:
    """Return the values in which this setting differs from others of the same algorithm."""
    flat = {k: leaves(runs[0].config) for k, runs in groups.items() if k[0] == key[0]}
    mine = flat[key]
    differing = [k for k in mine if not k.startswith(_ASIDE) and any(f.get(k) != mine[k] for f in flat.values())]
    return " ".join(f"{k}={_show(mine[k])}" for k in differing)


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _headings(table: Table) -> list[str]:
    heads = ["method", *(["settings"] if any(line.settings for line in table.lines) else []), "seeds"]
    for metric, label, _ in COLUMNS:
        heads.append(label)
        if table.known and metric in table.known.metrics:
            heads += ["paper", "diff."]
    return heads + (["status"] if table.known else [])


def _number(value: float | None, signed: bool = False) -> str:
    return "–" if value is None else f"{value:+.2f}" if signed else f"{value:.2f}"


def _with_spread(value: float | None, spread: float | None) -> str:
    return _number(value) if spread is None else f"{_number(value)} ± {_number(spread)}"


def _texts(table: Table, line: Line) -> list[str]:
    out = [line.algo]
    if any(other.settings for other in table.lines):
        out.append(line.settings)
    out.append(str(len(line.seeds)))
    for metric, _, _ in COLUMNS:
        cell = line.cells[metric]
        digits = 4 if metric == "kl_uniform" else 2
        out.append(
            f"{cell.mean:.{digits}f}" if digits == 4 and cell.mean is not None else _with_spread(cell.mean, cell.std)
        )
        if table.known and metric in table.known.metrics:
            paper = cell.paper
            out += [_with_spread(paper.mean, paper.std) if paper else "–", _number(cell.difference, signed=True)]
    return out + (["reduced" if line.reduced else "full"] if table.known else [])


def _notes(table: Table) -> list[str]:
    reasons: dict[tuple[str, ...], list[str]] = {}
    for line in table.lines:
        if line.reduced:
            reasons.setdefault(line.reduced, []).append(line.algo)
    every = {line.algo for line in table.lines}
    return [
        "reduced" + ("" if set(names) == every else f" ({', '.join(names)})") + ": " + ", ".join(why)
        for why, names in reasons.items()
    ] + table.notes


def to_markdown(table: Table) -> str:
    """Return the table as Markdown: percent, mean ± sample STD over seeds; (w) weights clients by test examples."""
    title = f"{table.name}" + (f" ({table.known.title}, {table.known.table})" if table.known else "")
    body = markdown(_headings(table), [_texts(table, line) for line in table.lines])
    notes = "".join(f"\n- {n}" for n in _notes(table))
    return f"{title}\n\n{body}" + (f"{notes}\n" if notes else "")


def to_latex(table: Table) -> str:
    """Return the table as LaTeX (booktabs)."""
    return latex(_headings(table), [_texts(table, line) for line in table.lines], _notes(table))


def to_csv(table: Table) -> str:
    """Return the table as CSV with full numbers: per metric mean, sample STD, the paper's two and the difference."""
    rows: list[Row] = []
    for line in table.lines:
        row: Row = {"method": line.algo, "settings": line.settings, "seeds": len(line.seeds)}
        for metric, cell in line.cells.items():
            row |= {metric: cell.mean, f"{metric}_seed_std": cell.std}
            if cell.paper:
                row |= {f"{metric}_paper": cell.paper.mean, f"{metric}_paper_std": cell.paper.std}
                row[f"{metric}_difference"] = cell.difference
        rows.append(row | {"reduced": "; ".join(line.reduced)})
    return csv_text(rows)


def summary(runs: Sequence[Run]) -> str:
    """Return the tables of the runs as Markdown text."""
    legend = "percent at the last round; mean ± sample STD over seeds; (w): clients weighted by their test examples"
    return "\n".join(to_markdown(t) for t in tabulate(runs)) + f"\n{legend}"


def write_report(folder: Path) -> str:
    """Write ``folder/report/`` (tables, runs.parquet) and return what is in the tables and where they are.

    Raises:
        RequestError: if there is no run below the folder.
    """
    import pandas as pd

    runs = list(ResultStore(folder))
    if not runs:
        raise RequestError(f"{folder} holds no runs; give a directory that `fedbench` wrote results to")
    target = folder / "report" / "tables"
    target.mkdir(parents=True, exist_ok=True)
    for table in tabulate(runs):
        name = table.name.replace("/", "_")
        for ending, text in (("md", to_markdown(table)), ("csv", to_csv(table)), ("tex", to_latex(table))):
            replace_file(target / f"{name}.{ending}", text)
    part = folder / "report" / "runs.parquet.part"
    pd.DataFrame([_flat(r, folder) for r in runs]).to_parquet(part, index=False)
    part.replace(folder / "report" / "runs.parquet")
    return f"{summary(runs)}\n\nwritten: {folder / 'report'}"


def _flat(run: Run, folder: Path) -> Row:
    facts = {k: run.meta.get(k) for k in _IDENTITY}
    measured = run.last_round() if (run.path / "rounds.jsonl").exists() else {}
    return {"path": str(run.path.relative_to(folder)), **facts, **measured}

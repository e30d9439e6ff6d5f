"""Recompute the verdicts of a report from its runs.parquet, by code written from docs/reproduction.md alone.

    python scripts/recompute_verdicts.py REPORT [--least 30]

REPORT is the directory of a report. Claims whose comparisons are all between rows of tables are
judged again under each reading of weights and splits, without any code of `fedbench.analysis`; what
a paper claims, prints and tunes is read from its file. Verdicts, scaled-down checks and counts are
compared with those in tables/<paper>_readings.csv, p-values and states of the adopted reading with
those in tables/<paper>_comparisons.csv. Exit status: 0 if all agree and there are enough of them,
else 1.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedbench.config.compose import Composer
from fedbench.papers import checks
from fedbench.papers.registry import papers
from fedbench.papers.schema import Paper, Row

ALPHA, EQUAL = 0.05, 1e-9
SCALED = {
    "holds": "same direction",
    "fails": "opposite direction",
    "mixed": "mixed",
    "undecided": "unclear",
}
SPLITS = {"": False, "split of the experiments": False, "all splits that have been run": True}
Leads = dict[int, float]  # by block


class Unknown(Exception):
    """The script does not know how to recompute this."""


class Contest(NamedTuple):
    """A comparison: side a of it is to be ahead of side b by more than ``by``."""

    group: str
    a: tuple[str, Row]  # table and row
    b: tuple[str, Row]
    metric: str
    by: float = 0.0


class Compared(NamedTuple):
    """What runs say of a comparison.

    Attributes:
        leads: Its leads; empty if it has not been run.
        reduced: Whether its runs are at reduced settings.
        untuned: Whether the values of one side were searched, and those of the other not.
    """

    leads: Leads
    reduced: bool = False
    untuned: bool = False


# ---- what is compared


def contests(paper: Paper, check: Any) -> Iterator[Contest]:
    """Yield the comparisons of a check."""

    def rows(table: str, setup: str) -> list[Row]:
        return [r for r in paper.tables[table].rows if r.setup == setup]

    def row(table: str, setup: str, algo: str) -> Row:
        return next(r for r in rows(table, setup) if r.algo == algo)

    def contest(
        table: str, a: Row, b: Row, metric: str, by: float = 0.0, other: str | None = None
    ) -> Contest:
        titles = dict.fromkeys(paper.setups[r.setup].title for r in (a, b))
        return Contest(" and ".join(titles), (table, a), (other or table, b), metric, by)

    if isinstance(check, checks.Several) and not check.label:
        for part in check.checks:
            yield from contests(paper, part)
    elif (
        isinstance(check, checks.Compare) and check.by < 0 and set(check.better) == set(check.worse)
    ):
        raise Unknown("pairs that are close, comparisons of two parts")
    elif isinstance(check, checks.Compare):
        for setup, metric, algo in product(check.setups, check.metrics, check.better):
            own, table = row(check.table, setup, algo), check.table
            if check.at is not None:
                table = check.at.table
                others = [row(table, check.at.setup, algo)]
            elif check.worse:
                others = [row(table, setup, other) for other in check.worse if other != algo]
            else:
                others = [r for r in rows(table, setup) if r is not own]
            yield from (contest(check.table, own, r, metric, check.by, table) for r in others)
    else:
        raise Unknown(type(check).__name__)


# ---- the numbers of the runs


class Numbers:
    """The numbers of the rows of tables, from runs.parquet."""

    def __init__(
        self, paper: Paper, runs: pd.DataFrame, weighting: str, drawn: bool, last: bool
    ) -> None:
        self.paper, self.runs, self.weighting, self.drawn, self.last = (
            paper,
            runs,
            weighting,
            drawn,
            last,
        )

    def of(self, table: str, row: Row, metric: str) -> dict[tuple[int, int], float]:
        """Return a number per unit (split, seed), NaN where the run diverged; empty if there are none."""
        found = self.runs_of(row)
        column = self._column(self.paper.metrics[metric].field)
        if column.startswith("client:"):
            raise Unknown("numbers of a client")
        if self.paper.tables[table].round == "best" and not self.last:
            column = f"best_{column}"
        if column not in found:
            return {}
        values: dict[tuple[int, int], float] = {}
        for _, run in found.iterrows():
            split = run.get("config.data.seed")
            unit = int(run["seed"] if pd.isna(split) else split), int(run["seed"])
            lost = run["status"] == "diverged"
            if lost or not pd.isna(run[column]):
                values[unit] = (
                    math.nan if lost else float(run[column]) * self.paper.metrics[metric].factor
                )
        return values

    def _column(self, field: str) -> str:
        plain = field.removesuffix("_weighted")
        statistic = plain.startswith("accuracy_") or plain in ("angle_degrees", "kl_uniform")
        if (
            self.weighting == "as in the tables"
            or not statistic
            or plain in ("accuracy_min", "accuracy_max")
        ):
            return field
        return f"{plain}_weighted" if self.weighting == "weighted" else plain

    def runs_of(self, row: Row) -> pd.DataFrame:
        """Return the runs of a row, those at the paper's settings if there are any."""
        setup, method = self.paper.setups[row.setup], self.paper.methods[row.algo]
        runs = self.runs
        here = runs[(runs["experiment"] == setup.experiment) & (runs["algo"] == method.algo)]
        here = here[here["status"].isin(["done", "diverged"])]
        given = self.paper.overrides(row)
        for key, value in given.items():
            same = [_same(v, value) for v in here.get(f"config.{key}", [None] * len(here))]
            here = here[np.array(same, dtype=bool)]
        full = here["reduced"] == ""
        cut = (
            set()
            if full.any()
            else {key for profile in setup.profiles.values() for key in profile.set}
        )
        here = here[full] if full.any() else here
        if not len(here):
            return here
        whole = Composer().config([f"experiment={setup.experiment}", f"algo={method.algo}"]).tree
        # other rows of the same method vary keys that this one leaves as they are
        for column in here.columns:
            section, _, key = column.removeprefix("config.").partition(".")
            # functions move from release to release
            if section not in ("local", "algo") or key == "_target_":
                continue
            if key in whole[section] and f"{section}.{key}" not in {*given, *cut}:
                # a key that came after a run was made is empty
                same = [pd.isna(v) or _same(v, whole[section][key]) for v in here[column]]
                here = here[np.array(same, dtype=bool)]
        split = whole["data"]["seed"]
        return here if self.drawn or split is None else here[here["config.data.seed"] == split]


def _same(cell: Any, value: Any) -> bool:
    if isinstance(value, bool) or isinstance(cell, bool | np.bool_):
        return str(cell).lower() == str(value).lower()
    if isinstance(value, int | float):
        try:
            return float(cell) == value
        except (TypeError, ValueError):
            return False
    if isinstance(value, list):
        return bool(cell == str(value))
    return bool(cell == value) or (value is None and pd.isna(cell))


def compared(numbers: Numbers, c: Contest) -> Compared:
    """Return what runs say of a comparison."""
    rows = c.a[1], c.b[1]
    reductions = set().union(*(numbers.runs_of(row)["reduced"] for row in rows))
    if len(reductions) > 1:
        raise Unknown("sides at different settings")
    searched = {numbers.paper.searched(row) for row in rows}
    found = leads(numbers, c)
    return Compared(found, bool(found) and reductions != {""}, bool(found) and len(searched) > 1)


def leads(numbers: Numbers, c: Contest) -> Leads:
    """Return the lead of a comparison by block; empty if it has not been run."""
    a, b = numbers.of(*c.a, c.metric), numbers.of(*c.b, c.metric)
    sign = -1 if numbers.paper.metrics[c.metric].direction == "lower" else 1
    found = {
        u: sign * (a[u] - b[u]) - c.by
        for u in a.keys() & b.keys()
        if not math.isnan(a[u]) or not math.isnan(b[u])
    }
    most = max((abs(d) for d in found.values() if not math.isnan(d)), default=0.0) or 1.0
    found = {
        u: (-most if math.isnan(a[u]) else most) if math.isnan(d) else d for u, d in found.items()
    }
    blocks: dict[int, list[float]] = {}
    for (split, seed), d in sorted(found.items()):
        blocks.setdefault(split if numbers.drawn else seed, []).append(d)
    return {block: mean(ds) for block, ds in blocks.items()}


# ---- tests


def signs(n: int) -> np.ndarray:
    """Return all assignments of signs to n blocks, [2^n, n]; the observed one comes first."""
    if n > 16:
        raise Unknown("more than 16 blocks")
    return 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)


def p_ahead(found: Leads) -> float:
    """Return the share of the assignments whose sum is at least the observed one."""
    d = np.array(list(found.values()))
    sums = signs(len(d)) @ d
    return float((sums >= sums[0] - EQUAL * abs(d).sum()).mean())


def adjusted(every: Sequence[Leads]) -> list[float]:
    """Return the p-value that each comparison is ahead, adjusted by the step-down over joint sign flips."""
    blocks = sorted(set().union(*every))
    flips = signs(len(blocks))
    numbers, sizes = [], []
    for found in every:
        ahead = np.array([found.get(b, 0.0) for b in blocks])
        sums = flips @ ahead
        slack = EQUAL * abs(ahead).sum()
        numbers.append(
            (sums[None, :] >= sums[:, None] - slack).sum(1)
            if len(sums) <= 4096
            else _ranks(sums, slack)
        )
        scale = math.sqrt((ahead**2).sum())
        sizes.append(sums / scale if scale else np.zeros(len(sums)))
    order = sorted(range(len(every)), key=lambda i: (numbers[i][0], -sizes[i][0]))
    result, before = [0.0] * len(every), 0.0
    for k, i in enumerate(order):
        low = np.zeros(len(flips), bool)
        for j in order[k:]:
            equal = (numbers[j] == numbers[i][0]) & (sizes[j] >= sizes[i][0] - EQUAL)
            low |= (numbers[j] < numbers[i][0]) | equal
        before = max(before, float(low.mean()))
        result[i] = before
    return result


def _ranks(sums: np.ndarray, slack: float) -> np.ndarray:
    ordered = np.sort(sums)
    return len(sums) - np.searchsorted(ordered, sums - slack, side="left")


def opposite(found: Leads) -> Leads:
    """Return the leads of the other side."""
    return {block: -d for block, d in found.items()}


class Judged(NamedTuple):
    """The word for comparisons, and for each that has been run four p-values; None for the others."""

    word: str
    p: list[tuple[float, float, float, float] | None]

    @property
    def states(self) -> list[str]:
        """Whether each comparison is shown, refuted, open or not run."""
        return [
            "not run"
            if p is None
            else "shown"
            if p[2] <= ALPHA
            else "refuted"
            if p[3] <= ALPHA
            else "open"
            for p in self.p
        ]

    @property
    def counts(self) -> str:
        """How many comparisons are shown and refuted, as reports say it."""
        states, total = self.states, len(self.p)
        run = total - states.count("not run")
        if not run:
            return f"{total} comparison{'s' * (total > 1)}, none run"
        part = f"{run} of {total} run: " if run < total else ""
        counts = f"{states.count('shown')} of {run} shown, {states.count('refuted')} refuted"
        alone = self.word == "holds" and states.count("shown") < total
        return (
            f"each of {total} by itself; after adjustment {counts}" if alone else f"{part}{counts}"
        )


def judge(every: Sequence[Compared]) -> Judged:
    """Return the verdict on comparisons, of which those without leads have not been run."""
    run = [i for i, c in enumerate(every) if c.leads]
    found = [every[i].leads for i in run]
    turned = [opposite(d) for d in found]
    p: list[tuple[float, float, float, float] | None] = [None] * len(every)
    if run:
        numbers = map(p_ahead, found), map(p_ahead, turned), adjusted(found), adjusted(turned)
        for i, four in zip(run, zip(*numbers, strict=True), strict=True):
            p[i] = four
    states = Judged("", p).states
    if "not run" in states:
        word = "not run"
    elif any(c.untuned for c in every):
        word = "undecided"
    elif all(four is not None and four[0] <= ALPHA for four in p):
        word = "holds"
    elif "refuted" in states:
        word = "mixed" if "shown" in states else "fails"
    else:
        word = "undecided"
    return Judged(word, p)


def verdict(every: Sequence[Compared]) -> Judged:
    """Return the verdict: runs at reduced settings do not count."""
    return judge([Compared({}) if c.reduced else c for c in every])


def scaled(every: Sequence[Compared]) -> str:
    """Return the scaled-down check; empty if there is none."""
    word = judge(every).word
    if word not in SCALED or not any(c.reduced for c in every):
        return ""
    fewest, alike = min(len(c.leads) for c in every), not any(c.untuned for c in every)
    refutable = len(every) * 2.0**-fewest <= ALPHA
    return SCALED[word if alike and 2.0**-fewest <= ALPHA and refutable else "undecided"]


# ---- the report


def recomputed(paper: Paper, folder: Path, runs: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield (what, recomputed, reported) for the verdicts, counts and p-values of a paper."""
    readings = _rows(folder / f"{paper.id}_readings.csv")
    comparisons = _rows(folder / f"{paper.id}_comparisons.csv")
    for claim in paper.claims.values():
        try:
            contests_of = list(contests(paper, claim.check))
        except Unknown:
            continue
        mine = [r for r in readings if r["claim"] == claim.id] or _only(claim.id, folder, paper)
        for r in mine:
            if r["settings"] not in ("", "as in the experiments") or r["round"] not in (
                "",
                "as in the tables",
                "last",
            ):
                continue
            weighting = r["weighting"] or "as in the tables"
            numbers = Numbers(
                paper, runs, weighting, SPLITS[r["data splits"]], r["round"] == "last"
            )
            rounds = ", last round" if numbers.last else ""
            name = f"{paper.id} {claim.id}, {weighting}{rounds}, {'all splits' if numbers.drawn else 'one split'}"
            try:
                found = [compared(numbers, c) for c in contests_of]
                own, check = verdict(found), scaled(found)
            except Unknown:
                continue
            yield name, own.word, r["verdict"]
            yield f"{name}, scaled-down check", check, r["scaled"]
            shown = judge(found)  # with reduced runs, if there are any
            yield f"{name}, counts", own.counts, r["counts"]
            if "scaled_counts" in r:
                reduced = any(c.reduced for c in found)
                yield (
                    f"{name}, scaled-down counts",
                    shown.counts if reduced else "",
                    r["scaled_counts"],
                )
            if r["adopted"] == "True":
                yield from _comparisons(
                    name, found, shown, [c for c in comparisons if c["claim"] == claim.id]
                )


def _only(claim: str, folder: Path, paper: Paper) -> list[dict[str, str]]:
    """Return the adopted reading of a claim that has no other one."""
    found = [
        r
        for r in _rows(folder / f"{paper.id}_claims.csv")
        if r["id"] == claim and r["basis"] == "runs"
    ]
    same = dict.fromkeys(("weighting", "round", "data splits", "settings"), "")
    return [
        {**r, **same, "adopted": "True"}
        for r in found
        if r["verdict"] != "not testable" and not r["scaled"]
    ]


def _comparisons(
    name: str, found: Sequence[Compared], own: Judged, shown: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, str, str]]:
    for c, p, state, row in zip(found, own.p, own.states, shown, strict=True):
        what = f"{name}: {row['label']}"
        yield f"{what}, state", state, row["state"]
        yield f"{what}, marks", f"{c.reduced} {c.untuned}", f"{row['reduced']} {row['untuned']}"
        keys = ("for_p", "against_p", "adjusted_for_p", "adjusted_against_p")
        yield from (
            (f"{what}, {key}", _p(v), _p(float(row[key])))
            for key, v in zip(keys, p or (), strict=bool(p))
        )


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main(argv: Sequence[str]) -> int:
    """Recompute and compare, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path, help="directory of a report")
    parser.add_argument(
        "--least", type=int, default=30, help="verdicts that must be recomputed (default: 30)"
    )
    asked = parser.parse_args(argv)
    runs = pd.read_parquet(asked.report / "runs.parquet")
    found = [
        r for paper in papers().values() for r in recomputed(paper, asked.report / "tables", runs)
    ]
    wrong = [(what, own, shown) for what, own, shown in found if own != shown]
    for what, own, shown in wrong:
        print(f"{what}: recomputed {own}, reported {shown}")
    verdicts = sum(what.endswith(" split") or what.endswith(" splits") for what, _, _ in found)
    p_values = sum(what.endswith("_p") for what, _, _ in found)
    others = len(found) - verdicts - p_values
    print(
        f"{verdicts} verdicts, {p_values} p-values and {others} counts and states recomputed, {len(wrong)} differ"
    )
    return 1 if wrong or verdicts < asked.least else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Recompute the verdicts of a report from its runs.parquet.

    python scripts/recompute_verdicts.py REPORT [--least 30]

REPORT is the directory of a report. The code was written from docs/reproduction.md alone and does
not use `fedbench.analysis`; it reads the claims of a paper, its printed numbers and its tuning from
the paper's file. It judges the claims whose comparisons are all between rows of tables again, under
each reading of weights and splits. It compares verdicts, scaled-down checks and counts with those
in tables/<paper>_readings.csv, and p-values and states of the adopted reading with those in
tables/<paper>_comparisons.csv. The exit status is 0 if all agree and there are enough of them,
else 1.
"""

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

ALPHA = 0.05
EQUAL = 1e-9
SCALED = {
    "holds": "same direction",
    "fails": "opposite direction",
    "mixed": "mixed",
    "undecided": "unclear",
}
AS_PRINTED = "as in the tables"
ALL_SPLITS = "all splits that have been run"
Fields = dict[str, str]  # a row of a CSV file, by column
P_VALUES = (
    "for_p",
    "against_p",
    "adjusted_for_p",
    "adjusted_against_p",
)
Unit = tuple[int, int]  # split and seed
Leads = dict[int, float]  # by block
PValues = tuple[float, ...]  # those of P_VALUES


class Unknown(Exception):
    """A claim, or a part of one, that this script cannot recompute."""


class Side(NamedTuple):
    """A row of a table."""

    table: str
    row: Row


class Contest(NamedTuple):
    """A comparison, which claims that the first side leads the second by more than ``by``."""

    first: Side
    second: Side
    metric: str
    by: float


class Compared(NamedTuple):
    """The runs of a comparison.

    Attributes:
        leads: Lead per block; empty if the comparison has not been run.
        reduced: Whether its runs are at reduced settings.
        untuned: Whether the values of only one side were searched.
    """

    leads: Leads
    reduced: bool = False
    untuned: bool = False


# ---- comparisons of a claim


def contests(paper: Paper, check: Any) -> Iterator[Contest]:
    """Yield the comparisons of a check.

    Raises:
        Unknown: If the check is of another kind.
    """
    if isinstance(check, checks.Several) and not check.label:
        for part in check.checks:
            yield from contests(paper, part)
        return
    if not isinstance(check, checks.Compare):
        raise Unknown(type(check).__name__)
    if check.by < 0 and set(check.better) == set(check.worse):
        raise Unknown("pairs that are close, comparisons of two parts")

    rows = product(check.setups, check.metrics, check.better)
    for setup, metric, algo in rows:
        first = _side(paper, check.table, setup, algo)
        for second in _opponents(paper, check, setup, first):
            yield Contest(first, second, metric, check.by)


def _opponents(
    paper: Paper,
    check: checks.Compare,
    setup: str,
    first: Side,
) -> list[Side]:
    algo = first.row.algo
    other = check.at
    if other is not None:
        return [_side(paper, other.table, other.setup, algo)]
    if check.worse:
        names = [name for name in check.worse if name != algo]
        return [_side(paper, check.table, setup, name) for name in names]
    sides = _sides(paper, check.table, setup)
    return [side for side in sides if side.row is not first.row]


def _side(
    paper: Paper,
    table: str,
    setup: str,
    algo: str,
) -> Side:
    sides = _sides(paper, table, setup)
    return next(side for side in sides if side.row.algo == algo)


def _sides(
    paper: Paper,
    table: str,
    setup: str,
) -> list[Side]:
    rows = paper.tables[table].rows
    return [Side(table, row) for row in rows if row.setup == setup]


# ---- numbers of the runs


class Numbers:
    """The numbers of the rows of tables, from runs.parquet.

    Args:
        paper: The paper.
        runs: The runs.
        weighting: The weights of the clients, as a reading names them.
        drawn: Whether runs on all splits count.
        last: Whether tables of best rounds use the last round, too.
    """

    def __init__(
        self,
        paper: Paper,
        runs: pd.DataFrame,
        weighting: str,
        drawn: bool,
        last: bool,
    ) -> None:
        self.paper = paper
        self.runs = runs
        self.weighting = weighting
        self.drawn = drawn
        self.last = last

    def by_unit(self, side: Side, metric: str) -> dict[Unit, float]:
        """Return the number of each unit, NaN where the run diverged."""
        printed = self.paper.metrics[metric]
        column = self._column(printed.field)
        if column.startswith("client:"):
            raise Unknown("numbers of a client")
        table = self.paper.tables[side.table]
        if table.round == "best" and not self.last:
            column = f"best_{column}"
        runs = self.runs_of(side.row)
        if column not in runs:
            return {}

        values: dict[Unit, float] = {}
        for _, run in runs.iterrows():
            seed = int(run["seed"])
            split = run.get("config.data.seed")
            if pd.isna(split):
                split = seed
            unit = (int(split), seed)
            number = run[column]
            if run["status"] == "diverged":
                values[unit] = math.nan
            elif not pd.isna(number):
                values[unit] = float(number) * printed.factor
        return values

    def _column(self, field: str) -> str:
        plain = field.removesuffix("_weighted")
        if plain in ("accuracy_min", "accuracy_max"):
            return field
        statistic = plain.startswith("accuracy_") or plain in ("angle_degrees", "kl_uniform")
        if self.weighting == AS_PRINTED or not statistic:
            return field
        return f"{plain}_weighted" if self.weighting == "weighted" else plain

    def runs_of(self, row: Row) -> pd.DataFrame:
        """Return the runs of a row at the paper's settings, or else at reduced ones."""
        setup = self.paper.setups[row.setup]
        method = self.paper.methods[row.algo]
        runs = self.runs
        runs = runs[runs["experiment"] == setup.experiment]
        runs = runs[runs["algo"] == method.algo]
        runs = runs[runs["status"].isin(["done", "diverged"])]
        overrides = self.paper.overrides(row)
        for key, value in overrides.items():
            cells = runs.get(f"config.{key}", [None] * len(runs))
            runs = runs[_equal(cells, value)]

        set_keys = set(overrides)
        full = runs["reduced"] == ""
        if full.any():
            runs = runs[full]
        else:
            for profile in setup.profiles.values():
                set_keys |= profile.set.keys()
        if runs.empty:
            return runs

        choices = [
            f"experiment={setup.experiment}",
            f"algo={method.algo}",
        ]
        config = Composer().config(choices).tree
        runs = _at_defaults(runs, config, set_keys)
        split = config["data"]["seed"]
        if self.drawn or split is None:
            return runs
        return runs[runs["config.data.seed"] == split]


def _at_defaults(
    runs: pd.DataFrame,
    config: Mapping[str, Any],
    set_keys: set[str],
) -> pd.DataFrame:
    """Return the runs whose other keys have their defaults: other rows of the method vary them."""
    for column in runs.columns:
        name = column.removeprefix("config.")
        section, _, key = name.partition(".")
        # functions move from release to release
        if section not in ("local", "algo") or key == "_target_":
            continue
        defaults = config[section]
        if key in defaults and name not in set_keys:
            # a key that is newer than a run is empty
            cells = runs[column]
            runs = runs[cells.isna() | _equal(cells, defaults[key])]
    return runs


def _equal(cells: Sequence[Any] | pd.Series, value: Any) -> np.ndarray:
    """Return whether each cell of a column has a value."""
    same = [_same(cell, value) for cell in cells]
    return np.array(same, dtype=bool)


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


def compared(numbers: Numbers, contest: Contest) -> Compared:
    """Return the runs of a comparison."""
    reductions: set[str] = set()
    searched: set[bool] = set()
    for side in (contest.first, contest.second):
        reductions |= set(numbers.runs_of(side.row)["reduced"])
        searched.add(numbers.paper.searched(side.row))
    if len(reductions) > 1:
        raise Unknown("sides at different settings")

    leads = leads_of(numbers, contest)
    if not leads:
        return Compared({})
    return Compared(
        leads,
        reduced=reductions != {""},
        untuned=len(searched) > 1,
    )


def leads_of(numbers: Numbers, contest: Contest) -> Leads:
    """Return the lead of a comparison by block; empty if it has not been run."""
    metric = numbers.paper.metrics[contest.metric]
    sign = -1 if metric.direction == "lower" else 1
    first = numbers.by_unit(contest.first, contest.metric)
    second = numbers.by_unit(contest.second, contest.metric)

    leads: dict[Unit, float] = {}
    for unit in sorted(first.keys() & second.keys()):
        both_diverged = math.isnan(first[unit]) and math.isnan(second[unit])
        if not both_diverged:
            difference = first[unit] - second[unit]
            leads[unit] = sign * difference - contest.by

    known = [abs(lead) for lead in leads.values() if not math.isnan(lead)]
    largest = max(known, default=0.0) or 1.0
    blocks: dict[int, list[float]] = {}
    for unit, lead in leads.items():
        if math.isnan(lead):
            lead = -largest if math.isnan(first[unit]) else largest
        split, seed = unit
        block = split if numbers.drawn else seed
        blocks.setdefault(block, []).append(lead)
    return {block: mean(units) for block, units in blocks.items()}


# ---- tests


def signs(n: int) -> np.ndarray:
    """Return all assignments of signs to n blocks, [2^n, n]; the observed one comes first."""
    if n > 16:
        raise Unknown("more than 16 blocks")
    numbers = np.arange(2**n)[:, None]
    bits = (numbers >> np.arange(n)) & 1
    return 1 - 2 * bits


def p_ahead(leads: Leads) -> float:
    """Return the share of the assignments whose sum is at least the observed one."""
    d = np.array(list(leads.values()))
    sums = signs(len(d)) @ d
    as_large = sums >= sums[0] - _slack(d)
    return float(as_large.mean())


def _slack(d: np.ndarray) -> float:
    """Return the largest difference of sums that counts as rounding."""
    return EQUAL * float(abs(d).sum())


def adjusted(every: Sequence[Leads]) -> list[float]:
    """Return the p-values that comparisons are ahead, adjusted by a step-down over joint flips."""
    blocks = sorted(set().union(*every))
    flips = signs(len(blocks))
    counts = []  # of sums that are at least as large
    sizes = []  # by which equal counts are ordered
    for leads in every:
        d = np.array([leads.get(block, 0.0) for block in blocks])
        sums = flips @ d
        smaller = np.searchsorted(np.sort(sums), sums - _slack(d))
        counts.append(len(sums) - smaller)
        scale = math.sqrt((d**2).sum()) or 1.0
        sizes.append(sums / scale)

    def rank(i: int) -> tuple[int, float]:
        return counts[i][0], -sizes[i][0]

    order = sorted(range(len(every)), key=rank)
    p_values = [0.0] * len(every)
    largest = 0.0
    for step, i in enumerate(order):
        count = counts[i][0]
        size = sizes[i][0]
        as_extreme = np.zeros(len(flips), bool)
        for j in order[step:]:
            lower = counts[j] < count
            equal = counts[j] == count
            larger = sizes[j] >= size - EQUAL
            as_extreme |= lower | (equal & larger)
        largest = max(largest, float(as_extreme.mean()))
        p_values[i] = largest
    return p_values


# ---- verdicts


class Judged(NamedTuple):
    """A verdict on comparisons.

    Attributes:
        word: The verdict.
        p: The p-values of each comparison; None if it has not been run.
    """

    word: str
    p: list[PValues | None]

    @property
    def counts(self) -> str:
        """The numbers of comparisons that are shown and refuted, as reports write them."""
        states = list(map(_state, self.p))
        total = len(states)
        run = total - states.count("not run")
        shown = states.count("shown")
        refuted = states.count("refuted")
        if not run:
            plural = "s" if total > 1 else ""
            return f"{total} comparison{plural}, none run"
        counts = f"{shown} of {run} shown, {refuted} refuted"
        if self.word == "holds" and shown < total:
            return f"each of {total} by itself; after adjustment {counts}"
        if run < total:
            return f"{run} of {total} run: {counts}"
        return counts


def _state(p: PValues | None) -> str:
    """Return the state of a comparison: shown, refuted, open or not run."""
    if p is None:
        return "not run"
    *_, adjusted_for, adjusted_against = p
    if adjusted_for <= ALPHA:
        return "shown"
    if adjusted_against <= ALPHA:
        return "refuted"
    return "open"


def judge(every: Sequence[Compared]) -> Judged:
    """Return the verdict on comparisons; those without leads have not been run."""
    for_leads = [c.leads for c in every if c.leads]
    against_leads = []
    for leads in for_leads:
        negated = {block: -lead for block, lead in leads.items()}
        against_leads.append(negated)

    p_values: Iterator[PValues] = iter(())
    if for_leads:
        p_values = zip(
            map(p_ahead, for_leads),
            map(p_ahead, against_leads),
            adjusted(for_leads),
            adjusted(against_leads),
            strict=True,
        )
    p = [next(p_values) if c.leads else None for c in every]
    return Judged(_word(every, p), p)


def _word(
    every: Sequence[Compared],
    p: Sequence[PValues | None],
) -> str:
    states = list(map(_state, p))
    if "not run" in states:
        return "not run"
    if any(c.untuned for c in every):
        return "undecided"
    unadjusted = [values[0] for values in p if values is not None]
    if all(value <= ALPHA for value in unadjusted):
        return "holds"
    if "refuted" in states:
        return "mixed" if "shown" in states else "fails"
    return "undecided"


def verdict(every: Sequence[Compared]) -> Judged:
    """Return the verdict without runs at reduced settings."""
    counted = [Compared({}) if c.reduced else c for c in every]
    return judge(counted)


def scaled(every: Sequence[Compared]) -> str:
    """Return the scaled-down check; empty if there is none."""
    word = judge(every).word
    if word not in SCALED or not any(c.reduced for c in every):
        return ""
    fewest = min(len(c.leads) for c in every)
    can_refute = len(every) * 2.0**-fewest <= ALPHA
    if not can_refute or any(c.untuned for c in every):
        word = "undecided"
    return SCALED[word]


# ---- the report


class Check(NamedTuple):
    """A recomputed value and the reported one, of the kind verdict, p-value or other."""

    kind: str
    name: str
    recomputed: str
    reported: str


def recomputed(
    paper: Paper,
    folder: Path,
    runs: pd.DataFrame,
) -> Iterator[Check]:
    """Yield the verdicts, counts and p-values of a paper."""
    all_readings = _rows(folder / f"{paper.id}_readings.csv")
    all_comparisons = _rows(folder / f"{paper.id}_comparisons.csv")
    for claim in paper.claims.values():
        try:
            claim_contests = list(contests(paper, claim.check))
        except Unknown:
            continue
        readings = _of_claim(all_readings, claim.id) or _only(claim.id, folder, paper)
        reported = _of_claim(all_comparisons, claim.id)
        for reading in readings:
            if reading["settings"] not in ("", "as in the experiments"):
                continue
            if reading["round"] not in ("", AS_PRINTED, "last"):
                continue
            numbers = Numbers(
                paper,
                runs,
                weighting=reading["weighting"] or AS_PRINTED,
                drawn=reading["data splits"] == ALL_SPLITS,
                last=reading["round"] == "last",
            )
            try:
                every = [compared(numbers, contest) for contest in claim_contests]
                name = _name(claim.id, numbers)
                yield from _checks(name, every, reading, reported)
            except Unknown:
                continue


def _of_claim(rows: Sequence[Fields], claim: str) -> list[Fields]:
    return [row for row in rows if row["claim"] == claim]


def _name(claim: str, numbers: Numbers) -> str:
    parts = [f"{numbers.paper.id} {claim}", numbers.weighting]
    if numbers.last:
        parts.append("last round")
    parts.append("all splits" if numbers.drawn else "one split")
    return ", ".join(parts)


def _checks(
    name: str,
    every: Sequence[Compared],
    reading: Fields,
    reported: Sequence[Fields],
) -> Iterator[Check]:
    """Yield the checks of a claim under a reading."""
    judged = verdict(every)
    with_reduced = judge(every)
    yield Check("verdict", name, judged.word, reading["verdict"])
    yield Check("other", f"{name}, scaled-down check", scaled(every), reading["scaled"])
    yield Check("other", f"{name}, counts", judged.counts, reading["counts"])
    if "scaled_counts" in reading:
        counts = ""
        if any(c.reduced for c in every):
            counts = with_reduced.counts
        label = f"{name}, scaled-down counts"
        yield Check("other", label, counts, reading["scaled_counts"])
    if reading["adopted"] == "True":
        yield from _comparisons(name, every, with_reduced, reported)


def _comparisons(
    name: str,
    every: Sequence[Compared],
    judged: Judged,
    reported: Sequence[Fields],
) -> Iterator[Check]:
    """Yield the checks of each comparison of a claim."""
    for c, p, row in zip(every, judged.p, reported, strict=True):
        label = f"{name}: {row['label']}"
        marks = f"{c.reduced} {c.untuned}"
        reported_marks = f"{row['reduced']} {row['untuned']}"
        yield Check("other", f"{label}, state", _state(p), row["state"])
        yield Check("other", f"{label}, marks", marks, reported_marks)
        if p is None:
            continue
        for key, value in zip(P_VALUES, p, strict=True):
            reported_value = float(row[key])
            yield Check(
                "p-value",
                f"{label}, {key}",
                _text(value),
                _text(reported_value),
            )


def _only(
    claim: str,
    folder: Path,
    paper: Paper,
) -> list[Fields]:
    """Return the adopted reading of a claim that has no other one."""
    adopted = {
        "weighting": "",
        "round": "",
        "data splits": "",
        "settings": "",
        "adopted": "True",
    }
    readings = []
    for row in _rows(folder / f"{paper.id}_claims.csv"):
        if row["id"] != claim or row["basis"] != "runs":
            continue
        if row["verdict"] != "not testable" and not row["scaled"]:
            readings.append(row | adopted)
    return readings


def _text(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def _rows(path: Path) -> list[Fields]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main(argv: Sequence[str]) -> int:
    """Recompute the claims of all papers, print differences and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("report", type=Path, help="directory of a report")
    parser.add_argument(
        "--least",
        type=int,
        default=30,
        help="verdicts that must be recomputed (default: 30)",
    )
    args = parser.parse_args(argv)
    runs = pd.read_parquet(args.report / "runs.parquet")
    every: list[Check] = []
    for paper in papers().values():
        every += recomputed(paper, args.report / "tables", runs)

    wrong = [check for check in every if check.recomputed != check.reported]
    for check in wrong:
        print(f"{check.name}: recomputed {check.recomputed}, reported {check.reported}")
    kinds = [check.kind for check in every]
    verdicts = kinds.count("verdict")
    print(
        f"{verdicts} verdicts, {kinds.count('p-value')} p-values and {kinds.count('other')} "
        f"counts and states recomputed, {len(wrong)} differ"
    )
    return 1 if wrong or verdicts < args.least else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

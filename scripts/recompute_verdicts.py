"""Recompute the verdicts of a report from its runs.parquet.

    python scripts/recompute_verdicts.py REPORT [--least 30]

REPORT is the directory of a report. The code was written from docs/reproduction.md alone and does
not use `fedbench.analysis`; it reads the claims of a paper, its printed numbers and its tuning from
the paper's file, and the plans from results/plans. It judges again

- claims on rows of tables (compare, trend, averages, within_band) and on last values of figures,
  from the planned runs of a complete plan or from the exploratory ones, under each reading,
- claims on printed numbers alone (equal_rows).

It compares verdicts, status, counts and scaled-down checks with those in tables/<paper>_claims.csv
and tables/<paper>_readings.csv; p-values, states and intervals of the adopted reading with those in
tables/<paper>_comparisons.csv; and the tables' means with their agreement with the printed numbers.
Claims that need curves, clients or rounds to a target are left out, because runs.parquet has none
of them. The exit status is 0 if all agree and there are enough verdicts, else 1.
"""

import argparse
import csv
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedbench.config.compose import Composer
from fedbench.config.plans import Plan, plans_of
from fedbench.papers import checks
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.registry import papers, written_checks
from fedbench.papers.schema import Figure, Paper, PrintedMetric, Row, Setup, Table

ROOT = Path(__file__).parents[1]
ALPHA = 0.05
EQUAL = 1e-9
EXACT = 16  # units up to which reports use all assignments
MOST = 20  # units up to which this script does
SAMPLED = 0.01  # largest difference of a p-value that a report has estimated
LOWER_IS_BETTER = ("loss", "std", "variance", "angle", "kl")
SCALED = {
    "holds": "same direction",
    "fails": "opposite direction",
    "mixed": "mixed",
    "undecided": "unclear",
}
NOT_RUN = "not run"
P_VALUES = (
    "for_p",
    "against_p",
    "adjusted_for_p",
    "adjusted_against_p",
)
Fields = dict[str, str]  # a row of a CSV file, by column
Unit = tuple[int, int]  # split and training seed
Leads = dict[int, float]  # by split, or by training seed on one split
PValues = tuple[float, ...]  # those of P_VALUES
AXES = ("weighting", "round", "data splits", "settings")  # of readings
ByReduction = dict[str, pd.DataFrame]  # runs


class Unknown(Exception):
    """A claim, or a part of one, that this script cannot recompute."""


# ---- comparisons of a claim


class Number(NamedTuple):
    """A number of a run.

    Attributes:
        field: Field of the run.
        factor: Factor to the printed unit.
        lower: Whether lower is better.
    """

    field: str
    factor: float
    lower: bool


class Side(NamedTuple):
    """A row of a table or figure."""

    part: str
    row: Row


class Lead(NamedTuple):
    """The first sides, on average, lead the second ones by more than ``by``.

    If ``share`` is given, the first must be below this share of the second.
    """

    first: tuple[Side, ...]
    second: tuple[Side, ...]
    number: Number
    by: float = 0.0
    share: float | None = None

    @property
    def sides(self) -> tuple[Side, ...]:
        """All sides."""
        return self.first + self.second


class Bound(NamedTuple):
    """A number is above a bound, or below it."""

    side: Side
    number: Number
    bound: float
    above: bool

    @property
    def sides(self) -> tuple[Side, ...]:
        """The only side."""
        return (self.side,)


class Slope(NamedTuple):
    """A number rises, or falls, over the sides."""

    sides: tuple[Side, ...]
    number: Number
    rises: bool


class Joint(NamedTuple):
    """A comparison of several parts: all of them are needed, or one is enough."""

    parts: tuple["Contest", ...]
    every: bool


Part = Lead | Bound | Slope
Contest = Part | Joint


class Contests:
    """The comparisons of a paper's checks."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper

    def of(self, check: Any) -> list[Contest]:
        """Return the comparisons of a check.

        Raises:
            Unknown: If the check is of another kind.
        """
        match check:
            case checks.Several():
                return self._several(check)
            case checks.Compare():
                return list(self._compare(check))
            case checks.Trend():
                return [self._trend(check, algo) for algo in check.algo]
            case checks.Averages():
                return [self._averages(check)]
            case checks.WithinBand():
                return [self._within_band(check)]
            case checks.Curves():
                return list(self._curves(check))
        raise Unknown(type(check).__name__)

    def _several(self, check: checks.Several) -> list[Contest]:
        every = check.kind == "all"
        parts = []
        for part in check.checks:
            parts += self.of(part)
        if every and not check.label:
            return parts
        return [Joint(tuple(parts), every)]

    def _compare(self, check: checks.Compare) -> Iterator[Contest]:
        rows = product(check.setups, check.metrics)
        for setup, metric in rows:
            number = self._number(metric)
            same = set(check.better) == set(check.worse)
            if same and check.by < 0:
                yield from self._close(check, setup, number)
                continue
            for algo in check.better:
                first = self.side(check.table, setup, algo)
                opponents = self._opponents(check, setup, first)
                for second in opponents:
                    yield Lead(
                        (first,),
                        (second,),
                        number,
                        by=check.by,
                    )

    def _close(
        self,
        check: checks.Compare,
        setup: str,
        number: Number,
    ) -> Iterator[Joint]:
        """Yield a comparison for each two methods: neither is far ahead."""
        for one, other in combinations(check.better, 2):
            a = self.side(check.table, setup, one)
            b = self.side(check.table, setup, other)
            there = Lead((a,), (b,), number, check.by)
            back = Lead((b,), (a,), number, check.by)
            yield Joint((there, back), every=True)

    def _opponents(
        self,
        check: checks.Compare,
        setup: str,
        first: Side,
    ) -> list[Side]:
        algo = first.row.algo
        other = check.at
        if other is not None:
            itself = self.side(other.table, other.setup, algo)
            return [itself]
        sides = []
        for side in self._sides(check.table, setup):
            named = not check.worse or side.row.algo in check.worse
            if named and side.row is not first.row:
                sides.append(side)
        if check.worse:
            sides.sort(key=lambda side: check.worse.index(side.row.algo))
        return sides

    def _trend(
        self,
        check: checks.Trend,
        algo: str,
    ) -> Slope:
        sides = []
        if check.over == "setups":
            for setup in check.order:
                side = self.side(check.table, setup, algo)
                sides.append(side)
        else:
            assert check.setup is not None
            sides = self._sides(check.table, check.setup, algo)
            sides.sort(key=lambda side: side.row.hyperparameters[check.over])
        return Slope(
            tuple(sides),
            self._number(check.metric),
            rises=check.trend == "increasing",
        )

    def _averages(self, check: checks.Averages) -> Lead:
        return Lead(
            self._rows_of(check.better),
            self._rows_of(check.worse),
            self._number(check.metric),
            check.by,
        )

    def _rows_of(self, group: checks.Side) -> tuple[Side, ...]:
        sides = []
        for setup, algo in product(group.setups, group.algos):
            side = self.side(group.table, setup, algo)
            sides.append(side)
        return tuple(sides)

    def _within_band(self, check: checks.WithinBand) -> Joint:
        side = self.side(
            check.table,
            check.setup,
            check.algo,
            check.hyperparameters,
        )
        number = self._number(check.metric)
        above = Bound(side, number, check.low, above=True)
        below = Bound(side, number, check.high, above=False)
        return Joint((above, below), every=True)

    def _curves(self, check: checks.Curves) -> Iterator[Lead]:
        if set(check.measure) != {"final"}:
            raise Unknown("measures of curves")
        figure = self.paper.figures[check.figure]
        setups = check.setups or figure.setups
        for setup, name in product(setups, check.fields):
            lower = any(part in name for part in LOWER_IS_BETTER)
            factor = 100.0 if name.startswith("accuracy") else 1.0
            number = Number(name, factor, lower)
            better = _selected(figure, setup, check.better, check.worse)
            worse = _selected(figure, setup, check.worse, check.better)
            for first, second in product(better, worse):
                yield Lead(
                    (first,),
                    (second,),
                    number,
                    by=check.by,
                    share=check.share,
                )

    def _sides(
        self,
        table: str,
        setup: str,
        algo: str = "",
    ) -> list[Side]:
        sides = []
        for row in self.paper.tables[table].rows:
            wanted = algo in ("", row.algo)
            if wanted and row.setup == setup:
                sides.append(Side(table, row))
        return sides

    def side(
        self,
        table: str,
        setup: str,
        algo: str,
        hyperparameters: Mapping[str, Any] | None = None,
    ) -> Side:
        """Return the first row of a method on a setup in a table."""
        for side in self._sides(table, setup, algo):
            if _has(side.row, hyperparameters or {}):
                return side
        raise Unknown(f"no {algo} on {setup} in {table}")

    def _number(self, metric: str) -> Number:
        return number_of(self.paper.metrics[metric])


def _has(row: Row, hyperparameters: Mapping[str, Any]) -> bool:
    return hyperparameters.items() <= row.hyperparameters.items()


def _selected(
    figure: Figure,
    setup: str,
    selections: Sequence[checks.Selection],
    opponents: Sequence[checks.Selection],
) -> list[Side]:
    """Return the selected runs of a figure; others are all that the opponents do not name."""
    named = {selection.algo for selection in opponents}
    sides = []
    for selection in selections:
        for row in figure.rows:
            excluded = selection.algo == "others" and row.algo in named
            if row.setup == setup and selection.fits(row) and not excluded:
                sides.append(Side(figure.id, row))
    return sides


def number_of(printed: PrintedMetric) -> Number:
    """Return the number in a column of a table.

    Raises:
        Unknown: If runs.parquet lacks it.
    """
    if printed.target is not None or printed.rounds is not None:
        raise Unknown("numbers of several rounds")
    if printed.field.startswith("client:"):
        raise Unknown("numbers of a client")
    return Number(
        printed.field,
        printed.factor,
        lower=printed.direction == "lower",
    )


def rows_of(contest: Contest) -> list[Row]:
    """Return the rows behind a comparison."""
    if not isinstance(contest, Joint):
        return [side.row for side in contest.sides]
    rows = []
    for part in contest.parts:
        rows += rows_of(part)
    return rows


# ---- runs


class Runs:
    """Runs of a paper, which all count.

    Args:
        paper: The paper.
        table: The runs, as in runs.parquet.
    """

    def __init__(
        self,
        paper: Paper,
        table: pd.DataFrame,
    ) -> None:
        self.paper = paper
        self.table = table
        self._known: dict[str, ByReduction] = {}

    def of(
        self,
        row: Row,
        variant: str | None = None,
    ) -> ByReduction:
        """Return the runs of a row by their reduction, which is empty for full runs.

        Args:
            row: The row.
            variant: Variant of the paper's settings.
        """
        key = f"{row.setup} {row.algo} {row.hyperparameters} {variant}"
        if key not in self._known:
            self._known[key] = self._of(row, variant)
        return self._known[key]

    def _of(
        self,
        row: Row,
        variant: str | None,
    ) -> ByReduction:
        setup = self.paper.setups[row.setup]
        algo = self.paper.methods[row.algo].algo
        overrides = self.paper.overrides(row)
        config_dir = ""
        change = self.paper.readings.variant(variant, row.setup)
        if change is not None and change.changes(row.algo):
            algo = change.algos.get(row.algo, algo)
            overrides |= change.keys(row.algo)
            config_dir = change.config_dir

        runs = self._ended(setup.experiment, algo)
        if runs.empty:
            return {}
        config = _config(setup.experiment, algo, config_dir)
        for name, value in overrides.items():
            section, _, option = name.partition(".")
            if section == "algo" and option not in config["algo"]:
                continue  # an option of the method that a variant replaces
            cells = runs.get(f"config.{name}")
            if cells is None:
                return {}
            runs = runs[_equal(cells, value)]
        return _by_reduction(runs, config, setup, set(overrides))

    def _ended(self, experiment: str, algo: str) -> pd.DataFrame:
        runs = self.table
        runs = runs[runs["experiment"] == experiment]
        runs = runs[runs["algo"] == algo]
        ended = runs["status"].isin(["done", "diverged"])
        return runs[ended]


def _by_reduction(
    runs: pd.DataFrame,
    config: Mapping[str, Any],
    setup: Setup,
    keys: set[str],
) -> ByReduction:
    """Return the runs of a row, which sets some keys, by their reduction."""
    profile_keys: set[str] = set()
    for profile in setup.profiles.values():
        profile_keys |= profile.set.keys()
    groups: ByReduction = {}
    reductions = runs["reduced"].map(lambda text: _reduction(text, keys))
    for reduction in reductions.unique():
        free = keys | profile_keys if reduction else keys
        alike = runs[reductions == reduction]
        alike = _at_defaults(alike, config, free)
        if alike.empty:
            continue
        departures = [*setup.departs, reduction]
        name = "; ".join(filter(None, departures))
        groups[name] = alike
    return groups


def _reduction(text: str, keys: set[str]) -> str:
    """Return how a run is reduced, apart from the keys of its row."""
    kept = []
    for part in text.split("; "):
        key, _, _ = part.partition(" ")
        if key not in keys:
            kept.append(part)
    return "; ".join(kept)


@cache
def _config(
    experiment: str,
    algo: str,
    config_dir: str,
) -> Any:
    composer = Composer()
    if config_dir:
        folder = ROOT / config_dir
        sys.path.append(str(folder))  # with the functions of its algorithms
        composer = Composer(folder)
    choices = [f"experiment={experiment}", f"algo={algo}"]
    return composer.config(choices, departures=False).tree


def _at_defaults(
    runs: pd.DataFrame,
    config: Mapping[str, Any],
    free: set[str],
) -> pd.DataFrame:
    """Return the runs whose other keys have their defaults: other rows of the method vary them."""
    for column in runs.columns:
        name = column.removeprefix("config.")
        section, _, key = name.partition(".")
        # functions move from release to release
        if section not in ("local", "algo") or key == "_target_":
            continue
        defaults = config[section]
        if key in defaults and name not in free:
            # a key that is newer than a run is empty
            cells = runs[column]
            at_default = _equal(cells, defaults[key])
            runs = runs[cells.isna() | at_default]
    return runs


def _equal(cells: pd.Series, value: Any) -> np.ndarray:
    """Return whether each cell of a column has a value."""
    same = [_same(cell, value) for cell in cells]
    return np.array(same, dtype=bool)


def _same(cell: Any, value: Any) -> bool:
    truth = bool | np.bool_
    if isinstance(value, truth) or isinstance(cell, truth):
        one, other = str(cell), str(value)
        return one.lower() == other.lower()
    if isinstance(value, int | float):
        try:
            return float(cell) == value
        except (TypeError, ValueError):
            return False
    if isinstance(value, list):
        return bool(cell == str(value))
    return bool(cell == value) or (value is None and pd.isna(cell))


def unit_of(run: Any) -> Unit:
    """Return the split and the training seed of a run."""
    seed = int(run["seed"])
    split = run.get("config.data.seed")
    if pd.isna(split):
        return seed, seed
    return int(split), seed


# ---- differences


@dataclass(frozen=True)
class Compared:
    """A comparison with its runs, or a part of one.

    Attributes:
        leads: Lead by block, which is a split or, on one split, a training seed; empty if there are
            no runs, or if the comparison has parts.
        parts: The parts.
        every: Whether all parts are needed; otherwise, one is enough.
        reduced: Whether its runs are at reduced settings.
        untuned: Whether the values of only one side were searched.
        apart: Whether its sides are reduced in different ways.
    """

    leads: Leads = field(default_factory=dict)
    parts: tuple["Compared", ...] = ()
    every: bool = True
    reduced: bool = False
    untuned: bool = False
    apart: bool = False

    @property
    def run(self) -> bool:
        """Whether all parts have been run."""
        if self.parts:
            return all(part.run for part in self.parts)
        return bool(self.leads)

    @property
    def leaves(self) -> list["Compared"]:
        """The parts without parts."""
        if not self.parts:
            return [self]
        leaves = []
        for part in self.parts:
            leaves += part.leaves
        return leaves

    @property
    def seeds(self) -> int:
        """The smallest number of blocks of a part."""
        return min(len(leaf.leads) for leaf in self.leaves)


class Numbers:
    """The numbers of rows under a reading.

    Args:
        paper: The paper.
        runs: Runs that count.
        reading: The reading.
    """

    def __init__(
        self,
        paper: Paper,
        runs: Runs,
        reading: Reading,
    ) -> None:
        self.paper = paper
        self.runs = runs
        self.reading = reading

    def compared(self, contest: Contest) -> Compared:
        """Return a comparison with its runs."""
        if isinstance(contest, Joint):
            parts = tuple(map(self.compared, contest.parts))
            run = all(part.run for part in parts)
            return Compared(
                parts=parts,
                every=contest.every,
                reduced=run and any(part.reduced for part in parts),
                untuned=run and any(part.untuned for part in parts),
                apart=any(part.apart for part in parts),
            )

        groups = []
        searched = set()
        for side in contest.sides:
            group = self.runs.of(side.row, self.reading.variant)
            groups.append(group)
            searched.add(self.paper.searched(side.row))
        if not all(groups):
            return Compared()
        shared = set.intersection(*map(set, groups))
        if not shared:
            return Compared(apart=True)

        reduction = min(shared)  # full runs first
        numbers = []
        for side, group in zip(contest.sides, groups, strict=True):
            runs = group[reduction]
            numbers.append(self.by_unit(side, runs, contest.number))
        leads = self._leads(contest, numbers)
        return Compared(
            leads,
            reduced=bool(leads and reduction),
            untuned=bool(leads and len(searched) > 1),
        )

    def by_unit(
        self,
        side: Side,
        runs: pd.DataFrame,
        number: Number,
    ) -> dict[Unit, float]:
        """Return the number of each unit, NaN where the run diverged."""
        column = self.column(side, number)
        if column not in runs:
            raise Unknown(f"runs.parquet lacks {column}")
        values: dict[Unit, float] = {}
        for _, run in runs.iterrows():
            unit = unit_of(run)
            if self.reading.splits == "fixed" and run.get("config.data.seed") != 0:
                continue
            values[unit] = math.nan
            if run["status"] != "diverged":
                if pd.isna(run[column]):
                    raise Unknown(f"a run without {column}")
                values[unit] = float(run[column]) * number.factor
        return values

    def column(self, side: Side, number: Number) -> str:
        """Return the column of runs.parquet with a number of a row."""
        name = self.reading.field(number.field)
        if name is None:
            raise Unknown(f"no other weights of {number.field}")
        if side.part not in self.paper.tables:
            if self.reading.round == "best":
                raise Unknown("the best value of a curve")
            return name  # the last value of a curve
        at = self.paper.tables[side.part].round
        if self.reading.round != "adopted":
            at = self.reading.round
        return f"best_{name}" if at == "best" else name

    def _leads(
        self,
        contest: Part,
        sides: Sequence[Mapping[Unit, float]],
    ) -> Leads:
        """Return the lead of each block that all sides have."""
        units = set.intersection(*map(set, sides))
        leads: dict[Unit, float] = {}
        behind: dict[Unit, int] = {}  # whose size is not known
        for unit in sorted(units):
            values = [side[unit] for side in sides]
            if not any(map(math.isnan, values)):
                leads[unit] = lead_of(contest, values)
            elif sign := _sign_of_diverged(contest, values):
                behind[unit] = sign

        sizes = [abs(lead) for lead in leads.values()]
        largest = max(sizes, default=0.0) or 1.0
        for unit, sign in behind.items():
            leads[unit] = sign * largest
        blocks: dict[int, list[float]] = {}
        for (split, seed), lead in leads.items():
            block = seed if self.reading.splits == "fixed" else split
            blocks.setdefault(block, []).append(lead)
        return {block: mean(blocks[block]) for block in sorted(blocks)}


def lead_of(
    contest: Part,
    values: Sequence[float],
) -> float:
    """Return the lead of a unit, from the numbers of the sides."""
    match contest:
        case Bound():
            lead = values[0] - contest.bound
            return lead if contest.above else -lead
        case Slope():
            rho = rank_correlation(values)
            return rho if contest.rises else -rho
    n = len(contest.first)
    first = mean(values[:n])
    second = mean(values[n:])
    if contest.share is not None:
        second *= contest.share
    lead = second - first if contest.number.lower else first - second
    return lead - contest.by


def _sign_of_diverged(
    contest: Part,
    values: Sequence[float],
) -> int:
    """Return the side on which a unit with diverged runs counts; 0 if it is left out."""
    match contest:
        case Bound():
            return -1
        case Slope():
            raise Unknown("diverged runs in a trend")
    n = len(contest.first)
    first = any(map(math.isnan, values[:n]))
    second = any(map(math.isnan, values[n:]))
    return int(second) - int(first)


def rank_correlation(values: Sequence[float]) -> float:
    """Return Kendall's correlation of numbers with their places, without a correction for ties."""
    signs = []
    for one, later in combinations(values, 2):
        signs.append(float(np.sign(later - one)))
    return mean(signs)


# ---- tests


def sums_of(d: Sequence[float]) -> np.ndarray:
    """Return the sums under all assignments of signs; the observed one comes first."""
    if len(d) > MOST:
        raise Unknown(f"more than {MOST} blocks")
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _slack(d: Sequence[float]) -> float:
    """Return the largest difference of sums that counts as rounding."""
    return EQUAL * float(np.abs(d).sum())


def _one_is_enough(c: Compared, direction: int) -> bool:
    """Return whether one part decides a comparison in a direction."""
    return c.every == (direction < 0)


def p_value(c: Compared, direction: int = 1) -> float:
    """Return the one-sided p for a comparison, or against it if the direction is -1."""
    if not c.parts:
        d = [direction * lead for lead in c.leads.values()]
        sums = sums_of(d)
        as_large = sums >= sums[0] - _slack(d)
        return float(as_large.mean())
    p_values = [p_value(part, direction) for part in c.parts]
    if _one_is_enough(c, direction):
        return min(1.0, min(p_values) * len(p_values))
    return max(p_values)


class Ranks(NamedTuple):
    """The ranks of a comparison.

    Attributes:
        rank: The observed rank.
        size: Size by which the observed rank is ordered among equal ones, larger first.
        ranks: Ranks under all assignments.
        sizes: Sizes under all assignments, as large as rounding allows.
    """

    rank: int
    size: float
    ranks: np.ndarray
    sizes: np.ndarray


def ranks_of(
    c: Compared,
    direction: int,
    blocks: Sequence[int],
) -> Ranks:
    """Return the ranks of a comparison under joint flips of blocks."""
    if not c.parts:
        d = [direction * c.leads.get(block, 0.0) for block in blocks]
        sums = sums_of(d)
        slack = _slack(d)
        ordered = np.sort(sums)
        smaller = np.searchsorted(ordered, sums - slack)
        ranks = len(sums) - smaller
        scale = math.hypot(*d) or 1.0
        return Ranks(
            int(ranks[0]),
            float(sums[0]) / scale,
            ranks,
            sizes=(sums + slack) / scale,
        )

    parts = [ranks_of(part, direction, blocks) for part in c.parts]
    observed = [part.rank for part in parts]
    under_all = [part.ranks for part in parts]
    lowest = np.min(under_all, axis=0)
    assignments = len(lowest)
    rank = max(observed)
    if _one_is_enough(c, direction):
        k = len(parts)
        rank = min(assignments, min(observed) * k)
        lowest = np.minimum(assignments, lowest * k)
    first = np.full(assignments, math.inf)
    return Ranks(rank, -math.inf, lowest, first)


def adjusted(
    every: Sequence[Compared],
    direction: int = 1,
) -> list[float]:
    """Return the p-values in a direction, adjusted by a step-down over joint flips."""
    blocks: set[int] = set()
    for c in every:
        for leaf in c.leaves:
            blocks |= leaf.leads.keys()
    ordered = sorted(blocks)
    ranks = [ranks_of(c, direction, ordered) for c in every]

    def place(i: int) -> tuple[int, float]:
        return ranks[i].rank, -ranks[i].size

    order = sorted(range(len(every)), key=place)
    p_values = [0.0] * len(every)
    largest = 0.0
    for step, i in enumerate(order):
        others = [ranks[j] for j in order[step:]]
        as_extreme = [_no_later(other, ranks[i]) for other in others]
        share = np.any(as_extreme, axis=0).mean()
        largest = max(largest, float(share))
        p_values[i] = largest
    return p_values


def _no_later(other: Ranks, observed: Ranks) -> np.ndarray:
    """Return under which assignments a comparison is ranked no later than an observed one."""
    lower = other.ranks < observed.rank
    equal = other.ranks == observed.rank
    larger = other.sizes >= observed.size
    no_later: np.ndarray = lower | (equal & larger)
    return no_later


@cache
def student(df: int) -> float:
    """Return the 97.5 % quantile of Student's distribution.

    t = √df tan(angle), where the density of the angle is proportional to cos(angle)^(df - 1).
    """
    angles = np.linspace(0, math.pi / 2, 400_001)
    density = np.cos(angles) ** (df - 1)
    steps = density[1:] + density[:-1]
    shares = np.zeros(len(angles))
    shares[1:] = steps.cumsum()
    shares /= shares[-1]
    angle = np.interp(0.95, shares, angles)
    return math.sqrt(df) * math.tan(angle)


# ---- verdicts


class Judged(NamedTuple):
    """A verdict on comparisons.

    Attributes:
        word: The verdict.
        states: State of each comparison.
        p: The p-values of each comparison; None if it has not been run.
        level: Level of each test.
    """

    word: str
    states: list[str]
    p: list[PValues | None]
    level: float = ALPHA

    @property
    def counts(self) -> str:
        """The numbers of comparisons that are shown and refuted, as reports write them."""
        total = len(self.states)
        run = sum(p is not None for p in self.p)
        shown = self.states.count("shown")
        refuted = self.states.count("refuted")
        if not run:
            plural = "s" if total > 1 else ""
            return f"{total} comparison{plural}, none run"
        counts = f"{shown} of {run} shown, {refuted} refuted"
        if self.level != ALPHA:
            counts = f"{counts}, at level {self.level:.3g}"
        if self.word == "holds" and shown < total:
            return f"each of {total} by itself; after adjustment {counts}"
        if run < total:
            return f"{run} of {total} run: {counts}"
        return counts


def judge(
    every: Sequence[Compared],
    level: float = ALPHA,
) -> Judged:
    """Return the verdict on comparisons, of runs at any settings."""
    run = [c for c in every if c.run]
    p_values: Iterator[PValues] = iter(())
    if run:
        p_values = zip(
            [p_value(c) for c in run],
            [p_value(c, -1) for c in run],
            adjusted(run),
            adjusted(run, -1),
            strict=True,
        )
    p: list[PValues | None] = []
    states = []
    for c in every:
        values = next(p_values) if c.run else None
        p.append(values)
        states.append(_state(c, values, level))
    word = _word(every, states, p, level)
    return Judged(word, states, p, level)


def _state(
    c: Compared,
    p: PValues | None,
    level: float,
) -> str:
    if p is None:
        return "not comparable" if c.apart else NOT_RUN
    *_, adjusted_for, adjusted_against = p
    if adjusted_for <= level:
        return "shown"
    if adjusted_against <= level:
        return "refuted"
    return "open"


def _word(
    every: Sequence[Compared],
    states: Sequence[str],
    p: Sequence[PValues | None],
    level: float,
) -> str:
    known = [values for values in p if values is not None]
    untuned = any(c.untuned for c in every)
    if len(known) < len(every):
        against = [values[1] for values in known]
        smallest = min(against, default=1.0)
        refuted = smallest * len(every) <= level
        return "cannot hold" if refuted and not untuned else NOT_RUN
    if untuned:
        return "undecided"
    if all(values[0] <= level for values in known):
        return "holds"
    if "refuted" in states:
        return "mixed" if "shown" in states else "fails"
    return "undecided"


def verdict(
    every: Sequence[Compared],
    level: float = ALPHA,
) -> Judged:
    """Return the verdict without runs at reduced settings."""
    counted = [Compared() if c.reduced else c for c in every]
    return judge(counted, level)


def scaled(every: Sequence[Compared]) -> str:
    """Return the scaled-down check; empty if there is none."""
    reduced = any(c.reduced for c in every)
    word = judge(every).word
    if not reduced or word not in SCALED:
        return ""
    if not decidable(every):
        word = "undecided"
    return SCALED[word]


def decidable(
    every: Sequence[Compared],
    level: float = ALPHA,
) -> bool:
    """Return whether there are enough seeds to decide a claim either way."""
    m = sum(map(_weight, every))
    n = min(c.seeds for c in every)
    if n < 5 or m * 2.0**-n > level:
        return False
    for c in every:
        k = 1 if c.every else len(c.parts)
        if k * 2.0**-c.seeds > level:
            return False
    return True


def _weight(c: Compared) -> int:
    """Return as how many comparisons a comparison counts."""
    if not c.parts:
        return 1
    weights = list(map(_weight, c.parts))
    return sum(weights) if c.every else max(weights)


# ---- plans


class Claims:
    """The verdicts on a paper's claims.

    Args:
        paper: The paper.
        table: All runs, as in runs.parquet.
        plans: The paper's plans.
    """

    def __init__(
        self,
        paper: Paper,
        table: pd.DataFrame,
        plans: Sequence[Plan],
    ) -> None:
        self.paper = paper
        planned = np.zeros(len(table), bool)
        self.complete: list[tuple[Plan, Runs]] = []
        for plan in plans:
            own = _carries(table, plan)
            planned |= own
            runs = Runs(paper, table[own])
            if is_complete(plan, runs):
                self.complete.append((plan, runs))
        self.exploratory = Runs(paper, table[~planned])

    def judged(
        self,
        claim: str,
        contests: Sequence[Contest],
        reading: Reading,
    ) -> "Verdict":
        """Return the verdict on a claim under a reading.

        The planned runs are used for all readings if they decide the adopted one, or if the
        exploratory ones do not decide it either.
        """
        first = self._first_plan(claim)
        if first is not None:
            plan, runs = first
            level = ALPHA / plan.looks
            adopted = self._judged(contests, ADOPTED, runs, level)
            explored = self._judged(contests, ADOPTED, self.exploratory, ALPHA)
            if adopted.judged.word != NOT_RUN or explored.judged.word == NOT_RUN:
                confirmed = self._judged(contests, reading, runs, level)
                return confirmed._replace(explored=explored.judged.word)
        return self._judged(contests, reading, self.exploratory, ALPHA)

    def _first_plan(self, claim: str) -> tuple[Plan, Runs] | None:
        """Return the first complete plan that contains a claim with its present check."""
        check = written_checks(self.paper.id)[claim]
        for plan, runs in self.complete:
            planned = plan.claims.get(claim)
            if planned is not None and planned.check == check:
                return plan, runs
        return None

    def _judged(
        self,
        contests: Sequence[Contest],
        reading: Reading,
        runs: Runs,
        level: float,
    ) -> "Verdict":
        numbers = Numbers(self.paper, runs, reading)
        every = [numbers.compared(contest) for contest in contests]
        return Verdict(every, verdict(every, level))

    def counted(
        self,
        claim: str,
        contests: Sequence[Contest],
    ) -> bool:
        """Return whether a claim has enough splits, and the needed variants have been run.

        A confirmed verdict needs the variants in its plan, an exploratory one all variants.
        """
        adopted = self.judged(claim, contests, ADOPTED)
        if not adopted.enough:
            return False
        names = tuple(self.paper.readings.variants)
        first = self._first_plan(claim)
        if adopted.explored and first is not None:
            plan, _ = first
            names = plan.variants
        for name in names:
            if self._concerns(name, contests):
                other = self.judged(claim, contests, Reading(variant=name))
                if other.judged.word == NOT_RUN:
                    return False
        return True

    def _concerns(self, name: str, contests: Sequence[Contest]) -> bool:
        """Return whether a variant changes runs behind a claim."""
        for contest in contests:
            for row in rows_of(contest):
                if changes(self.paper, name, row):
                    return True
        return False

    def runs_of(self, experiment: str) -> Runs:
        """Return the runs that tables show: planned ones replace the exploratory ones."""
        for plan, runs in self.complete:
            if experiment in plan.experiments:
                return runs
        return self.exploratory


class Verdict(NamedTuple):
    """The verdict on a claim.

    Attributes:
        every: Its comparisons, also those of reduced runs.
        judged: The verdict.
        explored: The exploratory verdict beside a confirmed one; empty if that is the verdict.
    """

    every: list[Compared]
    judged: Judged
    explored: str = ""

    @property
    def status(self) -> str:
        """Whether it is confirmed or exploratory; empty if there is no verdict."""
        if self.judged.word == NOT_RUN:
            return ""
        return "confirmed" if self.explored else "exploratory"

    @property
    def enough(self) -> bool:
        """Whether there are enough splits; that a claim cannot hold is decided in any case."""
        word = self.judged.word
        if word in (NOT_RUN, "cannot hold"):
            return word != NOT_RUN
        return decidable(self.every, self.judged.level)


def _carries(runs: pd.DataFrame, plan: Plan) -> np.ndarray:
    """Return which runs have the digest of a plan."""
    if "plans" not in runs:
        return np.zeros(len(runs), bool)
    digests = []
    for cell in runs["plans"]:
        recorded = json.loads(cell or "{}")
        digests.append(recorded.get(plan.id))
    carries: np.ndarray = np.array(digests, dtype=object) == plan.digest
    return carries


def changes(
    paper: Paper,
    variant: str,
    row: Row,
) -> bool:
    """Return whether a variant changes the runs of a row."""
    change = paper.readings.variant(variant, row.setup)
    return change is not None and change.changes(row.algo)


def is_complete(plan: Plan, runs: Runs) -> bool:
    """Return whether each row of a planned experiment has a full run with each planned seed."""
    paper = runs.paper
    for part in (*paper.tables, *paper.figures):
        for row in paper.rows(part):
            if paper.setups[row.setup].experiment not in plan.experiments:
                continue
            variants = [name for name in plan.variants if changes(paper, name, row)]
            for variant in (None, *variants):
                full = runs.of(row, variant).get("")
                seeds = set() if full is None else set(full["seed"])
                if not seeds.issuperset(plan.every_seed):
                    return False
    return True


# ---- the report


class Check(NamedTuple):
    """A recomputed value and the reported one, of the kind verdict, p-value or other."""

    kind: str
    name: str
    recomputed: str
    reported: str


class Report:
    """A paper's part of a report.

    Args:
        paper: The paper.
        folder: The report's directory.
        table: All runs, as in runs.parquet.
    """

    def __init__(
        self,
        paper: Paper,
        folder: Path,
        table: pd.DataFrame,
    ) -> None:
        self.paper = paper
        self.tables = folder / "tables"
        self.claims = Claims(paper, table, plans_of(folder, paper.id))
        self.contests = Contests(paper)
        self._files: dict[str, list[Fields]] = {}

    def every_check(self) -> Iterator[Check]:
        """Yield the verdicts, counts, p-values and numbers of the paper."""
        rows = {row["id"]: row for row in self._rows("claims")}
        for claim in self.paper.claims.values():
            row = rows.get(claim.id)
            if row is None:
                continue
            if isinstance(claim.check, checks.EqualRows):
                word = self._in_print(claim.check)
                name = f"{self.paper.id} {claim.id}"
                yield Check("verdict", name, word, row["verdict"])
                continue
            try:
                contests = self.contests.of(claim.check)
                yield from self._adopted(claim.id, contests, row)
            except Unknown:
                continue
            yield from self._readings(claim.id, contests)
        for table in self.paper.tables.values():
            yield from self._printed(table)

    def _in_print(self, check: checks.EqualRows) -> str:
        """Return whether two tables print the same numbers."""
        one, other = check.tables
        places = product(check.setups, check.algo, check.metrics)
        for setup, algo, metric in places:
            first = self.contests.side(one, setup, algo)
            second = self.contests.side(other, setup, algo, check.hyperparameters)
            printed = first.row.values.get(metric)
            if second.row.values.get(metric) != printed:
                return "fails"
        return "holds"

    def _adopted(
        self,
        claim: str,
        contests: Sequence[Contest],
        row: Fields,
    ) -> Iterator[Check]:
        """Yield the checks of a claim under the adopted reading."""
        verdict = self.claims.judged(claim, contests, ADOPTED)
        name = f"{self.paper.id} {claim}"
        yield Check("verdict", name, verdict.judged.word, row["verdict"])
        recomputed = {
            "status": verdict.status,
            "explored": verdict.explored,
            "counted": str(self.claims.counted(claim, contests)),
            "counts": verdict.judged.counts,
            "scaled": scaled(verdict.every),
        }
        for key, value in recomputed.items():
            yield Check("other", f"{name}, {key}", value, row[key])
        reported = self._of_claim("comparisons", claim)
        yield from _comparisons(name, verdict, reported)

    def _readings(
        self,
        claim: str,
        contests: Sequence[Contest],
    ) -> Iterator[Check]:
        """Yield the checks of a claim under all readings."""
        for row in self._of_claim("readings", claim):
            reading = self._reading(row)
            try:
                verdict = self.claims.judged(claim, contests, reading)
            except Unknown:
                continue
            axes = [row[axis] for axis in AXES if row[axis]]
            name = ", ".join([f"{self.paper.id} {claim}", *axes])
            kind = "other" if row["adopted"] == "True" else "verdict"
            yield Check(kind, name, verdict.judged.word, row["verdict"])
            with_reduced = ""
            if any(c.reduced for c in verdict.every):
                with_reduced = judge(verdict.every).counts
            recomputed = {
                "counts": verdict.judged.counts,
                "scaled": scaled(verdict.every),
                "scaled_counts": with_reduced,
            }
            for key, value in recomputed.items():
                yield Check("other", f"{name}, {key}", value, row[key])

    def _reading(self, row: Fields) -> Reading:
        """Return the reading of a row of <paper>_readings.csv."""
        weighting: Any = row["weighting"]
        at: Any = row["round"]
        variant = None
        for other in self.paper.readings.variants.values():
            if other.title == row["settings"]:
                variant = other.id
        return Reading(
            weighting if weighting in ("weighted", "unweighted") else "adopted",
            at if at in ("last", "best") else "adopted",
            "fixed" if row["data splits"] == "the split of data seed 0" else "drawn",
            variant,
        )

    def _printed(self, table: Table) -> Iterator[Check]:
        """Yield the means of a table, and whether the printed numbers are inside."""
        reported = self._rows(table.id)
        if len(reported) != len(table.rows):
            return
        # a report has a table's rows by setup
        rows = sorted(table.rows, key=lambda row: table.setups.index(row.setup))
        for row, cells in zip(rows, reported, strict=True):
            for column in table.columns:
                try:
                    yield from self._cell(table, row, column, cells)
                except Unknown:
                    continue

    def _cell(
        self,
        table: Table,
        row: Row,
        column: str,
        cells: Fields,
    ) -> Iterator[Check]:
        setup = self.paper.setups[row.setup]
        runs = self.claims.runs_of(setup.experiment)
        numbers = Numbers(self.paper, runs, ADOPTED)
        number = number_of(self.paper.metrics[column])
        side = Side(table.id, row)
        groups = runs.of(row)
        key = numbers.column(side, number)
        if not groups or f"{key}_mean" not in cells:
            return
        reduction = min(groups)  # full runs first
        values = numbers.by_unit(side, groups[reduction], number)
        if any(map(math.isnan, values.values())):
            raise Unknown("a mean with diverged runs")
        splits: dict[int, list[float]] = {}
        for (split, _), value in values.items():
            splits.setdefault(split, []).append(value)
        means = [mean(seeds) for seeds in splits.values()]
        name = f"{self.paper.id} {table.id}, {row.algo} on {row.setup}, {key}"
        m = mean(means)
        yield _near(f"{name}, mean", m, cells[f"{key}_mean"])

        printed = row.values.get(column)
        impossible = row.impossible is not None and column in row.impossible.columns
        if printed is None or impossible or len(means) < 2:
            return
        n = len(means)
        spread = stdev(means) * math.sqrt(1 + 1 / n)
        half = student(n - 1) * spread
        inside = abs(printed.mean - m) <= half
        word = "inside" if inside else "outside"
        yield Check("other", f"{name}, agreement", word, cells[f"{key}_agreement"])

    def _of_claim(self, name: str, claim: str) -> list[Fields]:
        return [row for row in self._rows(name) if row["claim"] == claim]

    def _rows(self, name: str) -> list[Fields]:
        if name not in self._files:
            path = self.tables / f"{self.paper.id}_{name}.csv"
            self._files[name] = _rows(path)
        return self._files[name]


def _comparisons(
    name: str,
    verdict: Verdict,
    reported: Sequence[Fields],
) -> Iterator[Check]:
    """Yield the checks of each comparison of a claim."""
    full = verdict.judged
    with_reduced = judge(verdict.every, full.level)
    rows = zip(verdict.every, reported, strict=True)
    for i, (c, row) in enumerate(rows):
        judged = with_reduced if c.reduced else full
        state = judged.states[i]
        p = judged.p[i]
        label = f"{name}: {row['label']}"
        marks = f"{c.reduced} {c.untuned}"
        reported_marks = f"{row['reduced']} {row['untuned']}"
        yield Check("other", f"{label}, state", state, row["state"])
        yield Check("other", f"{label}, marks", marks, reported_marks)
        if p is None:
            continue
        for key, value in zip(P_VALUES, p, strict=True):
            reported_value = float(row[key])
            if c.seeds > EXACT and abs(value - reported_value) < SAMPLED:
                value = reported_value  # which is an estimate
            yield Check("p-value", f"{label}, {key}", _text(value), _text(reported_value))
        if not c.parts:
            yield from _interval(label, list(c.leads.values()), row)


def _interval(
    label: str,
    leads: Sequence[float],
    row: Fields,
) -> Iterator[Check]:
    """Yield the checks of the mean lead and its interval."""
    n = len(leads)
    m = mean(leads)
    values = {"lead": m}
    if n > 1:
        error = stdev(leads) / math.sqrt(n)
        half = student(n - 1) * error
        values |= {"lower": m - half, "upper": m + half}
    for key, value in values.items():
        yield _near(f"{label}, {key}", value, row[key])


def _text(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def _near(
    name: str,
    value: float,
    reported: str,
) -> Check:
    """Return the check of a number, which may differ by rounding."""
    text = f"{value:.6g}"
    if reported:
        expected = float(reported)
        if math.isclose(value, expected, rel_tol=1e-6, abs_tol=EQUAL):
            text = reported
    return Check("other", name, text, reported)


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
        every += Report(paper, args.report, runs).every_check()

    wrong = [check for check in every if check.recomputed != check.reported]
    for check in wrong:
        print(f"{check.name}: recomputed {check.recomputed}, reported {check.reported}")
    kinds = [check.kind for check in every]
    verdicts = kinds.count("verdict")
    words = Counter(check.recomputed for check in every if check.kind == "verdict")
    for word, number in sorted(words.items()):
        print(f"{number} {word}")
    print(
        f"{verdicts} verdicts, {kinds.count('p-value')} p-values and {kinds.count('other')} "
        f"counts and states recomputed, {len(wrong)} differ"
    )
    return 1 if wrong or verdicts < args.least else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Check the papers' printed statistics: no set of accuracies can have those whose rows have `impossible` in their file.

    python scripts/impossible_numbers.py

Prints the entry of each row in which the file and the arithmetic differ. Exit status: 0 if there is
none, else 1.

Papers state the size of a tail as a share of the clients, but not how they round it. Statistics are
called impossible only if they are impossible with the number of clients in a tail rounded down and
with it rounded up.

The least deviation, given the average of N clients and those of their tails, puts each tail and all
other clients at one point each. For the largest, let r be the average outside the tails, and the
worst tail of n clients average r - a. Its values are at most r, so that its squared distances from
r add up to at most (n a)², all of it at one client, and to at most r n a, which is n a times the
largest distance. The best tail, at r + d, is bounded the same way with 100 - r, and the N - 2n
others, which lie within the range of the tails' averages, by (N - 2n) a d (Bhatia & Davis, 2000).
The root of each of the three is concave in the averages and the least deviation is convex in them,
so that both bounds hold for numbers averaged over seeds as well. A number that is not considered
may have any value: the least deviation is then its minimum over the values, which stays convex, and
the largest its maximum, which stays concave. The least deviation of clients whose own accuracies
are printed puts all other clients at one point.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from fedbench.papers.registry import papers
from fedbench.papers.schema import Impossible, Paper, PrintedMetric, Row
from fedbench.simulation.evaluation import tail_size

_ROUNDING = 0.05  # largest rounding error of printed percentages


@dataclass(frozen=True)
class Statistics:
    """Statistics of the accuracies of N clients, in percent; None for those that may have any value.

    Attributes:
        clients: N.
        average: Mean over all clients.
        deviation: Population standard deviation.
        fraction: Share of the clients in a tail; 0 if there are no tails.
        worst: Mean of the worst tail.
        best: Mean of the best tail.
        single: Accuracies of single clients.
    """

    clients: int
    average: float | None = None
    deviation: float | None = None
    fraction: float = 0.0
    worst: float | None = None
    best: float | None = None
    single: tuple[float, ...] = ()

    @property
    def contradiction(self) -> str | None:
        """Why no accuracies of unweighted clients have these statistics; None if some have."""
        rounded_up = max(1, math.ceil(self.fraction * self.clients - 1e-9))
        sizes = dict.fromkeys((tail_size(self.clients, 100 * self.fraction), rounded_up))
        reasons = [_tails_contradict(self, size) for size in sizes]
        found = [None if None in reasons else reasons[0], _single_contradict(self)]
        return "; ".join(r for r in found if r is not None) or None


def contradiction(paper: Paper, row: Row) -> Impossible | None:
    """Return how the numbers of a row contradict each other as those of unweighted clients, or None if they do not.

    The columns are those of the smallest sets of numbers without which the row is possible.
    """
    clients = paper.setups[row.setup].clients
    if clients is None:
        return None
    numbers = {
        column: _percent(value.mean, paper.metrics[column]) for column, value in row.values.items()
    }
    printed = {
        column: n for column, n in numbers.items() if _role(paper.metrics[column]) is not None
    }
    if (reason := _of(paper, clients, printed)) is None:
        return None
    return Impossible(_fewest(paper, clients, printed), reason)


def _fewest(paper: Paper, clients: int, printed: Mapping[str, float]) -> tuple[str, ...]:
    """Return the columns of all smallest sets without which the others do not contradict each other."""
    for count in range(1, len(printed) + 1):
        sets = [
            left_out
            for left_out in combinations(printed, count)
            if _of(paper, clients, {c: n for c, n in printed.items() if c not in left_out}) is None
        ]
        if sets:
            return tuple(c for c in printed if any(c in left_out for left_out in sets))
    return tuple(printed)


def _of(paper: Paper, clients: int, printed: Mapping[str, float]) -> str | None:
    reasons = (statistics.contradiction for statistics in _statistics(paper, clients, printed))
    return next((reason for reason in reasons if reason is not None), None)


def _statistics(paper: Paper, clients: int, printed: Mapping[str, float]) -> Iterator[Statistics]:
    """Yield the statistics of a row, once per size of the tails, which a table may print for several."""
    fractions = {_share(paper.metrics[column]) for column in printed} - {None} or {0.0}
    for fraction in sorted(f for f in fractions if f is not None):
        given: dict[str, float] = {}
        single = []
        for column, number in printed.items():
            metric, role = paper.metrics[column], _role(paper.metrics[column])
            if role == "single":
                single.append(number)
            elif role is not None and _share(metric) in (None, fraction):
                given[role] = number
        yield Statistics(clients, fraction=fraction, single=tuple(single), **given)


def _role(metric: PrintedMetric) -> str | None:
    """Return which of the ``Statistics`` a column has, weighted or not; None for other metrics."""
    if metric.target is not None:
        return None
    if metric.field.startswith("client:"):
        return "single"
    roles = {
        "mean": "average",
        "std": "deviation",
        "variance": "deviation",
        "worst": "worst",
        "best": "best",
    }
    return next(
        (role for kind, role in roles.items() if metric.field.startswith(f"accuracy_{kind}")), None
    )


def _share(metric: PrintedMetric) -> float | None:
    """Return the share of the clients of whose tail a column is a mean; None for other columns."""
    found = re.match(r"accuracy_(?:worst|best)(\d+)", metric.field)
    return None if found is None else int(found[1]) / 100


def _percent(number: float, metric: PrintedMetric) -> float:
    if metric.field.startswith("accuracy_variance"):
        return 100 * math.sqrt(number / metric.factor)  # a variance of fractions
    return 100 * number / metric.factor


# ---- averages of tails


def _tails_contradict(s: Statistics, size: int) -> str | None:
    """Return why tails of ``size`` clients rule the statistics out, or None if they do not."""
    tails = [t for t in (s.worst, s.best) if t is not None]
    others = s.clients - size * len(tails)
    if others <= 0:
        return None  # no client is outside the tails: nothing else bounds their averages
    lowest, highest = 0.0 if s.worst is None else s.worst, 100.0 if s.best is None else s.best
    if lowest > highest + 2 * _ROUNDING:
        return f"the worst clients would average {lowest - highest:.1f} points more than the best"
    if s.average is None:
        # of the least deviation
        rest = (lowest + highest) / 2 if len(tails) == 2 else next(iter(tails), 50.0)
    else:
        rest = (s.clients * s.average - size * sum(tails)) / others
        if not lowest - _ROUNDING <= rest <= highest + _ROUNDING:
            return f"the {others} clients outside the tails would average {rest:.1f} %"
    if s.deviation is None:
        return None
    average = (size * sum(tails) + others * rest) / s.clients
    least = math.sqrt(
        (size * sum((t - average) ** 2 for t in tails) + others * (rest - average) ** 2) / s.clients
    )
    if s.deviation < least - _ROUNDING:
        return f"these averages need a deviation of at least {math.floor(10 * least) / 10:.1f}"
    most = _most(s, size, rest) if s.average is not None else _largest(s, size, lowest, highest)
    if s.deviation > most + _ROUNDING:
        return f"these averages allow a deviation of at most {math.ceil(10 * most) / 10:.1f}"
    return None


def _most(s: Statistics, size: int, rest: float) -> float:
    """Return the bound of the deviation if the clients outside the tails average ``rest``."""
    rest = min(max(rest, 0.0), 100.0)
    below = max(rest - (s.worst or 0.0), 0.0) + _ROUNDING
    above = max((100.0 if s.best is None else s.best) - rest, 0.0) + _ROUNDING
    others = s.clients - size * ((s.worst is not None) + (s.best is not None))
    most = math.sqrt(others * below * above)
    if s.worst is not None:
        most += _tail(size, below, rest)
    if s.best is not None:
        most += _tail(size, above, 100.0 - rest)
    return most / math.sqrt(s.clients)


def _largest(s: Statistics, size: int, low: float, high: float) -> float:
    """Return the largest ``_most`` between two averages, in which it is concave, by ternary search."""
    for _ in range(60):
        third = (high - low) / 3
        if _most(s, size, low + third) < _most(s, size, high - third):
            low += third
        else:
            high -= third
    return _most(s, size, (low + high) / 2)


def _tail(n: int, distance: float, room: float) -> float:
    """Return the root of the largest sum of squares of n numbers in [0, room] that average ``distance``."""
    return min(n * distance, math.sqrt(room * n * distance))


# ---- accuracies of single clients


def _single_contradict(s: Statistics) -> str | None:
    """Return why the accuracies of single clients rule out the average or the deviation, or None if they do not."""
    known, others = s.single, s.clients - len(s.single)
    if not known:
        return None
    rest = _mean(known)  # of the least deviation
    reasons = []
    if s.average is not None and not others and abs(s.average - rest) > 2 * _ROUNDING:
        reasons.append(f"the {len(known)} clients average {rest:.2f} %")
    elif s.average is not None and others:
        rest = (s.clients * s.average - sum(known)) / others
        if not -_ROUNDING <= rest <= 100 + _ROUNDING:
            return f"the {others} other clients would average {rest:.1f} %"
    every = [*known, *[rest] * others]
    least = math.sqrt(_mean([(v - _mean(every)) ** 2 for v in every]))
    # that of the deviation and of the accuracies
    if s.deviation is not None and s.deviation < least - 2 * _ROUNDING:
        reasons.append(
            f"these clients have a deviation of at least {math.floor(10 * least) / 10:.1f}"
        )
    return "; ".join(reasons) or None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def main() -> int:
    """Compare the files of all papers with the arithmetic, and return the exit status."""
    found = 0
    for paper in papers().values():
        for table in paper.tables.values():
            for row in table.rows:
                odd = contradiction(paper, row)
                if odd != row.impossible:
                    found += 1
                    print(f"{paper.id}/{table.id}: {replace(row, impossible=odd)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

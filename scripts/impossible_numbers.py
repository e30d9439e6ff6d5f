"""Check the papers' printed statistics: rows marked `impossible` fit no set of accuracies.

    python scripts/impossible_numbers.py

The script prints the entry of each row in which the file and the arithmetic differ. The exit status
is 0 if there is none, else 1.

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
_ROLES = {
    "mean": "average",
    "std": "deviation",
    "variance": "deviation",
    "worst": "worst",
    "best": "best",
}


@dataclass(frozen=True)
class Statistics:
    """Statistics of the accuracies of N clients, in percent; None for a number that is not known.

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
        rounded_down = tail_size(self.clients, 100 * self.fraction)
        rounded_up = max(1, math.ceil(self.fraction * self.clients - 1e-9))
        reasons = []
        if _tails_contradict(self, rounded_up) is not None:
            reasons.append(_tails_contradict(self, rounded_down))
        reasons.append(_single_contradict(self))
        return "; ".join(filter(None, reasons)) or None


def contradiction(paper: Paper, row: Row) -> Impossible | None:
    """Return how the numbers of a row contradict each other; None if they do not.

    The clients are unweighted. The columns are those of the smallest sets of numbers without which
    the row is possible.
    """
    clients = paper.setups[row.setup].clients
    if clients is None:
        return None
    printed = {}
    for column, value in row.values.items():
        metric = paper.metrics[column]
        if _role(metric) is not None:
            printed[column] = _percent(value.mean, metric)
    reason = _reason(paper, clients, printed)
    if reason is None:
        return None
    return Impossible(_fewest(paper, clients, printed), reason)


def _fewest(
    paper: Paper,
    clients: int,
    printed: Mapping[str, float],
) -> tuple[str, ...]:
    """Return the columns of all smallest sets without which the others are possible."""
    for count in range(1, len(printed) + 1):
        columns: set[str] = set()
        for left_out in combinations(printed, count):
            others = {column: n for column, n in printed.items() if column not in left_out}
            if _reason(paper, clients, others) is None:
                columns |= set(left_out)
        if columns:
            return tuple(column for column in printed if column in columns)
    return tuple(printed)


def _reason(
    paper: Paper,
    clients: int,
    printed: Mapping[str, float],
) -> str | None:
    for statistics in _statistics(paper, clients, printed):
        reason = statistics.contradiction
        if reason is not None:
            return reason
    return None


def _statistics(
    paper: Paper,
    clients: int,
    printed: Mapping[str, float],
) -> Iterator[Statistics]:
    """Yield the statistics of a row, once per size of the tails that its table prints."""
    fractions = set()
    for column in printed:
        share = _share(paper.metrics[column])
        if share is not None:
            fractions.add(share)

    for fraction in sorted(fractions or {0.0}):
        known: dict[str, float] = {}
        single = []
        for column, number in printed.items():
            metric = paper.metrics[column]
            role = _role(metric)
            if role == "single":
                single.append(number)
            elif role is not None and _share(metric) in (None, fraction):
                known[role] = number
        yield Statistics(
            clients,
            fraction=fraction,
            single=tuple(single),
            **known,
        )


def _role(metric: PrintedMetric) -> str | None:
    """Return the name of a column in ``Statistics``, weighted or not; None for other metrics."""
    if metric.target is not None:
        return None
    if metric.field.startswith("client:"):
        return "single"
    for kind, role in _ROLES.items():
        if metric.field.startswith(f"accuracy_{kind}"):
            return role
    return None


def _share(metric: PrintedMetric) -> float | None:
    """Return the share of the clients of whose tail a column is a mean; None for other columns."""
    match = re.match(r"accuracy_(?:worst|best)(\d+)", metric.field)
    return None if match is None else int(match[1]) / 100


def _percent(number: float, metric: PrintedMetric) -> float:
    fraction = number / metric.factor
    if metric.field.startswith("accuracy_variance"):
        fraction = math.sqrt(fraction)
    return 100 * fraction


# ---- averages of tails


def _tails_contradict(s: Statistics, size: int) -> str | None:
    """Return why tails of ``size`` clients rule the statistics out; None if they do not."""
    tails = [tail for tail in (s.worst, s.best) if tail is not None]
    others = s.clients - size * len(tails)
    if others <= 0:
        return None  # no client is outside the tails: nothing else bounds their averages

    lowest = 0.0 if s.worst is None else s.worst
    highest = 100.0 if s.best is None else s.best
    if lowest > highest + 2 * _ROUNDING:
        return f"the worst clients would average {lowest - highest:.1f} points more than the best"

    if s.average is not None:
        rest = (s.clients * s.average - size * sum(tails)) / others
        if not lowest - _ROUNDING <= rest <= highest + _ROUNDING:
            return f"the {others} clients outside the tails would average {rest:.1f} %"
    else:  # of the least deviation
        rest = sum(tails) / len(tails) if tails else 50.0
    if s.deviation is None:
        return None

    values = [rest] * others
    for tail in tails:
        values += [tail] * size
    least = _deviation(values)
    if s.deviation < least - _ROUNDING:
        return f"these averages need a deviation of at least {_floor(least)}"

    most = _largest(s, size, lowest, highest)
    if s.average is not None:
        most = _most(s, size, rest)
    if s.deviation > most + _ROUNDING:
        return f"these averages allow a deviation of at most {math.ceil(10 * most) / 10:.1f}"
    return None


def _most(s: Statistics, size: int, rest: float) -> float:
    """Return the bound of the deviation if the clients outside the tails average ``rest``."""
    rest = min(max(rest, 0.0), 100.0)
    lowest = 0.0 if s.worst is None else s.worst
    highest = 100.0 if s.best is None else s.best
    below = max(rest - lowest, 0.0) + _ROUNDING
    above = max(highest - rest, 0.0) + _ROUNDING

    others = s.clients
    root = 0.0
    if s.worst is not None:
        others -= size
        root += _tail(size, below, rest)
    if s.best is not None:
        others -= size
        root += _tail(size, above, 100.0 - rest)
    root += math.sqrt(others * below * above)
    return root / math.sqrt(s.clients)


def _largest(
    s: Statistics,
    size: int,
    low: float,
    high: float,
) -> float:
    """Return the largest ``_most`` between two averages, in which it is concave."""
    for _ in range(60):  # ternary search
        third = (high - low) / 3
        if _most(s, size, low + third) < _most(s, size, high - third):
            low += third
        else:
            high -= third
    return _most(s, size, (low + high) / 2)


def _tail(n: int, distance: float, room: float) -> float:
    """Return the root of the largest sum of squares of n numbers that average ``distance``.

    The numbers lie in [0, room].
    """
    at_one_client = n * distance
    within_room = math.sqrt(room * n * distance)
    return min(at_one_client, within_room)


# ---- accuracies of single clients


def _single_contradict(s: Statistics) -> str | None:
    """Return why accuracies of single clients rule out the others; None if they do not."""
    if not s.single:
        return None
    others = s.clients - len(s.single)
    rest = _mean(s.single)  # of the least deviation
    reasons = []
    if s.average is not None and others:
        rest = (s.clients * s.average - sum(s.single)) / others
        if not -_ROUNDING <= rest <= 100 + _ROUNDING:
            return f"the {others} other clients would average {rest:.1f} %"
    elif s.average is not None and abs(s.average - rest) > 2 * _ROUNDING:
        reasons.append(f"the {s.clients} clients average {rest:.2f} %")

    least = _deviation([*s.single, *[rest] * others])
    # that of the deviation and of the accuracies
    if s.deviation is not None and s.deviation < least - 2 * _ROUNDING:
        reasons.append(f"these clients have a deviation of at least {_floor(least)}")
    return "; ".join(reasons) or None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    center = _mean(values)
    return math.sqrt(_mean([(value - center) ** 2 for value in values]))


def _floor(number: float) -> str:
    return f"{math.floor(10 * number) / 10:.1f}"


def main() -> int:
    """Compare the files of all papers with the arithmetic, and return the exit status."""
    status = 0
    for paper in papers().values():
        for table in paper.tables.values():
            for row in table.rows:
                reason = contradiction(paper, row)
                if reason != row.impossible:
                    status = 1
                    print(f"{paper.id}/{table.id}: {replace(row, impossible=reason)}")
    return status


if __name__ == "__main__":
    sys.exit(main())

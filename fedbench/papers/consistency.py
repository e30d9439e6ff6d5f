"""Tests of whether any set of accuracies can have the printed statistics.

Papers state the size of a tail as a share of the clients, but not how they round it. Statistics are called impossible
only if they are impossible with the number of clients in a tail rounded down and with it rounded up.

The least deviation, given the average of N clients and those of their tails, puts each tail and all other clients at
one point each. For the largest, let r be the average outside the tails, and the worst tail of n clients average r -
a. Its values are at most r, so that its squared distances from r add up to at most (n a)², all of it at one client,
and to at most r n a, which is n a times the largest distance. The best tail, at r + d, is bounded the same way with
100 - r, and the N - 2n others, which lie within the range of the tails' averages, by (N - 2n) a d (Bhatia & Davis,
2000). The root of each of the three is concave in the averages and the least deviation is convex in them, so that
both bounds hold for numbers averaged over seeds as well.
"""

from __future__ import annotations

import math

from fedbench.papers.registry import Paper, PrintedMetric, Row

_ROUNDING = 0.05  # largest rounding error of printed percentages
_EXACT = 1e-9  # a share within rounding of an integer, such as 0.3 * 100, has one size


def impossible(
    clients: int, fraction: float, average: float, deviation: float, worst: float, best: float | None
) -> str | None:
    """Return why no accuracies of ``clients`` unweighted clients have these statistics, or None if some do.

    Args:
        clients: Number of clients.
        fraction: Share of the clients in a tail.
        average: Mean over all clients, in percent.
        deviation: Population standard deviation, in percent.
        worst: Mean of the worst tail, in percent.
        best: Mean of the best tail, in percent, or None if it is not printed.
    """
    exact = fraction * clients
    sizes = sorted({max(1, math.floor(exact + _EXACT)), max(1, math.ceil(exact - _EXACT))})
    reasons = [_impossible(clients, size, average, deviation, worst, best) for size in sizes]
    return None if None in reasons else reasons[0]


def _impossible(
    clients: int, size: int, average: float, deviation: float, worst: float, best: float | None
) -> str | None:
    """Return why tails of ``size`` clients rule the statistics out, or None if they do not."""
    tails = [worst] if best is None else [worst, best]
    others = clients - size * len(tails)
    if others <= 0:
        return None  # no client is outside the tails: nothing else bounds their averages
    rest = (clients * average - size * sum(tails)) / others
    highest = 100.0 if best is None else best
    if not worst - _ROUNDING <= rest <= highest + _ROUNDING:
        return f"the {others} clients outside the tails would average {rest:.1f} %"
    squares = size * sum((t - average) ** 2 for t in tails) + others * (rest - average) ** 2
    least = math.sqrt(squares / clients)
    if deviation < least - _ROUNDING:
        return f"these averages need a deviation of at least {math.floor(10 * least) / 10:.1f}"
    rest = min(max(rest, 0.0), 100.0)
    below, above = max(rest - worst, 0.0) + _ROUNDING, max(highest - rest, 0.0) + _ROUNDING
    most = _tail(size, below, rest) + math.sqrt(others * below * above)
    if best is not None:
        most += _tail(size, above, 100.0 - rest)
    most /= math.sqrt(clients)
    if deviation > most + _ROUNDING:
        return f"these averages allow a deviation of at most {math.ceil(10 * most) / 10:.1f}"
    return None


def _tail(n: int, distance: float, room: float) -> float:
    """Return the root of the largest sum of squares of n numbers in [0, room] that average ``distance``."""
    return min(n * distance, math.sqrt(room * n * distance))


def why_impossible(paper: Paper, row: Row) -> str | None:
    """Return why a row's numbers cannot be statistics of its setup's unweighted clients, or None if they can."""
    clients = paper.setups[row.setup].clients
    average, deviation, variance, worst, best = (
        _printed(paper, row, f"accuracy_{kind}") for kind in ("mean", "std", "variance", "worst", "best")
    )
    if variance is not None:
        deviation = (
            100 * math.sqrt(variance[0] / 100),
            variance[1],
        )  # variances of fractions are printed in units of 1e-4
    if clients is None or average is None or deviation is None or worst is None:
        return None
    fraction = worst[1].fraction
    assert fraction is not None
    return impossible(clients, fraction, average[0], deviation[0], worst[0], best and best[0])


def _printed(paper: Paper, row: Row, start: str) -> tuple[float, PrintedMetric] | None:
    """Return the first number of a row whose field starts like this, in percent, and its metric."""
    found = ((v.mean, paper.metrics[k]) for k, v in row.values.items() if paper.metrics[k].field.startswith(start))
    return next(((100 * value / m.factor, m) for value, m in found), None)

"""Whether printed statistics can belong to any set of accuracies at all.

Given the average of N clients and the averages of their tails, the least deviation puts every tail and everybody else
at one point each; the largest pushes everybody to the ends of the range that the tails leave. Both bounds are convex or
concave in the printed numbers, so that they hold for averages over seeds as well.
"""

from __future__ import annotations

import math

from fedbench.papers.registry import Paper, Row

_ROUNDING = 0.05  # of printed percentages


def impossible(
    clients: int, fraction: float, average: float, deviation: float, worst: float, best: float | None
) -> str | None:
    """Say why no accuracies of ``clients`` unweighted clients have these statistics; None if some do.

    Args:
        clients: how many.
        fraction: of the clients in a tail.
        average: over all clients, percent, as the others.
        deviation: population deviation.
        worst: mean of the worst tail.
        best: mean of the best tail, or None if none is printed.
    """
    size = max(1, round(fraction * clients))
    tails = [worst] if best is None else [worst, best]
    others = clients - size * len(tails)
    rest = (clients * average - size * sum(tails)) / others
    highest = 100.0 if best is None else best
    if not worst - _ROUNDING <= rest <= highest + _ROUNDING:
        return f"the {others} clients outside the tails would average {rest:.1f} %"
    squares = size * sum((t - average) ** 2 for t in tails) + others * (rest - average) ** 2
    least = math.sqrt(squares / clients)
    if deviation < least - _ROUNDING:
        return f"these averages need a deviation of at least {least:.1f}"
    parts = [(size, worst, 0.0, max(rest, worst)), (others, rest, worst, highest)]
    if best is not None:
        parts.append((size, best, min(rest, best), 100.0))
    most = math.sqrt(sum(_spread(n, mean, low, high, average) for n, mean, low, high in parts) / clients)
    if deviation > most + _ROUNDING:
        return f"these averages allow a deviation of at most {most:.1f}"
    return None


def _spread(n: int, mean: float, low: float, high: float, centre: float) -> float:
    """Return the largest sum of (x - centre)² over n values in [low, high] that have this mean."""
    if high <= low:
        return n * (mean - centre) ** 2
    at_the_top = n * (mean - low) / (high - low)
    whole = min(n, int(at_the_top + 1e-9))
    total = whole * (high - centre) ** 2
    if whole < n:
        between = low + (at_the_top - whole) * (high - low)
        total += (between - centre) ** 2 + (n - whole - 1) * (low - centre) ** 2
    return total


def why_impossible(paper: Paper, row: Row) -> str | None:
    """Say why the printed numbers of a row cannot be statistics of its setup's unweighted clients; None if they can."""
    v, clients = row.values, paper.setups[row.setup].clients
    worst, best = (next((k for k in v if k.startswith(end)), None) for end in ("worst", "best"))
    if clients is None or worst is None or "avg" not in v:
        return None
    deviation = v["std_clients"].mean if "std_clients" in v else math.sqrt(v["var_clients"].mean)
    fraction = paper.metrics[worst].fraction
    assert fraction is not None
    top = None if best is None else v[best].mean
    return impossible(clients, fraction, v["avg"].mean, deviation, v[worst].mean, top)

"""AdaFed: claims with a test of their own."""

from __future__ import annotations

import numpy as np

from fedbench.analysis.comparison import Comparison, above, compared
from fedbench.analysis.matching import Evidence, MatchedRuns, Unit
from fedbench.analysis.measures import FigureRuns, low_and_high, rounds_to
from fedbench.analysis.table_claims import Cells
from fedbench.papers.registry import Paper


def c14(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that AdaFed's lead over the best other method in STD, as a ratio, is larger on skewed FEMNIST."""
    cells, metric, setups = Cells(paper, evidence), paper.metrics["std_clients"], ("femnist_skewed", "femnist_original")
    leads: list[dict[Unit, float]] = []
    found: list[MatchedRuns] = []
    for setup in setups:
        rows = cells.rows("table3", setup)
        sides = evidence.comparable(paper, rows)
        values = {r.algo: f.values(metric) for r, f in zip(rows, sides, strict=True)}
        own = values.pop("adafed")
        seeds = set(own).intersection(*values.values())  # seeds of every rival: the best may be missing
        leads.append({s: min(v[s] for v in values.values()) / own[s] for s in seeds if own[s]})
        found += sides
    larger, smaller = (paper.setups[s].title for s in setups)
    name = paper.methods["adafed"].label
    label = f"lead of {name} over the best other in {metric.label}, as a ratio, on {larger} against {smaller}"
    return [compared(label, leads[0], leads[1], 1.0, found)]


def c16(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that the client with the highest initial loss catches up with the client with the lowest.

    Its loss falls by more, and the final gap between the two is below half of the initial one.
    """
    shown, out = FigureRuns(paper, "figure3", evidence), []
    for setup in shown.figure.setups:
        found = shown.found[shown.row(setup, "adafed")]
        every = {s: low_and_high(run.clients()) for s, run in found.runs.items()}
        pairs = {s: pair for s, pair in every.items() if len(pair[0]) > 1}  # a single round shows no trend
        title = paper.setups[setup].title
        drop = {s: (h.iloc[0] - h.iloc[-1]) - (low.iloc[0] - low.iloc[-1]) for s, (low, h) in pairs.items()}
        close = {s: (h.iloc[0] - low.iloc[0]) / 2 - abs(h.iloc[-1] - low.iloc[-1]) for s, (low, h) in pairs.items()}
        out.append(above(f"the drop of the high loss beyond that of the low one on {title}", drop, [found]))
        out.append(above(f"the final gap below half of the first on {title}", close, [found]))
    return out


def c18(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that AdaFed reaches a mean accuracy of 40 % within 400 rounds and each other method not before 900.

    A tolerance of one tenth is allowed, since the paper reads its numbers off a picture. A run that stopped before the
    bound without reaching the accuracy does not count.
    """
    shown, out = FigureRuns(paper, "figure5", evidence), []
    target = 0.4
    for i, row in enumerate(shown.figure.rows):
        curves = shown.found[i].curve("accuracy_mean")
        needed = {s: rounds_to(c, target, lower=False) for s, c in curves.items()}
        last = {s: float(c.index[-1]) for s, c in curves.items()}
        sign, word, bound = (-1.0, "at most", 440.0) if row.algo == "adafed" else (1.0, "at least", 810.0)
        if any(np.isinf(v) and last[s] <= bound for s, v in needed.items()):
            needed = {}
        capped = {s: min(v, last[s]) for s, v in needed.items()}
        label = f"rounds of {shown.name(i)} to {100 * target:g} % {word} {bound:g}"
        out.append(above(label, {s: sign * (v - bound) for s, v in capped.items()}, [shown.found[i]]))
    return out

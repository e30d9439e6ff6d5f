"""AdaFed: claims with a test of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fedbench.analysis.claims.comparison import Comparison, above, between, contest, leads, tested
from fedbench.analysis.claims.curve_claims import FigureRuns, PerUnit, low_and_high, roughness, tail
from fedbench.analysis.claims.table_claims import Cells
from fedbench.analysis.curves import rounds_to
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.papers.schema import Paper

_TARGET = 0.4  # mean accuracy in c18 and c67
_SLACK = 10  # "around" in c67, in percent: the paper reads its numbers of rounds off a picture


def c14(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that AdaFed's lead over the best other method in STD, as a ratio, is larger on skewed FEMNIST."""
    cells, metric, setups = Cells(paper, evidence), paper.metrics["std_clients"], ("femnist_skewed", "femnist_original")
    ratios: list[PerUnit] = []
    found: list[MatchedRuns] = []
    for setup in setups:
        rows = cells.rows("table3", setup)
        sides = evidence.comparable(paper, rows)
        values = {r.algo: f.values(metric) for r, f in zip(rows, sides, strict=True)}
        own = values.pop("adafed")
        seeds = set(own).intersection(*values.values())  # seeds of every rival: the best may be missing
        ratios.append({s: min(v[s] for v in values.values()) / own[s] for s in seeds if own[s]})
        found += sides
    larger, smaller = (paper.setups[s].title for s in setups)
    name = paper.methods["adafed"].label
    label = f"lead of {name} over the best other in {metric.label}, as a ratio, on {larger} against {smaller}"
    return [above(label, leads(ratios[0], ratios[1], 1.0), found)]


def c16(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that the loss of the client that starts highest falls by more than that of the client that starts lowest."""

    def lead(low: pd.Series, high: pd.Series) -> float:
        return float((high.iloc[0] - high.iloc[-1]) - (low.iloc[0] - low.iloc[-1]))

    return _two_clients(paper, evidence, "the drop of the high loss beyond that of the low one", lead)


def c65(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that over the last tenth of the rounds both losses differ by less than a tenth of the larger one."""

    def room(low: pd.Series, high: pd.Series) -> float:
        one, two = tail(low), tail(high)
        return 0.1 * max(one, two) - abs(one - two)

    return _two_clients(paper, evidence, "the final gap between both losses below a tenth of the larger one", room)


def _two_clients(
    paper: Paper, evidence: Evidence, words: str, lead: Callable[[pd.Series, pd.Series], float]
) -> list[Comparison]:
    """Return, per setup of Figure 3, the comparison of a number of the two clients' losses with 0."""
    shown, out = FigureRuns(paper, "figure3", evidence), []
    for setup in shown.figure.setups:
        found = shown.found[shown.row(setup, "adafed")]
        every = {s: low_and_high(run.clients()) for s, run in found.runs.items()}
        numbers = {s: lead(*pair) for s, pair in every.items() if len(pair[0]) > 1}  # a single round shows no trend
        out.append(above(f"{words} on {paper.setups[setup].title}", numbers, [found]))
    return out


def c18(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that AdaFed needs fewer rounds to a mean accuracy of 40 % than each other method.

    A run that ends below 40 % needs at least one round more than it has. A seed with which neither run gets there does
    not count, and if there are no other seeds the comparison is undecided.
    """
    shown = FigureRuns(paper, "figure5", evidence)
    own, out = shown.row("cifar10_s1", "adafed"), []
    for i in (i for i in shown.found if i != own):
        (mine, last), (other, end) = (_rounds_to_target(shown.found[k]) for k in (own, i))
        label = f"rounds to {100 * _TARGET:g} % of {shown.name(own)} against {shown.name(i)}"
        neither: PerUnit = {}
        for s in mine.keys() & other.keys():
            if min(mine[s], other[s]) > min(last[s], end[s]):
                if np.isinf(mine[s]) and np.isinf(other[s]):
                    neither[s] = 0.0
                del mine[s], other[s]
        if neither and not mine.keys() & other.keys():
            out.append(tested(f"{label} (neither gets there)", neither, shown.of(own, i)))
            continue
        a, b = ({s: min(v, ends[s] + 1) for s, v in n.items()} for n, ends in ((mine, last), (other, end)))
        out.append(contest(label, a, b, -1.0, *shown.of(own, i)))
    return out


def c67(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that AdaFed reaches a mean accuracy of 40 % in rounds 360 to 440 and each other method in 810 to 990.

    These are the 400 and 900 rounds of the paper with a slack of a tenth. A run that has at least the band's rounds and
    never reaches 40 % counts as outside; a shorter one is left out.
    """
    shown, out = FigureRuns(paper, "figure5", evidence), []
    for i, row in enumerate(shown.figure.rows):
        about = 400 if row.algo == "adafed" else 900
        low, high = about * (100 - _SLACK) / 100, about * (100 + _SLACK) / 100
        label = f"rounds of {shown.name(i)} to {100 * _TARGET:g} %"
        needed, last = _rounds_to_target(shown.found[i])
        rounds = {s: v for s, v in needed.items() if np.isfinite(v)}
        missed = {s for s in needed if s not in rounds and last[s] >= high}
        out.append(between(label, rounds, low, high, shown.found[i], missed))
    return out


def _rounds_to_target(found: MatchedRuns) -> tuple[PerUnit, PerUnit]:
    """Return the rounds to 40 %, infinite if a run never gets there, and the last round of each run."""
    curves = found.curve("accuracy_mean")
    needed = {s: rounds_to(c, _TARGET, lower=False) for s, c in curves.items()}
    return needed, {s: float(c.index[-1]) for s, c in curves.items()}


def c66(paper: Paper, evidence: Evidence) -> list[Comparison]:
    """Test that the length of the direction, as a share of its first value, is smoothest for one full-batch epoch."""
    shown, title = FigureRuns(paper, "figure4", evidence), paper.setups["cifar10_s1"].title
    smooth = next(i for i, r in enumerate(shown.figure.rows) if set(r.hyperparameters) == {"batch"})
    rough: dict[int, PerUnit] = {
        i: {s: roughness(c / c.iloc[0]) for s, c in found.curve("update_norm").items()}
        for i, found in shown.found.items()
    }
    return [
        above(
            f"roughness of the normalised length for {shown.name(smooth)} against {shown.name(i)} on {title}",
            leads(rough[smooth], rough[i], -1.0),
            shown.of(smooth, i),
        )
        for i in rough
        if i != smooth
    ]

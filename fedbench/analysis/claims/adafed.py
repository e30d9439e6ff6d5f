"""AdaFed: claims with a test of their own."""

from collections.abc import Callable, Iterator

import pandas as pd

from fedbench.analysis.claims.comparison import (
    Comparison,
    above,
    contest,
    leads,
    tested,
)
from fedbench.analysis.claims.curve_claims import (
    figure_runs,
    roughness,
    runs_of,
    tail,
)
from fedbench.analysis.claims.table_claims import band, number_and_best_other
from fedbench.analysis.curves import low_and_high
from fedbench.analysis.departures import PerUnit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.papers.schema import PrintedMetric

# rounds to a mean accuracy of 40 %, in c18 and c67
_ROUNDS = PrintedMetric(
    id="rounds",
    label="rounds to 40 %",
    direction="lower",
    field="accuracy_mean",
    factor=1.0,
    target=0.4,
)


def c14_lead_grows_with_skew(evidence: Evidence) -> Iterator[Comparison]:
    """Test that AdaFed's lead over the best other method in STD, as a ratio, is larger on skewed FEMNIST."""
    paper = evidence.paper
    ratios: dict[str, PerUnit] = {}
    sides: list[MatchedRuns] = []
    for setup in ("femnist_skewed", "femnist_original"):
        numbers, runs = number_and_best_other(evidence, "table3", setup, "adafed", "std_clients")
        title = paper.setups[setup].title
        ratios[title] = {unit: best / own for unit, (own, best) in numbers.items() if own}
        sides += runs
    larger, smaller = ratios
    label = (
        f"lead of {paper.methods['adafed'].label} over the best other in "
        f"{paper.metrics['std_clients'].label}, as a ratio, on {larger} against {smaller}"
    )
    yield above(label, leads(ratios[larger], ratios[smaller], 1.0), sides)


def c16_high_loss_falls_by_more(evidence: Evidence) -> Iterator[Comparison]:
    """Test that the loss of the client that starts highest falls by more than that of the client that starts lowest."""

    def lead(low: pd.Series, high: pd.Series) -> float:
        return float((high.iloc[0] - high.iloc[-1]) - (low.iloc[0] - low.iloc[-1]))

    return _two_clients(evidence, "the drop of the high loss beyond that of the low one", lead)


def c65_losses_end_alike(evidence: Evidence) -> Iterator[Comparison]:
    """Test that over the last tenth of the rounds both losses differ by less than a tenth of the larger one."""

    def room(low: pd.Series, high: pd.Series) -> float:
        one, two = tail(low), tail(high)
        return 0.1 * max(one, two) - abs(one - two)

    label = "the final gap between both losses below a tenth of the larger one"
    return _two_clients(evidence, label, room)


def _two_clients(
    evidence: Evidence, label: str, lead: Callable[[pd.Series, pd.Series], float]
) -> Iterator[Comparison]:
    """Return, per setup of Figure 3, the comparison of a number of the two clients' losses with 0."""
    for shown in figure_runs(evidence, "figure3").values():
        runs = runs_of(shown, "adafed")
        losses = {unit: low_and_high(run.clients()) for unit, run in runs.runs.items()}
        # a single round shows no trend
        leads = {unit: lead(low, high) for unit, (low, high) in losses.items() if len(low) > 1}
        yield above(f"{label} on {runs.setup}", leads, [runs])


def c18_fewest_rounds_to_target(evidence: Evidence) -> Iterator[Comparison]:
    """Test that AdaFed needs fewer rounds to a mean accuracy of 40 % than each other method.

    A run that ends below 40 % needs one round more than it has. A seed with which neither run gets
    there does not count, and if there are no other seeds the comparison is undecided.
    """
    (shown,) = figure_runs(evidence, "figure5").values()
    adafed = runs_of(shown, "adafed")
    mine = _rounds_needed(adafed)
    for other in shown:
        if other is adafed:
            continue
        label = f"{_ROUNDS.label} of {adafed.name} against {other.name}"
        theirs = _rounds_needed(other)
        reached = adafed.values(_ROUNDS).keys() | other.values(_ROUNDS).keys()
        both = mine.keys() & theirs.keys()
        if both and both.isdisjoint(reached):
            label = f"{label} (neither gets there)"
            yield tested(label, dict.fromkeys(both, 0.0), (adafed, other))
        else:
            counted = {unit: needed for unit, needed in mine.items() if unit in reached}
            yield contest(label, counted, theirs, -1.0, adafed, other)


def _rounds_needed(runs: MatchedRuns) -> PerUnit:
    """Return the rounds to 40 % by unit; one more than it has for a run that ends below."""
    curves = runs.curve(_ROUNDS.field)
    beyond = {unit: float(curve.index[-1] + 1) for unit, curve in curves.items()}
    return beyond | runs.values(_ROUNDS)


def c67_rounds_to_target_as_printed(evidence: Evidence) -> Iterator[Comparison]:
    """Test that AdaFed reaches a mean accuracy of 40 % in rounds 360 to 440 and each other method in 810 to 990.

    These are the 400 and 900 rounds of the paper, which it reads off a picture, with a slack of a
    tenth.
    """
    (shown,) = figure_runs(evidence, "figure5").values()
    adafed = runs_of(shown, "adafed")
    for runs in shown:
        low, high = (360, 440) if runs is adafed else (810, 990)
        label = f"rounds of {runs.name} to 40 %"
        yield band(label, runs, _ROUNDS, low, high)


def c66_full_batch_is_smoothest(evidence: Evidence) -> Iterator[Comparison]:
    """Test that the length of the direction, as a share of its first value, is smoothest for one full-batch epoch."""
    (shown,) = figure_runs(evidence, "figure4").values()
    rough = {
        runs: {unit: roughness(c / c.iloc[0]) for unit, c in runs.curve("update_norm").items()}
        for runs in shown
    }
    smooth = shown[-1]  # the row with a full batch and a single epoch
    for runs in shown[:-1]:
        label = f"roughness of the normalised length for {smooth.name} against {runs.name} on {runs.setup}"
        yield above(label, leads(rough[smooth], rough[runs], -1.0), (smooth, runs))

"""AdaFed: tests that are specific to single claims."""

from collections.abc import Callable, Iterator

import pandas as pd

from fedbench.analysis.claims.comparison import (
    Comparison,
    above,
    leads,
    scaled,
)
from fedbench.analysis.claims.curve_claims import (
    figure_runs,
    roughness,
    runs_of,
    tail,
)
from fedbench.analysis.claims.table_claims import number_and_best_other, rounds_compared
from fedbench.analysis.curves import low_and_high
from fedbench.analysis.departures import PerUnit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.papers.schema import PrintedMetric

# rounds to a mean accuracy of 40 %, for c18 and c67
_ROUNDS = PrintedMetric(
    id="rounds",
    label="rounds to 40 %",
    direction="lower",
    field="accuracy_mean",
    factor=1.0,
    target=0.4,
)


def c14_lead_grows_with_skew(evidence: Evidence) -> Iterator[Comparison]:
    """Test that AdaFed's lead in STD over the best other method is larger on skewed FEMNIST.

    The lead is a ratio.
    """
    paper = evidence.paper
    ratios: dict[str, PerUnit] = {}
    sides: list[MatchedRuns] = []
    for setup in ("femnist_skewed", "femnist_original"):
        numbers, runs = number_and_best_other(
            evidence,
            "table3",
            setup,
            "adafed",
            "std_clients",
        )
        title = paper.setups[setup].title
        ratios[title] = {}
        for unit, (std, best) in numbers.items():
            if std:
                ratios[title][unit] = best / std
        sides += runs
    larger, smaller = ratios
    label = (
        f"lead of {paper.methods['adafed'].label} over the best other in "
        f"{paper.metrics['std_clients'].label}, as a ratio, on {larger} against {smaller}"
    )
    growth = leads(ratios[larger], ratios[smaller], 1.0)
    yield above(label, growth, sides)


def c16_high_loss_falls_by_more(evidence: Evidence) -> Iterator[Comparison]:
    """Test that the initially highest client loss falls by more than the initially lowest one."""

    def lead(low: pd.Series, high: pd.Series) -> float:
        fall_of_high = high.iloc[0] - high.iloc[-1]
        fall_of_low = low.iloc[0] - low.iloc[-1]
        return float(fall_of_high - fall_of_low)

    label = "the drop of the high loss beyond that of the low one"
    return _two_clients(evidence, label, lead)


def c65_losses_end_alike(evidence: Evidence) -> Iterator[Comparison]:
    """Test that the two losses differ by less than a tenth over the last tenth of the rounds.

    The difference is measured as a share of the larger loss.
    """

    def room(low: pd.Series, high: pd.Series) -> float:
        one = tail(low)
        two = tail(high)
        return 0.1 * max(one, two) - abs(one - two)

    label = "the final gap between both losses below a tenth of the larger one"
    return _two_clients(evidence, label, room)


def _two_clients(
    evidence: Evidence,
    label: str,
    lead: Callable[[pd.Series, pd.Series], float],
) -> Iterator[Comparison]:
    """Yield, per setup of Figure 3, a comparison of ``lead`` of the two clients' losses with 0."""
    for shown in figure_runs(evidence, "figure3").values():
        runs = runs_of(shown, "adafed")
        leads = {}
        for unit, run in runs.runs.items():
            low, high = low_and_high(run.clients())
            if len(low) > 1:  # a single round shows no trend
                leads[unit] = lead(low, high)
        yield above(f"{label} on {runs.setup}", leads, [runs])


def c18_fewest_rounds_to_target(evidence: Evidence) -> Iterator[Comparison]:
    """Test that AdaFed reaches a mean accuracy of 40 % in fewer rounds than each other method.

    ``rounds_to`` explains runs that end below 40 %.
    """
    (shown,) = figure_runs(evidence, "figure5").values()
    adafed = runs_of(shown, "adafed")
    for other in shown:
        if other is not adafed:
            label = f"{_ROUNDS.label} of {adafed.name} against {other.name}"
            yield rounds_compared(label, adafed, other, _ROUNDS)


def c67_rounds_to_target_as_printed(evidence: Evidence) -> Iterator[Comparison]:
    """Test that AdaFed reaches 40 % in at most 440 rounds, and the others in at least 810.

    These are the 400 and 900 rounds that the paper reads off a figure, with a tolerance of a tenth.
    A run that ends below 40 % counts as reaching it one round after its end.
    """
    (shown,) = figure_runs(evidence, "figure5").values()
    adafed = runs_of(shown, "adafed")
    for runs in shown:
        ends = scaled(runs.lengths(_ROUNDS.field), 1.0, 1.0)
        needed = ends | runs.values(_ROUNDS)
        if runs is adafed:
            bound = "below 440"
            room = scaled(needed, -1.0, 440.0)
        else:
            bound = "above 810"
            room = scaled(needed, 1.0, -810.0)
        yield above(f"rounds of {runs.name} to 40 % {bound}", room, [runs])


def c68_accuracy_has_converged(evidence: Evidence) -> Iterator[Comparison]:
    """Test that no accuracy rises by 1 point from the last tenth but one to the last tenth."""
    (shown,) = figure_runs(evidence, "figure5").values()
    for runs in shown:
        room = {}
        for unit, curve in runs.curve("accuracy_mean").items():
            length = max(1, len(curve) // 10)
            before = curve.iloc[-2 * length : -length].mean()
            room[unit] = 1.0 - 100.0 * float(tail(curve) - before)
        label = f"rise of the accuracy of {runs.name} over the last tenth below 1 point"
        yield above(label, room, [runs])


def c66_full_batch_is_smoothest(evidence: Evidence) -> Iterator[Comparison]:
    """Test that the length of the direction is smoothest for one full-batch epoch.

    Lengths are relative to the first one.
    """
    (shown,) = figure_runs(evidence, "figure4").values()
    rough: dict[MatchedRuns, PerUnit] = {}
    for runs in shown:
        rough[runs] = {}
        for unit, curve in runs.curve("update_norm").items():
            rough[runs][unit] = roughness(curve / curve.iloc[0])
    *others, smooth = shown  # the last row has a full batch and a single epoch
    for runs in others:
        names = f"{smooth.name} against {runs.name} on {runs.setup}"
        label = f"roughness of the normalised length for {names}"
        smoother = leads(rough[smooth], rough[runs], -1.0)
        yield above(label, smoother, (smooth, runs))

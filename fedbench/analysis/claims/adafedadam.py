"""AdaFedAdam: tests that are specific to single claims."""

from collections.abc import Iterator

from fedbench.analysis.claims.comparison import (
    Comparison,
    above,
    aligned,
    contest,
    joined,
)
from fedbench.analysis.claims.curve_claims import figure_runs, measured, runs_of
from fedbench.analysis.claims.table_claims import number_and_best_other
from fedbench.analysis.matching import Evidence
from fedbench.core.metrics import metric_info
from fedbench.papers.checks import Selection

_BASELINES = ("fedavg", "fedadam", "fednova", "qfedavg")
_SPREAD = metric_info("error_rsd_weighted")
_ERRORS = (metric_info("error_mean_weighted"), _SPREAD)
_UNSTABLE = 5.0  # points of accuracy behind the best method


def c17_dominates_each_baseline(evidence: Evidence) -> Iterator[Comparison]:
    """Test that for each baseline, some alpha lowers both the mean and the spread of the error."""
    (shown,) = figure_runs(evidence, "figure3").values()
    front = [runs for runs in shown if Selection("adafedadam").fits(runs.row)]
    fields = " and ".join(field.label for field in _ERRORS)
    for algo in _BASELINES:
        baseline = runs_of(shown, algo)
        points = []
        for point in front:
            parts = []
            for field in _ERRORS:
                ours = point.final(field.name)
                theirs = baseline.final(field.name)
                parts.append(contest(field.label, ours, theirs, -1.0, point, baseline))
            label = f"{point.name} below {baseline.name} in {fields}"
            points.append(joined(label, parts, every=True))
        yield joined(f"some point of the front below {baseline.name}", points, every=False)


def c23_baselines_are_unstable(evidence: Evidence) -> Iterator[Comparison]:
    """Test that each baseline is more than 5 points behind the best method on some data set."""
    paper = evidence.paper
    for algo in _BASELINES:
        name = paper.methods[algo].label
        parts = []
        for setup in paper.tables["table5"].setups:
            numbers, runs = number_and_best_other(
                evidence,
                "table5",
                setup,
                algo,
                "avg",
            )
            lag = {}
            for unit, (number, best) in numbers.items():
                lag[unit] = best - number - _UNSTABLE
            label = f"{name} more than {_UNSTABLE:g} behind the best on {paper.setups[setup].title}"
            parts.append(above(label, lag, runs))
        yield joined(f"{name} far behind on some data set", parts, every=False)


def c24_spread_stops_falling(evidence: Evidence) -> Iterator[Comparison]:
    """Test that the relative spread of the error falls less from alpha 4 to 8 than from 1 to 4.

    The fall from 4 to 8 must be less than half of the fall from 1 to 4.
    """
    (shown,) = figure_runs(evidence, "figure3").values()
    runs = [runs_of(shown, "adafedadam", alpha=alpha) for alpha in (1.0, 4.0, 8.0)]
    spreads = aligned(*(measured(side, "final", _SPREAD.name) for side in runs))
    room = {}
    for unit, (one, four, eight) in spreads.items():
        first_fall = one - four
        second_fall = four - eight
        room[unit] = first_fall / 2 - second_fall
    label = f"fall of {_SPREAD.label} from alpha 4 to 8 below half of that from 1 to 4"
    yield above(label, room, runs)

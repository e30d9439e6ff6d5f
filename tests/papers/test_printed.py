"""The checks of claims on the papers' own numbers: ``printed`` is their verdict."""

from dataclasses import dataclass, field, fields

import pytest

from fedbench.analysis.claims.judge import judge
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.papers.registry import papers

ONLY = Unit(0, 0)


@dataclass(frozen=True)
class Printed(MatchedRuns):
    """The printed numbers of a row, as those of a single run."""

    given: dict = field(default_factory=dict)

    def values(self, metric, which=""):
        return {ONLY: self.given[metric.id].mean} if metric.id in self.given else {}

    def curve(self, field):
        return {}


class Tables(Evidence):
    def choices(self, row):
        (empty,) = super().choices(row)
        if not row.values:
            return [empty]
        facts = {entry.name: getattr(empty, entry.name) for entry in fields(empty)}
        return [Printed(**facts, given=row.values), empty]


def of_runs(check):
    return check is not None and check.kind not in ("test", "equal_rows", "within_band")


CASES = [
    pytest.param(paper, claim, id=f"{paper.id}-{claim.id}")
    for paper in papers().values()
    for claim in paper.claims.values()
    if of_runs(claim.check)
]


@pytest.mark.parametrize(("paper", "claim"), CASES)
def test_printed_says_how_the_check_decides_on_the_printed_numbers(paper, claim):
    comparisons = judge(claim, Tables(paper, [])).comparisons
    means = [comparison.mean for comparison in comparisons if comparison.mean is not None]
    if not means:
        assert claim.printed == "not tabulated"
        return
    checks = claim.check.checks if claim.check.kind == "all" else [claim.check]
    kinds = {check.kind for check in checks}
    if not kinds & {"curves", "limit"}:  # figures have no numbers
        assert len(means) == len(comparisons)
    ahead = sum(mean > 0 for mean in means)
    words = {len(means): "supports", 0: "contradicts"}
    assert claim.printed == words.get(ahead, "mixed"), comparisons

"""The checks of claims on the papers' own numbers: ``printed`` is what they come to, and no encoding asks for more."""

from dataclasses import dataclass, field, fields

import pytest

from fedbench.analysis.claims.judge import judge
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.papers.registry import papers

ONLY = Unit(0, 0)
PAPERS = tuple(papers())


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
        facts = {f.name: getattr(empty, f.name) for f in fields(empty)}
        return [Printed(**facts, given=row.values), empty] if row.values else [empty]


def of_runs(check):
    return check is not None and check.kind not in ("test", "equal_rows", "within_band")


@pytest.mark.parametrize(
    ("paper", "claim"),
    [(p, c) for p in PAPERS for c in papers()[p].claims.values() if of_runs(c.check)],
    ids=lambda x: getattr(x, "id", x),
)
def test_printed_says_what_the_check_makes_of_the_printed_numbers(paper, claim):
    found = judge(claim, Tables(papers()[paper], [])).comparisons
    means = [c.mean for c in found if c.mean is not None]
    if not means:
        assert claim.printed == "not tabulated"
        return
    checks = claim.check.checks if claim.check.kind == "all" else [claim.check]
    if not any(check.kind in ("curves", "limit") for check in checks):  # figures have no numbers
        assert len(means) == len(found)
    ahead = sum(m > 0 for m in means)
    assert claim.printed == {len(means): "supports", 0: "contradicts"}.get(ahead, "mixed"), found

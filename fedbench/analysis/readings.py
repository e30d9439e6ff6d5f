"""The multiverse of a claim: its verdict under every defensible reading of its paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from fedbench.analysis.claims import ALPHA, NO_FUNCTIONS, Functions, Verdict, judge
from fedbench.analysis.matching import Evidence
from fedbench.analysis.stepdown import least_blocks
from fedbench.papers.readings import ADOPTED, AXES, Reading
from fedbench.papers.registry import Claim, Paper

_DECIDED = ("holds", "fails")
_WORDS = {"weighting": "weighting", "round": "round", "splits": "split", "variant": "variant"}


@dataclass(frozen=True)
class Multiverse:
    """The verdicts on a claim under the readings of its paper.

    Attributes:
        verdicts: Verdict by reading, the adopted one first. A reading is left out if it changes none of the numbers of
            a reading that is nearer to the adopted one.
        headline: ``robust``, ``depends on: <axes>``, ``undecided``, ``one reading``, ``partly measured``, ``not run``,
            or the empty string for a claim that runs do not decide.
        axes: The axes along which a decided verdict changes.
        by_group: Headline by title of a setup, if the claim has several.
    """

    verdicts: Mapping[Reading, Verdict]
    headline: str
    axes: tuple[str, ...] = ()
    by_group: Mapping[str, str] = field(default_factory=dict)

    @property
    def adopted(self) -> Verdict:
        """The verdict under the adopted reading."""
        return self.verdicts[ADOPTED]


def multiverse(
    paper: Paper, claim: Claim, evidence: Evidence, functions: Functions = NO_FUNCTIONS, only: Sequence[Reading] = ()
) -> Multiverse:
    """Return the verdicts on a claim under every defensible reading of its paper.

    Args:
        paper: The paper.
        claim: The claim.
        evidence: The runs.
        functions: The paper's own checks.
        only: Readings to judge, the adopted one among them; all of the paper's if empty.
    """
    adopted = judge(paper, claim, evidence.under(ADOPTED), functions)
    if adopted.basis != "runs" or adopted.verdict == "not testable":
        return Multiverse({ADOPTED: adopted}, "")
    readings = [r for r in only or paper.readings.every() if r != ADOPTED]
    every = {ADOPTED: adopted, **{r: judge(paper, claim, evidence.under(r), functions) for r in readings}}
    numbers = {r: _numbers(v) for r, v in every.items()}
    verdicts = {r: v for r, v in every.items() if not any(numbers.get(n) == numbers[r] for n in r.nearer())}
    headline, axes = _headline(verdicts)
    groups = {
        title: _headline({r: v.by_group[title] for r, v in verdicts.items() if title in v.by_group})[0]
        for title in adopted.by_group
    }
    return Multiverse(verdicts, headline, axes, groups)


def _headline(verdicts: Mapping[Reading, Verdict]) -> tuple[str, tuple[str, ...]]:
    """Return what the verdicts come to, and the axes along which a decided one changes.

    Only readings under which everything has been run with enough blocks for a verdict are compared, and a reading
    whose numbers are those of another one is no further evidence.
    """
    adopted = verdicts[ADOPTED].verdict
    if adopted in ("not run", "partly measured"):
        return adopted, ()
    measured = {reading: v for reading, v in verdicts.items() if is_measured(v)}
    words = {v.verdict for v in measured.values()}
    if len(words) > 1:
        axes = _axes(measured)
        return f"depends on: {', '.join(_WORDS[axis] for axis in axes)}", axes
    if adopted not in _DECIDED:
        return "undecided", ()
    return ("robust" if len({_numbers(v) for v in measured.values()}) > 1 else "one reading"), ()


def is_measured(verdict: Verdict) -> bool:
    """Return whether everything has been run, with enough blocks for the claim to hold or fail."""
    if verdict.verdict != "undecided":
        return verdict.verdict in _DECIDED
    return all(c.n >= least_blocks(1, ALPHA) for c in verdict.comparisons if c.n)


def _axes(measured: Mapping[Reading, Verdict]) -> tuple[str, ...]:
    """Return the axes of pairs of readings with different verdicts; of those that differ in least axes if none in one.

    One of two different verdicts is decided, since only one word is not.
    """
    pairs = [
        one.differs_from(two) for (one, a), (two, b) in combinations(measured.items(), 2) if a.verdict != b.verdict
    ]
    fewest = min(map(len, pairs))
    found = {axis for axes in pairs if len(axes) == fewest for axis in axes}
    return tuple(axis for axis in AXES if axis in found)


def _numbers(verdict: Verdict) -> tuple[object, ...]:
    """Return the numbers that a verdict rests on, which two readings may share."""
    return tuple((c.label, c.mean, c.greater, c.less, c.n, c.blocks) for c in verdict.comparisons)

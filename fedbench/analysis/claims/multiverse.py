"""The multiverse of a claim: its verdict under every defensible reading of its paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from fedbench.analysis.claims.judge import judge
from fedbench.analysis.claims.verdict import TO_HOLD, Verdict
from fedbench.analysis.matching import Evidence
from fedbench.papers.readings import ADOPTED, AXES, Reading
from fedbench.papers.schema import Claim, Paper

_DECIDED = ("holds", "fails")


@dataclass(frozen=True)
class Headline:
    """What the verdicts on a claim under its readings come to.

    Attributes:
        word: ``robust`` (every axis has been measured, and all agree), ``robust over`` (those axes that have been),
            ``depends on``, ``few blocks`` (the adopted verdict is decided, but with too few blocks for both outcomes),
            ``one reading`` (no other one has been measured), ``undecided``, ``partly measured`` or ``not run``.
        axes: The axes over which the verdict is robust, or on which it depends.
        missing: Axes along which a reading has not been measured.
        against: Those of them along which such a reading points against the verdict so far.
    """

    word: str
    axes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Multiverse:
    """The verdicts on a claim under the readings of its paper.

    Attributes:
        verdicts: Verdict by reading, the adopted one first. A reading is left out if it changes none of the numbers of
            a reading that is nearer to the adopted one.
        headline: What they come to; None for a claim that runs do not decide.
        by_group: Headline by title of a setup, if the claim has several.
    """

    verdicts: Mapping[Reading, Verdict]
    headline: Headline | None = None
    by_group: Mapping[str, Headline] = field(default_factory=dict)

    @property
    def adopted(self) -> Verdict:
        """The verdict under the adopted reading."""
        return self.verdicts[ADOPTED]


def multiverse(paper: Paper, claim: Claim, evidence: Evidence, only: Sequence[Reading] = ()) -> Multiverse:
    """Return the verdicts on a claim under every defensible reading of its paper.

    Args:
        paper: The paper.
        claim: The claim.
        evidence: The runs.
        only: Readings to judge, the adopted one among them; all of the paper's if empty.
    """
    adopted = judge(paper, claim, evidence.under(ADOPTED))
    if adopted.basis != "runs" or adopted.verdict == "not testable":
        return Multiverse({ADOPTED: adopted})
    readings = [r for r in only or paper.readings.every() if r != ADOPTED]
    every = {ADOPTED: adopted, **{r: judge(paper, claim, evidence.under(r)) for r in readings}}
    verdicts = _distinct(every)
    groups = {
        title: headline(_distinct({r: v.by_group[title] for r, v in every.items()})) for title in adopted.by_group
    }
    return Multiverse(verdicts, headline(verdicts), groups)


def _distinct(verdicts: Mapping[Reading, Verdict]) -> dict[Reading, Verdict]:
    """Leave out readings that change none of the numbers of a reading that is nearer to the adopted one."""
    numbers = {r: _numbers(v) for r, v in verdicts.items()}
    return {r: v for r, v in verdicts.items() if not any(numbers.get(n) == numbers[r] for n in r.nearer())}


def headline(verdicts: Mapping[Reading, Verdict]) -> Headline:
    """Return what verdicts come to, of readings with numbers of their own, the adopted one among them.

    A verdict depends on an axis if readings differ that are decided, or undecided with enough blocks to hold. Agreement
    counts only with enough blocks for both outcomes (``is_measured``).
    """
    adopted = verdicts[ADOPTED]
    if adopted.verdict in ("not run", "partly measured"):
        return Headline(adopted.verdict)
    compared = {reading: v for reading, v in verdicts.items() if v.verdict in _DECIDED or _undecided_for_sure(v)}
    if len({v.verdict for v in compared.values()}) > 1:
        return Headline("depends on", _axes(compared))
    if adopted.verdict not in _DECIDED:
        return Headline("undecided")
    missing, against = _missing(verdicts)
    if not is_measured(adopted):
        return Headline("few blocks", (), missing, against)
    alone = [reading.differs_from(ADOPTED) for reading in verdicts]
    agreeing = tuple(axis for axis in AXES if [axis] in alone and axis not in missing)
    if not agreeing:
        return Headline("one reading", (), missing, against)
    return Headline("robust over", agreeing, missing, against) if missing else Headline("robust")


def _missing(verdicts: Mapping[Reading, Verdict]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes along which a reading has not been measured, and those along which one is against the verdict.

    Readings that differ in several axes are not asked for (``reproduce --readings`` runs each alternative by itself),
    but if one that has not been measured points against the verdict, its axes count.
    """
    open_readings = [(r.differs_from(ADOPTED), v) for r, v in verdicts.items() if r != ADOPTED and not is_measured(v)]
    missing, against = set[str](), set[str]()
    for axes, verdict in sorted(open_readings, key=lambda pair: len(pair[0])):
        contrary = _is_against(verdict, verdicts[ADOPTED].verdict)
        if len(axes) == 1 or (contrary and missing.isdisjoint(axes)):
            missing.update(axes)
            against.update(axes if contrary else ())
    return tuple(a for a in AXES if a in missing), tuple(a for a in AXES if a in against)


def _is_against(verdict: Verdict, adopted: str) -> bool:
    """Return whether what has been run points against a verdict: most comparisons, or for ``fails``, none behind."""
    counts = verdict.counts
    return counts.behind > counts.ahead if adopted == "holds" else counts.run > 0 and not counts.behind


def is_measured(verdict: Verdict) -> bool:
    """Return whether everything has been run, with enough blocks for the claim to hold and to fail.

    A claim that fails needs no more comparisons than those that have been run, which had to be able to hold.
    """
    if verdict.verdict == "fails":
        return all(n >= TO_HOLD for c in verdict.comparisons if (n := c.fewest))
    return verdict.verdict in ("holds", "undecided") and verdict.lacking is None


def _undecided_for_sure(verdict: Verdict) -> bool:
    """Return whether a claim is undecided with enough blocks to hold."""
    return verdict.verdict == "undecided" and all(c.fewest >= TO_HOLD for c in verdict.comparisons)


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

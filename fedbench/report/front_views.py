"""The content of the front page of published reports as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from fedbench.analysis.coverage import Coverage
from fedbench.report.views import ClaimView, FigureView
from fedbench.report.words import Mark

_DECIDED = ("holds", "fails")


@dataclass(frozen=True)
class ClaimStates:
    """Numbers of claims by state. Every claim has one state.

    Attributes:
        states: ``holds``, ``fails``, ``undecided``, ``partly measured``, ``not run`` and ``not testable`` of claims
            about runs; ``depends`` if their verdict depends on how the paper is read, whatever the adopted one is; and
            ``without runs`` for those about a proof or the printed numbers.
        robust: Of those that hold or fail, those that are robust.
        reduced: Of those that hold, fail or depend, those whose runs are reduced.
    """

    states: Counter[str] = field(default_factory=Counter)
    robust: int = 0
    reduced: int = 0

    @property
    def total(self) -> int:
        """All claims."""
        return self.states.total()

    @property
    def testable(self) -> int:
        """Those that runs can decide."""
        return self.total - self.states["without runs"] - self.states["not testable"]

    @property
    def settled(self) -> int:
        """Those that runs decide or show to depend on the reading."""
        return self.states["holds"] + self.states["fails"] + self.states["depends"]

    def __add__(self, other: ClaimStates) -> ClaimStates:
        return ClaimStates(self.states + other.states, self.robust + other.robust, self.reduced + other.reduced)


def claim_states(claims: Iterable[ClaimView]) -> ClaimStates:
    """Return how many claims are in which state."""
    states: Counter[str] = Counter()
    robust = reduced = 0
    for claim in claims:
        state = claim_state(claim)
        states[state] += 1
        robust += state in _DECIDED and claim.multiverse is not None and claim.multiverse.headline == "robust"
        reduced += state in (*_DECIDED, "depends") and claim.reduced
    return ClaimStates(states, robust, reduced)


def claim_state(claim: ClaimView) -> str:
    """Return the state of a claim, as in ``ClaimStates``."""
    if claim.basis != "runs":
        return "without runs"
    if claim.multiverse is not None and claim.multiverse.headline == "depends on":
        return "depends"
    return claim.verdict


@dataclass(frozen=True)
class LearntView:
    """A sentence on what was learnt.

    Attributes:
        claim: Id of its claim.
        href: Where the claim is judged.
        marks: Its verdict, and what its readings amount to, as (appearance, words).
    """

    text: str
    claim: str
    href: str
    marks: tuple[tuple[Mark, str], ...]


@dataclass(frozen=True)
class ReportView:
    """A paper on the front page.

    Attributes:
        id: Id of the paper.
        href: Page of its report; empty if there is none.
        note: Why nothing is counted of it; empty if it has a bundle.
        hours: Hours of training and evaluation of its runs, added up.
        figures: The most telling figure, or none.
    """

    id: str
    title: str
    citation: str
    href: str
    note: str
    coverage: Coverage
    claims: ClaimStates
    runs: int = 0
    hours: float = 0.0
    figures: tuple[FigureView, ...] = ()
    learnt: tuple[LearntView, ...] = ()


@dataclass(frozen=True)
class FrontView:
    """The front page.

    Attributes:
        others: Further reports, as (title, href).
        environment: Versions, devices and commits of all runs, as (name, value).
    """

    reports: tuple[ReportView, ...]
    others: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]

    @property
    def coverage(self) -> Coverage:
        """The printed numbers of all papers."""
        return sum((r.coverage for r in self.reports), Coverage())

    @property
    def claims(self) -> ClaimStates:
        """The claims of all papers."""
        return sum((r.claims for r in self.reports), ClaimStates())

    @property
    def hours(self) -> float:
        """Hours of training and evaluation of all runs, added up."""
        return sum(r.hours for r in self.reports)

    @property
    def runs(self) -> int:
        """Number of runs of all reports."""
        return sum(r.runs for r in self.reports)

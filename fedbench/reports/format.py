"""How numbers, counts and verdicts are shown on every page and in every table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbench.analysis.table_model import Coverage
from fedbench.core.config_values import from_yaml
from fedbench.core.metrics import MetricInfo
from fedbench.runs.run import Run

ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Badge:
    """Appearance of a verdict or status, as ``assets/badges.yaml`` gives it.

    Attributes:
        tone: Colour on the page, which always comes with an icon and the word.
        icon: Icon on the page.
        word: The word on the page; empty if it goes without saying.
        sign: The word in tables of text.
    """

    tone: str
    icon: str
    word: str
    sign: str = ""


BADGES: Mapping[str, Mapping[str, Badge]] = {
    kind: {word: Badge(*shown) for word, shown in words.items()}
    for kind, words in from_yaml((ASSETS / "badges.yaml").read_text(encoding="utf-8")).items()
}
CELLS, STATES = BADGES["cell"], BADGES["state"]


def plural(count: int, word: str) -> str:
    """Return a number of things as text: '1 seed', '6 splits'."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def p_text(p: float | None) -> str:
    """Return a p-value as text, with an exponent below 0.0001; empty for None."""
    return "" if p is None else f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def with_spread(mean: float | None, std: float | None, digits: int) -> str:
    """Return a mean ± sample STD as text; empty without a mean."""
    if mean is None:
        return ""
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def best_names(means: Mapping[str, float], metric: MetricInfo) -> set[str]:
    """Return the names whose mean is printed as the best one; none if neither direction of the metric is better.

    Spreads over clients have no best: where accuracies are low, they are low too.
    """
    if metric.direction is None or metric.spread or not means:
        return set()
    top = metric.text(metric.sign * max(metric.sign * v for v in means.values()))
    return {name for name, v in means.items() if metric.text(v) == top}


def coverage_text(covered: Coverage) -> str:
    """Return the coverage of printed numbers as text."""
    return (
        f"{covered.measured} of {covered.total} distinct printed numbers measured, {covered.full} in full and "
        f"{covered.reduced} reduced"
    )


# ---- claims


SCALED = {"holds": "same direction", "fails": "opposite direction", "mixed": "mixed", "undecided": "unclear"}


@dataclass(frozen=True)
class Judged:
    """What pages count of a claim, also in ``summary.json``.

    Attributes:
        id: Id of the claim.
        word: Its verdict at the paper's settings.
        counts: How many of its comparisons are shown and refuted.
        basis: ``runs``, ``test`` or ``print``.
        one_way: Why its runs could have decided it in one way only, or not at all; empty if they could in both.
        scaled: What the scaled-down check gives, one of ``SCALED``; empty if there is none.
        readings: What other readings of the paper come to; empty if none has been run.
    """

    id: str
    word: str
    counts: str = ""
    basis: str = "runs"
    one_way: str = ""
    scaled: str = ""
    readings: str = ""

    @property
    def state(self) -> str:
        """Its column in the counts, a word of ``BADGES["state"]``: one for every claim."""
        if self.basis != "runs":
            return self.basis
        return "not counted" if self.one_way else self.word


@dataclass(frozen=True)
class ClaimCounts:
    """Numbers of claims, the same on every page.

    Attributes:
        states: By ``Judged.state``.
        scaled: Of those without a verdict, by what their scaled-down check gives.
    """

    states: Counter[str]
    scaled: Counter[str]

    @property
    def total(self) -> int:
        """All claims."""
        return self.states.total()

    @property
    def text(self) -> str:
        """The numbers as text."""
        parts = [f"{self.states[state]} {badge.word}" for state, badge in STATES.items() if self.states[state]]
        checks = [f"{self.scaled[word]} {word}" for word in SCALED.values() if self.scaled[word]]
        scaled = f"; scaled-down checks of those not run: {', '.join(checks)}" if checks else ""
        return f"{plural(self.total, 'claim')}{': ' if parts else ''}{', '.join(parts)}{scaled}"


def count_claims(claims: Iterable[Judged]) -> ClaimCounts:
    """Return how many claims have which verdict, and which scaled-down check if they have none."""
    found = list(claims)
    return ClaimCounts(Counter(c.state for c in found), Counter(c.scaled for c in found if c.scaled))


# ---- environment


def environment_of(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """Return the versions, devices and commits of runs, with the number of runs per value."""
    facts: dict[str, Counter[str]] = {}
    for run in runs:
        meta = run.meta
        named = {**meta.get("versions", {}), "device": meta.get("device_name"), "platform": meta.get("platform")}
        commit = f"{meta.get('git_commit')}{' with changes' if meta.get('git_dirty') else ''}"
        own = {"commit of the user's code": meta["own_commit"]} if "own_commit" in meta else {}
        for key, value in {**named, "commit": commit, **own}.items():
            facts.setdefault(key, Counter())[str(value)] += 1
    return {key: dict(sorted(counts.items())) for key, counts in facts.items()}


def environment_items(facts: Mapping[str, Mapping[str, int]]) -> tuple[tuple[str, str], ...]:
    """Return the environment as (name, text), with the number of runs per value if they differ."""
    return tuple(
        (key, "; ".join(v if len(counts) == 1 else f"{v} ({n} runs)" for v, n in counts.items()))
        for key, counts in facts.items()
    )

"""How numbers, counts and verdicts are shown on every page and in every table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from fedbench.analysis.table import Coverage
from fedbench.core.metrics import MetricInfo


@dataclass(frozen=True)
class Badge:
    """Appearance of a verdict or status.

    Attributes:
        tone: Colour on the page, which always comes with an icon and the word.
        icon: Icon on the page.
        word: The word on the page; empty if it goes without saying.
        sign: The word in tables of text.
    """

    tone: Literal["good", "bad", "warn", "odd", "mute", "proof", "print"]
    icon: str
    word: str
    sign: str = ""


_NOT_RUN = {"not run": Badge("mute", "ring", "not run")}
_OPEN = {"undecided": Badge("warn", "wave", "undecided"), "partly measured": Badge("warn", "part", "partly measured")}
CELLS = {
    "inside": Badge("good", "tick", "inside", "in"),
    "outside": Badge("bad", "cross", "outside", "OUT"),
    "impossible": Badge("odd", "barred", "impossible", "impossible"),
    "single": Badge("warn", "one", "one seed"),
    "missing": Badge("mute", "dash", "missing"),
    "none": Badge("mute", "", ""),
}
CLAIMS = {
    "holds": Badge("good", "tick", "holds"),
    "fails": Badge("bad", "cross", "fails"),
    **_OPEN,
    **_NOT_RUN,
    "not testable": Badge("mute", "barred", "not testable"),
}
BADGES: Mapping[str, Mapping[str, Badge]] = {
    "cell": CELLS,
    "runs": CLAIMS,
    "proof": {
        "holds": Badge("proof", "proof", "shown by a proof"),
        "fails": Badge("proof", "cross", "refuted by a proof"),
    },
    "print": {
        "holds": Badge("print", "print", "printed numbers agree"),
        "fails": Badge("print", "cross", "printed numbers disagree"),
    },
    "reading": {
        **CLAIMS,
        "too few seeds": Badge("mute", "one", "too few seeds"),
        "too few splits": Badge("mute", "one", "too few splits"),
    },
    "headline": {
        "robust": Badge("good", "tick", "robust"),
        "robust over": Badge("warn", "part", "robust over"),
        "depends on": Badge("warn", "fork", "depends on"),
        "few blocks": Badge("warn", "less", "too few blocks for both outcomes"),
        "one reading": Badge("mute", "one", "one reading"),
        **_OPEN,
        **_NOT_RUN,
    },
    "comparison": {
        "significantly for": Badge("good", "tick", "for, significant"),
        "for": Badge("mute", "up", "for"),
        "level": Badge("mute", "dash", "level"),
        "against": Badge("warn", "less", "against"),
        "significantly against": Badge("bad", "cross", "against, significant"),
        "incomplete": Badge("mute", "part", "incomplete"),
        **_NOT_RUN,
        "not comparable": Badge("mute", "barred", "not comparable"),
    },
    "row": {
        "full": Badge("mute", "", ""),
        "reduced": Badge("warn", "less", "reduced"),
        **_NOT_RUN,
        "failed": Badge("bad", "cross", "failed"),
    },
    "printed": {
        "supports": Badge("good", "tick", "support it"),
        "contradicts": Badge("bad", "cross", "contradict it"),
        "mixed": Badge("warn", "wave", "are mixed"),
        "not tabulated": Badge("mute", "dash", "are not tabulated"),
    },
}


def badge_of(kind: str, word: str) -> Badge:
    """Return the badge of a verdict or status of one of the kinds in ``BADGES``; a claim's kind is its basis."""
    known = BADGES[kind]
    if word not in known:
        raise ValueError(f"unknown {kind} verdict or status {word!r}; it must be one of {', '.join(known)}")
    return known[word]


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
    """Return the names whose mean is printed as the best one; none if neither direction of the metric is better."""
    if metric.direction is None or not means:
        return set()
    top = metric.text(metric.sign * max(metric.sign * v for v in means.values()))
    return {name for name, v in means.items() if metric.text(v) == top}


def coverage_text(covered: Coverage) -> str:
    """Return the coverage of printed numbers as text."""
    return (
        f"{covered.measured} of {covered.total} distinct printed numbers measured, {covered.full} in full and "
        f"{covered.reduced} reduced"
    )


@dataclass(frozen=True)
class Judged:
    """What pages count of a claim, also in ``summary.json``.

    Attributes:
        id: Id of the claim.
        verdict: Its verdict under the adopted reading.
        basis: ``runs``, ``proof`` or ``print``.
        headline: What its readings come to, a word of ``BADGES["headline"]``; empty for a claim without readings.
        details: What follows the headline: the axes.
        reduced: Whether reduced runs are behind it.
    """

    id: str
    verdict: str
    basis: str = "runs"
    headline: str = ""
    details: str = ""
    reduced: bool = False

    @property
    def state(self) -> str:
        """The verdict, ``depends`` if it depends on the reading, or ``without runs`` for proofs and printed numbers."""
        if self.basis != "runs":
            return "without runs"
        return "depends" if self.headline == "depends on" else self.verdict

    @property
    def readings(self) -> str:
        """What the readings come to: ``robust``, ``depends on: weighting``; empty for a claim without readings."""
        return badge_of("headline", self.headline).word + self.details if self.headline else ""


def count_claims(claims: Iterable[Judged], basis: str, *verdicts: str) -> int:
    """Return the number of claims with a basis, and with one of the verdicts if any is given."""
    return sum(c.basis == basis and (not verdicts or c.verdict in verdicts) for c in claims)


def count_headlines(claims: Iterable[Judged], headline: str) -> int:
    """Return the number of claims that runs decide with this headline."""
    return sum(c.basis == "runs" and c.verdict in ("holds", "fails") and c.headline == headline for c in claims)


def tally_text(claims: Iterable[Judged]) -> str:
    """Return claims by what decides them as text; what runs decide comes first."""
    found = list(claims)
    hold, fail = (count_claims(found, "runs", verdict) for verdict in ("holds", "fails"))
    parts = [
        (count_claims(found, "runs", "undecided"), "measured and undecided"),
        (count_claims(found, "runs", "partly measured"), "partly measured"),
        (count_claims(found, "proof", "holds"), "shown by a proof"),
        (count_claims(found, "proof", "fails"), "refuted by a proof"),
        (count_claims(found, "print"), "checked on the printed numbers only"),
        (count_claims(found, "runs", "not run"), "not run"),
        (count_claims(found, "runs", "not testable"), "not testable"),
    ]
    text = f"runs decide {hold + fail} of {len(found)} claims"
    if hold + fail:
        text += f" ({hold} hold, {fail} fail; robust: {count_headlines(found, 'robust')})"
    return "; ".join([text, ", ".join(f"{n} {word}" for n, word in parts if n)]).removesuffix("; ")

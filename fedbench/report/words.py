"""The words for verdicts and statuses, and how the page and the tables of text show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedbench.analysis.coverage import Coverage
from fedbench.report.views import ClaimTally


@dataclass(frozen=True)
class Mark:
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


CELLS = {
    "inside": Mark("good", "tick", "inside", "in"),
    "outside": Mark("bad", "cross", "outside", "OUT"),
    "impossible": Mark("odd", "barred", "impossible", "impossible"),
    "single": Mark("warn", "one", "one seed"),
    "missing": Mark("mute", "dash", "missing"),
    "none": Mark("mute", "", ""),
}
CLAIMS = {  # measured
    "holds": Mark("good", "tick", "holds"),
    "fails": Mark("bad", "cross", "fails"),
    "undecided": Mark("warn", "wave", "undecided"),
    "partly measured": Mark("warn", "part", "partly measured"),
    "not run": Mark("mute", "ring", "not run"),
    "not testable": Mark("mute", "barred", "not testable"),
}
PROOFS = {
    "holds": Mark("proof", "proof", "shown by a proof"),
    "fails": Mark("proof", "cross", "refuted by a proof"),
}
PRINTS = {
    "holds": Mark("print", "print", "printed numbers agree"),
    "fails": Mark("print", "cross", "printed numbers disagree"),
}
READINGS = {
    **CLAIMS,
    "too few seeds": Mark("mute", "one", "too few seeds"),
    "too few splits": Mark("mute", "one", "too few splits"),
}
OF_BASIS = {"runs": CLAIMS, "proof": PROOFS, "print": PRINTS}
HEADLINES = {
    "robust": Mark("good", "tick", "robust"),
    "robust over": Mark("warn", "part", "robust over"),
    "depends on": Mark("warn", "fork", "depends on"),
    "few blocks": Mark("warn", "less", "too few blocks for both outcomes"),
    "undecided": Mark("warn", "wave", "undecided"),
    "one reading": Mark("mute", "one", "one reading"),
    "partly measured": Mark("warn", "part", "partly measured"),
    "not run": Mark("mute", "ring", "not run"),
}
COMPARISONS = {
    "significantly for": Mark("good", "tick", "for, significant"),
    "for": Mark("mute", "up", "for"),
    "level": Mark("mute", "dash", "level"),
    "against": Mark("warn", "less", "against"),
    "significantly against": Mark("bad", "cross", "against, significant"),
    "incomplete": Mark("mute", "part", "incomplete"),
    "not run": Mark("mute", "ring", "not run"),
    "not comparable": Mark("mute", "barred", "not comparable"),
}
ROWS = {
    "full": Mark("mute", "", ""),
    "reduced": Mark("warn", "less", "reduced"),
    "not run": Mark("mute", "ring", "not run"),
    "failed": Mark("bad", "cross", "failed"),
    "no data": Mark("mute", "dash", "no data"),
}
PRINTED = {
    "supports": Mark("good", "tick", "support it"),
    "contradicts": Mark("bad", "cross", "contradict it"),
    "mixed": Mark("warn", "wave", "are mixed"),
    "not tabulated": Mark("mute", "dash", "are not tabulated"),
}
BASES = {
    "runs": "measured",
    "proof": "shown by a proof or identity",
    "print": "internal check of the printed numbers",
}
MARKS = {
    "cell": CELLS,
    "claim": CLAIMS,
    "row": ROWS,
    "printed": PRINTED,
    "headline": HEADLINES,
    "comparison": COMPARISONS,
    "reading": READINGS,
}


def mark(kind: str, word: str) -> Mark:
    """Return the appearance of a verdict or status."""
    known = MARKS[kind]
    if word not in known:
        raise ValueError(f"unknown {kind} verdict or status {word!r}; it must be one of {', '.join(known)}")
    return known[word]


def claim_mark(basis: str, verdict: str) -> Mark:
    """Return the appearance of a claim's verdict; each basis has words and a colour of its own."""
    if basis not in OF_BASIS:
        raise ValueError(f"unknown basis {basis!r}; it must be one of {', '.join(OF_BASIS)}")
    known = OF_BASIS[basis]
    if verdict not in known:
        raise ValueError(f"unknown claim verdict or status {verdict!r}; it must be one of {', '.join(known)}")
    return known[verdict]


def coverage_text(covered: Coverage) -> str:
    """Return the coverage of printed numbers as text: '69 of 201 printed numbers: 60 in full, 9 reduced'."""
    return (
        f"{covered.measured} of {covered.total} distinct printed numbers measured, {covered.full} in full and "
        f"{covered.reduced} reduced"
    )


def claims_text(found: ClaimTally) -> str:
    """Return claims by what decides them as text; what runs decide comes first."""
    hold, fail = found.of("runs", "holds"), found.of("runs", "fails")
    parts = [
        (found.of("runs", "undecided"), "measured and undecided"),
        (found.of("runs", "partly measured"), "partly measured"),
        (found.of("proof", "holds"), "shown by a proof"),
        (found.of("proof", "fails"), "refuted by a proof"),
        (found.of("print"), "checked on the printed numbers only"),
        (found.of("runs", "not run"), "not run"),
        (found.of("runs", "not testable"), "not testable"),
    ]
    text = f"runs decide {hold + fail} of {found.total} claims"
    if hold + fail:
        text += f" ({hold} hold, {fail} fail; robust: {found.headlines['robust']})"
    return "; ".join([text, ", ".join(f"{n} {word}" for n, word in parts if n)]).removesuffix("; ")

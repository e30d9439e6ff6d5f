"""The words for verdicts and statuses, and how the page and the tables of text show them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Mark:
    """Appearance of a verdict or status.

    Attributes:
        tone: Colour on the page, which always comes with an icon and the word.
        icon: Icon on the page.
        word: The word on the page; empty if it goes without saying.
        sign: The word in tables of text.
    """

    tone: Literal["good", "bad", "warn", "odd", "mute"]
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
CLAIMS = {
    "holds": Mark("good", "tick", "holds"),
    "fails": Mark("bad", "cross", "fails"),
    "undecided": Mark("warn", "wave", "undecided"),
    "partly measured": Mark("mute", "ring", "partly measured"),
    "not run": Mark("mute", "ring", "not run"),
    "not testable": Mark("odd", "barred", "not testable"),
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
    "runs": Mark("mute", "", ""),
    "proof": Mark("mute", "dash", "by a test"),
    "print": Mark("mute", "dash", "as printed"),
}
MARKS = {"cell": CELLS, "claim": CLAIMS, "row": ROWS, "printed": PRINTED, "basis": BASES}


def mark(kind: str, word: str) -> Mark:
    """Return the appearance of a verdict or status."""
    known = MARKS[kind]
    if word not in known:
        raise ValueError(f"unknown {kind} verdict or status {word!r}; it must be one of {', '.join(known)}")
    return known[word]


def verdict_counts(counts: Counter[str]) -> str:
    """Return the number of claims per verdict as text: '12 hold, 1 fails and 2 are undecided'."""
    said = []
    for word in CLAIMS:
        one = counts[word] == 1
        if word in ("holds", "fails"):
            said.append((counts[word], word if one else word.removesuffix("s")))
        else:
            said.append((counts[word], f"{'is' if one else 'are'} {word}"))
    *most, last = (f"{count} {words}" for count, words in said if count)
    return f"{', '.join(most)} and {last}" if most else last

"""What stands below the tables of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedbench.analysis.stats import least_p

_MOST = 16  # seeds that a note may ask for: with more, p is no finer


def listed_notes(notes: Sequence[str]) -> list[str]:
    """Return notes as a Markdown list, in a list of its own; none give none."""
    return ["".join(f"- {n}\n" for n in notes)] if notes else []


def p_text(p: float) -> str:
    """Return a p-value as printed."""
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def too_few(short: Iterable[int], tests: int, alpha: float) -> list[str]:
    """Return a note on the numbers of pairs that are too small for any verdict, and what it takes."""
    if not (counts := sorted(set(short))):
        return []
    enough = next((n for n in range(1, _MOST + 1) if 2 * least_p(n) * tests <= alpha), None)
    adjusted = f" after Holm's adjustment over {tests} differences" if tests > 1 else ""
    return [
        f"undecided whatever the numbers are with {' or '.join(map(str, counts))} seeds (n give no p below 2^(1-n)): "
        f"p <= {alpha:g}{adjusted} takes " + (f"{enough} seeds" if enough else f"more than {_MOST} seeds")
    ]

"""Notes below the tables of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedbench.analysis.stats import least_p

_MOST = 16  # largest number of seeds that a note recommends: with more, p has no finer resolution


def listed_notes(notes: Sequence[str]) -> list[str]:
    """Return a list with the notes as one Markdown list; an empty list if there are no notes."""
    return ["".join(f"- {n}\n" for n in notes)] if notes else []


def p_text(p: float) -> str:
    """Return a p-value as printed."""
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def too_few(short: Iterable[int], tests: int, alpha: float) -> list[str]:
    """Return a note on numbers of pairs that are too small for any verdict, and on the number of seeds needed."""
    if not (counts := sorted(set(short))):
        return []
    enough = next((n for n in range(1, _MOST + 1) if 2 * least_p(n) * tests <= alpha), None)
    adjusted = f" after Holm's adjustment over {tests} differences" if tests > 1 else ""
    return [
        f"always undecided with {' or '.join(map(str, counts))} seeds (n seeds give no p below 2^(1-n)): "
        f"p <= {alpha:g}{adjusted} needs " + (f"{enough} seeds" if enough else f"more than {_MOST} seeds")
    ]

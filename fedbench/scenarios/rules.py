"""Robust rules: one vector from those of C clients. Rows are [C, P]; results are float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedbench.scenarios.vectors import by_columns, columns, lengths, mixed, shrunk, squared_distances

# the largest number f of attackers among C clients that a rule allows, and the condition
BOUNDS: dict[str, tuple[Callable[[int], int], str]] = {
    "trimmed_mean": (lambda c: (c - 1) // 2, "C > 2f"),
    "krum": (lambda c: (c - 3) // 2, "C >= 2f + 3"),
    "multi_krum": (lambda c: (c - 3) // 2, "C >= 2f + 3"),
    "bulyan": (lambda c: (c - 3) // 4, "C >= 4f + 3"),
    "nnm": (lambda c: c - 1, "C > f"),
}
_STILL = 1e-9  # the geometric median has been reached if it moves by less, of the largest distance at the start


def _ranked(rows: Tensor) -> Tensor:
    """Return the values of rows in ascending order per column, [P, C]."""
    return rows.T.contiguous().sort(1).values


def median(rows: Tensor) -> Tensor:
    """Return the median per column, [P]; of two middle values their mean (Yin et al., ICML 2018, Def. 1)."""
    ranked = _ranked(rows)
    return (ranked[:, (len(rows) - 1) // 2] + ranked[:, len(rows) // 2]) / 2


def trimmed_mean(rows: Tensor, f: int) -> Tensor:
    """Return the mean per column without the f largest and the f smallest values, [P] (Yin et al., 2018, Def. 2)."""
    return _ranked(rows)[:, f : len(rows) - f].mean(1)


def nearest_to_median(rows: Tensor, count: int) -> Tensor:
    """Return the mean per column of the ``count`` values nearest to the median, [P]; ties go to lower values."""
    ranked = _ranked(rows)
    nearest = (ranked - median(rows)[:, None]).abs().sort(dim=1, stable=True).indices[:, :count]
    return ranked.gather(1, nearest).mean(1)


def krum(squared: Tensor, f: int) -> Tensor:
    """Return the rows in the order of Krum's scores [C]; ties go to the first (Blanchard et al., NeurIPS 2017, Sec. 4).

    The score of a row is the sum of its max(1, C - f - 2) smallest squared distances to others.

    Args:
        squared: Squared distances between rows, [C, C].
        f: Number of attackers.
    """
    others = squared.clone().fill_diagonal_(torch.inf).sort(dim=1).values
    return others[:, : max(1, len(others) - f - 2)].sum(1).sort(stable=True).indices


def bulyan_choice(squared: Tensor, f: int) -> Tensor:
    """Return the C - 2f rows that Krum chooses one by one, ascending (El Mhamdi et al., ICML 2018); as ``krum``."""
    left = list(range(len(squared)))
    chosen = [left.pop(int(krum(squared[left][:, left], f)[0])) for _ in range(len(squared) - 2 * f)]
    return torch.tensor(sorted(chosen), device=squared.device)


def geometric_median(rows: Tensor, p: Tensor, iterations: int = 100, nu: float = 1e-6) -> Tensor:
    """Return argmin_z Σ p_k ‖v_k - z‖ by smoothed Weiszfeld iterations, [P] (RFA, Pillutla et al., 2022, Alg. 2).

    With z = Σ b_k v_k and Σ b_k = 1, ‖v_k - z‖² = (D b)_k - b' D b / 2, D the squared distances between the v_k: the
    iterations need no vectors.

    Args:
        rows: The vectors v_k.
        p: Their weights [C] float64, which sum to 1.
        iterations: Most iterations.
        nu: Smallest distance that counts, as a share of the largest one at the start.
    """
    squared, b = squared_distances(rows), p

    def apart(b: Tensor) -> Tensor:
        return (squared @ b - b @ squared @ b / 2).clamp(min=0).sqrt()

    largest = apart(b).max()
    for _ in range(iterations if largest > 0 else 0):
        beta = p / apart(b).clamp(min=nu * largest)
        change = beta / beta.sum() - b
        b = b + change
        if (-change @ squared @ change / 2).clamp(min=0).sqrt() < _STILL * largest:
            break
    return mixed(b, rows)


def centered_clipping(rows: Tensor, centre: Tensor, radius: float | None, steps: int = 1) -> Tensor:
    """Return the centre [P] after ``steps`` steps by the mean of the clipped differences (Karimireddy et al., 2021).

    Args:
        rows: The vectors.
        centre: The centre before [P] float64.
        radius: Largest length of a difference; None is the median of those at the first step.
        steps: Number of steps.
    """
    for _ in range(steps):
        parts = [lengths(rows[:, block].double() - centre[block]).square() for block in columns(rows)]
        apart = torch.stack(parts).sum(0).sqrt()
        radius = float(median(apart[:, None])) if radius is None else radius
        share = shrunk(apart, radius) / len(rows)
        centre = centre + mixed(share, rows) - share.sum() * centre
    return centre


def per_column(rule: str, rows: Tensor, f: int) -> Tensor:
    """Return the result [P] of ``median``, ``trimmed_mean``, the second step of ``bulyan``, or otherwise the mean."""
    if rule == "median":
        return by_columns(median, rows)
    if rule == "trimmed_mean":
        return by_columns(lambda block: trimmed_mean(block, f), rows)
    if rule == "bulyan":
        return by_columns(lambda block: nearest_to_median(block, len(rows) - 2 * f), rows)
    return by_columns(lambda block: block.mean(0), rows)

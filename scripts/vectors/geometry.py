"""Small problems of geometry, solved by trying every case."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from vectors.models import Array


def onto_simplex(v: Array) -> Array:
    """Return the Euclidean projection onto the simplex, from the sorted entries."""
    down = np.sort(v)[::-1]
    counts = np.arange(1, len(v) + 1)
    excess = (np.cumsum(down) - 1) / counts
    shift = excess[np.flatnonzero(down > excess)[-1]]
    return np.maximum(v - shift, 0)


def with_sum(gram: Array) -> Array:
    """Return the matrix of the conditions for the least x'Kx under a given sum of x."""
    size = len(gram)
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = gram
    system[size, size] = 0
    return system


def in_box(gram: Array, low: Array, high: Array) -> Array:
    """Return argmin x'Kx over sum x = 1 and low <= x <= high, by every set of active bounds."""
    best = low
    least = np.inf
    for state in itertools.product(("low", "high", "free"), repeat=len(gram)):
        kind = np.array(state)
        x = np.where(kind == "low", low, high).astype(float)
        free = np.flatnonzero(kind == "free")
        fixed = np.flatnonzero(kind != "free")
        if len(free):
            by_fixed = -gram[np.ix_(free, fixed)] @ x[fixed]
            right = np.append(by_fixed, 1 - x[fixed].sum())
            system = with_sum(gram[np.ix_(free, free)])
            x[free] = np.linalg.solve(system, right)[:-1]
        inside = (x > low - 1e-12).all() and (x < high + 1e-12).all()
        value = x @ gram @ x
        if inside and abs(x.sum() - 1) < 1e-12 and value < least:
            best = x
            least = value
    return best


def shortest(rows: Sequence[Array]) -> Array:
    """Return the shortest point of the convex hull of vectors, by every face."""
    points: list[Array] = []
    for size in range(1, len(rows) + 1):
        for face in itertools.combinations(rows, size):
            g = np.array(face)
            right = np.append(np.zeros(size), 1.0)
            x = np.linalg.lstsq(with_sum(g @ g.T), right, rcond=None)[0][:size]
            if (x > -1e-12).all() and abs(x.sum() - 1) < 1e-9:
                points.append(x @ g)
    return min(points, key=lambda point: float(point @ point))

"""Ranks over data sets, against numbers worked out by hand and the example of Demšar (JMLR 2006)."""

import math

import numpy as np
import pytest

from fedbench.analysis.ranks import rank_test, ranks_of

NAMES = ("C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf")
# Demšar, Table 6: AUC of four variants of C4.5 on 14 data sets; on voting, 0.9751 is printed as 0.975, with rank 2
AUC = np.array([
    [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
])  # fmt: skip


def test_the_example_of_demsar():
    """Printed: average ranks 3.143, 2.000, 2.893, 1.964 and CD 1.25; and χ² 9.28, which does not correct for ties.

    Ties: 3 pairs and one block of four, Σ(t³ - t) = 3·6 + 60 = 78 of 14 (4³ - 4) = 840; χ² is divided by 1 - 78/840.
    """
    found = rank_test(NAMES, AUC, 1)
    assert found.test.ranks == pytest.approx([44 / 14, 28 / 14, 40.5 / 14, 27.5 / 14])
    assert found.test.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), rel=3e-4)
    plain = 12 * 14 / 20 * (sum(r**2 for r in (44 / 14, 2, 40.5 / 14, 27.5 / 14)) - 25)
    assert plain == pytest.approx(9.28, abs=0.005)
    corrected = plain / (1 - 78 / 840)
    assert found.test.statistic == pytest.approx(corrected)
    assert found.f == pytest.approx(13 * corrected / (42 - corrected))
    assert [m for m, _ in found.ordered] == ["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]
    assert found.level_with_best() == [m for m, _ in found.ordered]  # 3.143 - 1.964 = 1.179 < 1.25


def test_ranks_with_ties_and_runs_that_diverged():
    values = np.array([[3.0, 1.0, 3.0, np.nan, np.nan], [0.1, 0.2, 0.3, 0.4, np.nan]])
    assert ranks_of(values, 1).tolist() == [[1.5, 3, 1.5, 4.5, 4.5], [4, 3, 2, 1, 5]]
    assert ranks_of(values, -1).tolist() == [[2.5, 1, 2.5, 4.5, 4.5], [1, 2, 3, 4, 5]]


def test_blocks_that_agree_leave_no_doubt():
    """χ² = N (k - 1) is its largest value, at which the statistic of Iman and Davenport is infinite."""
    found = rank_test("abc", np.array([[3.0, 2.0, 1.0], [9.0, 5.0, 1.0]]), 1)
    assert (found.test.ranks, found.f, found.f_p) == ((1, 2, 3), math.inf, 0)
    assert rank_test("abc", np.ones((2, 3)), 1).f_p == 1


def test_f_by_hand():
    """Ranks 1 2 3 and 2 1 3: χ² = 3, F = (2 - 1) 3 / (4 - 3) = 3; F(2, 2) has the upper tail 1 / (1 + x)."""
    found = rank_test("abc", np.array([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0]]), 1)
    assert (found.test.statistic, found.f) == (pytest.approx(3), pytest.approx(3))
    assert found.f_p == pytest.approx(1 / 4)


def test_too_few_blocks_or_methods_are_refused():
    for shape in ((1, 3), (4, 2)):
        with pytest.raises(ValueError, match="at least 2 blocks and 3 methods"):
            rank_test("abc"[: shape[1]], np.ones(shape), 1)

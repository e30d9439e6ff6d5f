"""Ranks of methods over data sets with Friedman's test, by hand and by properties."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import ROOT

from fedbench.analysis.ranks import rank_test, ranks_of

# Demšar (JMLR 2006), Table 5 a: critical values of Nemenyi's test at 0.05
NEMENYI = {
    3: 2.343,
    4: 2.569,
    7: 2.949,
    10: 3.164,
}


def ranked(*blocks):
    blocks = np.array(blocks, dtype=float)
    return rank_test("abcdefghij"[: blocks.shape[1]], blocks)


def test_the_example_of_demsar():
    """Printed: average ranks 3.143, 2.000, 2.893, 1.964 and CD 1.25; and χ² 9.28, without ties.

    AUC of four variants of C4.5 on 14 data sets; on voting, 0.9751 is printed as 0.975, with rank
    2. Ties: 3 pairs and one block of four, Σ(t³ - t) = 3·6 + 60 = 78 of 14 (4³ - 4) = 840; χ² is
    divided by 1 - 78/840.
    """
    auc = pd.read_csv(ROOT / "tests" / "demsar_table6.csv")
    test = rank_test(list(auc), auc.to_numpy())
    assert test.ranks == pytest.approx([44 / 14, 28 / 14, 40.5 / 14, 27.5 / 14])
    plain = 12 * 14 / 20 * (np.square(test.ranks).sum() - 25)
    assert plain == pytest.approx(9.28, abs=0.005)
    corrected = plain / (1 - 78 / 840)
    assert test.statistic == pytest.approx(corrected)
    assert test.f == pytest.approx(13 * corrected / (42 - corrected))
    ordered = ["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]
    assert [method for method, _ in test.ordered] == ordered
    assert test.level_with_best() == ordered  # 3.143 - 1.964 = 1.179 < 1.25


def test_ranks_with_ties_and_runs_that_diverged():
    values = np.array([[3.0, 1.0, 3.0, np.nan, np.nan], [0.1, 0.2, 0.3, 0.4, np.nan]])
    assert ranks_of(values).tolist() == [[1.5, 3, 1.5, 4.5, 4.5], [4, 3, 2, 1, 5]]
    assert ranks_of(-values).tolist() == [[2.5, 1, 2.5, 4.5, 4.5], [1, 2, 3, 4, 5]]


def test_blocks_that_agree_leave_no_doubt():
    """χ² = N (k - 1) is its largest value; with 2 degrees of freedom its tail is exp(-χ²/2).

    The statistic of Iman and Davenport is infinite there.
    """
    test = ranked([0.9, 0.5, 0.7], [30, 10, 20])
    assert test.ranks == (1, 3, 2)
    assert test.statistic == pytest.approx(4)
    assert test.p == pytest.approx(math.exp(-2))
    assert (test.f, test.f_p) == (math.inf, 0)


def test_blocks_without_any_difference():
    test = ranked([1, 1, 1], [5, 5, 5])
    assert (test.ranks, test.statistic, test.p, test.f_p) == ((2, 2, 2), 0, 1, 1)


@pytest.mark.parametrize("k", NEMENYI)
def test_critical_difference_is_demsars(k):
    blocks = 24
    rng = np.random.default_rng(0)
    test = ranked(*rng.normal(size=(blocks, k)))
    expected = NEMENYI[k] * math.sqrt(k * (k + 1) / (6 * blocks))
    # three decimals are printed
    assert test.critical_difference == pytest.approx(expected, rel=3e-4)


@settings(deadline=None)
@given(
    st.integers(2, 6),
    st.integers(3, 5),
    st.integers(0, 2**16),
)
def test_ranks_know_the_order_inside_a_block_only(blocks, methods, seed):
    ordered = np.tile(np.arange(float(methods)), (blocks, 1))
    scores = np.random.default_rng(seed).permuted(ordered, axis=1)
    test = ranked(*scores)
    moved = ranked(*np.exp(scores) + 10.0 * np.arange(blocks)[:, None])
    assert moved.ranks == test.ranks
    assert moved.statistic == pytest.approx(test.statistic)
    turned = ranked(*-scores)
    assert turned.ranks == pytest.approx([methods + 1 - rank for rank in test.ranks])
    assert turned.p == pytest.approx(test.p)

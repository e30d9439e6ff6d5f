"""Friedman's test and Nemenyi's critical difference, by hand and by properties."""

import math

import numpy as np
import pytest
from benchmark.ranks import friedman
from hypothesis import given, settings
from hypothesis import strategies as st

# Demsar (JMLR 2006), Table 5 a: critical values of Nemenyi's test at 0.05 for 2 to 10 methods
DEMSAR = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}


def test_friedman_by_hand():
    """All of N blocks agree on k methods: chi-square is N (k - 1), and with 2 degrees of freedom p is exp(-χ²/2)."""
    f = friedman([[0.9, 0.5, 0.7], [30.0, 10.0, 20.0]])
    assert f.ranks == (1, 3, 2)
    assert f.statistic == pytest.approx(4)
    assert f.p == pytest.approx(math.exp(-2))


def test_friedman_with_equal_scores():
    """Ranks 1.5, 1.5, 3 and 1, 2, 3: Σ(R - 4)² = 2.25 + 0.25 + 4 = 6.5, the sums of squares inside blocks 1.5 and 2."""
    f = friedman([[7, 7, 1], [3, 2, 1]])
    assert f.ranks == (1.25, 1.75, 3)
    # (k - 1) Σ(R - N(k+1)/2)² over Σ(r - (k+1)/2)²
    assert f.statistic == pytest.approx(6.5 * 2 / (1.5 + 2))
    level = friedman([[1, 1, 1], [5, 5, 5]])
    assert (level.ranks, level.statistic, level.p) == ((2, 2, 2), 0, 1)


@pytest.mark.parametrize("k", [3, 4, 7, 10])
@pytest.mark.parametrize("blocks", [2, 24])
def test_critical_difference_is_demsars(k, blocks):
    scores = np.random.default_rng(0).normal(size=(blocks, k))
    expected = DEMSAR[k] * math.sqrt(k * (k + 1) / (6 * blocks))
    # three decimals are printed
    assert friedman(scores).critical_difference == pytest.approx(expected, rel=3e-4)


def test_critical_difference_of_four_methods_on_24_blocks():
    """2.569 √(20 / 144)."""
    assert friedman(np.eye(24, 4)).critical_difference == pytest.approx(0.957, abs=5e-4)


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(3, 5), st.integers(0, 2**16))
def test_ranks_know_the_order_inside_a_block_only(blocks, methods, seed):
    scores = np.random.default_rng(seed).permuted(
        np.tile(np.arange(float(methods)), (blocks, 1)), axis=1
    )
    f = friedman(scores)
    moved = friedman(np.exp(scores) + 10.0 * np.arange(blocks)[:, None])
    assert (moved.ranks, moved.statistic) == (f.ranks, pytest.approx(f.statistic))
    turned = friedman(-scores)
    assert turned.ranks == pytest.approx([methods + 1 - r for r in f.ranks])
    assert (turned.p, turned.statistic) == (pytest.approx(f.p), pytest.approx(f.statistic))
    assert sum(f.ranks) == pytest.approx(methods * (methods + 1) / 2)

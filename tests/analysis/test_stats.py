"""Tests of differences, against values derived by hand and what holds for all numbers."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.analysis.stats import (
    has_scale,
    holm,
    interval,
    kendall,
    least_p,
    paired,
    with_diverged,
)

few = st.lists(st.integers(-50, 50), min_size=1, max_size=8)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=10)


# ---- intervals


def test_pairs_of_which_one_side_is_lost_count_as_the_widest_difference():
    counted = with_diverged({0: 1.0, 1: -3.0, 2: -math.inf, 3: math.inf, 4: math.inf})
    assert counted == {0: 1.0, 1: -3.0, 2: -3.0, 3: 3.0, 4: 3.0}
    assert with_diverged({5: -math.inf}) == {5: -1.0}
    assert with_diverged({0: 0.0, 1: math.inf}) == {0: 0.0, 1: 1.0}
    assert with_diverged({0: 2.0}) == {0: 2.0}


def test_a_pair_of_which_both_sides_are_lost_is_left_out():
    assert with_diverged({0: 1.0, 1: math.nan}) == {0: 1.0}
    assert with_diverged({1: math.nan}) == {}


@pytest.mark.parametrize(
    ("differences", "scaled"),
    [([0.0, 2.0], True), ([2.0, math.inf], True), ([0.0, math.inf], False), ([], False)],
)
def test_differences_that_runs_that_diverged_make_have_no_scale(differences, scaled):
    assert has_scale(dict(enumerate(differences))) == scaled


def test_a_mean_without_a_scale_is_infinite():
    behind = paired([0.0, -1.0], scaled=False)
    assert (behind.mean, behind.low, behind.high) == (-math.inf, None, None)
    assert behind.less == paired([0.0, -1.0]).less
    assert paired([1.0, -1.0], scaled=False) == paired([1.0, -1.0])


def test_interval_by_hand():
    """With 2 degrees of freedom the quantile is (2p - 1) / √(2p(1 - p)); 1, 2, 3 have mean 2 and STD 1."""
    quantile = (2 * 0.975 - 1) / math.sqrt(2 * 0.975 * 0.025)
    assert quantile == pytest.approx(4.302653, abs=1e-6)
    low, high = interval([3, 1, 2])
    assert low == pytest.approx(2 - quantile / math.sqrt(3))
    assert high == pytest.approx(2 + quantile / math.sqrt(3))


def test_interval_with_one_degree_of_freedom_is_cauchys():
    """The quantile of p is tan(π (p - 1/2)): at level 1/2 it is 1, and 0 and 2 have STD √2."""
    assert interval([0.0, 2.0], level=0.5) == pytest.approx((0.0, 2.0))


def test_one_value_has_no_interval_and_equal_values_one_without_width():
    assert interval([]) is None
    assert interval([0.3]) is None
    assert interval([0.1] * 3) == (0.1, 0.1)  # the floating-point sum is not 0.3


@settings(deadline=None)
@given(st.lists(st.integers(-100, 100), min_size=2, max_size=8), st.integers(-100, 100))
def test_interval_moves_and_grows_with_the_values(values, shift):
    low, high = interval(values)
    assert interval([2 * v + shift for v in values]) == pytest.approx(
        (2 * low + shift, 2 * high + shift), abs=1e-9
    )
    wide = interval(values, level=0.99)
    assert wide[0] <= low <= high <= wide[1]


# ---- the sign-flip test


@pytest.mark.parametrize(
    ("differences", "greater", "less"),
    [
        ([1, 2, 3], 1 / 8, 1),  # 6 is the largest of 8 sums
        ([-1, 2, 3], 2 / 8, 7 / 8),  # 4 is the second largest, and they are all different but ±0
        ([1, -2, 3], 3 / 8, 6 / 8),  # 6 and 4 are above 2; 0 comes twice
        ([1, 2, -3], 5 / 8, 5 / 8),  # 0 comes twice
        ([1, 1, 1, -1], 5 / 16, 15 / 16),  # at least three of four heads; at most three of four
        ([5], 1 / 2, 1),
        ([0, 0, 0], 1, 1),
        ([0, 4], 1 / 2, 1),
    ],
)
def test_sign_flips_by_hand(differences, greater, less):
    d = paired(differences)
    assert (d.greater, d.less) == (greater, less)
    assert d.two_sided == min(1, 2 * greater)
    assert (d.n, d.mean) == (len(differences), pytest.approx(sum(differences) / len(differences)))


@settings(deadline=None)
@given(few)
def test_negating_swaps_the_sides(differences):
    a, b = paired(differences), paired([-d for d in differences])
    assert (a.greater, a.less, a.mean) == (b.less, b.greater, -b.mean)


@settings(deadline=None)
@given(few, st.sampled_from([1e-9, 0.001, 1 / 3, 7.0, 1e9]), st.randoms())
def test_neither_scale_nor_order_matters(differences, scale, random):
    """With 1/3 and 0.001 sums that are equal in whole numbers differ in the last digits."""
    a = paired(differences)
    shuffled = random.sample(differences, len(differences))
    b = paired([scale * d for d in shuffled])
    assert (a.greater, a.less) == (b.greater, b.less)
    assert b.mean == pytest.approx(scale * a.mean)


@settings(deadline=None)
@given(few)
def test_p_values_are_counts_that_overlap_in_the_observed_sum(differences):
    d = paired(differences)
    n = len(differences)
    assert least_p(n) <= d.greater <= 1
    assert (d.greater * 2**n).is_integer()
    assert d.greater + d.less >= 1 + least_p(n)


def test_equal_sums_that_rounding_tells_apart_are_equal():
    """0.1 + 0.2 - 0.3 is not 0 in floating point: of 8 sums 0 comes twice, once observed."""
    assert 0.1 + 0.2 - 0.3 != 0
    assert paired([0.1, 0.2, -0.3]).greater == paired([1, 2, -3]).greater == 5 / 8


def test_least_p_is_reached_and_halves_with_every_pair():
    for n in range(1, 17):
        assert paired([1.0] * n).greater == least_p(n) == 2.0**-n


def test_above_16_pairs_p_is_drawn_from_a_fixed_seed():
    ones = [1.0] * 17
    assert paired(ones).greater >= least_p(17) == 1 / 65537  # of the draws alone it could be 0
    assert paired(ones).greater <= 10 / 65537  # the true one is 1 / 131072
    assert paired(ones) == paired(ones)
    mixed = [*[1.0] * 11, *[-1.0] * 6]
    heads = sum(math.comb(17, k) for k in range(11, 18)) / 2**17  # at least 11 of 17
    # four standard errors of 65536 draws
    assert paired(mixed).greater == pytest.approx(heads, abs=0.006)
    assert paired([-d for d in mixed]).less == paired(mixed).greater
    assert paired([0.0] * 20).greater == paired([0.0] * 20).less == 1


def test_pairs_carry_their_interval():
    assert (paired([1, 2, 3]).low, paired([1, 2, 3]).high) == interval([1, 2, 3])
    assert (paired([1, 2, 3], 0.5).low, paired([1, 2, 3], 0.5).high) == interval([1, 2, 3], 0.5)
    assert (paired([4]).low, paired([4]).high) == (None, None)


# ---- many tests at once


def test_holm_by_hand():
    """.01 * 3, .03 * 2, and .04 * 1, which may not be below the one before."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9, 0.001]) == pytest.approx([1.0, 1.0, 0.003])
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@settings(deadline=None)
@given(shares, st.randoms())
def test_holm_is_between_p_and_bonferroni_keeps_order_and_goes_along_with_it(p, random):
    adjusted = holm(p)
    assert all(x <= y <= min(1, len(p) * x) for x, y in zip(p, adjusted, strict=True))
    assert all(
        a <= b
        for (x, a) in zip(p, adjusted, strict=True)
        for (y, b) in zip(p, adjusted, strict=True)
        if x < y
    )
    order = random.sample(range(len(p)), len(p))
    assert holm([p[i] for i in order]) == [adjusted[i] for i in order]


# ---- rank correlation


@pytest.mark.parametrize(
    ("values", "tau"),
    [
        ((1, 2, 3), 1.0), ((3, 2, 1), -1.0), ((1, 3, 2), 1 / 3), ((1, 1, 2), 2 / 3), ((5, 5, 5), 0.0),
        ((1, 2, math.inf), 1.0), ((math.inf, math.inf, 1), -2 / 3), ((-math.inf, 0, 1), 1.0),
    ],
)  # fmt: skip
def test_kendall_by_hand(values, tau):
    """Of three pairs; equal values are neither up nor down."""
    assert kendall(values) == pytest.approx(tau)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_kendall_turns_with_the_order_and_keeps_with_the_scale(values):
    assert kendall(values[::-1]) == -kendall(values)
    assert kendall([2 * v for v in values]) == kendall(values)

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

few = st.lists(
    st.integers(-50, 50),
    min_size=1,
    max_size=8,
)
shares = st.lists(
    st.floats(0, 1),
    min_size=1,
    max_size=10,
)


# ---- runs that diverged


@pytest.mark.parametrize(
    ("differences", "counted"),
    [
        # as the widest difference, if one side is lost
        (
            [1.0, -3.0, -math.inf, math.inf],
            {0: 1.0, 1: -3.0, 2: -3.0, 3: 3.0},
        ),
        ([-math.inf], {0: -1.0}),
        ([0.0, math.inf], {0: 0.0, 1: 1.0}),
        ([2.0], {0: 2.0}),
        # not at all, if both are
        ([1.0, math.nan], {0: 1.0}),
        ([math.nan], {}),
    ],
)
def test_pairs_with_runs_that_diverged(differences, counted):
    assert with_diverged(dict(enumerate(differences))) == counted


@pytest.mark.parametrize(
    ("differences", "scaled"),
    [
        ([0.0, 2.0], True),
        ([2.0, math.inf], True),
        ([0.0, math.inf], False),
        ([], False),
    ],
)
def test_differences_that_runs_that_diverged_make_have_no_scale(differences, scaled):
    assert has_scale(dict(enumerate(differences))) == scaled


def test_a_mean_without_a_scale_is_infinite():
    behind = paired([0.0, -1.0], scaled=False)
    assert behind.mean == -math.inf
    assert behind.low is None
    assert behind.high is None
    assert behind.less == paired([0.0, -1.0]).less
    assert paired([1.0, -1.0], scaled=False) == paired([1.0, -1.0])


# ---- intervals


def test_interval_by_hand():
    """With 2 degrees of freedom the quantile is (2p - 1) / √(2p(1 - p)); 1, 2, 3 have mean 2 and
    STD 1.
    """
    quantile = (2 * 0.975 - 1) / math.sqrt(2 * 0.975 * 0.025)
    half = quantile / math.sqrt(3)
    by_hand = (2 - half, 2 + half)
    assert interval([3, 1, 2]) == pytest.approx(by_hand)


def test_one_value_has_no_interval_and_equal_values_one_without_width():
    assert interval([]) is None
    assert interval([0.3]) is None
    assert interval([0.1] * 3) == (0.1, 0.1)  # the floating-point sum is not 0.3


@settings(deadline=None)
@given(
    st.lists(
        st.integers(-100, 100),
        min_size=2,
        max_size=8,
    ),
    st.integers(-100, 100),
)
def test_interval_moves_and_grows_with_the_values(values, shift):
    low, high = interval(values)
    moved = interval([2 * value + shift for value in values])
    assert moved == pytest.approx((2 * low + shift, 2 * high + shift), abs=1e-9)
    lowest, highest = interval(values, level=0.99)
    assert lowest <= low <= high <= highest


# ---- the sign-flip test


@pytest.mark.parametrize(
    ("differences", "greater", "less"),
    [
        ([1, 2, 3], 1 / 8, 1),  # 6 is the largest of 8 sums
        ([-1, 2, 3], 2 / 8, 7 / 8),  # 4 is the second largest, and they are all different but ±0
        ([1, 2, -3], 5 / 8, 5 / 8),  # 0 comes twice
        ([1, 1, 1, -1], 5 / 16, 15 / 16),  # at least three of four heads; at most three of four
        ([0, 0, 0], 1, 1),
        # 0.1 + 0.2 - 0.3 is not 0 in floating point
        ([0.1, 0.2, -0.3], 5 / 8, 5 / 8),
    ],
)
def test_sign_flips_by_hand(differences, greater, less):
    d = paired(differences)
    assert d.greater == greater
    assert d.less == less
    assert d.two_sided == min(1, 2 * greater)
    assert d.n == len(differences)
    assert d.mean == pytest.approx(sum(differences) / d.n)


@settings(deadline=None)
@given(few)
def test_negating_swaps_the_sides(differences):
    d = paired(differences)
    turned = paired([-difference for difference in differences])
    assert d.greater == turned.less
    assert d.less == turned.greater
    assert d.mean == -turned.mean


@settings(deadline=None)
@given(
    few,
    st.sampled_from([1e-9, 0.001, 1 / 3, 7.0, 1e9]),
    st.randoms(),
)
def test_neither_scale_nor_order_matters(differences, scale, random):
    """With 1/3 and 0.001 sums that are equal in whole numbers differ in the last digits."""
    d = paired(differences)
    shuffled = random.sample(differences, len(differences))
    scaled = paired([scale * difference for difference in shuffled])
    assert d.greater == scaled.greater
    assert d.less == scaled.less
    assert scaled.mean == pytest.approx(scale * d.mean)


@settings(deadline=None)
@given(few)
def test_p_values_are_counts_that_overlap_in_the_observed_sum(differences):
    d = paired(differences)
    n = len(differences)
    assert least_p(n) <= d.greater <= 1
    assert (d.greater * 2**n).is_integer()
    assert d.greater + d.less >= 1 + least_p(n)


@pytest.mark.parametrize("n", [1, 2, 16])
def test_least_p_is_reached_and_halves_with_every_pair(n):
    assert paired([1.0] * n).greater == least_p(n) == 2.0**-n


def test_above_16_pairs_p_is_drawn_from_a_fixed_seed():
    ones = [1.0] * 17
    drawn = paired(ones)
    assert drawn.greater >= least_p(17) == 1 / 65537  # of the draws alone it could be 0
    assert drawn.greater <= 10 / 65537  # the true one is 1 / 131072
    assert drawn == paired(ones)

    mixed = [*[1.0] * 11, *[-1.0] * 6]
    at_least_11 = [math.comb(17, heads) for heads in range(11, 18)]
    share = sum(at_least_11) / 2**17
    four_standard_errors = 0.006  # of 65536 draws
    p = paired(mixed).greater
    assert p == pytest.approx(share, abs=four_standard_errors)
    assert p == paired([-d for d in mixed]).less


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_pairs_carry_their_interval(level):
    d = paired([1, 2, 3], level)
    assert (d.low, d.high) == interval([1, 2, 3], level)


# ---- many tests at once


def test_holm_by_hand():
    """.01 * 3, .03 * 2, and .04 * 1, which may not be below the one before."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9, 0.001]) == pytest.approx([1.0, 1.0, 0.003])
    assert holm([]) == []


@settings(deadline=None)
@given(shares, st.randoms())
def test_holm_is_between_p_and_bonferroni_keeps_order_and_goes_along_with_it(p_values, random):
    adjusted = holm(p_values)
    pairs = sorted(zip(p_values, adjusted, strict=True))
    for p, after in pairs:
        assert p <= after <= min(1, len(p_values) * p)
    in_order = [after for _, after in pairs]
    assert in_order == sorted(in_order)
    order = random.sample(range(len(p_values)), len(p_values))
    assert holm([p_values[i] for i in order]) == [adjusted[i] for i in order]


# ---- rank correlation


@pytest.mark.parametrize(
    ("values", "tau"),
    [
        ((1, 2, 3), 1.0),
        ((1, 1, 2), 2 / 3),
        ((5, 5, 5), 0.0),
        ((1, 2, math.inf), 1.0),
        ((math.inf, math.inf, 1), -2 / 3),
    ],
)
def test_kendall_by_hand(values, tau):
    """Of three pairs; equal values are neither up nor down."""
    assert kendall(values) == pytest.approx(tau)


@given(
    st.lists(
        st.floats(-1e3, 1e3),
        min_size=2,
        max_size=8,
    )
)
def test_kendall_turns_with_the_order_and_keeps_with_the_scale(values):
    assert kendall(values[::-1]) == -kendall(values)
    assert kendall([2 * value for value in values]) == kendall(values)

"""Sign-flip tests of several comparisons: p-values counted by hand, the level by enumeration, and
invariances.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.analysis.claims.comparison import Comparison, joined
from fedbench.analysis.stats import holm, least_blocks, paired
from fedbench.analysis.stepdown import adjusted


def of_length(n):
    leads = st.lists(
        st.integers(-9, 9),
        min_size=n,
        max_size=n,
    )
    return st.lists(leads, min_size=1, max_size=4)


families = st.integers(1, 6).flatmap(of_length)


def by_block(differences):
    return Comparison("", mean=0.0, differences=differences)


def leads(*values):
    return by_block(dict(enumerate(values)))


def own(test):
    return paired(test.differences.values()).greater


# ---- by hand


def test_comparisons_that_are_the_same_cost_nothing_and_opposite_ones_double():
    """Of 8 assignments one is as extreme for a comparison, another one for its opposite."""
    ahead = leads(1, 1, 1)
    behind = leads(-1, -1, -1)
    assert adjusted([ahead] * 5) == [1 / 8] * 5
    assert adjusted([ahead, behind]) == [2 / 8, 1.0]


def test_each_further_pattern_of_signs_counts_once():
    """(1, 1, 1) is as extreme with no sign turned, (1, 1, -1) with the third, (1, -1, 1) with the
    second.
    """
    found = adjusted(
        [
            leads(1, 1, 1),
            leads(1, 1, -1),
            leads(
                1,
                -1,
                1,
            ),
        ]
    )
    # a sum of at least 1 of s1 + s2 - s3 or of s1 - s2 + s3: all four assignments with s1 = 1, and
    # two of the others
    assert found == [3 / 8, 6 / 8, 6 / 8]


def test_step_down_by_hand():
    """Two blocks: assignments ++, +-, -+, --. Sums of (2, 1): 3, 1, -1, -3, so ranks 1, 2, 3, 4;
    sums of (1, -3): -2, 4, -4, 2, ranks 3, 1, 4, 2. Observed: ranks 1 and 3. The first is as
    extreme under ++ and, by the other, under +- if |Σd| / √Σd² is as large: 4 / √10 < 3 / √5, so
    no. The second alone has ranks of at most 3 in 3 of 4.
    """
    first = leads(2, 1)
    second = leads(1, -3)
    assert adjusted([first, second]) == [1 / 4, 3 / 4]
    assert adjusted([second, first]) == [3 / 4, 1 / 4]
    # (1, 3) has rank 1 and 4 / √10 as observed, (2, -1) rank 1 and 3 / √5, which is larger, under
    # +-: 2 of 4
    found = adjusted([leads(1, 3), leads(2, -1)])
    assert found == [2 / 4, 2 / 4]


def test_blocks_that_a_comparison_lacks_do_not_turn_it():
    """The first has blocks 0 to 2, the second 1 to 3: of 16 assignments 2 are as extreme for
    either, 1 for both.
    """
    one = by_block(dict.fromkeys((0, 1, 2), 1.0))
    two = by_block(dict.fromkeys((1, 2, 3), 1.0))
    assert adjusted([one]) == [1 / 8]
    assert adjusted([one, two]) == [3 / 16] * 2


def p_of_parts(*parts, every, ahead=True):
    (p,) = adjusted(
        [
            joined(
                "",
                parts,
                every=every,
            )
        ],
        ahead=ahead,
    )
    return p


def test_several_parts_by_hand():
    """All of them: the largest p. One is enough: the smallest, times their number. The other way
    round, the reverse.
    """
    strong = leads(1, 1, 1)
    weak = leads(1, 1, -1)
    assert own(weak) == 4 / 8
    # of all parts, the null may be that of any: 1 and 4 of 8 assignments at most 4 of 8, together 5
    every = p_of_parts(strong, weak, every=True)
    assert every >= own(weak)
    some = p_of_parts(strong, weak, every=False)
    assert some >= own(strong)

    opposite = (
        leads(
            -1,
            -1,
            -1,
        ),
        leads(-1, -1, 1),
    )
    for all_parts in (True, False):
        behind = p_of_parts(strong, weak, every=all_parts, ahead=False)
        assert behind == p_of_parts(*opposite, every=not all_parts)


def test_parts_without_leads_or_runs():
    strong = leads(1, 1, 1)
    assert p_of_parts(strong, leads(), every=True) == 1.0  # a part without leads is not shown
    not_run = Comparison("")
    assert p_of_parts(strong, not_run, every=False) == own(strong)  # nor is it a part


# ---- for all numbers


@settings(deadline=None, max_examples=60)
@given(families)
def test_no_p_is_above_holms_nor_below_its_own(family):
    tests = [leads(*values) for values in family]
    alone = [own(test) for test in tests]
    bounds = holm(alone)
    for p, least, most in zip(adjusted(tests), alone, bounds, strict=True):
        assert least <= p <= most + 1e-12


scales = st.sampled_from([1e-9, 0.001, 1 / 3, 7.0, 1e9])


@settings(deadline=None, max_examples=60)
@given(
    families,
    st.lists(scales, min_size=4, max_size=4),
    st.randoms(),
)
def test_neither_scale_nor_order_nor_names_of_blocks_matter(family, scales, random):
    names = random.sample(range(100), len(family[0]))
    order = random.sample(range(len(family)), len(family))
    p_values = adjusted([leads(*values) for values in family])
    changed = []
    for i in order:
        values = [scales[i] * value for value in family[i]]
        changed.append(by_block(dict(zip(names, values, strict=True))))
    assert adjusted(changed) == [p_values[i] for i in order]


def signs(blocks):
    return itertools.product((1, -1), repeat=blocks)


@pytest.mark.parametrize("alpha", [0.05, 0.25])
def test_level_is_kept_exactly(alpha):
    """Of differences that mean nothing every assignment is equally likely: among all 2^n of them,
    the share with any significant comparison is at most alpha. With 5 blocks and three comparisons,
    of which two depend on each other.
    """
    rng = np.random.default_rng(3)
    first = rng.normal(size=5)
    dependent = first + 0.3 * rng.normal(size=5)
    sizes = (first, dependent, rng.normal(size=5))
    wrong = 0
    for assignment in signs(5):
        family = [leads(*(size * assignment)) for size in sizes]
        wrong += min(adjusted(family)) <= alpha
    assert 0 < wrong / 32 <= alpha


@pytest.mark.parametrize("alpha", [0.05, 0.25])
def test_level_is_kept_where_some_comparisons_are_ahead(alpha):
    """The second comparison is ahead in every block: of all assignments of the first, the share
    that is significant.
    """
    rng = np.random.default_rng(5)
    sizes = rng.normal(size=6)
    ahead = leads(*(1 + rng.random(6)))
    wrong = 0
    for assignment in signs(6):
        first, _ = adjusted([leads(*(sizes * assignment)), ahead])
        wrong += first <= alpha
    assert wrong / 64 <= alpha


def test_more_than_sixteen_blocks_are_drawn():
    """All of 20 signs alike is one of 2^20: not among 65536 draws, but the observed one counts."""
    alike = leads(*[1.0] * 20)
    alternating = leads(*[1.0, -1.0] * 10)
    assert adjusted([alike]) == [1 / 65537]
    first, second = adjusted([alike, alternating])
    assert first == 1 / 65537
    assert second == pytest.approx(0.588, abs=0.01)  # (1 + C(20, 10) / 2^20) / 2


# ---- how many blocks decide


@pytest.mark.parametrize(
    ("comparisons", "blocks"),
    [
        (1, 5),
        (2, 6),
        (3, 6),
        (4, 7),
        (51, 10),
        (52, 11),
        (3276, 16),
        (3277, None),
    ],
)
def test_blocks_that_decide(comparisons, blocks):
    """m 2^-n is at most 0.05: 1 / 32, 3 / 64, 6 / 128, 12 / 256, 25 / 512, 51 / 1024."""
    assert least_blocks(comparisons, 0.05) == blocks

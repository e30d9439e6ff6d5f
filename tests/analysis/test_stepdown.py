"""Sign-flip tests of several comparisons: p-values counted by hand, the level by enumeration, and invariances."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.analysis.claims.comparison import Comparison, joined
from fedbench.analysis.stats import holm, least_blocks, paired
from fedbench.analysis.stepdown import adjusted

families = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(-9, 9), min_size=n, max_size=n), min_size=1, max_size=4)
)


def by_block(differences):
    return Comparison("", mean=0.0, differences=differences)


def leads(*values):
    return by_block(dict(enumerate(values)))


def own(test):
    return paired(test.differences.values()).greater


# ---- by hand


def test_one_comparison_is_tested_as_by_itself():
    """Of 8 sums of ±1 ± 2 ± 3 one is at least 6, two are at least 4 and five at least 0."""
    assert adjusted([leads(1, 2, 3)]) == [1 / 8]
    assert adjusted([leads(-1, 2, 3)]) == [2 / 8]
    assert adjusted([leads(1, 2, -3)]) == [5 / 8]
    assert adjusted([leads(0, 0, 0)]) == [1.0]
    assert adjusted([]) == []


def test_comparisons_that_are_the_same_cost_nothing_and_opposite_ones_double():
    """Of 8 assignments one is as extreme for a comparison, another one for its opposite."""
    assert adjusted([leads(1, 1, 1)] * 5) == [1 / 8] * 5
    assert adjusted([leads(1, 1, 1), leads(-1, -1, -1)]) == [2 / 8, 1.0]


def test_each_further_pattern_of_signs_counts_once():
    """(1, 1, 1) is as extreme with no sign turned, (1, 1, -1) with the third, (1, -1, 1) with the second."""
    found = adjusted([leads(1, 1, 1), leads(1, 1, -1), leads(1, -1, 1)])
    assert found[0] == 3 / 8
    # a sum of at least 1 of s1 + s2 - s3 or of s1 - s2 + s3: all four assignments with s1 = 1, and
    # two of the others
    assert found[1:] == [6 / 8] * 2


def test_step_down_by_hand():
    """Two blocks: assignments ++, +-, -+, --. Sums of (2, 1): 3, 1, -1, -3, so ranks 1, 2, 3, 4; sums of (1, -3): -2,
    4, -4, 2, ranks 3, 1, 4, 2. Observed: ranks 1 and 3. The first is as extreme under ++ and, by
    the other, under +- if
    |Σd| / √Σd² is as large: 4 / √10 < 3 / √5, so no. The second alone has ranks of at most 3 in 3 of 4.
    """
    assert adjusted([leads(2, 1), leads(1, -3)]) == [1 / 4, 3 / 4]
    assert adjusted([leads(1, -3), leads(2, 1)]) == [3 / 4, 1 / 4]
    # (1, 3) has rank 1 and 4 / √10 as observed, (2, -1) rank 1 and 3 / √5, which is larger, under
    # +-: 2 of 4
    assert adjusted([leads(1, 3), leads(2, -1)]) == [2 / 4, 2 / 4]


def test_blocks_that_a_comparison_lacks_do_not_turn_it():
    """The first has blocks 0 to 2, the second 1 to 3: of 16 assignments 2 are as extreme for either, 1 for both."""
    one, two = by_block(dict.fromkeys((0, 1, 2), 1.0)), by_block(dict.fromkeys((1, 2, 3), 1.0))
    assert adjusted([one]) == [1 / 8]
    assert adjusted([one, two]) == [3 / 16] * 2


def test_several_parts_by_hand():
    """All of them: the largest p. One is enough: the smallest, times their number. The other way round, the reverse."""
    strong, weak = leads(1, 1, 1), leads(1, 1, -1)
    every, some = (joined("", (strong, weak), every=every) for every in (True, False))
    assert own(weak) == 4 / 8
    # of all parts, the null may be that of any: 1 and 4 of 8 assignments at most 4 of 8, together 5
    assert adjusted([every])[0] >= own(weak)
    assert adjusted([some])[0] >= min(1.0, own(strong))
    opposite = leads(-1, -1, -1), leads(-1, -1, 1)
    assert adjusted([every], ahead=False) == adjusted([joined("", opposite, every=False)])
    assert adjusted([some], ahead=False) == adjusted([joined("", opposite, every=True)])
    nothing = joined("", (strong, leads()), every=True)
    assert adjusted([nothing]) == [1.0]  # a part without leads is not shown
    unrun = joined("", (strong, Comparison("")), every=False)
    assert adjusted([unrun]) == adjusted([strong])  # nor is one that has not been run a part


# ---- the case of FedFa's c07: five seeds, all against one of three comparisons


def test_five_of_five_against_one_of_three():
    """-1 in all five seeds is the most consistent lead there can be, √5. Two others of one sign are as extreme under
    their own assignment only if they are as consistent: 1, 2 or 3 of 32.
    """
    against = leads(*[1.0] * 5)
    rough, exact = leads(1.0, 1.0, -1.0, 2.0, 1.0), leads(1.0, 1.0, -1.0, 1.0, 1.0)
    assert adjusted([against, rough, rough])[0] == 1 / 32
    assert adjusted([against, exact, rough])[0] == 2 / 32
    assert adjusted([against, exact, leads(1.0, -1.0, 1.0, 1.0, 1.0)])[0] == 3 / 32
    assert holm([1 / 32, 0.5, 0.5])[0] == 3 / 32


# ---- for all numbers


@settings(deadline=None, max_examples=60)
@given(families)
def test_no_p_is_above_holms_nor_below_its_own(family):
    tests = [leads(*values) for values in family]
    alone = [own(t) for t in tests]
    for p, by_itself, by_holm in zip(adjusted(tests), alone, holm(alone), strict=True):
        assert by_itself <= p <= by_holm + 1e-12


@settings(deadline=None, max_examples=60)
@given(
    families,
    st.lists(st.sampled_from([1e-9, 0.001, 1 / 3, 7.0, 1e9]), min_size=4, max_size=4),
    st.randoms(),
)
def test_neither_scale_nor_order_nor_names_of_blocks_matter(family, scales, random):
    names = random.sample(range(100), len(family[0]))
    there = adjusted([leads(*values) for values in family])
    order = random.sample(range(len(family)), len(family))
    again = adjusted(
        [by_block(dict(zip(names, (scales[i] * v for v in family[i]), strict=True))) for i in order]
    )
    assert again == [there[i] for i in order]


@pytest.mark.parametrize("alpha", [0.05, 0.25])
def test_level_is_kept_exactly(alpha):
    """Of differences that mean nothing every assignment is equally likely: among all 2^n of them, the share with any
    significant comparison is at most alpha. With 5 blocks and three comparisons, of which two
    depend on each other.
    """
    rng = np.random.default_rng(3)
    first = rng.normal(size=5)
    sizes = np.stack([first, first + 0.3 * rng.normal(size=5), rng.normal(size=5)])
    wrong = 0
    for signs in itertools.product((1, -1), repeat=5):
        wrong += min(adjusted([leads(*(sizes[j] * signs)) for j in range(3)])) <= alpha
    assert wrong / 32 <= alpha
    assert wrong  # the test is not empty


@pytest.mark.parametrize("alpha", [0.05, 0.25])
def test_level_is_kept_where_some_comparisons_are_ahead(alpha):
    """The second comparison is ahead in every block: of all assignments of the first, the share that is significant."""
    rng = np.random.default_rng(5)
    sizes, ahead = rng.normal(size=6), leads(*(1 + rng.random(6)))
    wrong = sum(
        adjusted([leads(*(sizes * signs)), ahead])[0] <= alpha
        for signs in itertools.product((1, -1), repeat=6)
    )
    assert wrong / 64 <= alpha


def test_more_than_sixteen_blocks_are_drawn():
    """All of 20 signs alike is one of 2^20: not among 65536 draws, but the observed one counts."""
    found = adjusted([leads(*[1.0] * 20), leads(*[(-1.0) ** i for i in range(20)])])
    assert found[0] == 1 / 65537
    assert found[1] == pytest.approx(0.588, abs=0.01)  # (1 + C(20, 10) / 2^20) / 2
    assert adjusted([leads(*[1.0] * 20)]) == [1 / 65537]


# ---- how many blocks decide


def test_blocks_that_decide():
    """m 2^-n is at most 0.05: 1 / 32, 3 / 64, 6 / 128, 12 / 256, 25 / 512, 51 / 1024."""
    assert [least_blocks(m, 0.05) for m in (1, 2, 3, 4, 6, 7, 12, 13, 51, 52)] == [
        5,
        6,
        6,
        7,
        7,
        8,
        8,
        9,
        10,
        11,
    ]
    assert least_blocks(3276, 0.05) == 16 and least_blocks(3277, 0.05) is None


@pytest.mark.parametrize(("blocks", "comparisons"), [(5, 1), (6, 3), (8, 12)])
def test_a_comparison_of_one_sign_decides_whatever_the_others_are(blocks, comparisons):
    rng = np.random.default_rng(0)
    behind = leads(*(0.1 + rng.random(blocks)))
    for _ in range(5):
        others = [leads(*rng.normal(size=blocks)) for _ in range(comparisons - 1)]
        assert adjusted([behind, *others])[0] <= 0.05

"""Average ranks of methods over data sets, by hand and by properties."""

from math import inf

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import ROOT

from fedbench.analysis.ranks import average_ranks


def test_the_example_of_demsar():
    """Printed: average ranks 3.143, 2.000, 2.893, 1.964.

    AUC of four variants of C4.5 on 14 data sets; on voting, 0.9751 is printed as 0.975, with rank
    2.
    """
    auc = pd.read_csv(ROOT / "tests" / "demsar_table6.csv")
    expected = [44 / 14, 28 / 14, 40.5 / 14, 27.5 / 14]
    assert average_ranks(auc.to_numpy()) == pytest.approx(expected)


def test_ranks_with_ties_and_runs_that_diverged():
    """Ranks 1.5, 3, 1.5, 4.5, 4.5 and 4, 3, 2, 1, 5."""
    scores = [[3.0, 1.0, 3.0, -inf, -inf], [0.1, 0.2, 0.3, 0.4, -inf]]
    assert average_ranks(scores) == [2.75, 3, 1.75, 2.75, 4.75]


@settings(deadline=None)
@given(
    st.integers(2, 6),
    st.integers(3, 5),
    st.integers(0, 2**16),
)
def test_ranks_know_the_order_inside_a_block_only(blocks, methods, seed):
    ordered = np.tile(np.arange(float(methods)), (blocks, 1))
    scores = np.random.default_rng(seed).permuted(ordered, axis=1)
    ranks = average_ranks(scores)
    assert average_ranks(np.exp(scores) + 10.0 * np.arange(blocks)[:, None]) == ranks
    assert average_ranks(-scores) == pytest.approx([methods + 1 - rank for rank in ranks])

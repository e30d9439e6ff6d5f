"""Ditto: identities and invariances, in float64."""

import pytest
from tools import (
    federation,
    make,
    snapshots,
)
from toy_problems import distance

from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize(
    ("size", "agree"),
    [
        (10, False),
        (None, True),
    ],
)
def test_personal_batches_are_drawn_separately(size, agree):
    """From one start and without the pull, v_k sees other batches than w; full batches agree."""
    data = federation(sizes=(40,))
    last = snapshots(
        make("ditto", lam=0.0),
        data,
        rounds=1,
        work=LocalWork(0.1, size),
    )[-1]
    gap = distance(last.clients["personal"][0], last.server["w"])
    assert (gap < 1e-12) is agree

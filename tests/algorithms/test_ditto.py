"""Ditto: identities and invariances, in float64."""

import pytest
from tools import (
    federation,
    make,
    snapshots,
)
from toy_problems import distance

from fedbench.simulation.local_work import LocalWork


def test_a_strong_pull_holds_models_at_the_global_model():
    """λ η = 0.999: v - w^t after a step is 0.001 (v - w^t) - η g."""
    *_, before, last = snapshots(
        make("ditto", lam=999.0, personal_lr=1e-3),
        federation(),
        rounds=3,
    )
    gap = last.clients["personal"] - before.server["w"]
    assert gap.norm(dim=1).max() < 5e-3 * before.server["w"].norm()


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

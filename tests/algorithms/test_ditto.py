"""Ditto: identities and invariances, in float64."""

import pytest
import torch
from reference_clients import local_sgd
from tools import (
    close,
    federation,
    make,
    snapshots,
)
from toy_problems import clients_of, distance, start_of

from fedbench.simulation.local_work import LocalWork


def test_without_the_pull_models_are_trained_apart():
    data = federation()
    work = LocalWork(0.1, None, epochs=(2, 2))
    last = snapshots(
        make("ditto", lam=0.0),
        data,
        rounds=4,
        work=work,
    )[-1]
    for k, (x, y) in enumerate(clients_of(data)):
        alone = local_sgd(
            start_of(data).numpy(),
            x,
            y,
            0.1,
            8,
        )
        assert close(last.clients["personal"][k], torch.from_numpy(alone), 1e-10)


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

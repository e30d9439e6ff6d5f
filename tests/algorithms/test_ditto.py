"""Ditto: identities, invariances and worked numbers, in float64."""

import numpy as np
import torch
from reference import local_sgd
from tools import close, federation, make, snapshots
from toy_problems import start_of

from fedbench.simulation.local_work import LocalWork


def test_without_the_pull_models_are_trained_apart():
    data = federation()
    last = snapshots(
        make("ditto", lam=0.0), data, rounds=4, work=LocalWork(0.1, None, epochs=(2, 2))
    )[-1]
    for k, rows in enumerate(data.train.split()):
        alone = local_sgd(
            start_of(data).numpy(), data.x[rows].numpy(), data.y[rows].numpy(), 0.1, 8
        )
        assert close(last.clients["personal"][k], torch.from_numpy(alone), 1e-10)


def test_a_strong_pull_holds_them_at_the_global_model():
    """λ η = 0.999: v - w^t after a step is 0.001 (v - w^t) - η g."""
    data = federation()
    seen = snapshots(make("ditto", lam=999.0, personal_lr=1e-3), data, rounds=3)
    gap = seen[-1].clients["personal"] - seen[-2].server["w"]
    assert gap.norm(dim=1).max() < 5e-3 * seen[-2].server["w"].norm()


def test_unselected_clients_keep_their_model():
    data = federation()
    seen = snapshots(make("ditto"), data, rounds=1, sampler=lambda *_: np.array([1, 4]))[-1]
    moved = (seen.clients["personal"] != start_of(data)).any(1)
    assert moved.tolist() == [k in (1, 4) for k in range(7)]


def test_personal_batches_are_its_own():
    """From one start and without the pull, v_k sees other batches than w in the same round; full batches agree."""
    data = federation(sizes=(40,))
    for size, agree in ((10, False), (None, True)):
        last = snapshots(make("ditto", lam=0.0), data, rounds=1, work=LocalWork(0.1, size))[-1]
        assert (
            torch.allclose(last.clients["personal"][0], last.server["w"], rtol=0, atol=1e-12)
            is agree
        )

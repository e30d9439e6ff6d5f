"""FedFa: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from tools import close, federation, final, make, snapshots
from toy_problems import UNIFORM, D, cohort

from fedbench.core.errors import RequestError


def fedfa_update(accuracy, count, **options):
    """FedFa's server on unit updates: -w is ω where no step along the momentum is taken."""
    algo = make("fedfa", b=10**6, **options)
    up = {
        "delta": torch.eye(len(accuracy), dtype=D),
        "count": torch.tensor(count, dtype=D).unsqueeze(1),
    }
    info = cohort(
        np.full(len(accuracy), 1 / len(accuracy)), accuracy_after=torch.tensor(accuracy, dtype=D)
    )
    return -algo.update(algo.server_init(torch.zeros(len(accuracy), dtype=D), 9), up, info)["w"]


def test_equal_clients_weigh_the_same():
    assert fedfa_update([0.7] * 4, [3.0] * 4).tolist() == pytest.approx([0.25] * 4)
    data = federation(sizes=(10, 10, 10), classes=2)
    options = {"alpha": 0.0, "beta": 1.0, "gamma_c": 0.0, "server_lr": 0.0}
    runs = [
        final(make(m, **o), data, rounds=5) for m, o in (("fedfa", options), ("fedavg", UNIFORM))
    ]
    assert close(*runs, 1e-10)


def test_weights_by_hand():
    """Accuracies ½, ¼, ¼: a in bits 1, 2, 2 -> A = .2, .4, .4. Counts 2, 1, 1: 1-φ = ½, ¾, ¾ -> B ∝ 1, log2(4/3)."""
    a = np.array([0.2, 0.4, 0.4])
    b = np.array([1, np.log2(4 / 3), np.log2(4 / 3)])
    want = 0.75 * a + 0.25 * b / b.sum()
    assert fedfa_update(
        [0.5, 0.25, 0.25], [2.0, 1, 1], alpha=0.75, beta=0.25
    ).tolist() == pytest.approx(want.tolist())


def test_weights_can_be_switched_off():
    """Eq. 3: α = β = 0."""
    assert fedfa_update(
        [0.5, 0.25, 0.25], [2.0, 1, 1], alpha=0.0, beta=0.0
    ).tolist() == pytest.approx([1 / 3] * 3)


def test_edges():
    """Accuracy 0 counts as c; all accuracies 0 are equal; one client has weight 1."""
    bits = np.array([-np.log2(1e-6), 0.0])
    want = 0.5 * bits / bits.sum() + 0.25
    assert fedfa_update([0.0, 1.0], [1.0, 1.0]).tolist() == pytest.approx(want.tolist())
    assert fedfa_update([0.0, 0.0], [1.0, 1.0]).tolist() == pytest.approx([0.5, 0.5])
    assert fedfa_update([0.3], [4.0]).tolist() == pytest.approx([1.0])


def test_momentum_grows_in_every_round_and_moves_in_some():
    """b = 3: rounds 1 and 2 are plain averages; round 3 steps back along m by η; m sums all three."""
    algo = make("fedfa", b=3, server_lr=0.5, gamma_s=0.5)
    server = algo.server_init(torch.zeros(1, dtype=D), 1)
    info = cohort([1.0], accuracy_after=torch.ones(1, dtype=D))
    seen = []
    for t in range(3):
        server = algo.update(
            server, {"delta": -torch.ones(1, 1, dtype=D), "count": torch.ones(1, 1) * (t + 1)}, info
        )
        seen.append((server["w"].item(), server["m"].item()))
    assert seen == [(1.0, 0.5), (2.0, 0.75), (pytest.approx(3 - 0.5 * 0.875), 0.875)]


def test_counts_only_rounds_taken_part_in():
    seen = snapshots(
        make("fedfa"), federation(), rounds=4, sampler=lambda t, n, s: np.array([0, 1 + t % 2])
    )
    assert seen[-1].clients["count"].flatten().tolist() == [4, 2, 2, 0, 0, 0, 0]


def test_the_weights_of_fedfa_sum_to_one():
    with pytest.raises(RequestError, match=r"algo.alpha \+ algo.beta must be 1, got 0.5 \+ 0.6"):
        make("fedfa", alpha=0.5, beta=0.6)

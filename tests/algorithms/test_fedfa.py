"""FedFa: worked weights and momenta, in float64."""

import numpy as np
import pytest
import torch
from tools import federation, make, snapshots
from toy_problems import (
    FEDAVG,
    D,
    apart,
    cohort,
    updated,
    vector,
)

from fedbench.core.errors import RequestError


def weights(accuracies, counts, **options):
    """Return ω, by which FedFa's server moves on unit updates where it takes no step along the
    momentum.
    """
    uploads = {
        "delta": torch.eye(len(counts), dtype=D),
        "count": vector(*counts).unsqueeze(1),
    }
    info = cohort(len(counts), accuracy_after=accuracies)
    return -updated(make("fedfa", b=10**6, **options), uploads, info)["w"]


def test_equal_clients_weigh_the_same():
    assert weights([0.7] * 4, [3.0] * 4) == pytest.approx([0.25] * 4)
    method = ("fedfa", {"alpha": 0.0, "beta": 1.0, "gamma_c": 0.0, "server_lr": 0.0})
    data = federation(sizes=(10, 10, 10), classes=2)
    assert apart(method, FEDAVG, data=data, rounds=5) < 1e-10


def test_weights_by_hand():
    """Accuracies ½, ¼, ¼: a in bits 1, 2, 2 -> A = .2, .4, .4. Counts 2, 1, 1: 1-φ = ½, ¾, ¾ -> B ∝
    1, log2(4/3).
    """
    accuracies, counts = [0.5, 0.25, 0.25], [2.0, 1.0, 1.0]
    a = np.array([0.2, 0.4, 0.4])
    b = np.array([1, np.log2(4 / 3), np.log2(4 / 3)])

    ours = weights(accuracies, counts, alpha=0.75, beta=0.25)
    assert ours == pytest.approx(0.75 * a + 0.25 * b / b.sum())

    switched_off = weights(accuracies, counts, alpha=0.0, beta=0.0)  # Eq. 3
    assert switched_off == pytest.approx([1 / 3] * 3)


def test_weights_of_accuracies_0_and_of_a_single_client():
    """Accuracy 0 counts as c; all accuracies 0 are equal; one client has weight 1."""
    bits = np.array([-np.log2(1e-6), 0.0])
    assert weights([0.0, 1.0], [1.0, 1.0]) == pytest.approx(0.5 * bits / bits.sum() + 0.25)
    assert weights([0.0, 0.0], [1.0, 1.0]) == pytest.approx([0.5, 0.5])
    assert weights([0.3], [4.0]) == pytest.approx([1.0])


def test_counts_only_rounds_taken_part_in():
    seen = snapshots(
        make("fedfa"),
        federation(),
        rounds=4,
        sampler=lambda t, n, seed: np.array([0, 1 + t % 2]),
    )
    assert seen[-1].clients["count"].flatten().tolist() == [4, 2, 2, 0, 0, 0, 0]


def test_a_given_rate_is_not_rounded():
    """w = 0, Δ = 1 and no momentum of the server: w <- -1 - rate."""
    algo = make("fedfa", gamma_s=0.0, server_lr=0.1, server_sign=1)
    uploads = {"delta": vector([1.0]), "count": vector([1.0])}
    after = updated(algo, uploads, cohort(1, accuracy_after=[1.0]))
    assert after["w"].item() == pytest.approx(-1.1, abs=1e-15)


def test_the_weights_sum_to_one():
    with pytest.raises(RequestError, match=r"algo.alpha \+ algo.beta must be 1, got 0.5 \+ 0.6"):
        make("fedfa", alpha=0.5, beta=0.6)

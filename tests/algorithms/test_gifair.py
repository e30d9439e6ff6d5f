"""GIFAIR-FL: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from tools import federation, make
from toy_problems import (
    FULL,
    apart,
    assert_descends,
    cohort,
    moved,
    updated,
)


def test_weights_by_hand():
    """p = (.5, .3, .2), share 1/2: λ = .05; a tie is 0 towards each other: r = (-1, -1, 2)."""
    step = moved(make("gifair"), torch.eye(3), [5, 3, 2], loss=[1.0, 1.0, 3.0])
    assert step == pytest.approx([0.45, 0.25, 0.3], abs=1e-14)


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_weights_are_positive_and_sum_to_one(count):
    """Σ r_k = 0, and λ (C-1) < min p_k, whatever the losses; ties included."""
    rng = np.random.default_rng(count)
    losses = rng.integers(0, 6, count) / 3
    n = rng.integers(1, 100, count).tolist()
    weights = moved(
        make("gifair", share=0.99),
        torch.eye(count),
        n,
        loss=losses,
    )
    assert weights.min() > 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)


def test_the_forms_agree_for_one_step():
    forms = [("gifair", {"form": form}) for form in ("server", "local")]
    assert apart(*forms, rounds=3, work=FULL) < 1e-10


def test_one_full_batch_step_descends_the_objective():
    """Σ p_k F_k + λ Σ_{i<j} |F_i - F_j|; finite differences."""
    data = federation()
    p = data.train.counts / data.train.counts.sum()
    lam = 0.7 * p.min() / (len(p) - 1)

    def combine(f):
        return p @ f + lam * np.abs(f[:, None] - f).sum() / 2

    assert_descends(("gifair", {"share": 0.7}), data, combine)


def test_losses_of_the_last_participation_are_ranked():
    """Clients 0 and 2 have been seen with losses 5 and 1; client 1 has not, and is level with both:
    r = (1, 0, -1).
    """
    algo = make("gifair", rank_at="last", weights="uniform")
    server = algo.server_init(torch.zeros(3).double(), 3)
    info = cohort(2, ids=[0, 2], loss=[5.0, 1.0])
    server = updated(
        algo,
        torch.zeros(2, 3),
        info,
        server,
    )
    after = updated(
        algo,
        torch.eye(3),
        cohort(3, loss=[1.0, 2.0, 3.0]),
        server,
    )
    assert -after["w"] == pytest.approx([1 / 3 + 1 / 12, 1 / 3, 1 / 3 - 1 / 12], abs=1e-14)

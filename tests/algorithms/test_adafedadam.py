"""AdaFedAdam: identities, guards and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from tools import (
    close,
    federation,
    make,
    snapshots,
)
from toy_problems import (
    D,
    adam_steps,
    cohort,
    updated,
    vector,
)

from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize("alpha", [0.0, 1, 2.0])  # 1: an integer, as Python code may pass it
def test_one_full_batch_step_is_adam(alpha):
    """Adam on Σ ω_k g_k, whatever the local rate."""
    data = federation()
    n = torch.tensor(data.train.counts)

    def weighted(t, loss):
        losses = torch.stack([loss(rows) for rows in data.train.split()])
        omega = n * losses.detach() ** alpha
        return omega / omega.sum() @ losses

    w = adam_steps(data, 1e-2, weighted, steps=10)[-1]
    algo = make("adafedadam", alpha=alpha, server_lr=1e-2)
    for lr in (0.01, 3.0):
        last = snapshots(
            algo,
            data,
            work=LocalWork(lr, None),
            rounds=10,
        )[-1].server
        assert close(last["w"], w, 1e-9)
        assert last["c_m"] == pytest.approx(0.9**10, rel=1e-9)  # χ = 1 in every round


def test_one_minibatch_step_is_minibatch_adam():
    """With α = 0 and the length of the minibatch's own gradient, it is Adam on new minibatches.

    Clients 2t and 2t + 1 hold the two minibatches of round t. A client makes one step on all that
    it holds, so that its minibatch, its step and the length are of the same examples.
    """
    data = federation(sizes=[4, 9] * 10)
    seen = snapshots(
        make("adafedadam", alpha=0.0, server_lr=1e-2),
        data,
        work=LocalWork(0.05, None),
        rounds=10,
        sampler=lambda t, n, seed: np.array([2 * t, 2 * t + 1]),
    )
    owned = data.train.split()

    def minibatch(t, loss):
        return loss(np.concatenate(owned[2 * t : 2 * t + 2]))

    steps = adam_steps(data, 1e-2, minibatch, steps=10)
    for after, w in zip(seen[1:], steps, strict=True):
        assert close(after.server["w"], w, 1e-9)


def test_the_length_over_all_data_is_not_minibatch_adam():
    """One client, one step on 4 of 40 examples: χ η sign(g), with χ not 1; Adam's is η sign(g).

    Algorithm 2 as printed takes ||∇F_k|| over all 40: U = g ||∇F|| / ||g|| and χ = ln(||g|| /
    ||∇F||) + 1, which is 1 only if both gradients are equally long. The moments decay with β^χ.
    """
    lr = 1e-2
    algo = make("adafedadam", alpha=0.0, server_lr=lr)
    data = federation(sizes=(40,))
    before, after = snapshots(
        algo,
        data,
        work=LocalWork(0.05, 4, steps=1),
        rounds=1,
    )
    step = (after.server["w"] - before.server["w"]).abs()
    chi = step.max().item() / lr
    assert abs(chi - 1) > 0.05
    assert torch.allclose(step / lr, torch.tensor(chi).double(), rtol=1e-4)  # ε shortens small ones
    assert after.server["c_m"] == pytest.approx(0.9**chi, rel=1e-4)


def uploads_of(algo, updates, gradients):
    """The uploads of clients with these updates and full gradients, at rate 0.1."""
    info = cohort(len(updates), lr=0.1, grad=gradients).columns()
    w = torch.zeros(2, dtype=D)
    return algo.finish(
        {"w": w},
        {},
        {"w": -torch.tensor(updates, dtype=D)},
        info,
    )[0]


def test_a_client_that_did_not_move_or_has_no_gradient_uploads_zeros():
    """U = 0 and χ = 1 for each of the three; the fourth has r = 2/0.5 = 4, U = Δ/4 and χ =
    ln(4/0.1) + 1.
    """
    uploads = uploads_of(
        make("adafedadam"),
        updates=[[0.0, 0], [3, 4], [0, 0], [0, 2]],
        gradients=[[1.0, 0], [0, 0], [0, 0], [0.5, 0]],
    )
    assert uploads["update"].tolist() == [[0, 0], [0, 0], [0, 0], [0, 0.5]]
    assert uploads["certainty"].squeeze(1) == pytest.approx([1, 1, 1, np.log(40) + 1])


def test_the_certainty_has_a_floor():
    """r = η/e³ has χ = -2, which would make β^χ > 1; it counts as 0.1."""
    algo = make("adafedadam")
    updates = [[0.1 * np.exp(-3), 0.0], [0.1, 0.0]]
    uploads = uploads_of(algo, updates, gradients=[[1.0, 0.0], [1.0, 0.0]])
    assert uploads["certainty"].squeeze(1) == pytest.approx([-2, 1])

    after = updated(algo, uploads, cohort([3.0, 1.0], loss=[1.0, 1.0]))
    chi = 0.75 * 0.1 + 0.25 * 1
    assert after["c_m"] == pytest.approx(0.9**chi)
    assert after["w"][0] == pytest.approx(-chi * 1e-3, rel=1e-6)  # Adam's first step is a sign
    (remark,) = algo.remarks(after)
    assert remark.startswith("number of certainties below 0.1, which were raised to it: 1 (")
    none_low = updated(algo, uploads | {"certainty": vector([0.2], [1.0])}, cohort(2, loss=[1, 1]))
    assert algo.remarks(none_low) == []
    earlier = {key: value for key, value in after.items() if key != "raised"}
    assert updated(algo, uploads, cohort(2, loss=[1, 1]), earlier)["raised"] == 1
    assert algo.remarks(earlier) == []


@pytest.mark.parametrize(
    ("alpha", "losses", "share"),
    [
        (1.0, [0.0, 0.0], 1 / 4),  # all losses 0: weights n_k
        (0.5, [0.0, 1.0], 1e-5 / (1e-5 + 3)),  # F + 1e-10 before a fractional power
    ],
)
def test_weights_by_hand(alpha, losses, share):
    uploads = {"update": torch.eye(2, dtype=D), "certainty": torch.ones(2, 1, dtype=D)}
    algo = make("adafedadam", alpha=alpha, beta1=0.0)
    after = updated(algo, uploads, cohort([1.0, 3.0], loss=losses))
    assert after["m"] == pytest.approx([share, 1 - share], rel=1e-9)

"""DRFA: identities and worked numbers, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tools import (
    close,
    factory,
    federation,
    make,
    snapshots,
)
from toy_problems import (
    cohort,
    on_quadratics,
    trained,
    updated,
    vector,
)

from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD
from fedbench.core.randomness import Purpose, key
from fedbench.simulation.local_work import LocalWork

TWO = [[1.0, 0.0], [1.0, 4.0]]  # F = w²/2 and (w-4)²/2


def test_losses_at_the_end_are_measured_in_the_next_round():
    """The adopted form needs no second exchange: its λ of round t+1 is that of an explicit snapshot
    after round t.
    """
    late, at_once = (
        on_quadratics(
            make("drfa", gamma=0.05, decay=0.9, **options),
            [*TWO, [3.0, 1.0]],
            rounds=6,
            w=[1.0],
            steps=2,
        )
        for options in ({}, {"snapshot": 2})
    )
    assert late[1].server["lambda"].tolist() == [1 / 3] * 3
    for t in range(1, 6):
        assert close(late[t].server["w"], at_once[t].server["w"], 1e-12)
        assert close(
            late[t + 1].server["lambda"],
            at_once[t].server["lambda"],
            1e-12,
        )


@pytest.mark.parametrize("steps", [1, 3])
def test_losses_at_the_start_make_it_afl(steps):
    how = {"rounds": 5, "work": LocalWork(lr=0.1, batch_size=10, steps=steps)}
    ours, afl = (
        snapshots(algo, federation(), **how)[-1].server
        for algo in (
            make("drfa", gamma=0.3, snapshot="start"),
            make("afl", lr_lambda=0.3 * steps),
        )
    )
    assert close(ours["w"], afl["w"], 1e-10)
    assert close(ours["lambda"], afl["lambda"], 1e-10)
    zero = trained(("drfa", {"gamma": 0.3, "snapshot": 0}), **how)
    assert torch.equal(ours["w"], zero)


def test_one_step_is_drawn_for_all():
    """Over many rounds every step from 1 to the largest occurs, the same for all clients, and
    independent of order.
    """
    algo = make("drfa", snapshot="random")
    seen = set()
    for t in range(60):
        keys = torch.tensor([key(5, Purpose.LOCAL, t) >> 2, 7, 1000 - t])
        info = replace(cohort(3, steps=[2.0, 4.0, 3.0]), key=keys)
        stop = algo.instruct({}, info)["stop"]
        permuted = algo.instruct({}, info.take(torch.tensor([2, 0, 1])))["stop"]
        assert torch.equal(permuted, stop)
        assert len(stop.unique()) == 1
        seen.add(int(stop[0]))
    assert seen == {1, 2, 3, 4}


def test_with_partial_participation_losses_count_n_over_c_fold():
    """Four clients, of whom 1 and 3 measure: λ + γ τ̄ (4/2) F there, and Π; the weights are λ_k/Σλ
    of the cohort.
    """
    algo = make("drfa", gamma=0.01, snapshot="start")
    server = {
        **algo.server_init(torch.zeros(2).double(), 4),
        "lambda": vector(0.1, 0.2, 0.3, 0.4),
    }
    after = updated(
        algo,
        torch.eye(2),
        cohort(2, ids=[1, 3], loss=[1.0, 3.0]),
        server,
    )
    raised = np.array([0.1, 0.22, 0.3, 0.46])
    assert -after["w"] == pytest.approx([1 / 3, 2 / 3])
    assert after["lambda"] == pytest.approx(raised - 0.02, abs=1e-12)


def test_the_mixture_has_a_floor_and_may_begin_by_size():
    algo = make("drfa", gamma=5.0, floor=0.1, snapshot="start")
    last = on_quadratics(
        algo,
        [[1.0, 0.0], [1.0, 9.0]],
        1,
        [0.0],
    )[-1]  # Π gives (0, 1)
    assert last.server["lambda"] == pytest.approx([0.1 / 1.1, 1 / 1.1])

    by_size = factory("drfa")(SGD, init="size", examples=[1, 3, 4])
    assert by_size.server_init(torch.zeros(2), 3)["lambda"].tolist() == [0.125, 0.375, 0.5]
    with pytest.raises(RequestError, match="init=size needs the training examples of all clients"):
        make("drfa", init="size")


@pytest.mark.parametrize("init", ["uniform", "size"])
def test_clients_without_training_examples_are_left_out(init):
    """λ stays 0 for them, also below a floor, and losses count N/C-fold with N the others."""
    algo = factory("drfa")(
        SGD,
        gamma=0.01,
        snapshot="start",
        floor=0.05,
        init=init,
        examples=[2, 0, 2],
    )
    server = algo.server_init(torch.zeros(2).double(), 3)
    assert server["lambda"].tolist() == [0.5, 0.0, 0.5]
    after = updated(
        algo,
        torch.eye(2),
        cohort(2, ids=[0, 2], loss=[1.0, 3.0]),
        server,
    )
    assert after["lambda"] == pytest.approx([0.49, 0.0, 0.51], abs=1e-12)

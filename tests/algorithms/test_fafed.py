"""FAFED, STEM and naive adaptation: Theorem 1 of the FAFED paper, and reductions, in float64."""

import numpy as np
import pytest
import torch
from reference_clients import loss_and_grad
from tools import (
    close,
    federation,
    make,
    snapshots,
)
from toy_problems import (
    FEDAVG,
    Given,
    clients_of,
    distance,
    models,
    run_on,
    trained,
)

from fedbench.simulation.local_work import LocalWork

# f_1' = 6 sign x, f_2' = f_3' = -2 sign x; the rows hold the slopes
SLOPES = Given(lambda w, r: r * w.abs(), lambda w, r: r * w.sign())


def walk(algo, rate):
    """Return the models of 20 rounds of one step from x = 10."""
    work = LocalWork(lr=rate, batch_size=None, steps=1)
    return models(
        run_on(
            SLOPES,
            [[6.0], [-2.0], [-2.0]],
            algo,
            work,
            20,
            [10.0],
        )
    )


@pytest.mark.parametrize(
    ("rate", "beta"),
    [
        (1e-3, 0.5),
        (0.1, 0.999),
    ],
)
def test_naive_adaptation_walks_away_whatever_the_rate_and_the_decay(rate, beta):
    """Round t adds η / (3 √(1-β^t)), which is above 0 for every η and β: the optimum at 0 is left
    for good.
    """
    steps = np.diff(walk(make("naive_adaptive", beta=beta), rate))
    want = [rate / (3 * np.sqrt(1 - beta**t)) for t in range(1, 21)]
    assert steps == pytest.approx(want, rel=1e-6)
    assert steps.min() > 0


@pytest.mark.parametrize("variant", ["paper", "code", "stateless"])
def test_naive_adaptation_walks_away_and_fafed_does_not(variant):
    distances = np.abs(walk(make("fafed", variant=variant), 0.1))
    assert (np.diff(distances) < 0).all()


@pytest.mark.parametrize(
    ("variant", "sizes"),
    [
        ("code", (1, 23, 4, 9, 40)),
        ("paper", (20, 20, 20)),  # the last step is the server's, at the same time for all
        ("paper", (1, 23, 4, 9, 40)),
    ],
)
def test_fafed_with_a_constant_matrix_is_stem(variant, sizes):
    """A = √v + ρ is ρ for a huge ρ, which the rate undoes."""
    data, rho = federation(sizes), 1e14
    stem, fafed = (
        trained(
            method,
            data,
            rounds=5,
            work=LocalWork(lr=rate, batch_size=10, epochs=(2, 2)),
        )
        for method, rate in (
            (("stem", {"init_step": "none"}), 0.05),
            (("fafed", {"rho": rho, "variant": variant, "init_step": "none"}), 0.05 * rho),
        )
    )
    assert distance(fafed, stem) < 1e-10


def test_stem_with_one_full_batch_step_is_gradient_descent():
    """R rounds and the exchange before them are R + 1 steps on (1/N) Σ F_k."""
    work = LocalWork(lr=0.2, batch_size=None, steps=1)
    ours = trained(("stem", {"alpha": 0.3}), rounds=6, work=work)
    assert close(ours, trained(FEDAVG, rounds=7, work=work), 1e-10)


@pytest.mark.parametrize("name", ["stem", "fafed"])
def test_the_mean_momentum_is_the_mean_gradient(name):
    """Each client's gradient is that of the place where it took its last one."""
    data = federation()
    work = LocalWork(lr=0.01, batch_size=None, steps=4)
    for s in snapshots(make(name), data, rounds=5, work=work)[1:]:
        places = s.clients["prev"].numpy()
        pairs = zip(places, clients_of(data), strict=True)
        gradients = [loss_and_grad(w, x, y)[1] for w, (x, y) in pairs]
        assert close(s.server["m"], torch.from_numpy(np.mean(gradients, 0)), 1e-10)

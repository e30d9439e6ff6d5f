"""FAFED, STEM and naive adaptation: Theorem 1 of the FAFED paper, and reductions, in float64."""

import numpy as np
import pytest
import torch
from reference import loss_and_grad
from tools import close, federation, final, make, snapshots
from toy_problems import UNIFORM, D, Given, cohort, run_on

from fedbench.core.types import ClientInfo
from fedbench.simulation.local_work import LocalWork

# f_1' = 6 sign x, f_2' = f_3' = -2 sign x; the rows hold the slopes
SLOPES = Given(lambda w, r: r * w.abs(), lambda w, r: r * w.sign())


def test_naive_adaptation_walks_away_and_fafed_does_not():
    """x_0 = 10, η = 0.1, β = 0.5: first locals 9.8586, 10.1414, 10.1414, and round t adds η/(3 √(1-β^t))."""
    rows, work = [[6.0], [-2.0], [-2.0]], LocalWork(lr=0.1, batch_size=None, steps=1)
    seen = [
        s.server["w"].item() for s in run_on(SLOPES, rows, make("naive_adaptive"), work, 20, [10.0])
    ]
    step = 0.1 / np.sqrt(0.5)
    assert seen[1] == pytest.approx(np.mean([10 - step, 10 + step, 10 + step]), rel=1e-12)
    assert [10 - step, 10 + step, seen[1]] == pytest.approx([9.8586, 10.1414, 10.0471], abs=5e-5)
    assert np.diff(seen) == pytest.approx(
        [0.1 / (3 * np.sqrt(1 - 0.5**t)) for t in range(1, 21)], rel=1e-9
    )
    for variant in ("paper", "code", "stateless"):
        ours = [
            s.server["w"].item()
            for s in run_on(SLOPES, rows, make("fafed", variant=variant), work, 20, [10.0])
        ]
        assert (np.diff(np.abs(ours)) < 0).all()


@pytest.mark.parametrize(("rate", "beta"), [(0.1, 0.5), (1e-3, 0.5), (1.0, 0.1), (0.1, 0.999)])
def test_naive_adaptation_walks_away_whatever_the_rate_and_the_decay(rate, beta):
    """Round t adds η / (3 √(1-β^t)), which is above 0 for every η and β: the optimum at 0 is left for good."""
    rows, work = [[6.0], [-2.0], [-2.0]], LocalWork(lr=rate, batch_size=None, steps=1)
    naive = make("naive_adaptive", beta=beta)
    seen = [s.server["w"].item() for s in run_on(SLOPES, rows, naive, work, 20, [10.0])]
    assert np.diff(seen) == pytest.approx(
        [rate / (3 * np.sqrt(1 - beta**t)) for t in range(1, 21)], rel=1e-6
    )
    assert (np.diff(seen) > 0).all()


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_fafed_with_a_constant_matrix_is_stem(variant):
    """A = √v + ρ is ρ for a huge ρ, which the rate undoes."""
    data, rho = federation(), 1e14
    work = [LocalWork(lr=lr, batch_size=10, epochs=(2, 2)) for lr in (0.05, 0.05 * rho)]
    stem = final(make("stem", init_step="none"), data, rounds=5, work=work[0])
    fafed = final(
        make("fafed", rho=rho, variant=variant, init_step="none"), data, rounds=5, work=work[1]
    )
    # the last step is the server's, at the same time for all
    equal = federation(sizes=(20, 20, 20))
    if variant == "paper":
        runs = [final(make("stem", init_step="none"), equal, rounds=5, work=work[0])]
        runs.append(final(make("fafed", rho=rho, init_step="none"), equal, rounds=5, work=work[1]))
        assert close(*runs, 1e-10)
    assert close(fafed, stem, 1e-10)


def test_stem_with_one_full_batch_step_is_gradient_descent():
    """R rounds and the exchange before them are R + 1 steps on (1/N) Σ F_k."""
    data = federation()
    work = LocalWork(lr=0.2, batch_size=None, steps=1)
    ours = final(make("stem", alpha=0.3), data, rounds=6, work=work)
    assert close(ours, final(make("fedavg", **UNIFORM), data, rounds=7, work=work), 1e-10)


def test_stem_with_alpha_one_is_local_sgd():
    data = federation()
    assert close(
        final(make("stem", alpha=1.0, init_step="none"), data, rounds=5),
        final(make("fedavg", **UNIFORM), data, rounds=5),
        1e-10,
    )


@pytest.mark.parametrize("name", ["stem", "fafed"])
def test_iterations_are_the_mean_of_unequal_steps(name):
    algo = make(name, decay_w=1.0)
    server = algo.server_init(torch.zeros(1, dtype=D), 2)
    info = ClientInfo(**{**cohort([0.5, 0.5]).__dict__, "steps": torch.tensor([1.0, 4.0], dtype=D)})
    up = {k: torch.ones(2, 1, dtype=D) for k in ("delta", "m", "v")}
    assert algo.update(server, up, info)["t"].item() == 2.5


@pytest.mark.parametrize("name", ["stem", "fafed"])
def test_the_mean_momentum_is_the_mean_gradient(name):
    data = federation()
    owned = data.train.split()
    work = LocalWork(lr=0.01, batch_size=None, steps=4)
    for s in snapshots(make(name), data, rounds=5, work=work)[1:]:
        before = s.clients["prev"].numpy()  # where each took its last gradient
        grads = [
            loss_and_grad(w, data.x[r].numpy(), data.y[r].numpy())[1]
            for w, r in zip(before, owned, strict=True)
        ]
        assert close(s.server["m"], torch.from_numpy(np.mean(grads, 0)), 1e-10)


def test_the_rate_decays_with_the_steps():
    """η_t = η/(w + t)^(1/3), t over all steps: with α = 1 and a constant gradient the path is their sum."""
    rows, work = [[2.0], [2.0]], LocalWork(lr=0.3, batch_size=None, steps=3)
    constant = Given(lambda w, r: r * w, lambda w, r: r.clone())
    algo = make("stem", alpha=1.0, decay_w=1.0)
    seen = [s.server["w"].item() for s in run_on(constant, rows, algo, work, 2, [0.0])]
    rates = 0.3 / (1 + np.arange(7)) ** (1 / 3)  # t = 0 is the first exchange
    assert seen == pytest.approx([0, -2 * rates[:4].sum(), -2 * rates.sum()], rel=1e-12)

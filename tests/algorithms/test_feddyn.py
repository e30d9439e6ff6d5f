"""FedDyn: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from tools import close, deployed, federation, final, make, simulated, snapshots
from toy_problems import DRAWN, FULL, QUADRATIC, UNIFORM, D, models, on_quadratics, start_of

from fedbench.core.algorithm import Stage
from fedbench.core.errors import RequestError
from fedbench.core.randomness import sample_cohort
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork

ROWS, COUNTS = [[1.0, 0.0], [3.0, 4.0], [0.5, -2.0]], [4, 1, 2]


def quadratics_of_sizes(algo, rounds, participation=1.0):
    """The last model of a run on these functions, with COUNTS equal examples each and many local steps."""
    x = torch.tensor(ROWS, dtype=D).repeat_interleave(torch.tensor(COUNTS), 0)
    rows = np.split(np.arange(len(x)), np.cumsum(COUNTS)[:-1])
    data = FederatedDataset(
        x=x, y=torch.zeros(len(x), dtype=torch.int64), train=Rows.of(rows), test=Rows.of([np.arange(0)] * 3),
        names=("a", "b", "c"), classes=1, dtype=D,
    )  # fmt: skip
    work, start = LocalWork(lr=0.2, batch_size=None, steps=20), torch.tensor([9.0], dtype=D)
    engine, draw = Engine(QUADRATIC, "stacked", 100), sample_cohort(participation)
    return (
        list(simulated([Stage(algo, rounds)], None, data, work, engine, start, 0, draw))[-1]
        .server["w"]
        .item()
    )


def test_feddyn_by_hand():
    """F = w²/2 and (w-4)²/2 from w = 1, one step of rate 1/2, α = 1/2."""
    run = on_quadratics(make("feddyn", alpha=0.5), [[1.0, 0.0], [1.0, 4.0]], 3, [1.0])
    assert models(run) == pytest.approx([1.0, 2.0, 2.25, 2.1875], abs=1e-14)


@pytest.mark.parametrize("alpha", [1e-3, 0.5, 5.0])
def test_the_first_step_of_feddyn_is_twice_the_mean_update(alpha):
    data = federation()
    first = snapshots(make("feddyn", alpha=alpha, deploy="mean"), data, rounds=1, work=DRAWN)[-1]
    start = start_of(data)
    assert close(first.server["w"] - start, 2 * (first.server["mean"] - start), 1e-12)


def test_feddyn_with_a_vanishing_alpha_adds_up_all_updates():
    """w^{t+1} = w^t - D_t - Σ_{s<=t} D_s, D_t the mean update of plain local training from w^t."""
    data = federation()
    w, total = start_of(data), 0.0
    for _ in range(4):
        d = w - final(make("fedavg", **UNIFORM), data, rounds=1, work=FULL, w=w)
        total = total + d
        w = w - d - total
    assert close(final(make("feddyn", alpha=1e-13), data, rounds=4, work=FULL), w, 1e-10)


@pytest.mark.parametrize(("participation", "rounds"), [(1.0, 100), (2, 150)])
@pytest.mark.parametrize(
    ("weights", "n"), [("uniform", [1, 1, 1]), ("size", COUNTS)], ids=["uniform", "size"]
)  # the minimum of Σ n_k F_k
def test_feddyn_finds_the_optimum_where_fedavg_does_not(weights, n, participation, rounds):
    a, b = np.array(ROWS).T
    best = (n * a * b).sum() / (n * a).sum()
    found = quadratics_of_sizes(
        make("feddyn", alpha=0.5, weights=weights, examples=COUNTS), rounds, participation
    )
    assert found == pytest.approx(best, abs=1e-8)
    assert abs(quadratics_of_sizes(make("fedavg", weights=weights), 100) - best) > 0.1


def test_feddyn_by_size_scales_alpha_and_averages_uniformly():
    """α_k = α/(N p_k): equal sizes are the uniform form; the mean of the cohort is the plain one."""
    data = federation(sizes=(9, 9, 9))
    runs = [
        final(make("feddyn", alpha=0.4, weights=w, examples=[9] * 3), data)
        for w in ("uniform", "size")
    ]
    assert close(*runs, 1e-12)
    data = federation(sizes=(4, 12))
    sized = snapshots(
        make("feddyn", alpha=1e-13, weights="size", examples=[4, 12], deploy="mean"), data, rounds=1
    )[-1]
    assert close(sized.server["mean"], final(make("fedavg", **UNIFORM), data, rounds=1), 1e-10)
    with pytest.raises(
        RequestError, match="weights=size needs the training examples of all clients"
    ):
        make("feddyn", weights="size")


def test_feddyn_deploys_what_was_asked_for():
    data = federation()
    seen = snapshots(make("feddyn", deploy="mean"), data, rounds=3)
    assert torch.equal(deployed(make("feddyn", deploy="mean"), seen[0]), seen[0].server["w"])
    last = seen[-1]
    assert close(
        deployed(make("feddyn", deploy="mean"), last),
        last.server["w"] - last.server["drift"],
        1e-12,
    )
    assert torch.equal(deployed(make("feddyn"), last), last.server["w"])

"""FedDyn: identities and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from tools import (
    close,
    deployed,
    federation,
    make,
    snapshots,
)
from toy_problems import (
    QUADRATIC,
    models,
    on_quadratics,
    run_on,
)

from fedbench.core.errors import RequestError
from fedbench.simulation.local_work import LocalWork


def test_three_rounds_by_hand():
    """F = w²/2 and (w-4)²/2 from w = 1, one step of rate 1/2, α = 1/2."""
    run = on_quadratics(
        make("feddyn", alpha=0.5),
        [[1.0, 0.0], [1.0, 4.0]],
        3,
        [1.0],
    )
    assert models(run) == pytest.approx([1.0, 2.0, 2.25, 2.1875], abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("participation", "rounds"),
    [
        (1.0, 100),
        (2, 150),
    ],
)
@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_finds_the_optimum_where_fedavg_does_not(weights, participation, rounds):
    """With many local steps on the minimum of Σ F_k, or of Σ n_k F_k."""
    rows, counts = [[1.0, 0.0], [3.0, 4.0], [0.5, -2.0]], [4, 1, 2]
    work = LocalWork(lr=0.2, batch_size=None, steps=20)
    a, b = np.array(rows).T
    n = counts if weights == "size" else np.ones(3)
    optimum = n @ (a * b) / (n @ a)

    algo = make("feddyn", alpha=0.5, weights=weights, examples=counts)
    fedavg = make("fedavg", weights=weights)
    start = [9.0]

    ours = run_on(QUADRATIC, rows, algo, work, rounds, start, counts, participation)
    plain = run_on(QUADRATIC, rows, fedavg, work, 100, start, counts)
    ours = ours[-1].server["w"]
    plain = plain[-1].server["w"]
    assert ours == pytest.approx([optimum], abs=1e-8)
    assert abs(plain - optimum) > 0.1


def test_weights_by_size_need_the_sizes():
    message = "weights=size needs the training examples of all clients"
    with pytest.raises(RequestError, match=message):
        make("feddyn", weights="size")


def test_the_mean_model_is_deployed_if_asked_for():
    algo = make("feddyn", deploy="mean")
    first, *_, last = snapshots(algo, federation(), rounds=3)
    assert torch.equal(deployed(algo, first), first.server["w"])
    assert close(
        deployed(algo, last),
        last.server["w"] - last.server["drift"],
        1e-12,
    )
    assert torch.equal(deployed(make("feddyn"), last), last.server["w"])

"""FedCAda and local Adam: one client is Adam, and worked adjustments, in float64."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import close, federation, final, make, snapshots, task_for
from toy_problems import QUADRATIC, Given, run_on, start_of

from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize(
    ("name", "options"), [("local_adam", {}), ("fedcada", {"adjust": "adam", "counter": "step"})]
)
def test_one_client_is_adam(name, options):
    data = federation(sizes=(12,))
    ours = final(make(name, **options), data, rounds=5, work=LocalWork(0.05, None, epochs=(3, 3)))
    w = torch.nn.Parameter(start_of(data))
    adam, rows, task = torch.optim.Adam([w], lr=0.05), data.train.index, task_for(data)
    for _ in range(15):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(task.predict(w, data.x[rows]), data.y[rows]).backward()
        adam.step()
    assert close(ours, w.detach(), 1e-9)


def test_the_adjustment_fades():
    """First step ×0.74 of the uncorrected one for β = .9, .999: √(1.999)/1.9; both tend to the same."""
    data = federation(sizes=(12,))
    work = LocalWork(1e-3, None)
    options = [{"adjust": a, "eps": 1e-300} for a in ("plus", "identity")]
    start = start_of(data)
    steps = [start - final(make("fedcada", **o), data, rounds=1, work=work) for o in options]
    assert close(steps[0], steps[1] * np.sqrt(1.999) / 1.9, 1e-12)
    assert np.sqrt(1.999) / 1.9 == pytest.approx(0.744, abs=1e-3)
    servers = [
        snapshots(make("fedcada", beta2=0.9, **o), data, rounds=1, work=work)[-1].server
        for o in options
    ]
    late = [make("fedcada", beta2=0.9, **o) for o in options]
    ends = [
        run_on(QUADRATIC, [[1.0, 2.0]], algo, LocalWork(1e-3, None), 400, [0.0]) for algo in late
    ]
    moves = [[b.server["w"].item() - a.server["w"].item() for a, b in pairwise(e)] for e in ends]
    assert abs(moves[0][0] / moves[1][0] - 1) > 0.2
    assert moves[0][-1] / moves[1][-1] == pytest.approx(1, abs=1e-3)
    assert servers[0]["t"].item() == 1


@pytest.mark.parametrize(
    ("adjust", "value"), [("plus", 1.5), ("square", 1.25), ("sin", 1 + np.sin(0.5)), ("sqrt", 1 + np.sqrt(0.5)),
                          ("identity", 1.0), ("adam", 0.5)],
)  # fmt: skip
def test_adjustments_by_hand(adjust, value):
    """β1 = ½, β2 = 0, t = 1, g = 1: m = ½, v = 1; the step is η (½/D(½)) / √(1/D(0))."""
    zero = {"plus": 1, "square": 1, "sin": 1, "sqrt": 1, "identity": 1, "adam": 1}[adjust]
    constant = Given(lambda w, r: r * w, lambda w, r: r.clone())
    algo = make("fedcada", adjust=adjust, beta1=0.5, beta2=0.0, eps=1e-12)
    w = run_on(constant, [[1.0]], algo, LocalWork(0.1, None), 1, [0.0])[-1].server["w"].item()
    assert w == pytest.approx(-0.1 * 0.5 / value / np.sqrt(1 / zero), rel=1e-9)

"""FedAdagrad, FedAdam, FedYogi and FedAMS: worked steps, and torch's Adam, in float64."""

from itertools import pairwise

import torch
from tools import close, federation, final, make, snapshots, task_for
from toy_problems import D, cohort, start_of

from fedbench.simulation.local_work import LocalWork


# 6: FedAdam in torch's form is torch's Adam on the pseudo-gradient
def test_fedadam_is_torch_adam():
    data = federation()
    work = LocalWork(lr=0.1, batch_size=None, epochs=(2, 2))
    options = {
        "beta1": 0.9,
        "beta2": 0.999,
        "tau": 1e-8,
        "v0": 0.0,
        "bias_correction": True,
        "server_lr": 1e-2,
    }
    ours = final(make("fedadam", **options), data, work=work, rounds=12)
    w = torch.nn.Parameter(task_for(data).init(torch.Generator().manual_seed(0)))
    adam = torch.optim.Adam([w], lr=1e-2, betas=(0.9, 0.999), eps=1e-8)
    for _ in range(12):
        w.grad = w.detach() - final(make("fedavg"), data, work=work, rounds=1, w=w.detach().clone())
        adam.step()
    assert close(ours, w.detach(), 1e-10)


def test_first_step_of_reddis_form():
    """By hand: m = (1-β1) d, v = β2 τ² + (1-β2) d², w - η m / (√v + τ)."""
    data = federation()
    start = task_for(data).init(torch.Generator().manual_seed(0))
    d = start - final(make("fedavg"), data, rounds=1)
    ours = final(make("fedadam", server_lr=0.5, beta1=0.8, beta2=0.95, tau=0.01), data, rounds=1)
    want = start - 0.5 * 0.2 * d / ((0.95 * 0.01**2 + 0.05 * d.square()).sqrt() + 0.01)
    assert close(ours, want, 1e-12)


def test_fedams_begins_as_fedadam():
    data = federation()
    shared = {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "weights": "size"}
    ours = final(make("fedams", option=2, **shared), data, rounds=1)
    assert close(ours, final(make("fedadam", v0=0.0, **shared), data, rounds=1), 1e-10)


def test_the_denominator_of_fedams_never_falls():
    servers = [s.server for s in snapshots(make("fedams", beta2=0.1), federation(), rounds=10)]
    assert any((b["v"] < a["v"]).any() for a, b in pairwise(servers[1:]))
    assert all((b["v_max"] >= a["v_max"]).all() for a, b in pairwise(servers))
    assert all((s["v_max"] >= 1e-3).all() for s in servers[1:])


def test_fedadagrad_first_step_by_hand():
    data = federation()
    d = start_of(data) - final(make("fedavg"), data, rounds=1)
    ours = final(make("fedadagrad", server_lr=0.5, beta1=0.2, tau=0.01), data, rounds=1)
    assert close(
        ours, start_of(data) - 0.5 * 0.8 * d / ((0.01**2 + d.square()).sqrt() + 0.01), 1e-12
    )


def test_fedyogi_keeps_v_where_it_equals_the_square():
    """sign(0) = 0, and v moves towards d² by (1-β2) d² from either side."""
    algo = make("fedyogi", beta2=0.75, v0=4.0)
    up = {"delta": torch.tensor([[2.0, 1.0, 3.0]], dtype=D)}
    v = algo.update(algo.server_init(torch.zeros(3, dtype=D), 1), up, cohort([1.0]))["v"]
    assert v.tolist() == [4.0, 4 - 0.25 * 1, 4 + 0.25 * 9]

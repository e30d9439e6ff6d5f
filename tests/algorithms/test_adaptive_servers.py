"""FedAdagrad, FedAdam, FedYogi and FedAMS: worked steps, and torch's Adam, in float64."""

import torch
from tools import close, federation, make
from toy_problems import (
    apart,
    cohort,
    start_of,
    trained,
    updated,
)

from fedbench.simulation.local_work import LocalWork


def test_fedadam_in_torchs_form_is_torchs_adam_on_the_pseudo_gradient():
    options = {"beta2": 0.999, "tau": 1e-8, "v0": 0.0, "bias_correction": True, "server_lr": 1e-2}
    work = LocalWork(lr=0.1, batch_size=None, epochs=(2, 2))
    w = torch.nn.Parameter(start_of(federation()))
    adam = torch.optim.Adam(
        [w],
        lr=1e-2,
        betas=(0.9, 0.999),
        eps=1e-8,
    )
    for _ in range(12):
        before = w.detach().clone()
        w.grad = before - trained(
            "fedavg",
            work=work,
            rounds=1,
            w=before,
        )
        adam.step()
    ours = trained(("fedadam", options), work=work, rounds=12)
    assert close(ours, w.detach(), 1e-10)


def test_fedams_begins_as_fedadam():
    shared = {"beta2": 0.99, "tau": 1e-3, "weights": "size"}
    ours = ("fedams", {"option": 2, **shared})
    assert apart(ours, ("fedadam", {"v0": 0.0, **shared}), rounds=1) < 1e-10


def test_fedyogi_keeps_v_where_it_equals_the_square():
    """sign(0) = 0, and v moves towards d² by (1-β2) d² from either side."""
    algo = make("fedyogi", beta2=0.75, v0=4.0)
    v = updated(algo, [[2.0, 1.0, 3.0]], cohort(1))["v"]
    assert v.tolist() == [4.0, 4 - 0.25 * 1, 4 + 0.25 * 9]

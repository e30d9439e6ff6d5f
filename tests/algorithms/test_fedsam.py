"""FedSAM, MoFedSAM and FedSpeed: worked steps and reductions, in float64."""

import pytest
import torch
from tools import close, federation, final, make
from toy_problems import BATCHES, DRAWN, UNIFORM, D, models, on_quadratics

from fedbench.algorithms.shared.sharpness import uphill
from fedbench.core.optim import sgd


@pytest.mark.parametrize("options", [{"rho": 0.0}, {"alpha": 0.0}, {"rho": 0.5, "alpha": 0.5}])
def test_the_two_servers_of_fedspeed_agree_if_every_client_takes_part(options):
    data = federation()
    runs = [
        final(make("fedspeed", server=s, **options), data, rounds=5, work=DRAWN)
        for s in ("cohort", "all")
    ]
    assert close(*runs, 1e-10)
    runs = [
        final(make("fedspeed", server=s, **options), data, rounds=5, work=DRAWN, participation=0.6)
        for s in ("cohort", "all")
    ]
    assert not close(*runs, 1e-3)


@pytest.mark.parametrize("solver", [sgd(momentum=0.9), sgd(weight_decay=0.1, clip_norm=0.5)])
def test_fedsam_and_fedexp_keep_the_local_solver(solver):
    data = federation()
    plain = final(make("fedavg", solver, **UNIFORM), data, rounds=4, work=BATCHES)
    assert close(final(make("fedsam", solver, rho=0.0), data, rounds=4, work=BATCHES), plain, 1e-10)
    ours = final(
        make("fedexp", solver, eps=1e20, average=False, **UNIFORM), data, rounds=4, work=BATCHES
    )
    assert close(ours, plain, 1e-10)


def test_fedspeed_by_hand():
    """F = w² from w = 1, one step of rate .1; ρ .1, α .5, prox .5: the mean of w_k + u_k."""
    algo = make("fedspeed", rho=0.1, alpha=0.5, prox=0.5)
    run = on_quadratics(algo, [[2.0, 0.0]], 2, [1.0], lr=0.1)
    assert models(run) == pytest.approx([1.0, 0.58, 0.139], abs=1e-14)


def test_fedsam_by_hand():
    """F = w²/2 from w = 1: ŵ = 1.1, and a step of rate 1/2 from 1."""
    assert models(on_quadratics(make("fedsam"), [[1.0, 0.0]], 1, [1.0]))[-1] == pytest.approx(
        0.45, abs=1e-15
    )
    # no gradient, no ascent
    assert models(on_quadratics(make("fedsam"), [[1.0, 0.0]], 1, [0.0]))[-1] == 0.0
    both = on_quadratics(make("fedsam", rho=5.0), [[1.0, 0.0]], 1, [3.0, 4.0])[-1].server["w"]
    # the whole vector has length 5: ŵ = 2w, w - ŵ/2
    assert both.tolist() == pytest.approx([0.0, 0.0], abs=1e-15)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("fedsam", ("fedavg", UNIFORM)),
        ("mofedsam", ("fedcm", {})),
        ("fedspeed", ("feddyn", {"alpha": 0.1})),
    ],
)
def test_methods_with_an_ascent_leave_those_without_in_proportion_to_rho(name, plain):
    data, how = federation(), {"rounds": 3, "work": BATCHES}
    without = final(make(plain[0], **plain[1]), data, **how)
    apart = [(final(make(name, rho=r), data, **how) - without).norm().item() for r in (1e-4, 1e-5)]
    assert apart[0] / apart[1] == pytest.approx(10, rel=1e-2)


def test_both_gradients_are_of_one_batch():
    """The second is taken after a step of length ρ up the first; a client without a gradient stays."""
    asked = []

    class Watched:
        def grad(self, w, batch):
            asked.append((w, batch))
            return torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=D)

    w, batch = torch.ones(2, 2, dtype=D), object()
    uphill(Watched(), w, batch, 0.5)
    assert [b is batch for _, b in asked] == [True, True]
    assert asked[0][0] is w
    assert asked[1][0].tolist() == [[1.3, 1.4], [1.0, 1.0]]

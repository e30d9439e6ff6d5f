"""FedSAM, MoFedSAM and FedSpeed: worked steps and reductions, in float64."""

import pytest
import torch
from tools import make
from toy_problems import (
    DRAWN,
    D,
    apart,
    on_quadratics,
)

from fedbench.algorithms.shared.sharpness import uphill


@pytest.mark.parametrize(
    "options",
    [
        {"rho": 0.0},
        {"alpha": 0.0},
        {"rho": 0.5, "alpha": 0.5},
    ],
)
def test_the_two_servers_of_fedspeed_agree_if_every_client_takes_part(options):
    servers = [("fedspeed", {"server": server, **options}) for server in ("cohort", "all")]
    assert apart(*servers, rounds=5, work=DRAWN) < 1e-10
    assert (
        apart(
            *servers,
            rounds=5,
            work=DRAWN,
            participation=0.6,
        )
        > 1e-3
    )


@pytest.mark.parametrize(
    ("rho", "start", "end"),
    [
        (0.1, [1.0], [0.45]),  # ŵ = 1.1, and a step of rate 1/2 from 1
        (0.1, [0.0], [0.0]),  # no gradient, no ascent
        (5.0, [3.0, 4.0], [0.0, 0.0]),  # the whole vector has length 5: ŵ = 2w, w - ŵ/2
    ],
)
def test_fedsam_by_hand(rho, start, end):
    """F = ||w||²/2."""
    last = on_quadratics(
        make("fedsam", rho=rho),
        [[1.0, 0.0]],
        1,
        start,
    )[-1]
    assert last.server["w"] == pytest.approx(end, abs=1e-15)


def test_both_gradients_are_of_one_batch():
    """The second is taken ρ up the first; a client without a gradient stays."""
    calls = []

    class Watched:
        def grad(self, w, batch):
            calls.append((w.tolist(), batch))
            return torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=D)

    batch = object()
    uphill(
        Watched(),
        torch.ones(2, 2, dtype=D),
        batch,
        0.5,
    )
    assert calls == [
        ([[1.0, 1.0], [1.0, 1.0]], batch),
        ([[1.3, 1.4], [1.0, 1.0]], batch),
    ]

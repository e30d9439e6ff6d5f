"""FedFV: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from reference_fair import fedfv_step
from tools import close, federation, final, make
from toy_problems import D, fair_cohort, moved


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # h_1 = (.5, .5) and h_2 = (0, 1), each without its part along the other; their mean (.25,
        # .75), made 1/2 long
        ({"alpha": 0.0, "tau": 0}, np.array([0.25, 0.75]) / np.hypot(0.25, 0.75) / 2),
        # the worst client is kept
        ({"alpha": 0.1, "tau": 0}, np.array([-0.25, 0.75]) / np.hypot(0.25, 0.75) / 2),
        ({"alpha": 0.1, "tau": 1}, np.array([0.0, 0.5])),  # then without its part along (1, 0)
        (
            {"alpha": 0.1, "tau": 1, "history": "paper"},
            np.array([-0.25, 0.75]) / np.hypot(0.25, 0.75) / 2,
        ),
        ({"alpha": 1.0, "tau": 0, "server_lr": 3.0}, np.array([0.0, 1.5])),
    ],
)
def test_fedfv_by_hand(options, expected):
    g = moved("fedfv", [[1.0, 0.0], [-1.0, 1.0]], [1.0, 2.0], **options)
    assert g.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_fedfv_equals_the_printed_loops_with_sampled_cohorts():
    """Random sequences of cohorts: vectors, original updates, last rounds, as in the definition."""
    rng = np.random.default_rng(0)
    for trial in range(60):
        options = {
            "alpha": [0.0, 0.1, 0.5, 1.0][trial % 4],
            "tau": trial % 5,
            "history": ["code", "paper"][trial // 4 % 2],
            "server_lr": 0.7,
        }
        algo, seen = make("fedfv", **options), {}
        server = algo.server_init(torch.zeros(6, dtype=D), 9)
        for t in range(1, 7):
            ids = np.sort(rng.choice(9, 4, replace=False))
            delta, loss = rng.normal(size=(4, 6)) + 0.3, rng.random(4)
            seen |= {int(k): (t, d) for k, d in zip(ids, delta, strict=True)}
            after = algo.update(
                server, {"delta": torch.from_numpy(delta)}, fair_cohort(ids.tolist(), loss=loss)
            )
            step = fedfv_step(delta, loss, options, seen, t)
            assert close(server["w"] - after["w"], torch.from_numpy(step), 1e-10)
            server = after


@pytest.mark.parametrize("options", [{}, {"alpha": 0.0, "tau": 0}, {"alpha": 0.5, "tau": 3}])
def test_fedfv_steps_are_as_long_as_the_mean_update(options):
    gen = torch.Generator().manual_seed(1)
    for _ in range(20):
        g = torch.randn(6, 8, generator=gen, dtype=D)
        step = moved(
            "fedfv", g, torch.rand(6, generator=gen, dtype=D), rounds=3, server_lr=0.4, **options
        )
        assert step.norm().item() == pytest.approx(0.4 * g.mean(0).norm().item(), rel=1e-12)


def test_fedfv_guards():
    """Zero updates are skipped; a zero direction leaves the model; ties follow the clients' numbers."""
    assert moved("fedfv", [[1.0, 0.0], [0.0, 0.0]], [1.0, 2.0], tau=0).tolist() == [0.5, 0.0]
    assert moved("fedfv", [[1.0, 0.0], [-2.0, 0.0]], [1.0, 2.0], alpha=0.0, tau=0).tolist() == [
        0.0,
        0.0,
    ]
    assert moved("fedfv", [[0.0, 0.0], [0.0, 0.0]], [1.0, 2.0]).tolist() == [0.0, 0.0]
    algo, g = make("fedfv", tau=0), torch.tensor([[1.0, 0.0], [-1.0, 1.0]], dtype=D)
    server = algo.server_init(torch.zeros(2, dtype=D), 2)
    a = algo.update(server, {"delta": g}, fair_cohort([0, 1], loss=[1.0, 1.0]))["w"]
    b = algo.update(server, {"delta": g.flip(0)}, fair_cohort([1, 0], loss=[1.0, 1.0]))["w"]
    assert torch.equal(a, b)


def test_fedfv_with_history_of_absent_clients_needs_absent_clients():
    data = federation()
    runs = [final(make("fedfv", tau=t, history="paper"), data, rounds=4) for t in (0, 3)]
    assert close(*runs, 1e-12)

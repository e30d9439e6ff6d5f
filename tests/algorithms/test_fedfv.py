"""FedFV: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
import yaml
from reference_fair import fedfv_step
from tools import close, make
from toy_problems import (
    D,
    cohort,
    moved,
    updated,
)


@pytest.mark.parametrize(
    ("alpha", "tau", "expected"),
    [
        # without conflict (.5, .5) and (0, 1); their mean (.25, .75), made 1/2 long
        (0.0, 0, np.array([1, 3]) / np.hypot(1, 3) / 2),
        # the worst client keeps (-1, 1); their mean then without its part along (1, 0)
        (0.1, 1, [0.0, 0.5]),
    ],
)
def test_a_step_by_hand(alpha, tau, expected):
    algo = make("fedfv", alpha=alpha, tau=tau)
    g = moved(algo, [[1.0, 0.0], [-1.0, 1.0]], loss=[1.0, 2.0])
    assert g == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("history", ["code", "paper"])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 1.0])
def test_equals_the_printed_loops_with_sampled_cohorts(alpha, history):
    """Random sequences of cohorts: vectors, original updates, last rounds, as in the definition."""
    rng = np.random.default_rng(0)
    for tau in range(5):
        options = {"alpha": alpha, "tau": tau, "history": history, "server_lr": 0.7}
        algo = make("fedfv", **options)
        server = algo.server_init(torch.zeros(6, dtype=D), 9)
        seen = {}
        for t in range(1, 7):
            ids = np.sort(rng.choice(9, 4, replace=False)).tolist()
            delta = rng.normal(size=(4, 6)) + 0.3
            losses = rng.random(4)
            for k, update in zip(ids, delta, strict=True):
                seen[k] = (t, update)

            after = updated(
                algo,
                delta,
                cohort(4, ids, loss=losses),
                server,
            )
            step = fedfv_step(delta, losses, seen, t, **options)
            assert close(server["w"] - after["w"], torch.from_numpy(step), 1e-10)
            server = after


# options, updates and the step
ZEROS = """
- [{tau: 0}, [[1.0, 0.0], [0.0, 0.0]], [0.5, 0.0]]
- [{alpha: 0.0, tau: 0}, [[1.0, 0.0], [-2.0, 0.0]], [0.0, 0.0]]
- [{}, [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0]]
"""


@pytest.mark.parametrize(("options", "updates", "step"), yaml.safe_load(ZEROS))
def test_zero_updates_are_skipped_and_a_zero_direction_leaves_the_model(options, updates, step):
    assert (
        moved(
            make("fedfv", **options),
            updates,
            loss=[1.0, 2.0],
        ).tolist()
        == step
    )


def test_ties_follow_the_numbers_of_the_clients():
    algo = make("fedfv", tau=0)
    g = torch.tensor([[1.0, 0.0], [-1.0, 1.0]])
    a = updated(algo, g, cohort(2, ids=[0, 1], loss=[1.0, 1.0]))
    b = updated(algo, g.flip(0), cohort(2, ids=[1, 0], loss=[1.0, 1.0]))
    assert torch.equal(a["w"], b["w"])

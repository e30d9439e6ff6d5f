"""FedMDFG: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
import yaml
from reference_fair import guided_direction
from tools import close, make
from toy_problems import (
    D,
    cohort,
    distance,
    moved,
    updated,
    vector,
)

from fedbench.algorithms.fedmdfg import chosen, direction, step_sizes


def aimed(g, losses, kept=None, theta=11.25, forced=False):
    g = torch.as_tensor(g, dtype=D)
    if kept is None:
        kept = g[:0]
    return direction(
        g,
        torch.as_tensor(losses, dtype=D),
        torch.as_tensor(kept, dtype=D),
        theta,
        torch.tensor(forced),
    )


def test_equal_losses_give_no_direction_towards_equal_ones():
    found = aimed(np.eye(2), [2.0, 2.0], forced=True)
    assert found["d"] == pytest.approx([0.5, 0.5])


# losses, options, and whether the direction is guided; the angle of 1 and 3 is 26.565°
GUIDED = """
- [[1.0, 1.0], {}, false]
- [[1.0, 3.0], {theta: 26.6}, false]
- [[1.0, 3.0], {theta: 26.5}, true]
- [[1.0, 1.1], {forced: true}, true]
"""


@pytest.mark.parametrize(("losses", "options", "guided"), yaml.safe_load(GUIDED))
def test_the_direction_is_guided_above_an_angle_or_if_forced(losses, options, guided):
    found = aimed(np.eye(2), losses, **options)
    assert bool(found["fair"]) is guided


@pytest.mark.parametrize("seed", range(6))
def test_the_direction_is_that_of_the_definition_and_scales(seed):
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(5, 9)) + 0.4
    losses = rng.random(5) + 0.1
    kept = rng.normal(size=(2, 9)) + 0.4

    ours = aimed(g, losses, kept, theta=5.0)
    d, _, unit, active = guided_direction(g, losses, 5.0, False, kept)
    assert active == bool(ours["fair"])
    assert close(ours["d"], torch.from_numpy(d), 1e-9)
    assert ours["slope"] == pytest.approx(unit @ d, rel=1e-9)

    scaled = aimed(3 * g, losses, 3 * kept, theta=5.0)
    assert close(scaled["d"], 3 * ours["d"], 1e-9)
    order = rng.permutation(5)
    permuted = aimed(g[order], losses[order], kept, theta=5.0)
    assert close(permuted["d"], ours["d"], 1e-9)


def test_a_client_that_did_not_move_is_left_out_with_its_loss():
    g = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    losses = [1.0, 3.0, 50.0]
    all_three = aimed(g, losses)
    without = aimed(g[:2], losses[:2])
    assert close(all_three["d"], without["d"], 1e-12)


@pytest.mark.parametrize(
    "updates",
    [
        [[1.0, 0.0], [-1.0, 0.0]],
        [[0.0, 0.0], [0.0, 0.0]],
    ],
)
def test_opposite_or_still_clients_leave_the_model(updates):
    still = moved(make("fedmdfg"), updates, loss=[1.0, 1.0])
    assert not still.any()

    algo = make("fedmdfg", step="search")
    server = algo.server_init(vector(1.0, 1.0), 2)
    info = cohort(2, loss=[1.0, 1.0])
    uploads = {"delta": vector(*updates)}
    proposed = algo.trials.propose(server, uploads, info)
    assert proposed["trials"].tolist() == [[1.0, 1.0]]


def test_guidance_is_forced_if_some_losses_rose():
    """Losses (1, 1), then (.8, 1.2): client 1 rose above its first loss.

    With both risen, or none, it is not forced.
    """
    algo = make("fedmdfg", theta=90.0)
    g = torch.tensor([[1.0, 0.2], [0.2, 1.0]], dtype=D)
    equal = cohort(2, loss=[1.0, 1.0])
    first = updated(algo, g, equal)
    assert first["expected"].tolist() == [1.0, 1.0]

    def guided(losses, algo=algo):
        info = cohort(2, loss=losses)
        after = updated(algo, g, info, first)
        step = first["w"] - after["w"]
        return distance(step, g.mean(0)) > 1e-3

    assert guided([0.8, 1.2])
    assert not guided([1.2, 1.2])
    assert not guided([0.8, 0.8])
    unforced = make("fedmdfg", theta=90.0, force=False)
    assert not guided([0.8, 1.2], unforced)


def test_vectors_of_absent_clients_are_kept_for_one_round():
    """Client 1 was in the first round, with (0, 1); in the second client 0 is held to it, in the
    third no longer.
    """
    algo = make("fedmdfg", theta=90.0)
    server = algo.server_init(vector(0.0, 0.0), 2)
    rounds = (
        (np.eye(2), [0.5, 0.5]),
        # hull of (1, -1) and (0, 1): (.4, .2), made √2 long
        ([[1.0, -1.0]], [2 * np.sqrt(0.4), np.sqrt(0.4)]),
        ([[1.0, -1.0]], [1.0, -1.0]),
    )
    for updates, step in rounds:
        info = cohort(len(updates), loss=[1.0] * len(updates))
        after = updated(algo, updates, info, server)
        assert server["w"] - after["w"] == pytest.approx(step)
        server = after


# halvings, ratio, whether it has changed, step sizes
SIZES = """
- [2, 1.0, false, [2, 1, 0.5, 0.25, 0.125]]
- [2, 1.0, true, [0.5, 0.25, 0.125]]
# down to 1/2 * 1/2 / 2.5 = 0.1
- [1, 2.5, false, [1, 0.5, 0.25, 0.125]]
"""


@pytest.mark.parametrize(("halvings", "ratio", "changed", "sizes"), yaml.safe_load(SIZES))
def test_step_sizes_by_hand(halvings, ratio, changed, sizes):
    found = step_sizes(0.5, halvings, ratio, changed=changed)
    assert found.tolist() == sizes


# losses of the two clients after each trial, whether the step is guided, number of the best trial
TRIALS = """
# client 1 is worse off, then both fall by 0.1
- [[[1.0, 1.5], [1.85, 0.85], [1.5, 0.5]], false, 1]
- [[[1.0, 1.5], [1.9, 0.95], [1.5, 0.5]], false, 2]
# 0.4 to 1 is as uneven as 1 to 2, and more
- [[[1.0, 0.4], [1.0, 0.8], [1.5, 0.5]], true, 1]
# none: the first with a smaller sum
- [[[3.0, 0.1], [1.0, 1.5], [0.1, 1.1]], false, 1]
- [[[.inf, .inf], [.nan, 2.0], [2.5, 1.5]], false, 2]
"""


@pytest.mark.parametrize(("trials", "guided", "best"), yaml.safe_load(TRIALS))
def test_the_chosen_step_by_hand(trials, guided, best):
    """Losses (2, 1) before; every loss has to fall by 0.1, and become more even where the step is
    guided.
    """
    least = torch.full((2, 3), 0.1, dtype=D)
    number = chosen(
        vector(2.0, 1.0),
        vector(*trials).T,
        least,
        torch.tensor(guided),
    )
    assert int(number) == best

"""FedHEAL: identities, invariances and worked numbers, in float64."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import federation, make, snapshots
from toy_problems import D, fair_cohort, vector

from fedbench.algorithms.fedheal import packed, unpacked
from fedbench.core.errors import RequestError
from fedbench.core.randomness import sample_cohort


def test_fedheal_is_frozen_above_every_share():
    data = federation()
    run = snapshots(make("fedheal", threshold=1.0), data, rounds=4)
    assert torch.equal(run[1].server["w"], run[-1].server["w"])
    assert not torch.equal(run[0].server["w"], run[1].server["w"])


def test_fedheal_weights_are_the_running_mean_of_the_shares_of_distance():
    """With β = 1: π after t rounds is 1/C and t shares; the larger update weighs more."""
    algo = make("fedheal", beta=1.0, threshold=-1.0)
    server = algo.server_init(torch.zeros(2, dtype=D), 2)
    for t in (1, 2, 3):
        delta = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=D)
        after = algo.update(
            server, {"delta": delta, "mask": packed(delta < 9)}, fair_cohort([0, 1])
        )
        p = (0.5 + t * 0.75) / (1 + t)
        assert (server["w"] - after["w"]).tolist() == pytest.approx([3 * p, 1 - p])
        server = after


def test_fedheal_masks_and_shares_by_hand():
    """Signs ++-, then --+ of one coordinate each: shares 1, 1, 0, 1/2, ...; zero counts as a plus."""
    algo = make("fedheal", threshold=0.4)
    state = {"share": torch.zeros(1, 3, dtype=D), "count": torch.zeros(1, 1, dtype=D)}

    def finished(*delta):
        nonlocal state
        up, state = algo.finish({"w": torch.zeros(3, dtype=D)}, state, {"w": -vector(delta)}, None)
        return (
            up["delta"].tolist()[0],
            unpacked(up["mask"], 3).tolist()[0],
            state["share"].tolist()[0],
        )

    assert finished(1.0, 0.0, -1.0) == ([1, 0, -1], [True, True, True], [1, 1, 0])
    assert finished(-1.0, 2.0, 3.0) == ([0, 2, 0], [False, True, False], [0.5, 1, 0.5])
    assert finished(-1.0, -2.0, 3.0) == (
        [-1, 0, 3],
        [True, False, True],
        pytest.approx([1 / 3, 2 / 3, 2 / 3]),
    )


def test_fedheal_coordinates_without_a_sender_stay():
    algo = make("fedheal", beta=0.0)
    delta = torch.tensor([[1.0, 0.0, 5.0], [3.0, 0.0, 0.0]], dtype=D)
    mask = torch.tensor([[True, False, True], [True, False, False]])
    after = algo.update(
        algo.server_init(torch.ones(3, dtype=D), 2),
        {"delta": delta, "mask": packed(mask)},
        fair_cohort([0, 1]),
    )
    assert after["w"].tolist() == pytest.approx([1 - 2.0, 1.0, 1 - 5.0])


def test_fedheal_norms_by_tensor():
    """(3, 4 | 12): 13 as a whole, 5 + 12 by tensor; the other client has one tensor, of length 17."""
    delta = torch.tensor([[3.0, 4.0, 12.0], [0.0, 0.0, 17.0]], dtype=D)
    up, w = {"delta": delta, "mask": packed(delta < 99)}, torch.zeros(3, dtype=D)
    increments = {}
    for name, options in (("whole", {}), ("tensor", {"distance": "tensor", "tensors": [2, 1]})):
        algo = make("fedheal", beta=1.0, **options)
        increments[name] = algo.update(algo.server_init(w, 2), up, fair_cohort([0, 1]))[
            "increment"
        ].tolist()
    assert increments == {
        "whole": pytest.approx([13 / 30, 17 / 30]),
        "tensor": pytest.approx([0.5, 0.5]),
    }
    with pytest.raises(
        RequestError, match="distance=tensor needs the sizes of the model's tensors"
    ):
        make("fedheal", distance="tensor")


def test_fedheal_counts_own_participations():
    """An absent client keeps its shares and its weight; the first mask of a client is full whenever that is."""
    data = federation()
    draw = sample_cohort(3)
    run = snapshots(make("fedheal"), data, rounds=6, sampler=draw)
    taken = np.zeros(data.num_clients)
    for before, after in pairwise(run):
        taken[after.cohort] += 1
        absent = np.setdiff1d(np.arange(data.num_clients), after.cohort)
        assert torch.equal(before.clients["share"][absent], after.clients["share"][absent])
        assert torch.equal(before.server["gained"][absent], after.server["gained"][absent])
    assert run[-1].clients["count"].flatten().tolist() == taken.tolist()


@pytest.mark.parametrize("size", [1, 7, 8, 9, 30])
def test_masks_travel_as_bits(size):
    mask = torch.rand(5, size, generator=torch.Generator().manual_seed(size)) < 0.5
    assert packed(mask).shape == (5, -(-size // 8))
    assert packed(mask).dtype == torch.uint8
    assert torch.equal(unpacked(packed(mask), size), mask)

"""FedHEAL: worked numbers and invariances, in float64."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import federation, make, snapshots
from toy_problems import cohort, updated, vector

from fedbench.algorithms.fedheal import packed, unpacked
from fedbench.core.errors import RequestError


def sent(*rows):
    """Uploads of clients that send all coordinates that are not None."""
    delta = vector(*([0.0 if x is None else x for x in row] for row in rows))
    mask = torch.tensor([[x is not None for x in row] for row in rows])
    return {"delta": delta, "mask": packed(mask)}


def test_a_threshold_above_every_share_freezes_the_model():
    first, second, *_, last = (
        s.server["w"]
        for s in snapshots(
            make("fedheal", threshold=1.0),
            federation(),
            rounds=4,
        )
    )
    assert torch.equal(second, last)
    assert not torch.equal(first, second)


def test_coordinates_without_a_sender_stay():
    after = updated(
        make("fedheal", beta=0.0),
        sent([1.0, None, 5.0], [3.0, None, None]),
        cohort(2),
    )
    assert after["w"] == pytest.approx([-2.0, 0.0, -5.0])


def test_distances_by_tensor_need_the_tensors():
    message = "distance=tensor needs the sizes of the model's tensors"
    with pytest.raises(RequestError, match=message):
        make("fedheal", distance="tensor")


def test_every_client_counts_its_own_participations():
    """An absent client keeps its weight; the first mask of a client is full whenever that is."""
    data = federation()
    run = snapshots(
        make("fedheal"),
        data,
        rounds=6,
        participation=3,
    )
    taken = np.zeros(data.num_clients)
    for before, after in pairwise(run):
        taken[after.cohort] += 1
        absent = np.setdiff1d(np.arange(data.num_clients), after.cohort)
        assert torch.equal(before.server["gained"][absent], after.server["gained"][absent])
    assert run[-1].clients["count"].flatten().tolist() == taken.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("falls", [False, True])
def test_a_share_equal_to_the_threshold_is_not_above_it(falls, dtype):
    """In 100 participations, 30 had the sign, in any order; the running share is then rounded."""
    algo = make("fedheal", threshold=0.3)
    message = {"w": torch.zeros(1, 500, dtype=dtype)}
    gen = torch.Generator().manual_seed(1)
    order = torch.rand(100, 500, generator=gen).argsort(0)
    signs = torch.where((order < 30) ^ falls, 1.0, -1.0).to(dtype)
    client = {"share": torch.zeros(1, 500, dtype=dtype), "count": torch.zeros(1, 1, dtype=dtype)}
    for sign in signs:
        _, client = algo.finish(message, client, {"w": -sign.view(1, -1)}, cohort(1).columns())
    last = torch.full((1, 500), -1.0 if falls else 1.0, dtype=dtype)
    upload, _ = algo.finish(message, client, {"w": -last}, cohort(1).columns())
    assert not upload["delta"].any()


@pytest.mark.parametrize("size", [1, 8, 30])
def test_masks_travel_as_bits(size):
    mask = torch.rand(5, size, generator=torch.Generator().manual_seed(size)) < 0.5
    bits = packed(mask)
    assert bits.shape == (5, -(-size // 8))
    assert bits.dtype == torch.uint8
    assert torch.equal(unpacked(bits, size), mask)

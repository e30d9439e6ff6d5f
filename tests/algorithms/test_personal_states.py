"""States of absent clients, and states in a file, of personalised methods."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import deployed, federation, make, snapshots
from toy_problems import DRAWN, start_of

from fedbench.simulation.client_states import StateAllocator


@pytest.mark.parametrize(
    ("name", "options"),
    [("pfedme", {}), ("apfl", {"adaptive": True}), ("fedspeed", {})],
)
def test_absent_clients_keep_their_states(name, options):
    data = federation()
    run = snapshots(make(name, **options), data, rounds=5, work=DRAWN, participation=0.4)
    for before, after in pairwise(run):
        absent = np.setdiff1d(np.arange(data.num_clients), after.cohort)
        for key, states in after.clients.items():
            assert torch.equal(before.clients[key][absent], states[absent])
        assert any(not torch.equal(before.clients[k], after.clients[k]) for k in after.clients)

    drawn = np.concatenate([s.cohort for s in run[1:]])
    never_drawn = np.setdiff1d(np.arange(data.num_clients), drawn)
    if "personal" in run[-1].clients:
        states = run[-1].clients["personal"][never_drawn]
        assert (states == start_of(data)).all()


@pytest.mark.parametrize("name", ["feddyn", "fedspeed", "pfedme", "apfl"])
def test_states_in_a_file_are_those_in_memory(name, tmp_path):
    algo = make(name)
    in_memory, in_file = (
        snapshots(
            algo,
            federation(),
            rounds=4,
            work=DRAWN,
            participation=0.6,
            allocator=allocator,
        )[-1]
        for allocator in (None, StateAllocator(torch.device("cpu"), "file", tmp_path))
    )
    assert list(tmp_path.iterdir())
    assert torch.equal(deployed(algo, in_memory), deployed(algo, in_file))
    for key, states in in_memory.clients.items():
        assert torch.equal(states, in_file.clients[key])

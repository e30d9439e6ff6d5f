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
    [("pfedme", {}), ("apfl", {}), ("apfl", {"adaptive": True}), ("fedspeed", {})],
)
def test_absent_clients_keep_their_states(name, options):
    data = federation()
    algo = make(name, **options)
    run = snapshots(algo, data, rounds=5, work=DRAWN, participation=0.4)
    seen = set()
    for before, after in pairwise(run):
        absent = np.setdiff1d(np.arange(data.num_clients), after.cohort)
        assert all(
            torch.equal(before.clients[k][absent], after.clients[k][absent]) for k in after.clients
        )
        assert not torch.equal(
            before.clients[next(iter(after.clients))], after.clients[next(iter(after.clients))]
        )
        seen |= set(after.cohort.tolist())
    for k in set(range(data.num_clients)) - seen:  # never drawn
        if "personal" in run[0].clients:
            assert torch.equal(run[-1].clients["personal"][k], start_of(data))


@pytest.mark.parametrize("name", ["feddyn", "fedspeed", "pfedme", "apfl"])
def test_states_in_a_file_are_those_in_memory(name, tmp_path):
    data, how = federation(), {"rounds": 4, "work": DRAWN, "participation": 0.6}
    algo = make(name)
    here = snapshots(algo, data, **how)[-1]
    there = snapshots(
        algo, data, allocator=StateAllocator(torch.device("cpu"), "file", tmp_path), **how
    )[-1]
    assert list(tmp_path.iterdir())
    assert torch.equal(deployed(algo, here), deployed(algo, there))
    assert all(torch.equal(here.clients[k], there.clients[k]) for k in here.clients)

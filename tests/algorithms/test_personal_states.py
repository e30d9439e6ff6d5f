"""States of absent clients, and states in a file, of personalised methods."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import federation, make, snapshots
from toy_problems import DRAWN, start_of


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

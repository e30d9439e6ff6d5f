"""The helpers that fill fields of a method."""

import torch
from tools import federation, snapshots

from fedbench.core.algorithm import Algorithm, descent, upload_with
from fedbench.simulation.local_work import LocalWork


def test_upload_with_sends_local_variables_and_keeps_those_of_the_client():
    local = {"w": torch.ones(2), "m": torch.full((2,), 3.0), "v": torch.full((2,), 5.0)}
    uploads, client = upload_with("m")({"w": torch.zeros(2)}, {"v": torch.zeros(2)}, local, None)
    assert {k: v.tolist() for k, v in uploads.items()} == {"delta": [-1, -1], "m": [3, 3]}
    assert {k: v.tolist() for k, v in client.items()} == {"v": [5, 5]}


def test_descent_starts_with_further_variables():
    solver = descent(variables=lambda msg, client, info: {"shift": msg["m"] - client["c"]})
    local = solver["start"](
        {"w": torch.zeros(2), "m": torch.ones(2)}, {"c": torch.full((2,), 3.0)}, None
    )
    assert {k: v.tolist() for k, v in local.items()} == {"w": [0, 0], "shift": [-2, -2]}


def test_batches_have_the_number_of_their_step():
    numbers = []

    def step(oracle, msg, local, batch, info):
        numbers.append((batch.step, len(local["w"])))
        return local

    snapshots(
        Algorithm(step=step), federation([40, 12]), rounds=1, work=LocalWork(lr=0.1, batch_size=10)
    )
    assert numbers == [(0, 2), (1, 2), (2, 1), (3, 1)]

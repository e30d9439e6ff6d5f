"""TERM: its limits, in float64."""

import numpy as np
from reference_clients import loss_and_grad
from tools import federation
from toy_problems import (
    clients_of,
    distance,
    start_of,
    trained,
)


def test_tends_to_the_worst_client():
    data = federation()
    start = start_of(data).numpy()
    losses = [loss_and_grad(start, x, y)[0] for x, y in clients_of(data)]
    worst = np.array([np.argmax(losses)])
    alone = trained(
        "fedavg",
        data,
        rounds=1,
        sampler=lambda *_: worst,
    )
    assert (
        distance(
            trained(
                ("term", {"t": 1e4}),
                data,
                rounds=1,
            ),
            alone,
        )
        < 1e-10
    )

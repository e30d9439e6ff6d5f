"""TERM: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from reference import loss_and_grad
from tools import close, federation, final, make
from toy_problems import UNIFORM, start_of


def test_term_tends_to_fedavg_and_to_the_worst_client():
    data = federation()
    plain = final(make("fedavg", **UNIFORM), data, rounds=1)
    apart = [
        torch.linalg.vector_norm(final(make("term", t=t), data, rounds=1) - plain).item()
        for t in (1e-4, 1e-5)
    ]
    assert apart[0] / apart[1] == pytest.approx(10, rel=1e-3)
    start = start_of(data)
    owned = data.train.split()
    losses = [loss_and_grad(start.numpy(), data.x[r].numpy(), data.y[r].numpy())[0] for r in owned]
    alone = final(
        make("fedavg"), data, rounds=1, sampler=lambda *_: np.array([int(np.argmax(losses))])
    )
    assert close(final(make("term", t=1e4), data, rounds=1), alone, 1e-10)

"""Label noise: how many labels change, whose, and which stay."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tools import federation, rejected

from fedbench.core.options import LabelNoise
from fedbench.data.noise import with_label_noise

DATA = federation(
    sizes=(400,) * 60,
    tests=[20] * 60,
    features=2,
    classes=5,
)


def changed(noisy, k):
    rows = DATA.train.of_clients(np.array([k]))
    return (noisy.y[rows] != DATA.y[rows]).double().mean().item()


def test_shares_of_clients_and_labels():
    """ρ = 0.5, τ = 0.6: half of the clients; a label of a client of level l changes with
    probability 4/5 l."""
    noisy, level = with_label_noise(
        DATA,
        LabelNoise(0.5, 0.6, "uniform"),
        seed=1,
    )
    assert (level > 0).mean() == pytest.approx(0.5, abs=0.2)
    assert ((level == 0) | ((level >= 0.6) & (level <= 1))).all()
    for k in range(60):
        assert changed(noisy, k) == pytest.approx(0.8 * level[k], abs=0.1 * (level[k] > 0))
    assert len(set(level[level > 0])) > 10


def test_pair_is_the_next_class():
    noisy, level = with_label_noise(
        DATA,
        LabelNoise(1.0, 1.0, "pair"),
        seed=1,
    )
    rows = DATA.train.index
    assert (level == 1).all()
    assert torch.equal(noisy.y[rows], (DATA.y[rows] + 1) % 5)


def test_labels_of_sequences_change_token_by_token():
    data = replace(
        DATA,
        y=DATA.y[:, None].repeat(1, 7),
    )
    noisy, level = with_label_noise(
        data,
        LabelNoise(0.5, 0.6, "pair"),
        seed=1,
    )
    wrong = (noisy.y != data.y)[data.train.index].double().reshape(60, 400, 7)
    assert wrong.mean((1, 2)).numpy() == pytest.approx(level, abs=0.05)
    assert ((wrong.sum(2) > 0) & (wrong.sum(2) < 7)).any()
    clients = (level > 0).sum()
    labels = int(wrong.sum())
    note = f"label noise: {clients} of 60 clients, {labels} of 168000 training labels"
    assert noisy.sources == (*data.sources, note)


def test_test_labels_and_the_given_data_stay():
    before = DATA.y.clone()
    noisy, _ = with_label_noise(
        DATA,
        LabelNoise(1.0, 0.9, "uniform"),
        seed=1,
    )
    assert torch.equal(noisy.y[DATA.test.index], DATA.y[DATA.test.index])
    assert torch.equal(DATA.y, before)


def test_it_is_a_function_of_the_seed():
    noise = LabelNoise(0.5, 0.5, "uniform")
    first, again, other = (with_label_noise(DATA, noise, seed)[0].y for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1.5, 0.5, "uniform"), "clients must be <= 1, got 1.5"),
        ((0.5, -1, "uniform"), "level must be >= 0, got -1"),
        ((0.5, 0.5, "random"), "kind must be one of uniform, pair"),
    ],
)
def test_refuses(values, message):
    with rejected(message):
        LabelNoise(*values)

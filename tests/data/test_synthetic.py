"""The generators against a transcription of their published description, call by call."""

import numpy as np
import pytest

from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.data.sources.synthetic import fedprox, leaf
from fedbench.runs.build_data import read_examples


def leaf_call_by_call(clients, seed):
    """Every draw on NumPy's global generator, in LEAF's order."""
    state = np.random.get_state()
    try:
        np.random.seed(seed)
        sizes = [min(int(s) + 5, 1000) for s in np.random.lognormal(3, 2, clients)]
        np.random.seed(seed)
        q = np.random.normal(loc=0.0, scale=1.0, size=(61, 10, 1))
        location = np.random.normal(loc=0, scale=1.0, size=None)
        center = np.random.normal(loc=location, scale=1.0, size=1)
        sigma = np.zeros((60, 60))
        for j in range(60):
            sigma[j, j] = (j + 1) ** -1.2
        xs, ys = [], []
        for n in sizes:
            np.random.choice(1, size=None, replace=True, p=[1.0])
            b = np.random.normal(loc=0.0, scale=1.0, size=None)
            v = np.random.normal(loc=b, scale=1.0, size=60)
            x = np.random.multivariate_normal(mean=v, cov=sigma, size=n)
            u = np.random.normal(loc=center, scale=0.1, size=1)
            z = np.matmul(np.hstack([np.ones((n, 1)), x]), np.matmul(q, u))
            z = z + np.random.normal(loc=0.0, scale=0.1, size=(n, 10))
            e = np.exp(z - z.max(1, keepdims=True))
            xs.append(x)
            ys.append((e / e.sum(1, keepdims=True)).argmax(1))
        return np.concatenate(xs), np.concatenate(ys), sizes
    finally:
        np.random.set_state(state)


def test_leaf_is_bit_exact():
    x, y, sizes = leaf_call_by_call(100, 931231)
    ours = leaf(clients=100)
    assert np.array_equal(ours.x, x)
    assert np.array_equal(ours.y, y)
    assert np.bincount(ours.owner).tolist() == sizes


def test_leaf_values():
    """Figures to hold on to: sizes and labels exactly, inputs to rounding."""
    ours = leaf(clients=100)
    assert ours.x.shape == (10376, 60)
    assert np.bincount(ours.owner)[:8].tolist() == [86, 33, 52, 6, 11, 784, 11, 153]
    assert np.bincount(ours.y).tolist() == [1651, 294, 529, 886, 297, 484, 662, 5240, 303, 30]
    assert ours.x[0, :3] == pytest.approx([1.07498543, 0.9781692, -1.23583332], abs=1e-8)
    assert ours.x[-1, -2:] == pytest.approx([-1.28225343, 0.10964236], abs=1e-8)


def test_leaf_leaves_the_global_generator_alone():
    before = np.random.get_state()[1].copy()
    leaf(clients=2)
    assert np.array_equal(before, np.random.get_state()[1])


def fedprox_call_by_call(clients, alpha, beta, seed):
    rng = np.random.RandomState(seed)
    sizes = rng.lognormal(4, 2, clients).astype(int) + 50
    u, b = rng.normal(0, alpha, clients), rng.normal(0, beta, clients)
    v = [rng.normal(b[k], 1, 60) for k in range(clients)]
    cov = np.diag([(j + 1) ** -1.2 for j in range(60)])
    out = []
    for k in range(clients):
        w, c = rng.normal(u[k], 1, (60, 10)), rng.normal(u[k], 1, 10)
        x = rng.multivariate_normal(v[k], cov, sizes[k])
        out.append((x, np.argmax(x @ w + c, 1)))
    return out


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_fedprox_family(spread):
    ours = fedprox(3, clients=5, alpha=spread, beta=spread)
    for k, (x, y) in enumerate(fedprox_call_by_call(5, spread, spread, 3)):
        assert np.array_equal(ours.x[ours.owner == k], x)
        assert np.array_equal(ours.y[ours.owner == k], y)


def test_fedprox_iid_has_one_model():
    """Labels of all clients follow one linear rule, and inputs are centred at 0."""
    ours = fedprox(3, clients=30, alpha=None, beta=None)
    rng = np.random.RandomState(3)
    sizes = rng.lognormal(4, 2, 30).astype(int) + 50
    w, b = rng.normal(0, 1, (60, 10)), rng.normal(0, 1, 10)
    assert np.bincount(ours.owner).tolist() == sizes.tolist()
    assert np.array_equal(ours.y, (ours.x @ w + b).argmax(1))
    assert np.abs(ours.x.mean(0)).max() < 5 / np.sqrt(len(ours.x))


def test_examples_are_rounded_to_the_type_of_the_run_and_to_nothing_else():
    """As if all of them had been made in float64 first, which takes three times the memory."""
    for made in (
        lambda **how: leaf(20, **how),
        lambda **how: fedprox(3, clients=9, alpha=1, beta=1, **how),
    ):
        exact, rounded = made(), made(feature_dtype="float32")
        assert np.array_equal(exact.x.astype(np.float32), rounded.x)
        assert np.array_equal(exact.y, rounded.y)
        assert np.array_equal(exact.owner, rounded.owner)
    run = compose_run(["data=synthetic_1_1", "data.clients=3"])
    assert read_examples(run).x.dtype == np.float32
    assert (
        read_examples(compose_run(["data=synthetic_1_1", "engine.precision=float64"])).x.dtype
        == np.float64
    )


def test_a_population_of_small_clients():
    """Sizes are cut, and nothing else changes in what comes before the first client that is cut."""
    assert np.bincount(fedprox(3, clients=40, alpha=1, beta=1, most=5).owner).tolist() == [5] * 40
    whole, cut = (fedprox(3, clients=40, alpha=1, beta=1, most=most) for most in (None, 100))
    assert np.bincount(cut.owner).tolist() == np.minimum(np.bincount(whole.owner), 100).tolist()
    assert np.array_equal(cut.x[:50], whole.x[:50])


def test_refuses_a_null_without_the_other():
    for name in ("alpha", "beta"):
        with pytest.raises(RequestError, match="alpha and beta must both be numbers, or both null"):
            fedprox(0, clients=3, **{"alpha": 1.0, "beta": 1.0, name: None})

"""The generators against a transcription of their published description, call by call."""

import numpy as np
import pytest
from numpy.random import RandomState
from tools import rejected

from fedbench.config.compose import compose_run
from fedbench.data.sources.synthetic import fedprox, leaf
from fedbench.runs.build_data import read_examples


def leaf_call_by_call(clients, seed):
    """Every draw of LEAF's script in its order; the sizes come from a generator of their own."""
    sizes = [min(int(s) + 5, 1000) for s in RandomState(seed).lognormal(3, 2, clients)]
    rng = RandomState(seed)
    q = rng.normal(0.0, 1.0, (61, 10, 1))
    location = rng.normal(0, 1.0)
    center = rng.normal(location, 1.0, 1)
    sigma = np.diag([(j + 1) ** -1.2 for j in range(60)])
    parts = []
    for n in sizes:
        rng.choice(
            1,
            size=None,
            replace=True,
            p=[1.0],
        )
        b = rng.normal(0.0, 1.0)
        v = rng.normal(b, 1.0, 60)
        x = rng.multivariate_normal(v, sigma, n)
        u = rng.normal(center, 0.1, 1)
        z = np.hstack([np.ones((n, 1)), x]) @ (q @ u)
        z = z + rng.normal(0.0, 0.1, (n, 10))
        e = np.exp(z - z.max(1, keepdims=True))
        y = (e / e.sum(1, keepdims=True)).argmax(1)
        parts.append((x, y))
    return parts


def check(ours, parts):
    """The examples of each client are bit-exact."""
    for k, (x, y) in enumerate(parts):
        assert np.array_equal(ours.x[ours.owner == k], x)
        assert np.array_equal(ours.y[ours.owner == k], y)
    assert len(ours.names) == len(parts)


def test_leaf_is_bit_exact():
    check(leaf(clients=100), leaf_call_by_call(100, 931231))


def test_leaf_leaves_the_global_generator_alone():
    before = np.random.get_state()[1].copy()
    leaf(clients=2)
    assert np.array_equal(before, np.random.get_state()[1])


def fedprox_call_by_call(clients, alpha, beta, seed):
    rng = RandomState(seed)
    sizes = rng.lognormal(4, 2, clients).astype(int) + 50
    u = rng.normal(0, alpha, clients)
    b = rng.normal(0, beta, clients)
    v = [rng.normal(b[k], 1, 60) for k in range(clients)]
    cov = np.diag([(j + 1) ** -1.2 for j in range(60)])
    parts = []
    for k in range(clients):
        w = rng.normal(
            u[k],
            1,
            (60, 10),
        )
        c = rng.normal(u[k], 1, 10)
        x = rng.multivariate_normal(v[k], cov, sizes[k])
        parts.append((x, np.argmax(x @ w + c, 1)))
    return parts


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_fedprox_is_bit_exact(spread):
    ours = fedprox(3, clients=5, alpha=spread, beta=spread)
    check(ours, fedprox_call_by_call(5, spread, spread, 3))


def test_fedprox_iid_has_one_model():
    """Labels of all clients follow one linear rule, and inputs are centred at 0."""
    ours = fedprox(3, clients=30, alpha=None, beta=None)
    rng = RandomState(3)
    sizes = rng.lognormal(4, 2, 30).astype(int) + 50
    w = rng.normal(0, 1, (60, 10))
    b = rng.normal(0, 1, 10)
    assert np.bincount(ours.owner).tolist() == sizes.tolist()
    assert np.array_equal(ours.y, (ours.x @ w + b).argmax(1))
    assert np.abs(ours.x.mean(0)).max() < 5 / np.sqrt(len(ours.x))


SMALL = {"seed": 3, "clients": 9, "alpha": 1, "beta": 1}


@pytest.mark.parametrize(
    ("source", "options"),
    [(leaf, {"clients": 20}), (fedprox, SMALL)],
)
def test_examples_are_rounded_to_the_type_of_the_run_and_to_nothing_else(source, options):
    """As if all of them had been made in float64 first, which takes three times the memory."""
    exact = source(**options)
    rounded = source(**options, feature_dtype="float32")
    assert np.array_equal(exact.x.astype(np.float32), rounded.x)
    assert np.array_equal(exact.y, rounded.y)
    assert np.array_equal(exact.owner, rounded.owner)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_examples_have_the_type_of_the_run(precision):
    keys = ["data=synthetic_1_1", "data.clients=3", f"engine.precision={precision}"]
    assert read_examples(compose_run(keys)).x.dtype == precision


def sizes(examples):
    return np.bincount(examples.owner)


def test_a_population_of_small_clients():
    """Sizes are cut, and nothing else changes in what comes before the first client that is cut."""
    assert sizes(fedprox(**(SMALL | {"clients": 40}), most=5)).tolist() == [5] * 40
    whole = fedprox(**SMALL)
    cut = fedprox(**SMALL, most=100)
    assert sizes(cut).tolist() == np.minimum(sizes(whole), 100).tolist()
    assert np.array_equal(cut.x[:50], whole.x[:50])


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_refuses_a_null_without_the_other(name):
    with rejected("alpha and beta must both be numbers, or both null"):
        fedprox(**(SMALL | {name: None}))

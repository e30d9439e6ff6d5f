"""Random numbers as functions of seed, purpose and round, and the cohorts that they draw."""

from itertools import product

import numpy as np
import pytest
import torch

from fedbench.core.randomness import (
    DataPurpose,
    Purpose,
    data_generator,
    fold_in,
    generator,
    integers,
    key,
    sample_cohort,
    without_replacement,
)


def mix(x):
    """SplitMix64's finaliser."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def folded(base, number):
    return mix((base + 0x9E3779B97F4A7C15 * (number + 1)) % 2**64)


@pytest.mark.parametrize("base", [0, 2**63, 2**64 - 1, key(931231, Purpose.BATCHES, 17)])
def test_hashes_of_tensors_and_arrays_are_those_of_whole_numbers(base):
    """The int64 arithmetic with wrap-around gives what unsigned arithmetic gives, less the last
    bit.
    """
    ids = [0, 1, 2, 12345, 2**31, 2**40, 2**62]
    once = [folded(base, k) for k in ids]
    twice = fold_in(
        base,
        torch.tensor(ids),
        torch.full((7,), 7),
    )
    assert fold_in(base, np.array(ids)).tolist() == [h >> 1 for h in once]
    assert twice.tolist() == [folded(h, 7) >> 1 for h in once]


def test_the_finaliser_is_splitmix64s():
    """First output of SplitMix64 seeded with 0, as its authors publish it."""
    assert key(0) == 0xE220A8397B1DCDAF


def test_seed_purpose_round_and_their_order_matter():
    coordinates = list(product(range(5), Purpose, range(5)))
    assert len({key(*c) for c in coordinates}) == len(coordinates)
    assert key(1, 2) != key(2, 1)


def test_hashes_are_uniform():
    hashes = fold_in(key(3), torch.arange(100_000)).double() / 2.0**63
    counts = torch.histc(hashes, 20, 0, 1)
    chi_square = (counts - 5000).square().sum() / 5000
    assert chi_square < 43.8  # 19 degrees of freedom, 0.1 %


def check_drawn(ids, size, n):
    """``size`` different clients with examples, ascending."""
    assert len(ids) == size
    assert (np.diff(ids) > 0).all()
    assert (n[ids] > 0).all()


def test_sampling_is_without_replacement_and_skips_weight_zero():
    n = np.array([3, 0, 5, 1, 0, 9])
    for t in range(50):
        check_drawn(
            without_replacement(key(0, t), 3, n),
            3,
            n,
        )
    assert without_replacement(key(0), 4, n).tolist() == [0, 2, 3, 5]


@pytest.mark.parametrize(("by_size", "shares"), [(True, [0.1, 0.2, 0.3, 0.4]), (False, [0.25] * 4)])
def test_sampling_by_size_and_uniformly(by_size, shares):
    """The shares of 2 000 draws of one client, to four standard errors."""
    n = np.array([1, 2, 3, 4])
    draw = sample_cohort(1, by_size=by_size)
    draws = [draw(t, n, 0)[0] for t in range(2_000)]
    drawn = np.bincount(draws, minlength=4) / 2_000
    assert np.abs(drawn - shares).max() < 4 * np.sqrt(0.25 / 2_000)


def test_integers_fill_the_range_evenly():
    counts = np.bincount(
        integers(
            key(0),
            np.arange(30_000),
            2,
            4,
        )
    )
    assert counts[:2].sum() == 0
    assert np.abs(counts[2:] - 10_000).max() < 4 * np.sqrt(30_000 * 2 / 9)


@pytest.mark.parametrize("seed", [0, 2**31])
def test_generators_are_fresh_and_separate(seed):
    def draws(purpose):
        return torch.rand(
            3,
            generator=generator(seed, purpose),
        )

    once = draws(Purpose.INIT)
    assert torch.equal(once, draws(Purpose.INIT))
    assert not torch.equal(once, draws(Purpose.BATCHES))


def test_purposes_of_data_are_the_streams_of_published_runs():
    """NumPy's generator of (seed, number); numbers never change."""
    assert {name: int(p) for name, p in DataPurpose.__members__.items()} == {
        "PARTITION": 0,
        "SPLIT": 1,
        "CLIENTS": 2,
        "LABEL_NOISE": 3,
        "ROLES": 7,
        "VALIDATION": 8,
        "IMAGES": 0,
        "AVAILABILITY": 13,
    }
    published = np.random.default_rng([5, 13])
    assert data_generator(5, DataPurpose.AVAILABILITY).random() == published.random()


def test_a_few_of_very_many_are_drawn_alike_and_without_replacement():
    """Every able id with the same probability."""
    n = np.ones(40_000, dtype=np.int64)
    n[::4] = 0
    draws = [
        without_replacement(
            key(0, Purpose.SAMPLING, t),
            60,
            n,
        )
        for t in range(400)
    ]
    for ids in draws:
        check_drawn(ids, 60, n)
    counts, _ = np.histogram(
        np.concatenate(draws),
        10,
        (0, len(n)),
    )
    assert np.abs(counts - 2400).max() < 5 * 2400**0.5


@pytest.mark.parametrize("size", [2, 3, 9])
def test_where_most_of_very_many_are_not_able_all_are_looked_at(size):
    n = np.zeros(40_000)
    n[[5, 700, 39_999]] = 1
    check_drawn(
        without_replacement(key(1), size, n),
        min(size, 3),
        n,
    )


@pytest.mark.parametrize(("clients", "fraction", "number"), [(50, 0.02, 1), (50_000, 0.002, 100)])
def test_a_cohort_of_a_fraction_and_of_a_number_are_the_same(clients, fraction, number):
    n = np.ones(clients, dtype=np.int64)
    of_fraction = sample_cohort(fraction)(3, n, 7)
    assert of_fraction.tolist() == sample_cohort(number)(3, n, 7).tolist()


def test_a_cohort_has_at_most_the_able_clients():
    n = np.array([1, 0, 2, 3])
    assert sample_cohort(9)(0, n, 0).tolist() == [0, 2, 3]

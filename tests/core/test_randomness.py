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


def test_tensor_hash_is_the_whole_number_hash():
    """The int64 arithmetic with wrap-around gives what unsigned arithmetic gives, less the last bit."""
    base = key(931231, Purpose.BATCHES, 17)
    rows = [0, 1, 2, 12345, 2**31, 2**40]
    tensor = fold_in(base, torch.tensor(rows), torch.full((len(rows),), 7))

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    h = [mix((base + 0x9E3779B97F4A7C15 * (r + 1)) % 2**64) for r in rows]
    h = [mix((x + 0x9E3779B97F4A7C15 * 8) % 2**64) for x in h]
    assert tensor.tolist() == [x >> 1 for x in h]


def test_hash_of_an_array_is_that_of_a_tensor():
    ids = np.concatenate([np.arange(100), [2**31, 2**40, 2**62]])
    for base in (0, 1, 2**63, 2**64 - 1, key(7, Purpose.LOCAL, 3)):
        assert fold_in(base, ids).tolist() == fold_in(base, torch.from_numpy(ids)).tolist()


def test_splitmix64_finaliser():
    """First output of SplitMix64 seeded with 0, as its authors publish it."""
    assert key(0) == 0xE220A8397B1DCDAF


def test_coordinates_matter():
    keys = {key(s, p, r) for s in range(5) for p in Purpose for r in range(5)}
    assert len(keys) == 5 * len(Purpose) * 5
    assert key(1, 2) != key(2, 1)


def test_hashes_are_uniform():
    h = fold_in(key(3), torch.arange(100_000)).double() / 2.0**63
    counts = torch.histc(h, 20, 0, 1)
    assert ((counts - 5000).square().sum() / 5000).item() < 43.8  # χ², 19 degrees of freedom, 0.1 %


def test_sampling_is_without_replacement_and_skips_weight_zero():
    n = np.array([3, 0, 5, 1, 0, 9])
    for t in range(50):
        ids = without_replacement(key(0, t), 3, n)
        assert len(set(ids)) == 3
        assert (n[ids] > 0).all()
        assert (np.diff(ids) > 0).all()
    assert without_replacement(key(0), 4, n).tolist() == [0, 2, 3, 5]


def test_sampling_by_size():
    """A single draw falls on client k with probability n_k / n: 3 000 draws, four standard errors."""
    n = np.array([1, 2, 3, 4])
    draws = [without_replacement(key(0, t), 1, n, uniform=False)[0] for t in range(3_000)]
    share = np.bincount(draws, minlength=4) / 3_000
    assert np.abs(share - n / 10).max() < 4 * np.sqrt(0.25 / 3_000)
    even = (
        np.bincount([without_replacement(key(0, t), 1, n)[0] for t in range(3_000)], minlength=4)
        / 3_000
    )
    assert np.abs(even - 0.25).max() < 4 * np.sqrt(0.25 / 3_000)


def test_integers_fill_the_range_evenly():
    draws = integers(key(0), np.arange(30_000), 2, 4)
    counts = np.bincount(draws)
    assert counts[:2].sum() == 0
    assert np.abs(counts[2:] - 10_000).max() < 4 * np.sqrt(30_000 * 2 / 9)


@pytest.mark.parametrize("seed", [0, 1, 2**31])
def test_generators_are_fresh_and_separate(seed):
    a, b = (torch.rand(3, generator=generator(seed, Purpose.INIT)) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, torch.rand(3, generator=generator(seed, Purpose.BATCHES)))


def test_purposes_of_data_are_the_streams_of_published_runs():
    """Partition, split, clients, noise and roles: NumPy's generator of (seed, number), never renumbered."""
    numbers = {
        "PARTITION": 0,
        "SPLIT": 1,
        "CLIENTS": 2,
        "LABEL_NOISE": 3,
        "ROLES": 7,
        "VALIDATION": 8,
        "IMAGES": 0,
        "AVAILABILITY": 13,
    }
    assert {name: int(p) for name, p in DataPurpose.__members__.items()} == numbers
    for p in DataPurpose:
        assert data_generator(5, p).random() == np.random.default_rng([5, int(p)]).random()


def test_a_few_of_very_many_are_drawn_alike_and_without_replacement():
    """Every able id with the same probability; where most are not able, all of them are looked at."""
    count, size = 40_000, 60
    n = np.ones(count, dtype=np.int64)
    n[::4] = 0
    draws = [without_replacement(key(0, Purpose.SAMPLING, t), size, n) for t in range(400)]
    for ids in draws:
        assert len(ids) == size
        assert (np.diff(ids) > 0).all()
        assert (n[ids] > 0).all()
    found = np.concatenate(draws)
    counts = np.histogram(found, 10, (0, count))[0]
    assert np.abs(counts - 2400).max() < 5 * 2400**0.5
    assert np.array_equal(draws[3], without_replacement(key(0, Purpose.SAMPLING, 3), size, n))
    few = np.zeros(count)
    few[[5, 700, 39_999]] = 1
    assert without_replacement(key(1), 3, few).tolist() == [5, 700, 39_999]
    assert without_replacement(key(1), 9, few).tolist() == [5, 700, 39_999]
    assert set(without_replacement(key(1), 2, few)) < {5, 700, 39_999}


def test_a_cohort_of_a_fraction_and_of_a_number_are_the_same():
    for count in (50, 50_000):
        n = np.ones(count, dtype=np.int64)
        draws = [
            sample_cohort(participation)(3, n, 7)
            for participation in (0.02 if count == 50 else 0.002, count // 500 or 1)
        ]
        assert draws[0].tolist() == draws[1].tolist()
    assert sample_cohort(9)(0, np.array([1, 0, 2, 3]), 0).tolist() == [0, 2, 3]

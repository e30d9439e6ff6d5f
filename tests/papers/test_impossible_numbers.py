"""Printed statistics that no accuracies can have: by hand, at random, and in the papers' files."""

import sys

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import ROOT

from fedbench.papers.registry import papers
from fedbench.simulation.evaluation import accuracy_metrics, tail_size

sys.path.append(str(ROOT / "scripts"))
import impossible_numbers as script


def reason(clients, fraction, average, deviation, worst, best):
    statistics = script.Statistics(clients, average, deviation, fraction, worst, best)
    return statistics.contradiction


# ---- by hand

# clients, share of a tail, average, deviation, averages of the worst and best tail, the reason
TAILS = """
# 30 of 100 clients with 25.94 leave (8834 - 30 * 25.94) / 70 to the others
- [100, 0.3, 88.34, 16.77, 25.94, null, the 70 clients outside the tails would average 115.1 %]
# 98.9 % for the others, and √0.21 * 72.9 = 33.4
- [100, 0.3, 77.0, 36.0, 25.94, null, null]
# below the worst tail: (10 * 50 - 51 - 90) / 8
- [10, 0.1, 50.0, 10.0, 51.0, 90.0, the 8 clients outside the tails would average 44.9 %]
# above the best tail: (31 * 60.74 - 3 * 53.57 - 3 * 55.92) / 25
- [31, 0.1, 60.74, 8.32, 53.57, 55.92, the 25 clients outside the tails would average 62.2 %]
# 30 % of 16 clients are 4.8: four at 40 and twelve at 80 have √300 = 17.3
- [16, 0.3, 70.0, 17.32, 40.0, null, null]
- [16, 0.3, 70.0, 17.0, 40.0, null, these averages need a deviation of at least 17.3]
# five at 40 and eleven at 83.6 have √((5 * 30² + 11 * 13.6²) / 16) = 20.2
- [16, 0.3125, 70.0, 17.32, 40.0, null, these averages need a deviation of at least 20.2]
# 0, 100 and eight at 50 have √((50² + 50²) / 10) = 22.36
- [10, 0.1, 50.0, 22.36, 0.0, 100.0, null]
- [10, 0.1, 50.0, 22.25, 0.0, 100.0, these averages need a deviation of at least 22.3]
# four of ten at 20 and six at 70 have √((4 * 30² + 6 * 20²) / 10) = √600 = 24.495
- [10, 0.4, 50.0, 24.495, 20.0, null, null]
- [10, 0.4, 50.0, 24.395, 20.0, null, these averages need a deviation of at least 24.4]
# 49 and 51 five times have 1; the bound is (2 * 1.05 + √8 * 1.05) / √10 = 1.60
- [10, 0.1, 50.0, 1.0, 49.0, 51.0, null]
- [10, 0.1, 50.0, 1.64, 49.0, 51.0, null]
- [10, 0.1, 50.0, 1.67, 49.0, 51.0, these averages allow a deviation of at most 1.7]
"""
# average, deviation, accuracies of single clients, and the reason
THREE_CLIENTS = """
# the three average 80.39 with a deviation of 11.46
- [80.39, 11.46, [64.26, 87.0, 89.9], null]
- [80.39, 3.39, [64.26, 87.0, 89.9], these clients have a deviation of at least 11.4]
# the third lies between the two: √((11.37² + 11.37²) / 3) = 9.28
- [null, 9.3, [64.26, 87.0], null]
- [null, 9.1, [64.26, 87.0], these clients have a deviation of at least 9.2]
# the third is 90
- [80.42, 11.3, [64.26, 87.0], these clients have a deviation of at least 11.4]
- [95.0, null, [64.26, 87.0], the 1 other clients would average 133.7 %]
"""


@pytest.mark.parametrize("case", yaml.safe_load(TAILS), ids=str)
def test_tails_by_hand(case):
    *statistics, expected = case
    assert reason(*statistics) == expected


@pytest.mark.parametrize("case", yaml.safe_load(THREE_CLIENTS), ids=str)
def test_three_clients_by_hand(case):
    average, deviation, single, expected = case
    statistics = script.Statistics(3, average, deviation, single=tuple(single))
    assert statistics.contradiction == expected


def test_a_large_tail_can_hide_one_client_at_zero():
    """29 of 30 clients at 60 and one at 0 average 58."""
    accuracies = [0.0] + [60.0] * 99
    average = np.mean(accuracies)
    deviation = np.std(accuracies)
    assert reason(100, 0.3, average, deviation, 58.0, 60.0) is None


# ---- from random accuracies

# clients, and share of a tail
SIZES = [(100, 0.05), (10, 0.1), (31, 0.1), (30, 0.2), (16, 0.3)]
KINDS = st.sampled_from(("any", "one", "ends", "normal", "few"))


def accuracies(kind, clients, rng):
    """Accuracies in percent: anything, mostly one value, or only wrong and right."""
    x = rng.uniform(0, 100, clients)
    if kind == "one":
        x[rng.integers(1, 5) :] = x[0]
        x[1:4] = rng.choice([0.0, 100.0])
    elif kind == "ends":
        x = 100.0 * (x < rng.uniform(0, 100))
    elif kind == "normal":
        spread = rng.uniform(0, 30)
        x = np.clip(rng.normal(x[0], spread, clients), 0, 100)
    elif kind == "few":
        x = rng.choice([0.0, x[0], 100.0], clients)
    return np.sort(x)


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(SIZES),
    st.lists(KINDS, min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_statistics_of_accuracies_are_never_called_impossible(sizes, kinds, seed, both):
    """Averaged over seeds and rounded to two digits, with both tails or only the worst one."""
    clients, fraction = sizes
    rng = np.random.default_rng(seed)
    seeds = np.array([accuracies(kind, clients, rng) for kind in kinds])
    size = max(1, round(fraction * clients))
    exact = (
        seeds.mean(),
        seeds.std(1).mean(),
        seeds[:, :size].mean(),
        seeds[:, -size:].mean(),
    )
    average, deviation, worst, best = np.round(exact, 2)
    if not both:
        best = None
    assert reason(clients, fraction, average, deviation, worst, best) is None


# ---- in the papers


def test_the_rows_that_the_files_mark_are_those_that_are_impossible(capsys):
    assert script.main() == 0
    assert capsys.readouterr().out == ""
    tables = [table for paper in papers().values() for table in paper.tables.values()]
    assert sum(bool(row.impossible) for table in tables for row in table.rows) == 64


@pytest.mark.parametrize(
    ("clients", "size"),
    [
        (16, 4),
        (31, 9),
        (100, 30),
        (3, 1),
    ],
)
def test_the_smaller_tail_is_that_of_the_measured_metric(clients, size):
    """The worst 30 % at 0 and the others at 1 are possible with the tail of the metric."""
    accuracy = np.repeat([0.0, 1.0], [size, clients - size])
    assert tail_size(clients, 30) == size
    measured = accuracy_metrics(accuracy, np.ones(clients))
    names = ("accuracy_mean", "accuracy_std", "accuracy_worst30")
    average, deviation, worst = (100 * measured[name] for name in names)
    assert reason(clients, 0.3, average, deviation, worst, None) is None
    assert reason(clients, 0.3, average, deviation - 0.2, worst, None) is not None


# table, setup, algorithm and the columns that are marked
MARKED = """
# 3.54, 46.85 and tails of 5 of 100 clients at 19.84 and 69.28: any two of the three averages need
# more than 3.54
- [table1, cifar10_s1, fedavg, [std_clients]]
# 5.2 are needed and 4.95 printed; any three of the four numbers are possible
- [table1, cifar10_s2, fedfa, [avg, std_clients, worst10, best10]]
# the mean exceeds the best tail, and the tails are too close for the STD
- [table4, shakespeare_s1, ditto, [best10]]
# 64.26, 87.00 and 89.90 average 80.39 ± 11.46; 80.42 and 3.39 are printed
- [table7, fmnist, fedavg, [std_clients]]
# 72.49, 79.81 and 86.99 average 79.76, and 79.14 is printed
- [table7, fmnist, adafed, [avg, std_clients, acc_shirt, acc_pullover, acc_tshirt]]
"""


@pytest.mark.parametrize(("table", "setup", "algo", "columns"), yaml.safe_load(MARKED))
def test_the_marks_are_those_of_the_fewest_numbers_that_have_to_go(table, setup, algo, columns):
    paper = papers()["adafed"]
    rows = paper.tables[table].rows
    row = next(row for row in rows if row.setup == setup and row.algo == algo)
    assert script.contradiction(paper, row).columns == tuple(columns)

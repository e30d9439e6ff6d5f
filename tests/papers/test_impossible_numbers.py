"""Which printed statistics no accuracies can have: by hand, from random accuracies, and in the papers' files."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import ROOT

from fedbench.papers.registry import papers
from fedbench.simulation.evaluation import accuracy_metrics, tail_size

sys.path.append(str(ROOT / "scripts"))
import impossible_numbers as script


def impossible(clients, fraction, average, deviation, worst, best):
    return script.Statistics(clients, average, deviation, fraction, worst, best).contradiction


# ---- by hand


def test_the_others_average_what_is_left_to_them():
    """100 clients with 88.34 %, 30 of them with 25.94 %: the 70 others would have (8834 - 30 * 25.94) / 70."""
    assert impossible(100, 0.3, 88.34, 16.77, 25.94, None) == (
        "the 70 clients outside the tails would average 115.1 %"
    )
    # 98.9 % for the others, and √0.21 * 72.9 = 33.4
    assert impossible(100, 0.3, 77.0, 36.0, 25.94, None) is None
    # below the worst tail: (10 * 50 - 51 - 90) / 8 = 44.9
    assert (
        impossible(10, 0.1, 50.0, 10.0, 51.0, 90.0)
        == "the 8 clients outside the tails would average 44.9 %"
    )
    # above the best tail: (31 * 60.74 - 3 * 53.57 - 3 * 55.92) / 25 = 62.2
    assert "would average 62.2 %" in impossible(31, 0.1, 60.74, 8.32, 53.57, 55.92)


def test_a_tail_between_two_sizes_is_possible_if_one_of_them_is():
    """30 % of 16 clients are 4.8.

    Four at 40 and twelve at 80 average 70 with a deviation of √300 = 17.3; with five at 40 the
    other eleven average (1120 - 200) / 11 = 83.6, which needs √((5 * 30² + 11 * 13.6²) / 16) =
    20.2.
    """
    assert impossible(16, 0.3, 70.0, 17.32, 40.0, None) is None
    assert (
        impossible(16, 0.3, 70.0, 17.0, 40.0, None)
        == "these averages need a deviation of at least 17.3"
    )
    assert (
        impossible(16, 5 / 16, 70.0, 17.32, 40.0, None)
        == "these averages need a deviation of at least 20.2"
    )


def test_tails_far_apart_need_a_deviation():
    """Ten clients: 0, 100 and eight at 50 have √((50² + 50²) / 10) = 22.36; nothing has less."""
    assert impossible(10, 0.1, 50.0, 22.36, 0.0, 100.0) is None
    assert (
        impossible(10, 0.1, 50.0, 22.25, 0.0, 100.0)
        == "these averages need a deviation of at least 22.3"
    )
    # one tail only: four of ten at 20, six at 70 average 50; √((4 * 30² + 6 * 20²) / 10) = √600
    assert impossible(10, 0.4, 50.0, math.sqrt(600), 20.0, None) is None
    assert impossible(10, 0.4, 50.0, math.sqrt(600) - 0.1, 20.0, None) == (
        "these averages need a deviation of at least 24.4"
    )


def test_tails_close_together_allow_little():
    """Ten clients with tails at 49 and 51, one each: 49 and 51 five times have 1; the bound adds the roots of the three
    parts, with 0.05 for rounding: (2 * 1.05 + √8 * 1.05) / √10 = 1.60.
    """
    assert impossible(10, 0.1, 50.0, 1.0, 49.0, 51.0) is None
    assert (2.1 + math.sqrt(8) * 1.05) / math.sqrt(10) == pytest.approx(1.603, abs=1e-3)
    assert impossible(10, 0.1, 50.0, 1.64, 49.0, 51.0) is None
    assert (
        impossible(10, 0.1, 50.0, 1.67, 49.0, 51.0)
        == "these averages allow a deviation of at most 1.7"
    )
    # a large tail can hide one client at 0: 29 of 30 at 60, one at 0 are 58 on average
    one = [0.0] + [60.0] * 99
    assert impossible(100, 0.3, np.mean(one), np.std(one), 58.0, 60.0) is None


# ---- from random accuracies

SIZES = [(100, 0.05), (10, 0.1), (31, 0.1), (20, 0.1), (50, 0.1), (30, 0.2), (16, 0.3), (100, 0.3)]


@st.composite
def federations(draw):
    """Accuracies of one to five seeds: anything, mostly one value, or only wrong and right."""
    clients, fraction = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    seeds = []
    for kind in draw(
        st.lists(st.sampled_from(("any", "one", "ends", "normal", "few")), min_size=1, max_size=5)
    ):
        x = rng.uniform(0, 100, clients)
        if kind == "one":
            x = np.full(clients, x[0])
            x[: rng.integers(0, 4)] = rng.choice([0.0, 100.0])
        elif kind == "ends":
            x = 100.0 * (x < rng.uniform(0, 100))
        elif kind == "normal":
            x = np.clip(rng.normal(x[0], rng.uniform(0, 30), clients), 0, 100)
        elif kind == "few":
            x = rng.choice([0.0, x[0], 100.0], clients)
        seeds.append(np.sort(x))
    return clients, fraction, np.array(seeds)


@settings(deadline=None, max_examples=100)
@given(federations(), st.booleans())
def test_statistics_of_accuracies_are_never_called_impossible(federation, both):
    """Averaged over seeds and rounded to two digits as printed, with both tails or only the worst one."""
    clients, fraction, seeds = federation
    size = max(1, round(fraction * clients))
    worst, best = seeds[:, :size].mean(), seeds[:, -size:].mean()
    printed = [round(float(v), 2) for v in (seeds.mean(), seeds.std(1).mean(), worst)]
    assert impossible(clients, fraction, *printed, round(float(best), 2) if both else None) is None


# ---- in the papers


def test_the_rows_that_the_files_mark_are_those_that_are_impossible(capsys):
    assert (script.main(), capsys.readouterr().out) == (0, "")
    marked = [
        r for p in papers().values() for t in p.tables.values() for r in t.rows if r.impossible
    ]
    assert len(marked) == 64


@pytest.mark.parametrize(("clients", "size"), [(16, 4), (31, 9), (100, 30), (3, 1)])
def test_the_smaller_tail_is_that_of_the_measured_metric(clients, size):
    """Accuracies of which the worst 30 % are 0 and the others 1 are possible with the tail of ``accuracy_worst30``."""
    accuracy = np.repeat([0.0, 1.0], [size, clients - size])
    assert tail_size(clients, 30) == size
    measured = accuracy_metrics(accuracy, np.ones(clients))
    values = [100 * measured[f"accuracy_{k}"] for k in ("mean", "std", "worst30")]
    assert impossible(clients, 0.3, *values, None) is None
    assert impossible(clients, 0.3, values[0], values[1] - 0.2, values[2], None) is not None


# ---- columns


def marked(paper, table, setup, algo, **hyperparameters):
    p = papers()[paper]
    row = next(
        r
        for r in p.tables[table].rows
        if (r.setup, r.algo) == (setup, algo)
        and hyperparameters.items() <= r.hyperparameters.items()
    )
    return script.contradiction(p, row).columns


def test_the_marks_are_those_of_the_fewest_numbers_that_have_to_go():
    """FedAvg in setup 1 of CIFAR-10 has an STD of 3.54, average 46.85, tails of 5 of 100 clients at 19.84 and 69.28.

    Tails alone need √(0.05 * 2 * 24.72²) = 7.8, the average and the worst tail √(5 / 95) * 27.01 =
    6.2, the average and the best √(5 / 95) * 22.43 = 5.1: any two of the three contradict the STD,
    which alone is marked.
    """
    assert marked("adafed", "table1", "cifar10_s1", "fedavg") == ("std_clients",)
    for others in ((None, 19.84, 69.28), (46.85, 19.84, None), (46.85, None, 69.28)):
        average, worst, best = others
        assert impossible(100, 0.05, average, 3.54, worst, best) is not None
    assert impossible(100, 0.05, 46.85, None, 19.84, 69.28) is None


def test_numbers_that_only_contradict_each_other_together_are_all_marked():
    """AdaFed, Table 1, setup 2, FedFa needs 5.2 and has 4.95; without any one of the four numbers the rest is possible:
    without the average √(0.1 * 2 * 11.095²) = 4.96, without a tail √(1 / 9) * 14.36 = 4.79 or less.
    """
    assert marked("adafed", "table1", "cifar10_s2", "fedfa") == (
        "avg",
        "std_clients",
        "worst10",
        "best10",
    )
    # the mean of Ditto exceeds its best tail, and the tails are too close for its STD: without the
    # best, both are fine
    assert marked("adafed", "table4", "shakespeare_s1", "ditto") == ("best10",)


def test_three_clients_have_the_deviation_of_their_accuracies():
    """FedAvg: 64.26, 87.00 and 89.90 average 80.39 with a deviation of 11.46; 80.42 and 3.39 are printed.

    AdaFed: 72.49, 79.81 and 86.99 average 79.76, and 79.14 is printed, so that one of these four is
    wrong in addition to the STD.
    """
    classes = [64.26, 87.0, 89.9]
    assert (np.mean(classes), np.std(classes)) == pytest.approx((80.387, 11.464), abs=1e-3)
    assert marked("adafed", "table7", "fmnist", "fedavg") == ("std_clients",)
    every = ("avg", "std_clients", "acc_shirt", "acc_pullover", "acc_tshirt")
    assert marked("adafed", "table7", "fmnist", "adafed") == every
    assert script.Statistics(3, 80.39, 11.46, single=tuple(classes)).contradiction is None
    assert script.Statistics(3, 80.39, 3.39, single=tuple(classes)).contradiction == (
        "these clients have a deviation of at least 11.4"
    )
    # two of three clients: the third lies between them, √((11.37² + 11.37²) / 3) = 9.28, or makes
    # up the average
    assert script.Statistics(3, None, 9.3, single=(64.26, 87.0)).contradiction is None
    assert script.Statistics(3, None, 9.1, single=(64.26, 87.0)).contradiction is not None
    assert script.Statistics(3, 80.42, 11.3, single=(64.26, 87.0)).contradiction is not None
    assert (
        script.Statistics(3, 95.0, None, single=(64.26, 87.0)).contradiction
        == "the 1 other clients would average 133.7 %"
    )

"""Which printed statistics no accuracies can have, and which of them contradict each other: by hand, from random
accuracies, and in the five papers."""

import importlib.util
import math
import os
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import ROOT

from fedbench.analysis.consistency import Contradiction, Statistics, contradiction
from fedbench.papers.registry import Reported, Row, papers
from fedbench.simulation.metrics import accuracy_metrics, tail_size

ORIGINAL = ROOT / os.environ.get("FEDBENCH_PAPERS", "")
at_hand = pytest.mark.skipif(
    not os.environ.get("FEDBENCH_PAPERS"), reason="FEDBENCH_PAPERS, the papers as YAML, is not set"
)


def impossible(clients, fraction, average, deviation, worst, best):
    return Statistics(clients, average, deviation, fraction, worst, best).contradiction


def why_impossible(paper, row):
    found = contradiction(paper, row)
    return found and found.reason


# ---- by hand


def test_the_others_average_what_is_left_to_them():
    """100 clients with 88.34 %, 30 of them with 25.94 %: the 70 others would have (8834 - 30 * 25.94) / 70."""
    assert impossible(100, 0.3, 88.34, 16.77, 25.94, None) == ("the 70 clients outside the tails would average 115.1 %")
    assert impossible(100, 0.3, 77.0, 36.0, 25.94, None) is None  # 98.9 % for the others, and √0.21 * 72.9 = 33.4
    # below the worst tail: (10 * 50 - 51 - 90) / 8 = 44.9
    assert impossible(10, 0.1, 50.0, 10.0, 51.0, 90.0) == "the 8 clients outside the tails would average 44.9 %"
    # above the best tail: (31 * 60.74 - 3 * 53.57 - 3 * 55.92) / 25 = 62.2
    assert "would average 62.2 %" in impossible(31, 0.1, 60.74, 8.32, 53.57, 55.92)


def test_a_tail_between_two_sizes_is_possible_if_one_of_them_is():
    """30 % of 16 clients are 4.8.

    Four at 40 and twelve at 80 average 70 with a deviation of √300 = 17.3; with five at 40 the other eleven average
    (1120 - 200) / 11 = 83.6, which needs √((5 * 30² + 11 * 13.6²) / 16) = 20.2.
    """
    assert impossible(16, 0.3, 70.0, 17.32, 40.0, None) is None
    assert impossible(16, 0.3, 70.0, 17.0, 40.0, None) == "these averages need a deviation of at least 17.3"
    assert impossible(16, 5 / 16, 70.0, 17.32, 40.0, None) == "these averages need a deviation of at least 20.2"


def test_tails_far_apart_need_a_deviation():
    """Ten clients: 0, 100 and eight at 50 have √((50² + 50²) / 10) = 22.36; nothing has less."""
    assert impossible(10, 0.1, 50.0, 22.36, 0.0, 100.0) is None
    assert impossible(10, 0.1, 50.0, 22.25, 0.0, 100.0) == "these averages need a deviation of at least 22.3"
    # one tail only: four of ten at 20, six at 70 average 50; √((4 * 30² + 6 * 20²) / 10) = √600
    assert impossible(10, 0.4, 50.0, math.sqrt(600), 20.0, None) is None
    assert impossible(10, 0.4, 50.0, math.sqrt(600) - 0.1, 20.0, None) == (
        "these averages need a deviation of at least 24.4"
    )


def test_tails_close_together_allow_little():
    """Ten clients with tails at 49 and 51, one each: 49 and 51 five times have 1; the bound adds the roots of the three
    parts, with 0.05 for rounding: (2 * 1.05 + √8 * 1.05) / √10 = 1.60."""
    assert impossible(10, 0.1, 50.0, 1.0, 49.0, 51.0) is None
    assert (2.1 + math.sqrt(8) * 1.05) / math.sqrt(10) == pytest.approx(1.603, abs=1e-3)
    assert impossible(10, 0.1, 50.0, 1.64, 49.0, 51.0) is None
    assert impossible(10, 0.1, 50.0, 1.67, 49.0, 51.0) == "these averages allow a deviation of at most 1.7"
    # a large tail can hide one client at 0: 29 of 30 at 60, one at 0 are 58 on average
    one = [0.0] + [60.0] * 99
    assert impossible(100, 0.3, np.mean(one), np.std(one), 58.0, 60.0) is None


def test_rows_without_tails_or_clients_say_nothing():
    p = papers()["adafed"]
    row = next(r for r in p.tables["table1"].rows if why_impossible(p, r))
    untailed = {k: v for k, v in row.values.items() if not k.startswith(("worst", "best"))}
    assert why_impossible(p, Row(row.setup, row.algo, {}, untailed)) is None
    unknown = replace(p, setups={row.setup: replace(p.setups[row.setup], clients=None)})
    assert why_impossible(unknown, row) is None


def test_a_variance_is_a_deviation_squared():
    p = papers()["fedfa"]
    values = {"avg": 50.0, "worst20": 20.0, "best20": 80.0}
    # 30 clients: six at 20, six at 80, the others at 50: 12 * 900 / 30 = 360
    for variance, fits in ((360.0, True), (350.0, False)):
        row = Row("synthetic_iid", "fedavg", {}, {k: Reported(v, None) for k, v in values.items()})
        row.values["var_clients"] = Reported(variance, None)
        assert (why_impossible(p, row) is None) == fits


# ---- from random accuracies

SIZES = [(100, 0.05), (10, 0.1), (31, 0.1), (20, 0.1), (50, 0.1), (30, 0.2), (16, 0.3), (100, 0.3)]


@st.composite
def federations(draw):
    """Accuracies of one to five seeds: anything, mostly one value, or only wrong and right."""
    clients, fraction = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    seeds = []
    for kind in draw(st.lists(st.sampled_from(("any", "one", "ends", "normal", "few")), min_size=1, max_size=5)):
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


@settings(deadline=None, max_examples=400)
@given(federations(), st.booleans())
def test_statistics_of_accuracies_are_never_called_impossible(federation, both):
    """Averaged over seeds and rounded to two digits as printed, with both tails or only the worst one."""
    clients, fraction, seeds = federation
    size = max(1, round(fraction * clients))
    worst, best = seeds[:, :size].mean(), seeds[:, -size:].mean()
    printed = [round(float(v), 2) for v in (seeds.mean(), seeds.std(1).mean(), worst)]
    assert impossible(clients, fraction, *printed, round(float(best), 2) if both else None) is None


@settings(deadline=None, max_examples=200)
@given(federations())
def test_exchanging_right_and_wrong_exchanges_the_tails(federation):
    """Accuracies turned into errors: possible deviations stay possible, impossible ones impossible."""
    clients, fraction, seeds = federation
    size = max(1, round(fraction * clients))
    average, worst, best = seeds.mean(), seeds[:, :size].mean(), seeds[:, -size:].mean()
    for deviation in (0.0, 5.0, 20.0, 50.0):
        there = impossible(clients, fraction, average, deviation, worst, best)
        back = impossible(clients, fraction, 100 - average, deviation, 100 - best, 100 - worst)
        assert there == back


# ---- in the papers


def rows():
    return [(p, t, r) for p in papers().values() for t in p.tables.values() for r in t.rows if r.values]


# rows with tails that are impossible, by paper and kind, as in the specification's list; and those of three clients
LISTED = {
    ("adafedadam", "mean"): 8,  # Synthetic: the clients outside the tail would exceed 100 %
    ("adafedadam", "below"): 4,  # CIFAR-10, Dir(0.05), printed in four tables
    ("adafed", "below"): 28,
    ("adafed", "above"): 10,  # Shakespeare, setup 1
    ("adafed", "mean"): 3,  # Shakespeare, setup 1: Ditto, and two rows of Table 14
    ("adafed", "classes"): 11,  # Fashion-MNIST
}


def test_64_rows_of_the_papers_are_impossible():
    """53 with tails, of 209 with average, deviation and tails, and the 11 of Fashion-MNIST's three clients."""
    found = Counter((p.id, _kind(why)) for p, _, r in rows() if (why := why_impossible(p, r)))
    assert found == LISTED
    tails = [r for p, _, r in rows() if {"avg"} < r.values.keys() and any(c.startswith("worst") for c in r.values)]
    assert (len(tails), sum(found.values()) - 11) == (209, 53)
    shakespeare = {
        r.setup for p, _, r in rows() if p.id == "adafed" and _kind(why_impossible(p, r)) in ("above", "mean")
    }
    assert shakespeare == {"shakespeare_s1"}


def test_a_row_of_16_clients_is_possible_with_the_tail_rounded_down():
    """AdaFedAdam, Table 3: four clients at 55.26 and twelve at (16 * 66.16 - 4 * 55.26) / 12 = 69.79 have 6.29.

    With five, the other eleven average 71.11, which needs 7.35, and 6.58 is printed. In the row of Dir(0.05) both
    sizes need more than the printed 8.18: 9.70 and 11.33.
    """
    p = papers()["adafedadam"]
    possible = next(r for r in p.tables["table3"].rows if r.setup == "cifar10_dir01")
    assert {k: v.mean for k, v in possible.values.items()} == {"avg": 66.16, "std_clients": 6.58, "worst30": 55.26}
    assert contradiction(p, possible) is None
    needed = [math.sqrt(n / (16 - n)) * (66.16 - 55.26) for n in (4, 5)]
    assert needed == pytest.approx([6.29, 7.35], abs=0.005)
    odd = next(r for r in p.tables["table3"].rows if r.setup == "cifar10_dir005")
    assert contradiction(p, odd).reason == "these averages need a deviation of at least 9.6"


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
        if (r.setup, r.algo) == (setup, algo) and hyperparameters.items() <= r.hyperparameters.items()
    )
    return contradiction(p, row).columns


def test_the_marks_are_those_of_the_fewest_numbers_that_have_to_go():
    """FedAvg in setup 1 of CIFAR-10 has an STD of 3.54, average 46.85, tails of 5 of 100 clients at 19.84 and 69.28.

    Tails alone need √(0.05 * 2 * 24.72²) = 7.8, the average and the worst tail √(5 / 95) * 27.01 = 6.2, the average and
    the best √(5 / 95) * 22.43 = 5.1: any two of the three contradict the STD, which alone is marked.
    """
    assert marked("adafed", "table1", "cifar10_s1", "fedavg") == ("std_clients",)
    for others in ((None, 19.84, 69.28), (46.85, 19.84, None), (46.85, None, 69.28)):
        average, worst, best = others
        assert impossible(100, 0.05, average, 3.54, worst, best) is not None
    assert impossible(100, 0.05, 46.85, None, 19.84, 69.28) is None


def test_numbers_that_only_contradict_each_other_together_are_all_marked():
    """AdaFed, Table 1, setup 2, FedFa needs 5.2 and has 4.95; without any one of the four numbers the rest is possible:
    without the average √(0.1 * 2 * 11.095²) = 4.96, without a tail √(1 / 9) * 14.36 = 4.79 or less."""
    assert marked("adafed", "table1", "cifar10_s2", "fedfa") == ("avg", "std_clients", "worst10", "best10")
    # the mean of Ditto exceeds its best tail, and the tails are too close for its STD: without the best, both are fine
    assert marked("adafed", "table4", "shakespeare_s1", "ditto") == ("best10",)


def test_three_clients_have_the_deviation_of_their_accuracies():
    """FedAvg: 64.26, 87.00 and 89.90 average 80.39 with a deviation of 11.46; 80.42 and 3.39 are printed.

    AdaFed: 72.49, 79.81 and 86.99 average 79.76, and 79.14 is printed, so that one of these four is wrong in addition
    to the STD.
    """
    classes = [64.26, 87.0, 89.9]
    assert (np.mean(classes), np.std(classes)) == pytest.approx((80.387, 11.464), abs=1e-3)
    assert marked("adafed", "table7", "fmnist", "fedavg") == ("std_clients",)
    every = ("avg", "std_clients", "acc_shirt", "acc_pullover", "acc_tshirt")
    assert marked("adafed", "table7", "fmnist", "adafed") == every
    assert Statistics(3, 80.39, 11.46, single=tuple(classes)).contradiction is None
    assert Statistics(3, 80.39, 3.39, single=tuple(classes)).contradiction == (
        "these clients have a deviation of at least 11.4"
    )
    # two of three clients: the third lies between them, √((11.37² + 11.37²) / 3) = 9.28, or makes up the average
    assert Statistics(3, None, 9.3, single=(64.26, 87.0)).contradiction is None
    assert Statistics(3, None, 9.1, single=(64.26, 87.0)).contradiction is not None
    assert Statistics(3, 80.42, 11.3, single=(64.26, 87.0)).contradiction is not None
    assert Statistics(3, 95.0, None, single=(64.26, 87.0)).contradiction == "the 1 other clients would average 133.7 %"


def test_the_numbers_without_a_mark_do_not_contradict_each_other():
    for p, _, row in rows():
        if (found := contradiction(p, row)) is not None:
            rest = Row(row.setup, row.algo, {}, {k: v for k, v in row.values.items() if k not in found.columns})
            assert contradiction(p, rest) is None
            assert set(found.columns) <= set(row.values)
            assert isinstance(found, Contradiction)


def _kind(why):
    words = {"these clients have": "classes", "would average": "mean", "at least": "below", "at most": "above"}
    return next((kind for text, kind in words.items() if why and re.search(text, why)), None)


@at_hand
def test_they_are_those_that_the_transcription_finds():
    spec = importlib.util.spec_from_file_location("papers_check", ORIGINAL / "check.py")
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    compared = 0
    for p, _, row in rows():
        v = {k: x.mean for k, x in row.values.items()}
        worst, best = (next((k for k in v if k.startswith(end)), None) for end in ("worst", "best"))
        if worst is None or "avg" not in v:
            assert _kind(why_impossible(p, row)) in (None, "classes")
            continue
        deviation = v["std_clients"] if "std_clients" in v else math.sqrt(v["var_clients"])
        fraction = p.metrics[worst].fraction
        clients, top = p.setups[row.setup].clients, None if best is None else v[best]
        theirs = check.verdict(clients, fraction, v["avg"], deviation, v[worst], top)
        assert _kind(why_impossible(p, row)) == theirs, (p.id, row)
        compared += 1
    listed = [yaml.safe_load((ORIGINAL / f"{p}.yaml").read_text())["contradictions"] for p in papers()]
    named = [x for entries in listed for x in entries if x["kind"] == "infeasible_statistics"]
    total = sum(len(x.get(k) or ()) for x in named for k in ("rows", "rows_above", "rows_mean"))
    assert (compared, total) == (209, 53)  # and x03, in words: the classes of Fashion-MNIST

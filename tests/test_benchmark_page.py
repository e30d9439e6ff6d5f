"""The fairness benchmark: searches, leads, ranks and fronts by hand, a reason for what is missing, the same bytes."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from benchmark.comparisons import MEASURED, Comparisons, collect, load, save
from benchmark.page import Notes, write_benchmark
from benchmark.ranks import rank_test, ranks_of
from benchmark.values import front_of, lines_of, on_front, ranked, without_ranks
from test_scripts import script

from fedbench.core.errors import RequestError

METHODS = ("a", "b", "fedavg", "own")


def entry(**changes):
    trials = [
        {
            "values": {"local.lr": 1.0},
            "scores": {"val_accuracy_mean": 0.5, "val_accuracy_worst10": 0.1},
        }
    ]
    trials.append(
        {
            "values": {"local.lr": 0.1},
            "scores": {"val_accuracy_mean": None, "val_accuracy_worst10": None},
        }
    )
    found = {"weights": ["algo.weights=uniform"], "space": ["local.lr=0.1,0.3,1"], "trials": trials}
    return {**found, "chosen": {"local.lr": 1.0}, "digest": "h", **changes}


def run(table, setting, method, seed, mean, worst, outcome="done"):
    numbers = {**dict.fromkeys(MEASURED, 1.0), "accuracy_mean": mean, "accuracy_worst10": worst}
    numbers |= {"bytes_up": 4e6, "bytes_down": 6e6}
    numbers = dict.fromkeys(MEASURED) if outcome != "done" else numbers
    named = {"table": table, "setting": setting, "method": method, "seed": seed, "outcome": outcome}
    return {**named, "hash": "h", "rounds": 5, **numbers}


@pytest.fixture
def found():
    """Two settings and six seeds. In setting one, a is ahead of FedAvg by .1 in the mean and behind by .1 in the worst
    10 % in every seed, b is ahead by .2 but for the last seed, and the method of its own diverges
    in seed 0. In setting two, b is refused, and no trial of the rates of a ended well.
    """
    rows = []
    for s in range(6):
        rows += [
            run("uniform", "one", "fedavg", s, 0.5 + 0.01 * s, 0.4),
            run("uniform", "one", "a", s, 0.6 + 0.01 * s, 0.3),
        ]
        rows.append(run("uniform", "one", "b", s, 0.7 - 0.4 * (s == 5), 0.4))
        gone = s == 0
        rows.append(run("uniform", "one", "own", s, 0.9, 0.9, "diverged" if gone else "done"))
        rows += [
            run("uniform", "two", "fedavg", s, 0.5, 0.4),
            run("uniform", "two", "own", s, 0.6, 0.4),
        ]
        rows += [run("size", setting, "fedavg", s, 0.2, 0.1) for setting in ("one", "two")]
        rows.append(run("size", "one", "a", s, 0.9, 0.9))
    setup = {"protocol": {"rounds": 5}, "clients": 3, "parameters": 7, "sources": ["S"], "unofficial": [],
             "environment": {"torch": "2"}, "hours": 1.5}  # fmt: skip
    dead = entry(trials=[entry()["trials"][1]], chosen=None, digest=None)
    one = {"uniform": {m: entry() for m in METHODS}, "size": {m: entry() for m in ("a", "fedavg")}}
    one["uniform"]["own"] = entry(weights=[])
    two = {
        "uniform": {"a": dead, "fedavg": entry(), "own": entry(weights=[])},
        "size": {"a": dead, "fedavg": entry()},
    }
    refused = {"b": "b needs all clients"}
    return Comparisons(
        pd.DataFrame(rows),
        {
            "one": {**setup, "refused": {}, "tables": one},
            "two": {**setup, "refused": refused, "tables": two},
        },
    )


def test_lines_by_hand(found):
    lines = {(line.setting, line.method): line for line in lines_of(found, "uniform")}
    a = lines["one", "a"]
    assert (a.done, a.reason) == (6, "")
    assert a.numbers["accuracy_mean"].mean == pytest.approx(0.625)  # of .60 to .65
    # the variance of 0 to 5 is 3.5
    assert a.numbers["accuracy_mean"].std == pytest.approx(0.01 * 3.5**0.5)
    assert a.numbers["bytes_per_round"].mean == 2e6  # (4 + 6) million in 5 rounds
    assert lines["one", "own"].reason == "seed 0 diverged"
    assert lines["two", "b"].reason == "b needs all clients"
    assert lines["two", "a"].reason == "every trial of its rates diverged or failed"
    assert (
        lines["two", "a"].numbers == lines["two", "a"].leads == lines["one", "fedavg"].leads == {}
    )


def test_leads_over_fedavg_by_hand(found):
    """Three methods are compared with six seeds, of which one sign in all has p = 1/64, so that 3/64 is at most 5 %.

    The seed in which a method diverged counts as behind by the largest difference: p = 2/64 by
    itself is not enough.
    """
    lines = {
        line.method: line.leads for line in lines_of(found, "uniform") if line.setting == "one"
    }
    assert {m: leads["accuracy_mean"].state for m, leads in lines.items() if leads} == {
        "a": "ahead", "b": "open", "own": "open",
    }  # fmt: skip
    a, own = lines["a"]["accuracy_mean"].difference, lines["own"]["accuracy_mean"].difference
    assert (a.mean, a.greater, a.low, a.high) == (
        pytest.approx(0.1),
        1 / 64,
        pytest.approx(0.1),
        pytest.approx(0.1),
    )
    assert own.mean == pytest.approx((0.39 + 0.38 + 0.37 + 0.36 + 0.35 - 0.39) / 6)
    assert lines["a"]["accuracy_worst10"].state == "behind"


def test_ranks_leave_out_what_is_refused_and_put_what_diverged_last(found):
    """By the mean, setting one: a, FedAvg, and the one with a seed that diverged; setting two: own, FedAvg, a.

    Under weights by size, the method with a rule of its own keeps its numbers: a, FedAvg, own; own,
    FedAvg, a.
    """
    assert without_ranks(found) == ["b"]
    for table in ("uniform", "size"):
        assert dict(ranked(found, table, "accuracy_mean").ordered) == {
            "a": 2,
            "fedavg": 2,
            "own": 2,
        }
    assert (
        ranked(Comparisons(found.runs, {"one": found.searches["one"]}), "uniform", "accuracy_mean")
        is None
    )


def test_front_of_a_setting(found):
    """In setting one, b has the highest mean of those without a diverged seed, 3.8 / 6; it dominates a."""
    front = front_of(found, "one")
    assert (
        front.methods,
        [m for m, on in zip(front.methods, front.member, strict=True) if on],
    ) == (METHODS, ["b"])
    assert np.isnan(front.means[0, 3])


def test_the_page_gives_the_reason_for_every_missing_number(found, tmp_path):
    notes = {
        "title": "Title",
        "lead": "Lead",
        "command": "make it",
        "facts": {"budget": "2 trials < 3"},
    }
    text = write_benchmark(found, Notes(**notes), tmp_path).read_text()
    words = re.sub(r"<style>.*?</style>|<script>.*?</script>|base64,[^\"]*", "", text, flags=re.S)
    assert not re.search(
        r"\b(nan|inf|None)\b", " ".join(re.findall(r"<(?:td|dd)\b.*?</(?:td|dd)>", words, re.S))
    )
    heads = re.findall(r"<h2[^>]*>([^<]*)</h2>", words)
    assert heads[:2] == ["The methods at a glance", "Who is ahead of FedAvg"]
    # a picture comes first
    assert words.index("mean_worst10") < words.index("Who is ahead of FedAvg</h2>")
    for wanted in (
        "seed 0 diverged",
        "b needs all clients",
        "2 trials &lt; 3",
        "make it",
        "Lead",
        "local.lr (upper)",
    ):
        assert wanted in words
    # a in setting two, under both weights
    assert words.count("every trial of its rates diverged") == 2
    assert words.count("<img ") == len(re.findall(r'<img [^>]*alt="[^"]{40,}"', words)) == 2
    table = pd.read_csv(tmp_path / "table.csv")
    assert len(table) == 12  # 4 methods in 2 settings, and 2 with a choice of weights
    assert (table["accuracy_mean"].isna() == (table["seeds"] == 0)).all()


def test_the_page_is_written_again_from_its_files_byte_for_byte(found, tmp_path):
    notes, first, again = {"title": "Title"}, tmp_path / "first", tmp_path / "again"
    save(found, first)
    save(load(first), again)
    for folder in (first, again):
        write_benchmark(load(folder), Notes(**notes), folder)
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert len(names) == 8  # two of data, the page, the table and two figures in two forms
    assert all((first / n).read_bytes() == (again / n).read_bytes() for n in names)


NAMES = ("C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf")
# Demšar, Table 6: AUC of four variants of C4.5 on 14 data sets; on voting, 0.9751 is printed as
# 0.975, with rank 2
AUC = np.array([
    [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
])  # fmt: skip


def test_the_example_of_demsar():
    """Printed: average ranks 3.143, 2.000, 2.893, 1.964 and CD 1.25; and χ² 9.28, which does not correct for ties.

    Ties: 3 pairs and one block of four, Σ(t³ - t) = 3·6 + 60 = 78 of 14 (4³ - 4) = 840; χ² is
    divided by 1 - 78/840.
    """
    found = rank_test(NAMES, AUC)
    assert found.ranks == pytest.approx([44 / 14, 28 / 14, 40.5 / 14, 27.5 / 14])
    assert found.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), rel=3e-4)
    plain = 12 * 14 / 20 * (sum(r**2 for r in (44 / 14, 2, 40.5 / 14, 27.5 / 14)) - 25)
    assert plain == pytest.approx(9.28, abs=0.005)
    corrected = plain / (1 - 78 / 840)
    assert found.statistic == pytest.approx(corrected)
    assert found.f == pytest.approx(13 * corrected / (42 - corrected))
    assert [m for m, _ in found.ordered] == ["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]
    assert found.level_with_best() == [m for m, _ in found.ordered]  # 3.143 - 1.964 = 1.179 < 1.25


def test_ranks_with_ties_and_runs_that_diverged():
    values = np.array([[3.0, 1.0, 3.0, np.nan, np.nan], [0.1, 0.2, 0.3, 0.4, np.nan]])
    assert ranks_of(values).tolist() == [[1.5, 3, 1.5, 4.5, 4.5], [4, 3, 2, 1, 5]]
    assert ranks_of(-values).tolist() == [[2.5, 1, 2.5, 4.5, 4.5], [1, 2, 3, 4, 5]]


def test_blocks_that_agree_leave_no_doubt():
    """χ² = N (k - 1) is its largest value, at which the statistic of Iman and Davenport is infinite."""
    found = rank_test("abc", np.array([[3.0, 2.0, 1.0], [9.0, 5.0, 1.0]]))
    assert (found.ranks, found.f, found.f_p) == ((1, 2, 3), math.inf, 0)
    assert rank_test("abc", np.ones((2, 3))).f_p == 1


def test_f_by_hand():
    """Ranks 1 2 3 and 2 1 3: χ² = 3, F = (2 - 1) 3 / (4 - 3) = 3; F(2, 2) has the upper tail 1 / (1 + x)."""
    found = rank_test("abc", np.array([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0]]))
    assert (found.statistic, found.f) == (pytest.approx(3), pytest.approx(3))
    assert found.f_p == pytest.approx(1 / 4)


def front(x, y):
    return on_front(np.array(x, dtype=float), np.array(y, dtype=float)).tolist()


def test_a_front_by_hand():
    """(3, 1) and (1, 3) are the ends, (2, 2) lies between them, (2, 1) is dominated by it, (1, 1) by all."""
    assert front([3, 1, 2, 2, 1], [1, 3, 2, 1, 1]) == [True, True, True, False, False]


def test_equal_points_are_on_the_front_together_and_one_equal_metric_decides():
    assert front([2, 2, 2], [5, 5, 4]) == [True, True, False]


def test_a_missing_number_is_not_on_the_front_and_dominates_none():
    assert front([np.nan, 1, 9], [9, 1, np.nan]) == [False, True, False]


@pytest.mark.slow
def test_a_search_takes_the_best_rate_and_then_the_own_keys(tmp_path):
    """FedProx has 6 rates and 5 values of mu; FedAvg nothing of its own. Tables of one weighting share trials."""
    benchmark = script("fairness_benchmark.py")
    tiny = ("data.clients=4", "rounds=2", "eval_every=2", "eval_train_every=2")
    folder, entries = tmp_path / "synthetic", {}
    (folder / "entries").mkdir(parents=True)
    (folder / "refused.json").write_text('{"stem": "why not"}')
    for table, method in (
        ("uniform", "fedavg"),
        ("uniform", "fedprox"),
        ("worst10", "fedprox"),
        ("size", "fedprox"),
    ):
        benchmark.Entry("synthetic", table, method, folder, tiny, 1).execute(2)
        entries[table, method] = json.loads((folder / f"entries/{table}.{method}.json").read_text())
    assert len(entries["uniform", "fedavg"]["trials"]) == 6
    trials = entries["uniform", "fedprox"]["trials"]
    best = max(trials[:6], key=lambda t: t["scores"]["val_accuracy_mean"])["values"]
    assert best.keys() == {"local.lr", "algo.mu"}
    assert [t["values"]["algo.mu"] for t in trials[:6]] == [best["algo.mu"]] * 6  # the default
    assert len({t["values"]["local.lr"] for t in trials[:6]}) == 6
    assert {t["values"]["local.lr"] for t in trials[6:]} == {best["local.lr"]}
    assert len({t["values"]["algo.mu"] for t in trials[6:]}) == len(trials) - 6 == 5
    chosen = max(trials, key=lambda t: t["scores"]["val_accuracy_mean"])
    assert entries["uniform", "fedprox"]["chosen"] == chosen["values"]
    worst = max(
        entries["worst10", "fedprox"]["trials"], key=lambda t: t["scores"]["val_accuracy_worst10"]
    )
    assert entries["worst10", "fedprox"]["chosen"] == worst["values"]
    assert entries["worst10", "fedprox"]["trials"][:6] == trials[:6]
    assert entries["size", "fedprox"]["trials"][:6] != trials[:6]

    found = collect([folder])
    assert found.settings == ["fairness/synthetic"]
    assert found.methods("uniform") == ["fedavg", "fedprox", "stem"]
    search = found.searches["fairness/synthetic"]
    assert (search["clients"], search["refused"]) == (4, {"stem": "why not"})
    assert found.values(
        "uniform", "fairness/synthetic", "accuracy_mean", ["fedavg", "fedprox"]
    ).shape == (2, 2)
    save(found, tmp_path / "out")
    assert load(tmp_path / "out").runs.equals(found.runs)

    with pytest.raises(RequestError, match="one directory per setting"):
        collect([folder, folder])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="no entries of a benchmark"):
        collect([tmp_path / "empty"])
    with pytest.raises(RequestError, match=r"needs runs\.parquet and tuning\.json"):
        load(tmp_path)

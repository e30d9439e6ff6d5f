"""The page of a benchmark: ranks and fronts by hand, a reason for every missing number, and the same bytes again."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from benchmark.comparisons import MEASURED, Comparisons, collect, load, save
from benchmark.fronts import front_shares, on_front
from benchmark.page import write_benchmark
from benchmark.ranks import rank_test, ranks_of
from benchmark.values import benchmark_lines, front_of, ranked, without_ranks

from fedbench.core.errors import RequestError

METHODS = ("a", "b", "c", "d")


def study(**changes):
    trials = [{"values": {"local.lr": 0.1}, "score": 0.5}, {"values": {"local.lr": 1.0}, "score": None}]
    found = {"metric": "val_accuracy_mean", "seeds": [1000], "space": ["local.lr=0.1,1"], "trials": trials}
    return {**found, "chosen": {"local.lr": 0.1}, "seconds": 1800.0, **changes}


def run(setting, method, seed, mean, worst, outcome="done"):
    numbers = {**dict.fromkeys(MEASURED, 1.0), "accuracy_mean": mean, "accuracy_worst10": worst}
    numbers |= {"bytes_up": 4e6, "bytes_down": 6e6}
    numbers = dict.fromkeys(MEASURED) if outcome != "done" else numbers
    named = {"setting": setting, "method": method, "seed": seed, "outcome": outcome, "hash": "h", "rounds": 5}
    return {**named, "seconds": 60.0, **numbers}


@pytest.fixture
def found():
    """Two settings and two seeds. In the second, c is refused, a diverges on a seed and all trials of d diverge."""
    rows = [run("one", m, s, 0.5 + 0.1 * k + 0.02 * s, 0.4 - 0.1 * k) for k, m in enumerate(METHODS) for s in (0, 1)]
    rows += [run("two", "a", 0, 0.9, 0.8), run("two", "a", 1, None, None, "diverged")]
    rows += [run("two", "b", s, 0.6, 0.3) for s in (0, 1)]
    setup = {"protocol": {"rounds": 5}, "clients": 3, "parameters": 7, "sources": ["S"], "unofficial": [],
             "environment": {"torch": "2"}}  # fmt: skip
    dead = study(trials=[{"values": {"local.lr": 1.0}, "score": None}], chosen=None)
    one = {**setup, "refused": {}, "studies": {m: study() for m in METHODS}}
    two = {**setup, "refused": {"c": "c needs all clients"}, "studies": {"a": study(), "b": study(), "d": dead}}
    return Comparisons(pd.DataFrame(rows), {"one": one, "two": two})


def test_seconds_are_those_of_the_median_run(found):
    """A third run of method a that was suspended for an hour does not change them."""
    slow = {**run("one", "a", 2, 0.5, 0.4), "seconds_train": 3600.0}
    more = Comparisons(pd.concat([found.runs, pd.DataFrame([slow])], ignore_index=True), found.tuning)
    assert benchmark_lines(more)[0].numbers["seconds_train"].mean == 1
    assert benchmark_lines(more)[1].reason == "seed 2 without a run"  # b, which has no third seed


def test_lines_by_hand(found):
    lines = {(line.setting, line.method): line for line in benchmark_lines(found)}
    b = lines["one", "b"]
    assert (b.done, b.reason) == (2, "")
    assert b.numbers["accuracy_mean"].mean == pytest.approx(0.61)
    assert b.numbers["accuracy_mean"].std == pytest.approx(0.02 / 2**0.5)  # of 0.60 and 0.62
    assert b.numbers["bytes_per_round"].mean == 2e6  # (4 + 6) million in 5 rounds
    assert b.hours == pytest.approx(0.5 + 2 / 60)
    assert lines["two", "a"].reason == "seed 1 diverged"
    assert lines["two", "a"].numbers["accuracy_mean"].std is None
    assert lines["two", "c"].reason == "c needs all clients"
    assert lines["two", "d"].reason == "every trial diverged or failed"
    assert (lines["two", "d"].numbers, lines["two", "d"].hours) == ({}, 0.5)


def test_ranks_leave_out_what_is_refused_and_put_what_diverged_last(found):
    """By the mean, setting one: d, b, a. Setting two: b, then a, with a seed that diverged, and d, tied."""
    test = ranked(found, "accuracy_mean")
    assert without_ranks(found) == ["c"]
    assert dict(test.ordered) == {"a": (3 + 2.5) / 2, "b": (2 + 1) / 2, "d": (1 + 2.5) / 2}
    assert ranked(Comparisons(found.runs, {"one": found.tuning["one"]}), "accuracy_mean") is None


def test_front_of_a_setting(found):
    """In setting one the mean rises and the worst 10 % falls from a to d: all are on the front."""
    assert front_of(found, "one", "accuracy_mean", "accuracy_worst10").names == ["d", "c", "b", "a"]
    two = front_of(found, "two", "accuracy_mean", "accuracy_worst10")
    assert (two.names, two.share.tolist()) == (["b"], pytest.approx([0.25, 0.75], abs=0.04))


def test_the_page_gives_the_reason_for_every_missing_number(found, tmp_path):
    notes = {"title": "Title", "lead": "Lead", "command": "make it", "facts": {"budget": "2 trials"}}
    notes["surprised"] = {"Odd": "It was < 3."}
    text = write_benchmark(found, notes, tmp_path).read_text()
    words = re.sub(r"<style>.*?</style>|<script>.*?</script>|base64,[^\"]*", "", text, flags=re.S)
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(re.findall(r"<(?:td|dd)\b.*?</(?:td|dd)>", words, re.S)))
    rows = re.findall(r'<tr class="row">.*?</tr>', words, re.S)
    missing = [row for row in rows if "–</td>" in row and "MB" not in row and ">two<" in row]
    assert len(missing) == 3  # c and d in the table, d in the tuning
    assert sum("c needs all clients" in row or "every trial diverged" in row for row in missing) == 2
    heads = re.findall(r"<h2[^>]*>([^<]*)</h2>", words)
    assert heads[:2] == ["What surprised", "Results"]
    assert words.count("Lead") == 1  # above what surprised, and not among the settings again
    for wanted in ("seed 1 diverged", "two without c", "It was &lt; 3.", "make it", "mean_worst10", "ranks", "cost"):
        assert wanted in words
    assert words.count("<img ") == len(re.findall(r'<img [^>]*alt="[^"]{40,}"', words)) == 3
    table = pd.read_csv(tmp_path / "table.csv")
    assert len(table) == 8
    assert (table["accuracy_mean"].isna() == (table["seeds"] == 0)).all()


def test_the_page_is_written_again_from_its_files_byte_for_byte(found, tmp_path):
    notes, first, again = {"title": "Title"}, tmp_path / "first", tmp_path / "again"
    save(found, first)
    save(load(first), again)
    for folder in (first, again):
        write_benchmark(load(folder), notes, folder)
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert len(names) == 10  # two of data, the page, the table and three figures in two forms
    assert all((first / n).read_bytes() == (again / n).read_bytes() for n in names)
    assert np.isnan(load(first).values("two", "accuracy_mean", ["a"])).tolist() == [[False], [True]]


NAMES = ("C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf")
# Demšar, Table 6: AUC of four variants of C4.5 on 14 data sets; on voting, 0.9751 is printed as 0.975, with rank 2
AUC = np.array([
    [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
])  # fmt: skip


def test_the_example_of_demsar():
    """Printed: average ranks 3.143, 2.000, 2.893, 1.964 and CD 1.25; and χ² 9.28, which does not correct for ties.

    Ties: 3 pairs and one block of four, Σ(t³ - t) = 3·6 + 60 = 78 of 14 (4³ - 4) = 840; χ² is divided by 1 - 78/840.
    """
    found = rank_test(NAMES, AUC, 1)
    assert found.test.ranks == pytest.approx([44 / 14, 28 / 14, 40.5 / 14, 27.5 / 14])
    assert found.test.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), rel=3e-4)
    plain = 12 * 14 / 20 * (sum(r**2 for r in (44 / 14, 2, 40.5 / 14, 27.5 / 14)) - 25)
    assert plain == pytest.approx(9.28, abs=0.005)
    corrected = plain / (1 - 78 / 840)
    assert found.test.statistic == pytest.approx(corrected)
    assert found.f == pytest.approx(13 * corrected / (42 - corrected))
    assert [m for m, _ in found.ordered] == ["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]
    assert found.level_with_best() == [m for m, _ in found.ordered]  # 3.143 - 1.964 = 1.179 < 1.25


def test_ranks_with_ties_and_runs_that_diverged():
    values = np.array([[3.0, 1.0, 3.0, np.nan, np.nan], [0.1, 0.2, 0.3, 0.4, np.nan]])
    assert ranks_of(values, 1).tolist() == [[1.5, 3, 1.5, 4.5, 4.5], [4, 3, 2, 1, 5]]
    assert ranks_of(values, -1).tolist() == [[2.5, 1, 2.5, 4.5, 4.5], [1, 2, 3, 4, 5]]


def test_blocks_that_agree_leave_no_doubt():
    """χ² = N (k - 1) is its largest value, at which the statistic of Iman and Davenport is infinite."""
    found = rank_test("abc", np.array([[3.0, 2.0, 1.0], [9.0, 5.0, 1.0]]), 1)
    assert (found.test.ranks, found.f, found.f_p) == ((1, 2, 3), math.inf, 0)
    assert rank_test("abc", np.ones((2, 3)), 1).f_p == 1


def test_f_by_hand():
    """Ranks 1 2 3 and 2 1 3: χ² = 3, F = (2 - 1) 3 / (4 - 3) = 3; F(2, 2) has the upper tail 1 / (1 + x)."""
    found = rank_test("abc", np.array([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0]]), 1)
    assert (found.test.statistic, found.f) == (pytest.approx(3), pytest.approx(3))
    assert found.f_p == pytest.approx(1 / 4)


def front(x, y, *signs):
    return on_front(np.array(x, dtype=float), np.array(y, dtype=float), *signs).tolist()


def test_a_front_by_hand():
    """(3, 1) and (1, 3) are the ends, (2, 2) lies between them, (2, 1) is dominated by it, (1, 1) by all."""
    assert front([3, 1, 2, 2, 1], [1, 3, 2, 1, 1]) == [True, True, True, False, False]


def test_equal_points_are_on_the_front_together_and_one_equal_metric_decides():
    assert front([2, 2, 2], [5, 5, 4]) == [True, True, False]


def test_lower_may_be_better():
    """Higher accuracy and lower STD: (90, 5) dominates (80, 6); (95, 9) is better in the first only."""
    assert front([90, 80, 95], [5, 6, 9], 1, -1) == [True, False, True]
    assert front([90, 80, 95], [5, 6, 9], 1, 1) == [False, False, True]


def test_a_missing_number_is_not_on_the_front_and_dominates_none():
    assert front([np.nan, 1, 9], [9, 1, np.nan]) == [False, True, False]


def test_shares_of_two_seeds_by_hand():
    """The second method is better in seed 0, worse in seed 1, and on average as good: on the front unless both draws
    are seed 1, in 3 of 4 samples; likewise the first."""
    x = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert front_shares(x, x) == pytest.approx([0.75, 0.75], abs=0.04)  # 4 standard errors of 2000 draws


def test_a_method_without_a_seed_is_on_the_fronts_of_the_other_seeds():
    x = np.array([[np.nan, 0.0], [1.0, 0.0]])
    assert front_shares(x, x)[0] == pytest.approx(0.25, abs=0.04)


@pytest.fixture
def compared(fed, tmp_path):
    def compare(name, *args):
        tiny = ["data=synthetic_1_1", "data.clients=4", "rounds=2", "budget=2", "seeds=2", "--jobs=1"]
        status, _, err = fed("compare", "methods=fedavg,fedprox", *tiny, f"results_dir={name}", *args)
        assert status == 0, err
        return tmp_path / name

    return compare


@pytest.mark.slow
def test_a_comparison_is_read_whole(compared, tmp_path):
    folder = compared("one")
    (folder / "refused.json").write_text('{"stem": "why not"}')
    found = collect([folder])
    assert found.settings == ["synthetic_1_1"]
    assert found.methods() == ["fedavg", "fedprox", "stem"]
    assert found.runs[["method", "seed", "outcome"]].to_numpy().tolist() == [
        [m, s, "done"] for m in ("fedavg", "fedprox") for s in (0, 1)
    ]
    tuning = found.tuning["synthetic_1_1"]
    assert tuning["refused"] == {"stem": "why not"}
    study = tuning["studies"]["fedprox"]
    assert set(study["chosen"]) == {"local.lr", "algo.mu"}
    best = max(study["trials"], key=lambda t: t["score"])
    assert study["chosen"] == best["values"]
    assert found.values("synthetic_1_1", "accuracy_mean", ["fedavg"]).shape == (2, 1)
    save(found, tmp_path / "out")
    assert load(tmp_path / "out").runs.equals(found.runs)
    assert json.loads((tmp_path / "out/tuning.json").read_text())["synthetic_1_1"]["clients"] == 4


@pytest.mark.slow
def test_what_is_no_single_comparison_is_refused(compared, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="no runs of a comparison"):
        collect([tmp_path / "empty"])
    folder = compared("one")
    with pytest.raises(RequestError, match="one directory per setting"):
        collect([folder, folder])
    compared("one", "local.lr=0.3")
    with pytest.raises(RequestError, match="different budgets or spaces"):
        collect([folder])
    with pytest.raises(RequestError, match=r"needs runs\.parquet and tuning\.json"):
        load(tmp_path)

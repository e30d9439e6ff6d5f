"""The page of a benchmark: every missing number has its reason, and the page is a function of the published files."""

import re

import numpy as np
import pandas as pd
import pytest

from fedbench.analysis.benchmark import benchmark_lines, front_of, ranked, without_ranks
from fedbench.core.errors import RequestError
from fedbench.report.benchmark import write_benchmark
from fedbench.report.benchmark_notes import Notes, read_notes
from fedbench.runs.comparisons import MEASURED, Comparisons, load, save

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
    notes = Notes("Title", "Lead", "make it", (("budget", "2 trials"),), (("Odd", "It was < 3."),))
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
    notes, first, again = Notes("Title"), tmp_path / "first", tmp_path / "again"
    save(found, first)
    save(load(first), again)
    for folder in (first, again):
        write_benchmark(load(folder), notes, folder)
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert len(names) == 10  # two of data, the page, the table and three figures in two forms
    assert all((first / n).read_bytes() == (again / n).read_bytes() for n in names)
    assert np.isnan(load(first).values("two", "accuracy_mean", ["a"])).tolist() == [[False], [True]]


def test_notes_are_read_or_refused(tmp_path):
    file = tmp_path / "notes.yaml"
    file.write_text("title: T\nfacts: {a: 1}\nsurprised:\n  b: |\n    text\n")
    assert read_notes(file) == Notes("T", "", "", (("a", "1"),), (("b", "text"),))
    for text, fault in (
        ("lead: x", "with title"),
        ("title: T\nodd: 1", "with title"),
        ("title: T\nfacts: [1]", "facts"),
    ):
        file.write_text(text)
        with pytest.raises(RequestError, match=fault):
            read_notes(file)
    with pytest.raises(RequestError, match="cannot be read"):
        read_notes(tmp_path / "none.yaml")

"""Comparisons of runs on disk, made here by hand; the tests themselves are in test_stats.py."""

import math
import re
from functools import partial

import pytest
from fake_runs import write_seeds
from table_readers import markdown_tables

from fedbench.analysis.compare import compare
from fedbench.core.errors import RequestError
from fedbench.reports.comparison import compared_text
from fedbench.runs.results import Results

# mean 0.02, sample STD √(4 * 0.01² / 5); 2 / 2^6 of the sign flips
STEPS = (0.01, 0.02, 0.03, 0.01, 0.02, 0.03)
BASE = [0.5] * 6
NEW = [0.5 + step for step in STEPS]


def write_runs(root, algo, values, settings=None, metric="accuracy_mean", **meta):
    """Write runs whose metric has these values at the last round; a list has one per seed."""
    config = {
        "rounds": 10,
        "local.lr": 0.1,
        f"algo.of_{algo}": 1,
        **(settings or {}),
    }
    by_seed = values if isinstance(values, dict) else dict(enumerate(values))
    rounds = {}
    for seed, value in by_seed.items():
        first = {"round": 0, metric: 0.123}
        rounds[seed] = [first, {"round": 10, metric: value}]
    write_seeds(root, algo, config, rounds, **meta)


def report_of(root, key="algo", metric="accuracy_mean", **options):
    return compared_text(compare(list(Results(root)), key, metric, **options))


@pytest.fixture
def write(tmp_path):
    return partial(write_runs, tmp_path)


@pytest.fixture
def report(tmp_path):
    return partial(report_of, tmp_path)


def tables(text):
    """The tables of a text: per table a list of rows as dictionaries, keyed by the headings."""
    found = []
    for _, (heads, *lines) in markdown_tables(text):
        names = [re.sub(r"^difference .*", "difference", head) for head in heads]
        rows = [dict(zip(names, line, strict=True)) for line in lines]
        found.append(rows)
    return found


def column(text, name="method", table=0):
    return [row[name] for row in tables(text)[table]]


def titles(text):
    return re.findall(r"^### (.*): mean accuracy$", text, re.MULTILINE)


# ---- one block


def test_six_seeds_by_hand(write, report):
    """The half width is t(0.975, 5) STD / √6, with t = 2.570582 as tabulated."""
    write("base", BASE)
    write("new", NEW)
    text = report(baseline="base")
    assert column(text, "mean accuracy (%)") == ["50.00 ± 0.00", "*52.00 ± 0.89"]
    half = 2.570582 * math.sqrt(4 / 5) / math.sqrt(6)
    (row,) = tables(text)[1]
    assert row == {
        "method": "new",
        "minus": "base",
        "seeds": "6",
        "difference": "+2.00",
        "lower": f"{2 - half:+.2f}",
        "upper": f"{2 + half:+.2f}",
        "p": "0.0312",  # 2 / 64
        "p (Holm)": "0.0312",
        "verdict": "better",
    }
    title = "Mean accuracy in % (accuracy_mean) at the last round of the values of algo"
    assert f"{title}; higher is better" in text


@pytest.mark.parametrize(
    ("metric", "verdict", "difference"),
    [
        ("accuracy_mean", "better", "+2.00"),
        ("accuracy_std_weighted", "worse", "+2.00"),
        ("accuracy_variance", "worse", "+200.00"),  # percent²
        ("train_loss", "worse", "+0.0200"),
        ("bytes_up", "worse", "+0"),
    ],
)
def test_direction_and_unit_are_those_of_the_metric(write, report, metric, verdict, difference):
    write("base", BASE, metric=metric)
    write("new", NEW, metric=metric)
    text = report(metric=metric, baseline="base")
    assert column(text, "difference", 1) == [difference]
    assert column(text, "verdict", 1) == [verdict]


def test_a_metric_without_a_better_direction_has_higher_and_lower_values(write, report):
    """And a run that diverged is neither: its pair is left out."""
    norms = partial(write, metric="update_norm")
    norms("base", [*BASE, 0.5])
    norms("new", NEW)
    norms("new", {6: 9.0}, status="diverged")
    text = report(metric="update_norm", baseline="base")
    (row,) = tables(text)[1]
    assert row["seeds"] == "6"
    assert row["difference"] == "+0.0200"
    assert row["verdict"] == "higher"
    assert "neither direction is better" in text
    assert "diverged, not in any mean: new with seed 6" in text


def test_runs_are_paired_by_seed(write, report):
    """Seeds 1, 2 and 3 are common, and what they do to both methods drops out: 5 points, without
    any width.
    """
    write("base", {0: 0.9, 1: 0.1, 2: 0.5, 3: 0.3})
    write("new", {4: 0.05, 3: 0.35, 2: 0.55, 1: 0.15})
    text = report(baseline="base")
    assert column(text, "seeds") == ["4", "4"]
    (row,) = tables(text)[1]
    assert row["seeds"] == "3"
    assert row["difference"] == row["lower"] == row["upper"] == "+5.00"
    assert row["p"] == "0.2500"


@pytest.mark.parametrize(
    ("alpha", "verdicts"),
    [
        (0.05, ["undecided", "undecided", "undecided"]),
        (0.1, ["undecided", "worse", "worse"]),
    ],
)
def test_all_pairs_are_adjusted_together(write, report, alpha, verdicts):
    """2 / 64 twice, and 1 for the two that are equal; adjusted 3/32, 3/32 (not 2/32, below the one
    before) and 1.
    """
    write("a", BASE)
    write("b", BASE)
    write("c", NEW)
    text = report(alpha=alpha)
    assert column(text, "method", 1) == ["a", "a", "b"]
    assert column(text, "minus", 1) == ["b", "c", "c"]
    assert column(text, "p", 1) == ["1.0000", "0.0312", "0.0312"]
    assert column(text, "p (Holm)", 1) == ["1.0000", "0.0938", "0.0938"]
    assert column(text, "verdict", 1) == verdicts


@pytest.mark.parametrize(
    ("methods", "seeds", "alpha", "takes"),
    [
        (3, 6, 0.05, ["7"]),  # 3/32; 3/64
        (3, 7, 0.05, []),
        (2, 6, 0.01, ["8"]),  # 1/64 at 7; 1/128
        (2, 1, 0.5, ["2"]),
    ],
)
def test_a_note_says_how_many_seeds_a_verdict_takes(write, report, methods, seeds, alpha, takes):
    """The differences are as clear as can be."""
    for m in range(methods):
        write(f"m{m}", [0.1 * m + 0.01] * seeds)
    text = report(alpha=alpha)
    assert ("undecided" in column(text, "verdict", 1)) == bool(takes)
    assert re.findall(r"needs (\d+) seeds", text) == takes


def test_methods_without_a_common_seed_are_named(write, report):
    write("a", {0: 0.1})
    write("b", {1: 0.2})
    text = report()
    assert len(tables(text)) == 1
    assert "- a and b have no seed in common" in text.splitlines()


def test_what_is_not_done_is_counted_and_left_out(write, report):
    write("a", [0.1, 0.2])
    write("b", [0.3, 0.4])
    write("a", {2: 0.9}, status="running")
    write("c", [0.9], status="failed")
    text = report()
    assert column(text) == ["a", "b"]
    assert column(text, "seeds") == ["2", "2"]
    assert "- left out: 1 a not finished, 1 c failed" in text


def test_a_run_that_diverged_is_worse_by_the_widest_difference(write, report):
    """Differences in percent: 1, 3; b diverged with seed 2 (3 more), both with seed 3."""
    write("a", [0.05, 0.07, 0.06])
    write("b", [0.04, 0.04])
    write("a", {3: 0.0}, status="diverged")
    write("b", {2: 0.0, 3: 0.0}, status="diverged")
    text = report()
    assert column(text, "seeds") == ["3", "2"]  # means of the others
    assert column(text, "difference", 1) == ["+2.33"]  # (1 + 3 + 3) / 3
    assert "counted as worse by the largest difference: a with seed 3; b with seed 2, 3" in text


def test_reductions_and_other_files_than_the_official_ones_are_named(write, report):
    write("a", [0.1, 0.2], departures={"rounds": [100, 10]})
    write("b", [0.3, 0.4], unofficial=["X: not the official files"])
    notes = report().splitlines()
    assert "- reduced: a: rounds 10 (experiment 100)" in notes
    assert "- X: not the official files" in notes


def test_a_run_that_is_there_twice_counts_once(tmp_path):
    write_runs(tmp_path / "first", "a", [0.1])
    write_runs(tmp_path / "second", "a", [0.7])
    write_runs(tmp_path / "first", "b", [0.2])
    text = report_of(tmp_path)
    assert column(text, "mean accuracy (%)") == ["10.00", "*20.00"]


# ---- what a block is


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("rounds", 10, 20),
        ("data.partition.alpha", 0.1, 0.5),
        ("model.hidden", 10, 20),
        ("engine.precision", "float32", "float64"),
        ("init.path", None, "w.safetensors"),
    ],
)
def test_keys_that_matter_separate_blocks(write, report, key, one, other):
    write("a", [0.1], {key: one})
    write("b", [0.2], {key: other})
    message = f"at least two values of algo.* toy {key}=.*: 1 a; toy {key}=.*: 1 b"
    with pytest.raises(RequestError, match=message):
        report()


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("participation", 1.0, 1),  # both are everyone
        ("local.lr", 0.1, 0.01),
        ("algo.weights", "size", "uniform"),
        ("device", "cpu", "cuda"),
        ("data.download", True, False),
        ("data_dir", "a", "b"),
        ("results_dir", "a", "b"),
        ("eval_every", 1, 5),
    ],
)
def test_keys_of_methods_and_of_the_machine_separate_no_blocks(write, report, key, one, other):
    write("a", [0.1], {key: one})
    write("b", [0.2], {key: other})
    shared = ", all per round" if key == "participation" else ""
    assert titles(report()) == [f"toy{shared}"]


def test_the_number_of_clients_and_the_participation_are_named_as_part_of_the_data(write, report):
    write("a", [0.1], {"participation": 0.1})
    write("b", [0.1], {"participation": 1.0})
    write("c", [0.1], {"data.clients": 20})
    message = "found toy, 10 % per round: 1 a; toy, 20 clients: 1 c; toy, all per round: 1 b"
    with pytest.raises(RequestError, match=message):
        report()


def test_blocks_are_titled_by_what_tells_them_apart(write, report):
    for algo in "ab":
        write(algo, [0.1], {"rounds": 10})
        write(algo, [0.1], {"rounds": 20})
        write(algo, [0.1], data="other")
        write(
            algo,
            [0.1],
            data="other",
            model="cnn",
            hash=f"of{algo}",
        )
    write("a", [0.1], experiment="paper/table1")
    text = report()
    assert titles(text) == [
        "other, cnn",
        "other, linear",
        "toy, linear rounds=10",
        "toy, linear rounds=20",
    ]
    assert "- paper/table1: toy, linear: nothing to compare, 1 a" in text


def test_a_key_of_the_configuration_is_compared_inside_one_method(write, report):
    for algo in "ab":
        for lr in (0.1, 0.001, 1):
            write(algo, [lr / 2], {"local.lr": lr})
    text = report("local.lr", baseline="1e-3")
    assert titles(text) == ["toy, a", "toy, b"]
    assert column(text) == ["local.lr=0.001", "local.lr=0.1", "local.lr=1"]
    assert column(text, "minus", 1) == ["local.lr=0.001"] * 2
    assert column(text, "difference", 1) == ["+4.95", "+49.95"]
    assert text == report("local.lr", baseline="local.lr=0.001")


def test_runs_without_the_key_are_counted(write, report):
    write("a", [0.1], {"algo.gamma": None})
    write("a", [0.1], {"algo.gamma": 1.5})
    write("b", [0.1])
    text = report("algo.gamma")
    assert column(text) == ["algo.gamma=null", "algo.gamma=1.5"]
    assert text.endswith("- left out: 1 run without algo.gamma")


@pytest.mark.parametrize("key", ["data.clients", "data.source.clients"])
def test_a_key_that_the_source_repeats_is_one_key(write, report, key):
    """data.source.clients: ${data.clients}, as in the config tree, is resolved in config.yaml."""
    for clients in (10, 20):
        write("a", [0.1], {"data.clients": clients, "data.source.clients": clients})
    assert column(report(key)) == [f"{key}=10", f"{key}=20"]


def test_models_and_data_are_compared_without_their_own_settings(write, report):
    write("a", [0.1], {"model.hidden": 5}, model="mlp")
    write("a", [0.1], {"model.channels": 5}, model="cnn")
    write(
        "a",
        [0.1],
        {"model.hidden": 5, "data.clients": 3},
        model="mlp",
        data="more",
    )
    assert column(report("model")) == ["cnn", "mlp"]
    assert column(report("data")) == ["more", "toy"]


def test_settings_of_one_method_are_rows_of_their_own(write, report):
    """With the same names in all blocks."""
    for rounds in (10, 20, 30):
        write("a", [0.1], {"rounds": rounds})
    write("b", [0.1], {"rounds": 10, "algo.q": 0.1})
    write("b", [0.1], {"rounds": 10, "algo.q": 1})
    write("b", [0.1], {"rounds": 20, "algo.q": 1.0})
    write("b", [0.1], {"rounds": 30})
    text = report()
    assert column(text) == ["a", "b algo.q=0.1", "b algo.q=1"]
    assert column(text, table=2) == ["a", "b algo.q=1"]
    assert column(text, table=4) == ["a", "b"]

    text = report(baseline="b algo.q=0.1")
    assert column(text, table=1) == ["a", "b algo.q=1"]
    assert "- b algo.q=0.1 has no runs in this setting" in text


def test_a_baseline_with_several_settings_is_named_by_them(write, report):
    write("b", [0.1], {"algo.q": 0.1})
    write("b", [0.1], {"algo.q": 1})
    message = r"baseline must be one of b algo.q=0.1, b algo.q=1; got 'b'"
    with pytest.raises(RequestError, match=message):
        report(baseline="b")


def test_settings_that_the_configuration_does_not_show_are_told_by_hash(write, report):
    write("a", [0.1], hash="aaa")
    write("a", [0.3], hash="bbb")
    assert column(report()) == ["a hash=aaa", "a hash=bbb"]


def test_a_note_says_where_local_solvers_differ(write, report):
    for algo, lr in {"a": 0.1, "b": 0.01, "c": 0.1}.items():
        write(algo, [0.1], {"local.lr": lr, "local.epochs": 1})
    assert "- the methods differ in local.lr (a 0.1, b 0.01, c 0.1)" in report()


def test_a_note_says_where_weights_of_clients_differ(write, report):
    """Methods without the key have a rule of their own."""
    write("a", [0.1], {"algo.weights": "size"})
    write("b", [0.1], {"algo.weights": "uniform"})
    write("c", [0.1], {"algo.weights": [1, 2]})
    write("d", [0.1], {"algo.prior": "size"})
    text = report()
    assert "- the methods differ in the weights of clients (a size, b uniform, d size)" in text


def test_equal_weights_need_no_note(write, report):
    write("a", [0.1], {"algo.weights": "size"})
    write("b", [0.1], {"algo.weights": "size"})
    write("c", [0.1], {"algo.q": 1})
    assert "the methods differ" not in report()


# ---- over blocks


VALUES = {
    1: {"a": 0.1, "b": 0.2, "c": 0.3},
    2: {"a": 0.2, "b": 0.2, "c": 0.7},
    3: {"a": 0.9, "b": 0.8},
}


def grid(write, *blocks, metric="accuracy_mean"):
    """Six seeds per block (rounds) and method, without spread."""
    for rounds in blocks:
        for algo, value in VALUES[rounds].items():
            write(algo, [value] * 6, {"rounds": rounds}, metric)


@pytest.mark.parametrize(
    ("metric", "against_c"),
    [("accuracy_mean", "0/0/2"), ("test_loss", "2/0/0")],
)
def test_wins_ties_and_losses_by_hand(write, report, metric, against_c):
    """b loses to a in block 3 and wins in block 1; c is in two blocks only. Of losses the lower
    ones win.
    """
    grid(write, 1, 2, 3, metric=metric)
    a, b, c = tables(report(metric=metric))[6]
    assert a == {"method": "a", "a": "–", "b": "1/1/1", "c": against_c}
    assert b == {"method": "b", "a": "1/1/1", "b": "–", "c": against_c}
    turned = against_c[::-1]
    assert c == {"method": "c", "a": turned, "b": turned, "c": "–"}


@pytest.mark.parametrize(
    ("metric", "ranks"),
    [
        ("accuracy_mean", ["2.75", "2.25", "*1.00"]),
        ("accuracy_std", ["*1.25", "1.75", "3.00"]),
    ],
)
def test_average_ranks_by_hand(write, report, metric, ranks):
    """Blocks 1 and 2 have all: ranks 3, 2, 1 and 2.5, 2.5, 1 where higher is better."""
    grid(write, 1, 2, 3, metric=metric)
    text = report(metric=metric)
    assert column(text, "average rank", -1) == ranks
    assert "over 2 settings with all methods" in text


def test_ranks_take_two_full_blocks(write, report):
    grid(write, 1, 3)
    assert "no average ranks: they need 2 settings with all methods, got 1" in report()


def test_ranks_take_three_methods(write, report):
    for rounds in (1, 2):
        write("a", [0.1] * 3, {"rounds": rounds})
        write("b", [0.9] * 3, {"rounds": rounds})
    text = report()
    assert "average rank" not in text
    assert column(text, "b", -1) == ["0/2/0", "–"]  # few seeds decide no block
    # two blocks, and over them
    assert text.count("with 3 seeds (the least p is 0.25): p ≤ 0.05 needs 6 seeds") == 3


# ---- requests that cannot be met


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "avgs"}, "must be one of adam, avg; got 'avgs'; did you mean avg?"),
        ({"metric": "accuracy_men"}, "must be accuracy_mean, got 'accuracy_men'; did you mean"),
        ({"key": "local.lt"}, "none of 4 runs has the key local.lt; .* did you mean local.lr?"),
        ({"key": "local"}, "none of 4 runs has the key local;"),
        ({"alpha": 1.0}, "alpha must be < 1, got 1.0"),
    ],
)
def test_errors_say_what_there_is(write, report, options, message):
    write("adam", [0.1, 0.2])
    write("avg", [0.1, 0.2])
    with pytest.raises(RequestError, match=message.replace("?", r"\?")):
        report(**options)


def test_a_method_of_which_nothing_is_done_is_told_in_the_error(write, report):
    write("a", [0.1, 0.2])
    write("b", [0.2], status="failed")
    with pytest.raises(RequestError, match=r"toy: 2 a \(left out: 1 b failed\)"):
        report()


def test_a_method_that_always_diverged_is_worse(write, report):
    """Seven seeds: p = 2 / 128. There is no scale on which to say by how much."""
    write("a", [0.1] * 7)
    write("b", [0.0] * 7, status="diverged")
    text = report()
    assert column(text, "seeds") == ["7", "0"]
    assert column(text, "mean accuracy (%)") == ["*10.00 ± 0.00", "–"]
    (row,) = tables(text)[1]
    assert row["difference"] == "+inf"
    assert row["p"] == "0.0156"
    assert row["verdict"] == "better"


def test_ranks_put_a_method_of_which_a_run_diverged_last(write, report):
    """In the first block the best one diverged once: it is 3rd there and 1st in the other, 2 on
    average.
    """
    for data in ("one", "two"):
        for algo, value in {"a": 0.9, "b": 0.5, "c": 0.4}.items():
            write(algo, [value, value], data=data)
    write("a", {2: 0.9}, status="diverged", data="one")
    text = report()
    assert column(text, "average rank", -1) == ["2.00", "*1.50", "2.50"]
    assert "- a method with a diverged run is last in its setting" in text


def test_a_seed_that_is_done_somewhere_did_not_diverge(tmp_path):
    write_runs(tmp_path / "x", "a", [0.1])
    write_runs(tmp_path / "x", "b", [0.2])
    write_runs(tmp_path / "y", "b", [0.0], status="diverged")
    text = report_of(tmp_path)
    assert column(text, "mean accuracy (%)") == ["10.00", "*20.00"]
    assert column(text, "difference", 1) == ["-10.00"]


def test_a_metric_that_is_null_somewhere_is_refused(write, report):
    """JSON has no word for infinity: leaving such runs out would favour their method."""
    write("a", [0.1, 0.2], metric="test_loss")
    write("b", [0.3, None], metric="test_loss")
    message = r"test_loss must have been measured .* null in 1 of 4, first in .*seed_1;"
    with pytest.raises(RequestError, match=message):
        report(metric="test_loss")


def test_the_order_of_the_runs_changes_nothing(tmp_path, write):
    grid(write, 1, 2, 3)
    runs = list(Results(tmp_path))
    straight = compared_text(compare(runs, "algo", "accuracy_mean"))
    assert straight == compared_text(compare(runs[::-1], "algo", "accuracy_mean"))

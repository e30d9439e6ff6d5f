"""Comparisons of runs on disk, made here by hand; the tests themselves are in test_stats.py."""

import hashlib
import json
import math
import re
import shutil

import pytest
from fake_runs import seal
from fake_runs import write_run as write_files

from fedbench.analysis.compare import compare
from fedbench.core.errors import RequestError
from fedbench.reports.comparison import compared_text
from fedbench.runs.results import Results

# mean 0.02, sample STD √(4 * 0.01² / 5); 2 / 2^6 of the sign flips
STEPS = (0.01, 0.02, 0.03, 0.01, 0.02, 0.03)


def write_run(root, algo, seed, metrics, settings=None, status="done", digest=None, **names):
    settings = {"rounds": 10, "local.lr": 0.1, f"algo.of_{algo}": 1, **(settings or {})}
    digest = (
        digest
        or hashlib.sha256(json.dumps([algo, settings], sort_keys=True).encode()).hexdigest()[:10]
    )
    meta = {"status": status, "seed": seed, "hash": digest, "algo": algo}
    meta |= {"data": "toy", "model": "linear", "experiment": None, "departures": {}, **names}
    path = root / (meta["experiment"] or meta["data"]) / algo / digest / f"seed_{seed}"
    # the last one counts
    rows = [{"round": 0, **dict.fromkeys(metrics, 0.123)}, {"round": 10, **metrics}]
    write_files(path, meta, {"seed": seed, "results_dir": str(root), **settings}, rows)


def write_runs(root, algo, values, settings=None, metric="accuracy_mean", **names):
    for seed, value in enumerate(values):
        write_run(root, algo, seed, {metric: value}, settings, **names)


def report(root, key="algo", metric="accuracy_mean", **options):
    return compared_text(compare(list(Results(root)), key, metric, **options))


def tables(text):
    """The tables of a text: per table a list of rows as dictionaries, keyed by the headings."""
    found, heads = [], None
    for line in text.splitlines():
        if not line.startswith("|"):
            heads = None
            continue
        cells = [c.strip() for c in line.strip("|").split("|")]
        if heads is None:
            heads = [re.sub(r"^difference .*", "difference", c) for c in cells]
            found.append([])
        elif not set(line) <= set("|-: "):
            found[-1].append(dict(zip(heads, cells, strict=True)))
    return found


def titles(text):
    return [
        found[1]
        for line in text.splitlines()
        if (found := re.fullmatch(r"### (.*): mean accuracy", line))
    ]


# ---- one block


def test_six_seeds_by_hand(tmp_path):
    """The half width is t(0.975, 5) STD / √6, with t = 2.570582 as tabulated."""
    write_runs(tmp_path, "base", [0.5] * 6)
    write_runs(tmp_path, "new", [0.5 + s for s in STEPS])
    text = report(tmp_path, baseline="base")
    means, differences = tables(text)
    assert [list(r.values()) for r in means] == [
        ["base", "6", "50.00 ± 0.00"],
        ["new", "6", "*52.00 ± 0.89"],
    ]
    half = 2.570582 * math.sqrt(4 / 5) / math.sqrt(6)
    assert differences == [
        {
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
    ]
    assert (
        "Mean accuracy in % (accuracy_mean) at the last round of the values of algo; higher is better"
        in text
    )
    assert "undecided" not in text


def test_exchanging_baseline_and_method_turns_everything_round(tmp_path):
    write_runs(tmp_path, "base", [0.5] * 6)
    write_runs(tmp_path, "new", [0.5 + s for s in STEPS])
    (row,) = tables(report(tmp_path, baseline="new"))[1]
    assert (row["method"], row["minus"], row["difference"], row["verdict"]) == (
        "base",
        "new",
        "-2.00",
        "worse",
    )
    assert (row["lower"], row["upper"]) == ("-2.94", "-1.06")
    assert row["p"] == "0.0312"


@pytest.mark.parametrize(
    ("metric", "verdict", "difference"),
    [
        ("accuracy_mean", "better", "+2.00"),
        ("accuracy_worst30_weighted", "better", "+2.00"),
        ("accuracy_std", "worse", "+2.00"),
        ("accuracy_std_weighted", "worse", "+2.00"),
        ("accuracy_variance", "worse", "+200.00"),  # percent²
        ("train_loss", "worse", "+0.0200"),
        ("test_loss", "worse", "+0.0200"),
        ("angle_degrees", "worse", "+0.02"),
        ("kl_uniform", "worse", "+0.0200"),
        ("seconds_train", "worse", "+0.02"),
        ("bytes_up", "worse", "+0"),
        ("improved_clients", "better", "+2.00"),
    ],
)
def test_direction_and_unit_are_those_of_the_metric(tmp_path, metric, verdict, difference):
    write_runs(tmp_path, "base", [0.5] * 6, metric=metric)
    write_runs(tmp_path, "new", [0.5 + s for s in STEPS], metric=metric)
    text = report(tmp_path, metric=metric, baseline="base")
    (row,) = tables(text)[1]
    assert (row["difference"], row["verdict"]) == (difference, verdict)
    assert f"{'higher' if verdict == 'better' else 'lower'} is better" in text


def test_a_metric_without_a_better_direction_has_higher_and_lower_values(tmp_path):
    """And a run that diverged is neither: its pair is left out."""
    write_runs(tmp_path, "base", [0.5] * 7, metric="update_norm")
    write_runs(tmp_path, "new", [0.5 + s for s in STEPS], metric="update_norm")
    write_run(tmp_path, "new", 6, {"update_norm": 9.0}, status="diverged")
    text = report(tmp_path, metric="update_norm", baseline="base")
    (row,) = tables(text)[1]
    assert (row["seeds"], row["difference"], row["verdict"]) == ("6", "+0.0200", "higher")
    assert (
        "(update_norm) at the last round of the values of algo; neither direction is better" in text
    )
    assert "diverged, not in any mean: new with seed 6" in text


def test_runs_are_paired_by_seed(tmp_path):
    """Seeds 1, 2 and 3 are common, and what they do to both methods drops out: 5 points, without any width."""
    for seed, effect in ((0, 0.9), (1, 0.1), (2, 0.5), (3, 0.3)):
        write_run(tmp_path, "base", seed, {"accuracy_mean": effect})
    for seed, effect in ((4, 0.0), (3, 0.3), (2, 0.5), (1, 0.1)):
        write_run(tmp_path, "new", seed, {"accuracy_mean": effect + 0.05})
    means, ((_, *row),) = (
        t if i == 0 else [tuple(r.values()) for r in t]
        for i, t in enumerate(tables(report(tmp_path)))
    )
    assert [r["seeds"] for r in means] == ["4", "4"]
    assert row == ["new", "3", "-5.00", "-5.00", "-5.00", "0.2500", "0.2500", "undecided"]


def test_all_pairs_are_adjusted_together(tmp_path):
    """2 / 64 twice, and 1 for the two that are equal; adjusted 3/32, 3/32 (not 2/32, below the one before) and 1."""
    write_runs(tmp_path, "a", [0.5] * 6)
    write_runs(tmp_path, "b", [0.5] * 6)
    write_runs(tmp_path, "c", [0.5 + s for s in STEPS])
    rows = tables(report(tmp_path))[1]
    assert [(r["method"], r["minus"]) for r in rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [r["p"] for r in rows] == ["1.0000", "0.0312", "0.0312"]
    assert [r["p (Holm)"] for r in rows] == ["1.0000", "0.0938", "0.0938"]
    assert {r["verdict"] for r in rows} == {"undecided"}
    assert [r["verdict"] for r in tables(report(tmp_path, alpha=0.1))[1]] == [
        "undecided",
        "worse",
        "worse",
    ]
    half = 2.015048 * math.sqrt(4 / 5) / math.sqrt(6)  # t(0.95, 5), as tabulated
    wide = tables(report(tmp_path, alpha=0.1))[1][1]
    assert (wide["lower"], wide["upper"]) == (f"{-2 - half:+.2f}", f"{-2 + half:+.2f}")


@pytest.mark.parametrize(
    ("methods", "seeds", "alpha", "takes"),
    [
        (2, 5, 0.05, 6),  # 2^(1-5) = 1/16
        (2, 6, 0.05, None),  # 1/32
        (3, 6, 0.05, 7),  # 3/32; 3/64
        (3, 7, 0.05, None),
        (2, 6, 0.01, 8),  # 1/64 at 7; 1/128
        (2, 1, 0.5, 2),
        (2, 2, 0.5, None),
    ],
)
def test_a_note_says_how_many_seeds_a_verdict_takes(tmp_path, methods, seeds, alpha, takes):
    for m in range(methods):
        write_runs(tmp_path, f"m{m}", [0.1 * m + 0.01] * seeds)
    text = report(tmp_path, alpha=alpha)
    decided = {r["verdict"] for r in tables(text)[1]} != {"undecided"}
    assert decided == (takes is None)  # these differences are as clear as can be
    assert (f"with {seeds} seed" in text) == (takes is not None)
    if takes:
        assert f"needs {takes} seeds" in text


def test_methods_without_a_common_seed_are_named(tmp_path):
    write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1})
    write_run(tmp_path, "b", 1, {"accuracy_mean": 0.2})
    text = report(tmp_path)
    assert len(tables(text)) == 1
    assert "- a and b have no seed in common\n" in text + "\n"


def test_what_is_not_done_is_counted_and_left_out(tmp_path):
    write_runs(tmp_path, "a", [0.1, 0.2])
    write_runs(tmp_path, "b", [0.3, 0.4])
    write_run(tmp_path, "b", 2, {"accuracy_mean": 0.9}, status="diverged")
    write_run(tmp_path, "b", 3, {"accuracy_mean": 0.9}, status="diverged")
    write_run(tmp_path, "a", 2, {"accuracy_mean": 0.9}, status="running")
    write_run(tmp_path, "c", 0, {"accuracy_mean": 0.9}, status="failed")
    text = report(tmp_path)
    assert [(r["method"], r["seeds"]) for r in tables(text)[0]] == [("a", "2"), ("b", "2")]
    assert "- left out: 1 a not finished, 1 c failed" in text


def test_a_metric_that_was_not_recorded_needs_other_runs(tmp_path):
    for algo in ("a", "b"):
        write_runs(tmp_path, algo, [0.5, 0.6])
    with pytest.raises(RequestError, match="metric must be accuracy_mean, got 'update_norm'"):
        report(tmp_path, metric="update_norm")
    with pytest.raises(RequestError, match="metric must be accuracy_mean, got 'error_mean'"):
        report(tmp_path, metric="error_mean")


@pytest.mark.parametrize(("metric", "sign"), [("accuracy_mean", 1), ("test_loss", -1)])
def test_a_run_that_diverged_is_worse_by_the_widest_difference(tmp_path, metric, sign):
    """Differences of a and b in percent or as they are: 1, 3; b diverged with seed 2 (3 more), both with seed 3."""
    unit = 0.01 if sign > 0 else 1.0
    write_runs(tmp_path, "a", [5 * unit, 7 * unit, 6 * unit], metric=metric)
    write_runs(tmp_path, "b", [4 * unit, 4 * unit], metric=metric)
    for algo, seed in (("b", 2), ("a", 3), ("b", 3)):
        write_run(tmp_path, algo, seed, {metric: 0.0}, status="diverged")
    means, differences = tables(report(tmp_path, metric=metric))
    assert [float([*r.values()][2].split()[0]) for r in means] == [6, 4]  # of those that did not
    (row,) = differences
    assert (row["seeds"], float(row["difference"])) == (
        "3",
        pytest.approx((1 + 3 + sign * 3) / 3, abs=0.01),
    )
    assert (
        "- diverged, not in any mean, counted as worse by the largest difference: a with seed 3; b with seed 2, 3\n"
        in report(tmp_path, metric=metric) + "\n"
    )


def test_what_was_reduced_is_said(tmp_path):
    write_runs(tmp_path, "a", [0.1, 0.2], departures={"rounds": [100, 10]})
    write_runs(tmp_path, "b", [0.3, 0.4])
    assert "- reduced: a: rounds 10 (paper 100)" in report(tmp_path)


def test_other_files_than_the_official_ones_are_no_reduction(tmp_path):
    write_runs(tmp_path, "a", [0.1, 0.2], unofficial=["X: not the official files"])
    write_runs(tmp_path, "b", [0.3, 0.4])
    said = report(tmp_path)
    assert "\n- X: not the official files" in said
    assert "reduced" not in said


def test_a_run_that_is_there_twice_counts_once(tmp_path):
    for place, value in (("first", 0.1), ("second", 0.7)):
        write_run(tmp_path / place, "a", 0, {"accuracy_mean": value})
    write_run(tmp_path / "first", "b", 0, {"accuracy_mean": 0.2})
    text = report(tmp_path)
    assert [(r["method"], r["mean accuracy (%)"]) for r in tables(text)[0]] == [
        ("a", "10.00"),
        ("b", "*20.00"),
    ]
    store = Results(tmp_path)
    assert text == compared_text(compare(list(store)[::-1], "algo", "accuracy_mean"))
    assert [": a copy of " in why for why in store.damaged] == [True]


# ---- what a block is


@pytest.mark.parametrize(
    ("key", "one", "other", "together"),
    [
        ("rounds", 10, 20, False),
        ("data.partition.alpha", 0.1, 0.5, False),
        ("model.hidden", 10, 20, False),
        ("engine.precision", "float32", "float64", False),
        ("init.path", None, "w.safetensors", False),
        ("participation", 1.0, 1, True),  # both are everyone
        ("local.lr", 0.1, 0.01, True),
        ("algo.weights", "size", "uniform", True),
        ("device", "cpu", "cuda", True),
        ("engine.mode", "loop", "stacked", True),
        ("engine.client_state", "host", "file", True),
        ("data.download", True, False, True),
        ("data_dir", "a", "b", True),
        ("tracker.project", "a", "b", True),
        ("eval_every", 1, 5, True),
    ],
)
def test_methods_meet_where_all_that_matters_is_equal(tmp_path, key, one, other, together):
    write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1}, {key: one})
    write_run(tmp_path, "b", 0, {"accuracy_mean": 0.2}, {key: other})
    if together:
        shared = ", participation 1" if key == "participation" else ""
        assert titles(report(tmp_path)) == [f"toy{shared}"]
    else:
        with pytest.raises(
            RequestError,
            match=f"at least two values of algo.* toy {key}=.*: 1 a; toy {key}=.*: 1 b",
        ):
            report(tmp_path)


def test_the_number_of_clients_and_the_participation_are_named_as_part_of_the_data(tmp_path):
    for algo, settings in (
        ("a", {"participation": 0.1}),
        ("b", {"participation": 1.0}),
        ("c", {"data.clients": 20}),
    ):
        write_run(tmp_path, algo, 0, {"accuracy_mean": 0.1}, settings)
    with pytest.raises(
        RequestError, match="found toy, 20 clients: 1 c; toy, participation 0.1: 1 a; toy, particip"
    ):
        report(tmp_path)


@pytest.mark.parametrize(
    "names", [{"data": "other"}, {"model": "cnn"}, {"experiment": "paper/table1"}]
)
def test_names_of_groups_separate_blocks(tmp_path, names):
    write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1})
    write_run(tmp_path, "b", 0, {"accuracy_mean": 0.2}, **names)
    with pytest.raises(
        RequestError,
        match="nothing to compare: --compare algo needs finished runs of at least two values",
    ):
        report(tmp_path)


def test_blocks_are_titled_by_what_tells_them_apart(tmp_path):
    for rounds in (10, 20):
        for algo in "ab":
            write_run(tmp_path, algo, 0, {"accuracy_mean": 0.1}, {"rounds": rounds})
    for algo in "ab":
        write_run(tmp_path, algo, 0, {"accuracy_mean": 0.1}, data="other")
        write_run(
            tmp_path, algo, 0, {"accuracy_mean": 0.1}, data="other", model="cnn", digest=f"of{algo}"
        )
    write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1}, experiment="paper/table1")
    text = report(tmp_path)
    assert titles(text) == [
        "other, cnn",
        "other, linear",
        "toy, linear rounds=10",
        "toy, linear rounds=20",
    ]
    assert "- paper/table1: toy, linear: nothing to compare, 1 a" in text


def test_a_key_of_the_configuration_is_compared_inside_one_method(tmp_path):
    for algo in "ab":
        for lr in (0.1, 0.001, 1):
            write_run(tmp_path, algo, 0, {"accuracy_mean": lr / 2}, {"local.lr": lr})
    text = report(tmp_path, "local.lr", baseline="1e-3")
    assert titles(text) == ["toy, a", "toy, b"]
    means, differences, *_ = tables(text)
    assert [r["method"] for r in means] == ["local.lr=0.001", "local.lr=0.1", "local.lr=1"]
    assert [(r["minus"], r["difference"]) for r in differences] == [
        ("local.lr=0.001", "+4.95"),
        ("local.lr=0.001", "+49.95"),
    ]
    assert text == report(tmp_path, "local.lr", baseline="local.lr=0.001")


def test_runs_without_the_key_are_counted(tmp_path):
    for gamma in (None, 1.5):
        write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1}, {"algo.gamma": gamma})
    write_run(tmp_path, "b", 0, {"accuracy_mean": 0.1})
    text = report(tmp_path, "algo.gamma")
    assert [r["method"] for r in tables(text)[0]] == ["algo.gamma=null", "algo.gamma=1.5"]
    assert text.endswith("- left out: 1 run without algo.gamma")


def test_a_key_that_the_source_repeats_is_one_key(tmp_path):
    """data.source.clients: ${data.clients}, as the config tree has it, is resolved in config.yaml."""
    for clients in (10, 20):
        settings = {"data.clients": clients, "data.source.clients": clients, "data.source.seed": 3}
        write_run(tmp_path, "a", 0, {"accuracy_mean": clients / 100}, settings)
    for key in ("data.clients", "data.source.clients"):
        assert [r["method"] for r in tables(report(tmp_path, key))[0]] == [f"{key}=10", f"{key}=20"]


def test_models_and_data_are_compared_without_their_own_settings(tmp_path):
    write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1}, {"model.hidden": 5}, model="mlp")
    write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1}, {"model.channels": 5}, model="cnn")
    write_run(
        tmp_path,
        "a",
        0,
        {"accuracy_mean": 0.1},
        {"model.hidden": 5, "data.clients": 3},
        model="mlp",
        data="more",
    )
    assert [r["method"] for r in tables(report(tmp_path, "model"))[0]] == ["cnn", "mlp"]
    assert [r["method"] for r in tables(report(tmp_path, "data"))[0]] == ["more", "toy"]


def test_settings_of_one_method_are_rows_of_their_own_with_the_same_names_in_all_blocks(tmp_path):
    for rounds in (10, 20):
        write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1}, {"rounds": rounds})
        for q in (0.1, 1) if rounds == 10 else (1.0,):
            write_run(
                tmp_path,
                "b",
                0,
                {"accuracy_mean": q / 2},
                {"rounds": rounds, "algo.q": q, "algo.L": None},
            )
    first, _, second, *_ = tables(report(tmp_path))
    assert [r["method"] for r in first] == ["a", "b algo.q=0.1", "b algo.q=1"]
    assert [r["method"] for r in second] == ["a", "b algo.q=1"]
    text = report(tmp_path, baseline="b algo.q=0.1")
    assert {(r["method"], r["minus"]) for r in tables(text)[1]} == {
        ("a", "b algo.q=0.1"),
        ("b algo.q=1", "b algo.q=0.1"),
    }
    assert "- b algo.q=0.1 has no runs in this setting" in text
    with pytest.raises(
        RequestError, match=r"baseline must be one of b algo.q=0.1, b algo.q=1; got 'b'"
    ):
        report(tmp_path, baseline="b")
    write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1}, {"rounds": 30})
    write_run(tmp_path, "b", 0, {"accuracy_mean": 0.1}, {"rounds": 30})  # has no algo.q
    third = tables(report(tmp_path))[4]
    assert [r["method"] for r in third] == ["a", "b"]


def test_settings_that_the_configuration_does_not_show_are_told_by_hash(tmp_path):
    for digest, value in (("aaa", 0.1), ("bbb", 0.3)):
        write_run(tmp_path, "a", 0, {"accuracy_mean": value}, digest=digest)
    assert [r["method"] for r in tables(report(tmp_path))[0]] == ["a hash=aaa", "a hash=bbb"]


def test_a_note_says_where_local_solvers_differ(tmp_path):
    write_run(tmp_path, "a", 0, {"accuracy_mean": 0.1}, {"local.lr": 0.1, "local.epochs": 1})
    write_run(tmp_path, "b", 0, {"accuracy_mean": 0.1}, {"local.lr": 0.01, "local.epochs": 1})
    assert "- the local solvers differ in local.lr (a 0.1, b 0.01)" in report(tmp_path)
    write_run(tmp_path, "c", 0, {"accuracy_mean": 0.1}, {"local.lr": 0.1, "local.epochs": 1})
    assert "local solvers differ in local.lr (a 0.1, b 0.01, c 0.1)" in report(tmp_path)


# ---- over blocks


def grid(root, values, metric="accuracy_mean"):
    """Six seeds per block (rounds) and method, without spread."""
    for rounds, methods in values.items():
        for algo, value in methods.items():
            write_runs(root, algo, [value] * 6, {"rounds": rounds}, metric)


VALUES = {
    1: {"a": 0.1, "b": 0.2, "c": 0.3},
    2: {"a": 0.2, "b": 0.2, "c": 0.7},
    3: {"a": 0.9, "b": 0.8},
}


@pytest.mark.parametrize("metric", ["accuracy_mean", "test_loss"])
def test_wins_ties_and_losses_by_hand(tmp_path, metric):
    """b loses to a in block 3 and wins in block 1; c is in two blocks only. Of losses the lower ones win."""
    grid(tmp_path, VALUES, metric)
    matrix = tables(report(tmp_path, metric=metric))[6]
    expected = {
        "ab": "1/1/1",
        "ba": "1/1/1",
        "ac": "0/0/2",
        "ca": "2/0/0",
        "bc": "0/0/2",
        "cb": "2/0/0",
    }
    if metric == "test_loss":
        expected |= {"ac": "2/0/0", "ca": "0/0/2", "bc": "2/0/0", "cb": "0/0/2"}
    assert {
        r["method"] + other: r[other] for r in matrix for other in "abc"
    } == expected | dict.fromkeys(("aa", "bb", "cc"), "–")


def test_average_ranks_by_hand(tmp_path):
    """Blocks 1 and 2 have all: ranks 3, 2, 1 and 2.5, 2.5, 1."""
    grid(tmp_path, VALUES)
    text = report(tmp_path)
    assert [list(r.values()) for r in tables(text)[-1]] == [
        ["a", "2.75"],
        ["b", "2.25"],
        ["c", "*1.00"],
    ]
    assert "over 2 settings with all methods" in text


def test_lower_is_the_better_rank_where_lower_is_better(tmp_path):
    grid(tmp_path, VALUES, "accuracy_std")
    ranks = tables(report(tmp_path, metric="accuracy_std"))[-1]
    assert [list(r.values()) for r in ranks] == [["a", "*1.25"], ["b", "1.75"], ["c", "3.00"]]


def test_ranks_take_three_methods_and_two_full_blocks(tmp_path):
    grid(tmp_path, {1: VALUES[1], 3: VALUES[3]})
    assert "no average ranks: they need 2 settings with all methods, got 1" in report(tmp_path)
    two = [r for r in Results(tmp_path) if r.meta["algo"] != "c"]
    text = compared_text(compare(two, "algo", "accuracy_mean"))
    assert "average rank" not in text
    assert [list(r.values()) for r in tables(text)[-1]] == [
        ["a", "–", "1/0/1"],
        ["b", "1/0/1", "–"],
    ]


def test_one_block_has_no_matrix(tmp_path):
    grid(tmp_path, {1: VALUES[1]})
    assert len(tables(report(tmp_path))) == 2


def test_few_seeds_decide_no_block(tmp_path):
    for rounds in (1, 2):
        write_runs(tmp_path, "a", [0.1] * 3, {"rounds": rounds})
        write_runs(tmp_path, "b", [0.9] * 3, {"rounds": rounds})
    text = report(tmp_path)
    assert tables(text)[-1][1]["a"] == "0/2/0"
    # two blocks, and over them
    assert text.count("with 3 seeds (the least p is 0.25): p ≤ 0.05 needs 6 seeds") == 3


# ---- requests that cannot be met


def test_errors_say_what_there_is(tmp_path):
    write_runs(tmp_path, "adam", [0.1, 0.2])
    with pytest.raises(
        RequestError, match=r"at least two values of algo .* toy: 2 adam\. Run more"
    ):
        report(tmp_path)
    write_runs(tmp_path, "avg", [0.1, 0.2])
    for options, message in (
        ({"baseline": "avgs"}, "baseline must be one of adam, avg; got 'avgs'; did you mean avg?"),
        (
            {"metric": "accuracy_men"},
            "metric must be accuracy_mean, got 'accuracy_men'; did you mean accuracy_mean",
        ),
        ({"metric": "round"}, "metric must be accuracy_mean, got 'round'"),
        ({"key": "local.lt"}, "none of 4 runs has the key local.lt; .* did you mean local.lr?"),
        ({"key": "local"}, "none of 4 runs has the key local;"),
        ({"key": "local.lr"}, "at least two values of local.lr"),
        ({"alpha": 1.0}, "alpha must be < 1, got 1.0"),
    ):
        with pytest.raises(RequestError, match=message.replace("?", r"\?")):
            report(tmp_path, **options)


def test_a_method_of_which_nothing_is_done_is_told_in_the_error(tmp_path):
    write_runs(tmp_path, "a", [0.1, 0.2])
    write_run(tmp_path, "b", 0, {"accuracy_mean": 0.2}, status="failed")
    with pytest.raises(RequestError, match=r"toy: 2 a \(left out: 1 b failed\)"):
        report(tmp_path)


def test_a_method_that_always_diverged_is_worse(tmp_path):
    """Seven seeds: p = 2 / 128. There is no scale on which to say by how much."""
    write_runs(tmp_path, "a", [0.1] * 7)
    for seed in range(7):
        write_run(tmp_path, "b", seed, {"accuracy_mean": 0.0}, status="diverged")
    text = report(tmp_path)
    means, (row,) = tables(text)
    assert [(r["method"], r["seeds"], r["mean accuracy (%)"]) for r in means] == [
        ("a", "7", "*10.00 ± 0.00"),
        ("b", "0", "–"),
    ]
    assert (row["difference"], row["p"], row["verdict"]) == ("+inf", "0.0156", "better")
    for seed in range(7):
        path = next(tmp_path.glob(f"toy/a/*/seed_{seed}"))
        shutil.copyfile(next(tmp_path.glob(f"toy/b/*/seed_{seed}/meta.json")), path / "meta.json")
        seal(path)
    with pytest.raises(RequestError):
        report(tmp_path)


def test_ranks_put_a_method_of_which_a_run_diverged_last(tmp_path):
    """In the first block the best one diverged once: it is 3rd there and 1st in the other, 2 on average."""
    for data in ("one", "two"):
        for algo, value in (("a", 0.9), ("b", 0.5), ("c", 0.4)):
            write_runs(tmp_path, algo, [value, value], data=data)
    write_run(tmp_path, "a", 2, {"accuracy_mean": 0.9}, status="diverged", data="one")
    text = report(tmp_path)
    assert {r["method"]: r["average rank"] for r in tables(text)[-1]} == {
        "a": "2.00",
        "b": "*1.50",
        "c": "2.50",
    }
    assert "- a method with a diverged run is last in its setting" in text


def test_a_seed_that_is_done_somewhere_did_not_diverge(tmp_path):
    write_runs(tmp_path / "x", "a", [0.1])
    write_runs(tmp_path / "x", "b", [0.2])
    write_run(tmp_path / "y", "b", 0, {"accuracy_mean": 0.0}, status="diverged")
    means, (row,) = tables(report(tmp_path))
    assert ([r["mean accuracy (%)"] for r in means], row["difference"]) == (
        ["10.00", "*20.00"],
        "-10.00",
    )


def test_a_metric_that_is_null_somewhere_is_refused(tmp_path):
    """JSON has no word for infinity: leaving such runs out would favour their method."""
    write_runs(tmp_path, "a", [0.1, 0.2], metric="test_loss")
    write_runs(tmp_path, "b", [0.3, None], metric="test_loss")
    with pytest.raises(
        RequestError,
        match=r"test_loss must have been measured .* null in 1 of 4, first in .*seed_1;",
    ):
        report(tmp_path, metric="test_loss")


def test_the_order_of_the_runs_changes_nothing(tmp_path):
    grid(tmp_path, VALUES)
    runs = list(Results(tmp_path))
    turned, straight = (
        compared_text(compare(r, "algo", "accuracy_mean")) for r in (runs[::-1], runs)
    )
    assert turned == straight

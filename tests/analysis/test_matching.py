"""Matching of runs with rows: runs on disk and a paper, both made by hand here."""

import hashlib
import json
import math
from dataclasses import replace

import pytest
from example_paper import example_paper
from fake_runs import write_run as write_files
from units import unit

from fedbench.analysis.departures import config_departures
from fedbench.analysis.matching import Evidence
from fedbench.papers.schema import Method, PrintedMetric, Row, Setup, Table
from fedbench.runs.results import Results

# what the experiment says, and the presets of its methods
BASE = {
    "rounds": 100, "participation": 0.1, "eval_every": 10, "local.lr": 0.1, "local.epochs": 2, "local.steps": None,
    "local.batch_size": 64, "data.clients": 50, "data.partition.alpha": 0.5, "data.source._target_": "cifar10.load",
    "data.noise.level": 0.0, "model._target_": "models.resnet.resnet", "model.depth": 18,
}  # fmt: skip
PRESETS = {
    "fedavg": {"algo.server_lr": 1.0},
    "adafed": {"algo.gamma": 1.0},
    "fedcorr": {"algo.iterations": 2},
}
ACCURACY = PrintedMetric("avg", "average %", "higher", "accuracy_mean")
DEVIATION = PrintedMetric("std", "STD %", "lower", "accuracy_std")
SHIRT = PrintedMetric("shirt", "shirt %", "higher", "client:2")
PAPER = example_paper(
    metrics={m.id: m for m in (ACCURACY, DEVIATION, SHIRT)},
    methods={
        "fedavg": Method("fedavg", "FedAvg", "fedavg", {"lr": "local.lr"}),
        "adafed": Method("adafed", "AdaFed", "adafed", {"gamma": "algo.gamma"}),
        "fedcorr": Method("fedcorr", "FedCorr", "fedcorr", set={"rounds": 1100}),
    },
    setups={"one": Setup("one", "One", "made_up/table1_one", 50, 3, 500)},
)  # fmt: skip


def write_run(root, algo, seed=0, changes=None, rounds=None, status="done", clients=None, **meta):
    """A run with the base's settings but for ``changes``."""
    base = BASE | PRESETS[algo]
    config = base | (changes or {})
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:10]
    facts = {
        "status": status, "seed": seed, "hash": digest, "algo": algo, "experiment": "made_up/table1_one",
        "data": "toy", "model": "resnet18_gn", "started": "2024-01-01", "sources": [], "overrides": [],
        "departures": {k: [base.get(k), v] for k, v in config.items() if base.get(k) != v and k != "eval_every"},
    } | meta  # fmt: skip
    path = root / facts["experiment"] / algo / digest / f"seed_{seed}"
    rows = (
        [{"round": 0, "accuracy_mean": 0.1}, {"round": 10, "accuracy_mean": 0.5}]
        if rounds is None
        else rounds
    )
    write_files(path, facts, config | {"seed": seed}, rows, clients)
    return path


def find(root, algo="fedavg", **hyperparameters):
    return Evidence(PAPER, Results(root)).find(Row(algo, "one", hyperparameters))


# ---- full and reduced


def test_runs_as_the_experiment_has_them_are_full(tmp_path):
    for seed in (2, 0, 1):
        write_run(tmp_path, "fedavg", seed)
    found = find(tmp_path)
    assert list(found.runs) == [unit(0), unit(1), unit(2)]
    assert (found.others, found.reduced, found.cuts) == ((), (), ())


def test_seeds_are_counted_against_the_papers(tmp_path):
    write_run(tmp_path, "fedavg", 7)
    write_run(tmp_path, "fedavg", 1)
    assert find(tmp_path).reduced == ("seeds 2 (paper 3)",)
    assert find(tmp_path).cuts == ()  # fewer seeds are no other setting
    write_run(tmp_path, "fedavg", 2)
    assert find(tmp_path).reduced == ()
    write_run(tmp_path, "fedavg", 3)
    assert find(tmp_path).reduced == ()
    assert len(find(tmp_path).runs) == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 10}, "rounds 10 (paper 100)"),
        ({"participation": 0.05}, "participation 0.05 (paper 0.1)"),
        ({"participation": 5}, "participation 5 (paper 0.1)"),
        ({"data.source.images": 500}, "data.source.images 500 (paper null)"),
        ({"local.epochs": 1}, "local.epochs 1 (paper 2)"),
        ({"local.steps": 5}, "local.steps 5 (paper null)"),
        ({"data.clients": None}, "data.clients null (paper 50)"),
        ({"model.depth": 10}, "model.depth 10 (paper 18)"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_a_cut_is_named_with_the_papers_value(tmp_path, changes, words):
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed, changes)
    found = find(tmp_path)
    assert len(found.runs) == 3
    assert found.reduced == (words,)
    assert [k for k, _ in found.cuts] == list(changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"participation": 1.0},
        {"data.clients": 51},
        {"data.split": 0.5},
        {"data.seed": 3},
        {"data.local_test": "central"},
        {"data.source.alpha": 0},
    ],
    ids=lambda v: next(iter(v)),
)
def test_other_data_and_more_of_it_are_another_setting(tmp_path, changes):
    write_run(tmp_path, "fedavg", 0, changes)
    assert not find(tmp_path).runs


def test_what_is_printed_and_not_carried_out_is_never_full(tmp_path, monkeypatch):
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed)
    before = find(tmp_path)
    departing = replace(PAPER.setups["one"], departs=("no decay of the rate",))
    monkeypatch.setitem(PAPER.setups, "one", departing)
    assert tuple(f.reduced for f in (before, find(tmp_path))) == ((), ("no decay of the rate",))


def test_another_model_is_named_once(tmp_path):
    changes = {"model._target_": "models.dense.Linear", "model.depth": None}
    write_run(tmp_path, "fedavg", 0, changes, model="linear")
    assert find(tmp_path).reduced == ("model linear (paper resnet)", "seeds 1 (paper 3)")
    departures = {
        "model._target_": ["a.b.resnet", "c.mlp"],
        "model.hidden": [None, [4]],
        "rounds": [9, 2],
    }
    assert config_departures(departures, "mlp_200") == [
        "model mlp_200 (paper resnet)",
        "rounds 2 (paper 9)",
    ]
    (cut,) = config_departures({"model.hidden": [[200, 200], [64]]}, "mlp")
    assert cut == "model.hidden [64] (paper [200,200])"


@pytest.mark.parametrize(
    "changes",
    [
        {"algo.server_lr": 0.5},
        {"local.lr": 0.2},
        {"local.batch_size": 32},
        {"data.partition.alpha": 5.0},
        {"data.noise.level": 0.3},
        {"data.source._target_": "mnist.load"},
        {"rounds": 200},
        {"local.epochs": 3},
        {"local.epochs": [1, 20]},
        {"rounds": 10, "local.momentum": 0.9},
    ],
    ids=lambda v: " ".join(f"{k}={x}" for k, x in v.items()),
)
def test_any_other_change_makes_it_a_run_of_something_else(tmp_path, changes):
    write_run(tmp_path, "fedavg", 0, changes)
    found = find(tmp_path)
    assert (found.runs, found.others, found.reduced) == ({}, (), ())


def test_a_run_of_another_experiment_or_method_is_not_taken(tmp_path):
    write_run(tmp_path, "fedavg", 0, experiment="made_up/table1_two")
    write_run(tmp_path, "adafed", 0)
    assert find(tmp_path).runs == {}
    assert list(find(tmp_path, "adafed").runs) == [unit(0)]


# ---- what a row sets


def test_a_rows_hyperparameter_is_no_reduction_and_keeps_rows_apart(tmp_path):
    for seed in range(3):
        write_run(
            tmp_path, "adafed", seed, {"algo.gamma": 5.0}, [{"round": 10, "accuracy_mean": 0.5}]
        )
        write_run(tmp_path, "adafed", seed, rounds=[{"round": 10, "accuracy_mean": 0.1}])
    # None is not printed: the preset's
    for gamma, value in ((5.0, 50.0), (5, 50.0), (1.0, 10.0), (None, 10.0)):
        found = find(tmp_path, "adafed", gamma=gamma)
        assert found.values(ACCURACY) == {unit(s): pytest.approx(value) for s in range(3)}
        assert (found.reduced, found.cuts) == ((), ())
    assert find(tmp_path, "adafed", gamma=2.0).runs == {}
    # the other is a variant
    assert find(tmp_path, "adafed").values(ACCURACY)[unit(0)] == pytest.approx(10.0)


def test_a_switch_is_no_number(tmp_path):
    write_run(tmp_path, "adafed", 0, {"algo.gamma": True})
    assert find(tmp_path, "adafed", gamma=1.0).runs == {}
    assert list(find(tmp_path, "adafed", gamma=True).runs) == [unit(0)]


def test_rounds_that_a_method_always_sets_can_be_cut_too(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "fedcorr", seed, {"rounds": 5})
    assert find(tmp_path, "fedcorr").reduced == ("rounds 5 (paper 1100)",)
    # those of the experiment, 100, are not those of the method either
    write_run(tmp_path, "fedcorr", 0)
    assert find(tmp_path, "fedcorr").reduced == ("rounds 100 (paper 1100)", "seeds 1 (paper 3)")
    write_run(tmp_path, "fedcorr", 0, {"rounds": 1100})
    assert find(tmp_path, "fedcorr").reduced == ("seeds 1 (paper 3)",)
    assert find(tmp_path, "fedcorr").cuts == ()


# ---- which group


def test_the_most_complete_group_wins(tmp_path):
    """Finished ones before none, the paper's setting before any cut, then more rounds, then seeds, then the latest."""

    def rounds_of():
        found = find(tmp_path)
        return (next(iter(found.runs.values())).config["rounds"] if found.runs else None), len(
            found.runs
        )

    write_run(tmp_path, "fedavg", 0, {"rounds": 50}, status="failed")
    assert rounds_of() == (None, 0)
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed, {"rounds": 5})
    assert rounds_of() == (5, 3)
    write_run(tmp_path, "fedavg", 0, {"rounds": 20})
    assert rounds_of() == (20, 1)
    for seed in range(2):
        write_run(tmp_path, "fedavg", seed, {"rounds": 20, "data.clients": 9})
    assert rounds_of() == (20, 2)
    write_run(tmp_path, "fedavg", 4, status="running")
    assert rounds_of() == (20, 2)  # the paper's setting is not finished
    for seed in range(2):
        write_run(tmp_path, "fedavg", seed, {"data.clients": 9})
    assert rounds_of() == (100, 2)
    write_run(tmp_path, "fedavg", 5)
    assert rounds_of() == (100, 1)
    assert find(tmp_path).reduced == ("seeds 1 (paper 3)",)


def test_of_two_groups_that_are_as_complete_the_later_wins(tmp_path):
    write_run(tmp_path, "fedavg", 0, {"eval_every": 10}, started="2024-01-02T00:00:00")
    write_run(tmp_path, "fedavg", 1, {"eval_every": 5}, started="2024-01-01T00:00:00")
    assert list(find(tmp_path).runs) == [unit(0)]
    write_run(tmp_path, "fedavg", 2, {"eval_every": 1}, started="2024-01-03T00:00:00")
    assert list(find(tmp_path).runs) == [unit(2)]


def test_runs_that_are_not_done_are_named_and_not_counted(tmp_path):
    write_run(tmp_path, "fedavg", 0)
    write_run(tmp_path, "fedavg", 1, status="diverged")
    write_run(tmp_path, "fedavg", 2, status="failed")
    write_run(tmp_path, "fedavg", 3, status="running")
    found = find(tmp_path)
    assert list(found.runs) == [unit(0)]
    assert found.others == (
        (unit(1), "diverged"), (unit(2), "failed"), (unit(3), "not finished"),
    )  # fmt: skip
    assert found.reduced == ("seeds 1 (paper 3)", "without seed 1 (local.lr=0.1), which diverged")


def test_runs_left_over_from_divergence_are_not_full(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed)
    write_run(tmp_path, "fedavg", 3, status="diverged")
    assert find(tmp_path).reduced == ("without seed 3 (local.lr=0.1), which diverged",)


def test_what_diverged_at_the_papers_setting_is_not_covered_up_by_a_short_run(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed, status="diverged")
    write_run(tmp_path, "fedavg", 0, {"rounds": 2})
    found = find(tmp_path)
    assert (found.runs, found.diverged, found.cuts) == ({}, {unit(s) for s in range(3)}, ())


def test_what_is_compared_is_cut_down_alike_where_that_can_be(tmp_path):
    """One full run of one method must not leave the reduced ones of the other without a partner."""
    for seed in range(3):
        for algo in ("fedavg", "adafed"):
            write_run(tmp_path, algo, seed, {"rounds": 10})
    write_run(tmp_path, "adafed", 0)
    evidence = Evidence(PAPER, Results(tmp_path))
    rows = [Row("fedavg", "one"), Row("adafed", "one")]
    assert evidence.find(rows[1]).cuts == ()
    assert [f.cuts for f in evidence.comparable(rows)] == [(("rounds", "10"),)] * 2
    write_run(tmp_path, "fedavg", 0, status="running")
    for order in (rows, rows[::-1]):  # what has not ended is no partner
        assert [f.cuts for f in Evidence(PAPER, Results(tmp_path)).comparable(order)] == [
            (("rounds", "10"),)
        ] * 2
    write_run(tmp_path, "fedavg", 1)
    assert [f.cuts for f in Evidence(PAPER, Results(tmp_path)).comparable(rows)] == [(), ()]
    assert [f.cuts for f in evidence.comparable(rows[:1])] == [(("rounds", "10"),)]


def test_the_cadence_of_evaluation_makes_no_row_reduced_but_must_be_alike(tmp_path):
    """Where a paper prints best rounds, both sides must look at as many of them."""
    row = Row("fedavg", "one")
    best = replace(PAPER, tables={"t": Table("t", "", ("one",), ("avg",), (row,), "best")})
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed, {"eval_every": 5})
    evidence = Evidence(best, Results(tmp_path))
    found = {
        "last": find(tmp_path),
        "figure": evidence.find(Row("fedavg", "one")),
        "best": evidence.find(row),
    }
    assert {name: (f.reduced, f.departs, f.cuts) for name, f in found.items()} == {
        "last": ((), (), ()), "figure": ((), (), ()), "best": ((), (), (("eval_every", "5"),)),
    }  # fmt: skip


def test_fewer_seeds_reduce_a_row_and_leave_its_setting(tmp_path):
    write_run(tmp_path, "fedavg", 0)
    found = find(tmp_path)
    assert (found.reduced, found.departs) == (("seeds 1 (paper 3)",), ())
    write_run(tmp_path / "less", "fedavg", 0, {"rounds": 2})
    found = find(tmp_path / "less")
    assert found.departs == tuple(text for text in found.reduced if not text.startswith("seeds "))
    assert len(found.departs) == 1


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        ({"participation": 50}, 0),  # all of the 50 clients, where the paper has a tenth
        ({"participation": 6}, 0),
        ({"participation": 2}, 1),
        ({"data.clients": 20, "participation": 3}, 0),
        ({"data.clients": 20, "participation": 2}, 1),
        (
            {
                "availability._target_": "fedbench.scenarios.availability.bernoulli",
                "availability.p": 0.1,
            },
            0,
        ),
    ],
    ids=str,
)
def test_more_work_is_no_reduction(tmp_path, changes, runs):
    write_run(tmp_path, "fedavg", 0, changes)
    assert len(find(tmp_path).runs) == runs


def test_data_that_are_not_the_official_ones_are_marked(tmp_path):
    lossy = "CIFAR-10: not the official files (md5 differs)"
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed, unofficial=[lossy])
    assert find(tmp_path).reduced == (f"data: {lossy}",)


def test_nothing_on_disk_is_nothing_found(tmp_path):
    found = find(tmp_path)
    assert (found.runs, found.others, found.reduced) == ({}, (), ())


# ---- what they have measured

CURVE = [
    {"round": 0, "accuracy_mean": 0.2, "accuracy_std": 0.04, "train_loss": 2.0},
    {"round": 5, "accuracy_mean": 0.7, "accuracy_std": 0.03, "train_loss": None},
    {"round": 10, "accuracy_mean": 0.6, "accuracy_std": 0.05, "train_loss": 1.0},
]


def test_the_last_round_and_the_best_one(tmp_path):
    write_run(tmp_path, "fedavg", 3, rounds=CURVE)
    found = find(tmp_path)
    assert found.values(ACCURACY) == {unit(3): pytest.approx(60.0)}
    assert found.values(ACCURACY, "best") == {unit(3): pytest.approx(70.0)}
    assert found.values(DEVIATION) == {unit(3): pytest.approx(5.0)}
    assert found.values(DEVIATION, "best") == {unit(3): pytest.approx(3.0)}  # lower is better
    squared = PrintedMetric("var", "variance", "lower", "accuracy_std", factor=10000.0)
    assert found.values(squared) == {unit(3): pytest.approx(500.0)}


def test_what_was_not_measured_is_left_out(tmp_path):
    write_run(tmp_path, "fedavg", 0, rounds=CURVE)
    write_run(
        tmp_path,
        "fedavg",
        1,
        rounds=[{"round": 0, "accuracy_mean": 0.5}, {"round": 10, "accuracy_mean": None}],
    )
    write_run(tmp_path, "fedavg", 2, rounds=[{"round": 10, "accuracy_std": 0.1}])
    found = find(tmp_path)
    assert list(found.values(ACCURACY)) == [unit(0)]
    assert list(found.values(ACCURACY, "best")) == [unit(0), unit(1)]
    assert list(found.curve("accuracy_mean")) == [unit(0), unit(1)]
    assert found.curve("accuracy_mean")[unit(1)].to_dict() == {0: 0.5}
    assert found.curve("train_loss")[unit(0)].to_dict() == {0: 2.0, 10: 1.0}
    assert found.curve("no_such_field") == {}


def test_derived_fields_by_hand(tmp_path):
    write_run(
        tmp_path,
        "fedavg",
        0,
        rounds=[*CURVE, {"round": 20, "accuracy_mean": 1.0, "accuracy_std": 0.0}],
    )
    found = find(tmp_path)
    error, rsd, perplexity = (
        found.curve(f)[unit(0)].to_dict() for f in ("error_mean", "error_rsd", "train_perplexity")
    )
    assert error == pytest.approx({0: 0.8, 5: 0.3, 10: 0.4, 20: 0.0})
    # without any error there is no relative deviation
    assert rsd == pytest.approx({0: 0.05, 5: 0.1, 10: 0.125})
    assert perplexity == pytest.approx({0: math.exp(2), 10: math.e})


def test_one_clients_accuracy(tmp_path):
    table = {"round": [0, 0, 10, 10], "client": [1, 2, 1, 2], "accuracy": [0.1, 0.2, 0.3, 0.4]}
    write_run(tmp_path, "fedavg", 0, clients=table)
    # no test examples
    write_run(tmp_path, "fedavg", 1, clients=table | {"accuracy": [0.1, 0.2, 0.3, math.nan]})
    write_run(tmp_path, "fedavg", 2, clients=table | {"client": [1, 3, 1, 3]})
    assert find(tmp_path).values(SHIRT) == {unit(0): pytest.approx(40.0)}

"""Matching of runs with rows: runs on disk and a paper, both made by hand here."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from example_paper import example_paper
from fake_runs import write_seeds
from units import unit

from fedbench.analysis.departures import changed_keys, config_departures
from fedbench.analysis.matching import Evidence
from fedbench.papers.schema import Method, PrintedMetric, Row, Setup, Table
from fedbench.runs.results import Results

# the settings of the experiment, and the presets of its methods
BASE = {
    "rounds": 100,
    "participation": 0.1,
    "eval_every": 10,
    "local.lr": 0.1,
    "local.epochs": 2,
    "local.steps": None,
    "local.batch_size": 64,
    "data.clients": 50,
    "data.partition.alpha": 0.5,
    "data.source._target_": "cifar10.load",
    "data.noise.level": 0.0,
    "model._target_": "models.resnet.resnet",
    "model.depth": 18,
}
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
)
FEDAVG = Row("fedavg", "one")
ADAFED = Row("adafed", "one")
THREE = (0, 1, 2)  # the seeds of the paper
ROUNDS = [
    {"round": 0, "accuracy_mean": 0.1},
    {"round": 10, "accuracy_mean": 0.5},
]


def write_runs(root, changes=None, seeds=THREE, algo="fedavg", rounds=ROUNDS, **more):
    """Runs with the settings of the experiment but for ``changes``."""
    base = BASE | PRESETS[algo]
    config = base | (changes or {})
    departures = {}
    for key, value in config.items():
        if base.get(key) != value and key != "eval_every":
            departures[key] = [base.get(key), value]
    facts = {"experiment": "made_up/table1_one", "departures": departures, **more}
    write_seeds(root, algo, config, dict.fromkeys(seeds, rounds), **facts)


def find_runs(root, algo="fedavg", paper=PAPER, **hyperparameters):
    return Evidence(paper, Results(root)).find(Row(algo, "one", hyperparameters))


@pytest.fixture
def write(tmp_path):
    return partial(write_runs, tmp_path)


@pytest.fixture
def find(tmp_path):
    return partial(find_runs, tmp_path)


def key_of(value):
    return " ".join(value) if isinstance(value, dict) else ""


# ---- full and reduced


def test_runs_as_the_experiment_has_them_are_full(write, find):
    write(seeds=(2, 0, 1))
    found = find()
    assert list(found.runs) == [unit(0), unit(1), unit(2)]
    assert found.others == ()
    assert found.reduced == ()
    assert found.cuts == ()


@pytest.mark.parametrize(
    ("seeds", "reduced"),
    [
        ((7, 1), ("seeds 2 (paper 3)",)),
        ((7, 1, 2), ()),
    ],
)
def test_seeds_are_counted_against_the_papers(write, find, seeds, reduced):
    write(seeds=seeds)
    found = find()
    assert found.reduced == reduced
    assert found.cuts == found.departs == ()  # fewer seeds are no other setting
    assert len(found.runs) == len(seeds)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 10}, "rounds 10 (paper 100)"),
        ({"participation": 0.05}, "participation 0.05 (paper 0.1)"),
        ({"data.source.images": 500}, "data.source.images 500 (paper null)"),
        ({"local.steps": 5}, "local.steps 5 (paper null)"),
        ({"data.clients": None}, "data.clients null (paper 50)"),
    ],
    ids=key_of,
)
def test_a_cut_is_named_with_the_papers_value(write, find, changes, words):
    write(changes)
    found = find()
    assert len(found.runs) == 3
    assert found.reduced == found.departs == (words,)
    assert [key for key, _ in found.cuts] == list(changes)


def test_a_share_of_fewer_clients_may_be_as_large_as_the_papers(write, find):
    write({"data.clients": 20, "participation": 2})
    assert len(find().runs) == 3


@pytest.mark.parametrize(
    "changes",
    [
        # other settings
        {"algo.server_lr": 0.5},
        {"local.lr": 0.2},
        {"rounds": 10, "local.momentum": 0.9},
        {"availability._target_": "fedbench.scenarios.availability.bernoulli"},
        # other data
        {"data.partition.alpha": 5.0},
        {"data.source._target_": "mnist.load"},
        # more work
        {"rounds": 200},
        {"local.epochs": [1, 20]},
        {"data.clients": 51},
        {"participation": 50},  # all of the 50 clients, where the paper has a tenth
        {"participation": 6},
        {"data.clients": 20, "participation": 3},
    ],
    ids=key_of,
)
def test_any_other_change_makes_it_a_run_of_something_else(write, find, changes):
    write(changes, seeds=[0])
    found = find()
    assert found.runs == {}
    assert found.others == ()
    assert found.reduced == ()


def test_what_is_printed_and_not_carried_out_is_never_full(write, find):
    write()
    setup = replace(PAPER.setups["one"], departs=("no decay of the rate",))
    found = find(paper=replace(PAPER, setups={"one": setup}))
    assert found.reduced == ("no decay of the rate",)


@pytest.mark.parametrize(
    ("size", "changed"),
    [(None, {"data.source.size": [32, None]}), (32, {})],
)
def test_a_run_from_before_its_experiment_changed(size, changed):
    """AdaFed's images of Fashion-MNIST had 28 x 28 pixels at first, and have 32 x 32."""
    run = SimpleNamespace(
        meta={"experiment": "adafed/table7_fmnist", "departures": {}},
        flat={} if size is None else {"data.source.size": size},
    )
    assert changed_keys(run) == changed


def test_the_keys_of_another_model_are_not_named():
    departures = {
        "model._target_": ["a.b.resnet", "c.mlp"],
        "model.hidden": [None, [4]],
        "rounds": [9, 2],
    }
    model, rounds = config_departures(departures, "mlp_200")
    assert model == "model mlp_200 (experiment resnet)"
    assert rounds == "rounds 2 (experiment 9)"
    (layers,) = config_departures({"model.hidden": [[200, 200], [64]]}, "mlp")
    assert layers == "model.hidden [64] (experiment [200,200])"


def test_a_run_of_another_experiment_or_method_is_not_taken(write, find):
    write(experiment="made_up/table1_two")
    write(algo="adafed")
    assert find().runs == {}
    assert len(find("adafed").runs) == 3


# ---- settings of a row


@pytest.mark.parametrize(
    ("gamma", "percent"),
    [
        (5.0, 50.0),
        (1.0, 10.0),
        (None, 10.0),
    ],  # None is not printed: the preset's
)
def test_a_rows_hyperparameter_is_no_reduction_and_keeps_rows_apart(write, find, gamma, percent):
    write(
        {"algo.gamma": 5.0},
        algo="adafed",
        rounds=[{"round": 10, "accuracy_mean": 0.5}],
    )
    write(algo="adafed", rounds=[{"round": 10, "accuracy_mean": 0.1}])
    found = find("adafed", gamma=gamma)
    assert found.values(ACCURACY) == {unit(seed): pytest.approx(percent) for seed in THREE}
    assert found.reduced == ()
    assert found.cuts == ()
    assert find("adafed", gamma=2.0).runs == {}


def test_a_switch_is_no_number(write, find):
    write({"algo.gamma": True}, algo="adafed")
    assert find("adafed", gamma=1.0).runs == {}
    assert len(find("adafed", gamma=True).runs) == 3


@pytest.mark.parametrize(
    ("changes", "reduced"),
    [
        ({"rounds": 5}, ("rounds 5 (paper 1100)",)),
        ({}, ("rounds 100 (paper 1100)",)),  # those of the experiment are not those of the method
        ({"rounds": 1100}, ()),
    ],
)
def test_rounds_that_a_method_always_sets_can_be_cut_too(write, find, changes, reduced):
    write(changes, algo="fedcorr")
    assert find("fedcorr").reduced == reduced


# ---- which group


def test_the_most_complete_group_wins(write, find):
    """Finished ones before none, the paper's setting before any cut, then more rounds, then seeds,
    then the latest.
    """

    def best():
        runs = list(find().runs.values())
        return len(runs), runs[0].config["rounds"]

    write({"rounds": 50}, [0], status="failed")
    assert find().runs == {}
    write({"rounds": 5})
    assert best() == (3, 5)
    write({"rounds": 20}, [0])
    assert best() == (1, 20)
    write({"rounds": 20, "data.clients": 9}, [0, 1])
    assert best() == (2, 20)
    write(seeds=[4], status="running")
    assert best() == (2, 20)  # the paper's setting is not finished
    write({"data.clients": 9}, [0, 1])
    assert best() == (2, 100)
    write(seeds=[5])
    assert best() == (1, 100)
    assert find().cuts == ()


def test_of_two_groups_that_are_as_complete_the_later_wins(write, find):
    write({"eval_every": 10}, [0], started="2024-01-02T00:00:00")
    write({"eval_every": 5}, [1], started="2024-01-01T00:00:00")
    assert list(find().runs) == [unit(0)]
    write({"eval_every": 1}, [2], started="2024-01-03T00:00:00")
    assert list(find().runs) == [unit(2)]


def test_runs_that_are_not_done_are_named_and_not_counted(write, find):
    write(seeds=[0])
    write(seeds=[1], status="diverged")
    write(seeds=[2], status="failed")
    write(seeds=[3], status="running")
    found = find()
    assert list(found.runs) == [unit(0)]
    assert dict(found.others) == {
        unit(1): "diverged",
        unit(2): "failed",
        unit(3): "not finished",
    }
    seeds, lost = found.reduced
    assert seeds == "seeds 1 (paper 3)"
    assert lost == "without seed 1 (local.lr=0.1), which diverged"


def test_what_diverged_at_the_papers_setting_is_not_covered_up_by_a_short_run(write, find):
    write(status="diverged")
    write({"rounds": 2}, [0])
    found = find()
    assert found.runs == {}
    assert found.diverged == {unit(seed) for seed in THREE}
    assert found.cuts == ()


def test_what_is_compared_is_cut_down_alike_where_that_can_be(tmp_path, write, find):
    """One full run of one method must not leave the reduced ones of the other without a partner."""

    def cuts(*rows):
        evidence = Evidence(PAPER, Results(tmp_path))
        return [found.cuts for found in evidence.comparable(rows)]

    short = (("rounds", "10"),)
    write({"rounds": 10})
    write({"rounds": 10}, algo="adafed")
    write(seeds=[0], algo="adafed")
    assert find("adafed").cuts == ()
    assert cuts(FEDAVG, ADAFED) == [short, short]
    write(seeds=[0], status="running")  # what has not ended is no partner
    assert cuts(FEDAVG, ADAFED) == [short, short]
    write(seeds=[1])
    assert cuts(FEDAVG, ADAFED) == [(), ()]


def test_the_cadence_of_evaluation_makes_no_row_reduced_but_must_be_alike(tmp_path, write, find):
    """Where a paper prints best rounds, both sides must look at as many of them."""
    write({"eval_every": 5})
    table = Table(
        "t",
        "",
        ("one",),
        ("avg",),
        (FEDAVG,),
        "best",
    )
    evidence = Evidence(replace(PAPER, tables={"t": table}), Results(tmp_path))
    in_table = evidence.find(FEDAVG)
    in_figure = evidence.find(Row("fedavg", "one"))
    assert in_table.cuts == (("eval_every", "5"),)
    assert in_figure.cuts == find().cuts == ()
    for found in (in_table, in_figure, find()):
        assert found.reduced == ()


def test_data_that_are_not_the_official_ones_are_marked(write, find):
    lossy = "CIFAR-10: not the official files (md5 differs)"
    write(unofficial=[lossy])
    assert find().reduced == (f"data: {lossy}",)


# ---- what they have measured

CURVE = [
    {"round": 0, "accuracy_mean": 0.2, "accuracy_std": 0.04, "train_loss": 2.0},
    {"round": 5, "accuracy_mean": 0.7, "accuracy_std": 0.03, "train_loss": None},
    {"round": 10, "accuracy_mean": 0.6, "accuracy_std": 0.05, "train_loss": 1.0},
]


@pytest.mark.parametrize(
    ("metric", "last", "best"),
    [
        (ACCURACY, 60.0, 70.0),
        (DEVIATION, 5.0, 3.0),  # lower is better
    ],
)
def test_the_last_round_and_the_best_one(write, find, metric, last, best):
    write(seeds=[3], rounds=CURVE)
    found = find()
    assert found.values(metric) == {unit(3): pytest.approx(last)}
    assert found.values(metric, "best") == {unit(3): pytest.approx(best)}


def test_what_was_not_measured_is_left_out(write, find):
    write(seeds=[0], rounds=CURVE)
    not_at_the_end = [
        {"round": 0, "accuracy_mean": 0.5},
        {"round": 10, "accuracy_mean": None},
    ]
    write(seeds=[1], rounds=not_at_the_end)
    write(seeds=[2], rounds=[{"round": 10, "accuracy_std": 0.1}])
    found = find()
    assert list(found.values(ACCURACY)) == [unit(0)]
    assert list(found.values(ACCURACY, "best")) == [unit(0), unit(1)]
    _, second = found.curve("accuracy_mean").values()
    assert second.to_dict() == {0: 0.5}
    assert found.curve("no_such_field") == {}


@pytest.mark.parametrize(
    ("field", "curve"),
    [
        ("error_mean", {0: 0.8, 5: 0.3, 10: 0.4, 20: 0.0}),
        # without any error there is no relative deviation
        ("error_rsd", {0: 0.05, 5: 0.1, 10: 0.125}),
        ("train_perplexity", {0: math.exp(2), 10: math.e}),
    ],
)
def test_derived_fields_by_hand(write, find, field, curve):
    without_error = {"round": 20, "accuracy_mean": 1.0, "accuracy_std": 0.0}
    write(seeds=[0], rounds=[*CURVE, without_error])
    found = find().curve(field)[unit(0)]
    assert found.to_dict() == pytest.approx(curve)


def test_one_clients_accuracy(write, find):
    table = {
        "round": [0, 0, 10, 10],
        "client": [1, 2, 1, 2],
        "accuracy": [0.1, 0.2, 0.3, 0.4],
    }
    no_test_examples = [0.1, 0.2, 0.3, math.nan]
    write(seeds=[0], clients=table)
    write(seeds=[1], clients=table | {"accuracy": no_test_examples})
    write(
        seeds=[2],
        clients=table | {"client": [1, 3, 1, 3]},
    )
    assert find().values(SHIRT) == {unit(0): pytest.approx(40.0)}

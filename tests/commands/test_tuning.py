"""``fedbench tune`` and ``fedbench compare``: one budget, validation examples, seeds apart, and results that hold."""

import json
import re
import textwrap

import optuna
import pytest
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from fedbench.config.compose import Composer, compose_run
from fedbench.core.errors import RequestError
from fedbench.runs.results import load_results
from fedbench.runs.run import read_run
from fedbench.tuning.chosen import tuned_experiment
from fedbench.tuning.request import read_request
from fedbench.tuning.search import Study, Trial, Tuned

SMALL = ["data=synthetic_leaf", "data.clients=6", "rounds=3", "--jobs", "1"]
OWN = """
    from fedbench import Algorithm, Averaging, server_descent

    def mine(x, local=None):
        return Algorithm(**server_descent(lr=x))
"""


def trials(tmp_path, algo):
    """The values and scores of all trials of a method, as the journal has them."""
    (journal,) = tmp_path.glob(f"results/tuning/studies/*/{algo}/*/journal.log")
    study = optuna.load_study(
        study_name="search", storage=JournalStorage(JournalFileBackend(str(journal)))
    )
    return [(t.params, t.user_attrs["scores"]) for t in study.trials]


def trial_runs(tmp_path, algo):
    return [
        read_run(p.parent)
        for p in tmp_path.glob(f"results/tuning/studies/*/{algo}/*/runs/*/*/*/*/DONE")
    ]


def tuned_file(tmp_path):
    (file,) = tmp_path.glob("results/tuning/conf/experiment/tuned/*.yaml")
    return file


def test_the_best_trial_on_validation_examples_is_chosen(fed, tmp_path):
    status, lines, err = fed("tune", "algo=fedprox", "budget=5", "seeds=2", *SMALL)
    assert status == 0, err
    runs = trial_runs(tmp_path, "fedprox")
    assert len(trials(tmp_path, "fedprox")) == 5
    assert {r.meta["seed"] for r in runs} == {1000, 1001}
    assert {r.config["data"]["validation"] for r in runs} == {0.2}
    means = {}
    for run in runs:
        values = run.config["local"]["lr"], run.config["algo"]["mu"]
        means.setdefault(values, []).append(run.last_round()["val_accuracy_mean"])
    assert {len(v) for v in means.values()} == {2}
    best = max(sum(v) / 2 for v in means.values())
    preset = yaml.safe_load(tuned_file(tmp_path).read_text())["presets"]["fedprox"]
    assert sum(means[preset["local"]["lr"], preset["mu"]]) / 2 == best
    text = "\n".join(lines)
    assert "budget: 5 trials per method, each on 2 tuning seeds (1000, 1001)" in text
    assert "test examples play no part" in text
    assert "algo.mu=0.001,0.01,0.1,0.5,1" in text
    (table,) = tmp_path.glob("results/tuning/tables/*/tuned.json")
    found = json.loads(table.read_text())
    (tuned,) = found["methods"].values()
    (scores,) = tuned["trials"][tuned["chosen"]]["scores"].values()
    assert sum(scores) / 2 == pytest.approx(best, rel=1e-12)
    assert len(tuned["trials"]) == 5
    assert found["budget"] == 5
    assert found["seeds"] == [1000, 1001]
    assert found["metric"] == "val_accuracy_mean"
    assert found["optuna"] == optuna.__version__


def test_test_examples_play_no_part(fed, tmp_path, monkeypatch):
    """With other numbers on the test examples, the same values are chosen."""
    from fedbench.simulation import evaluation

    fed("tune", "algo=fedprox", "budget=4", *SMALL, "results_dir=a")
    real = evaluation.accuracy_metrics

    def upside_down(accuracy, n):
        return real(1 - accuracy, n)

    known = evaluation.Evaluation.summary

    def summary(self):
        found = known(self)
        with monkeypatch.context() as patch:
            patch.setattr(evaluation, "accuracy_metrics", upside_down)
            return {**found, **{k: v for k, v in known(self).items() if not k.startswith("val_")}}

    monkeypatch.setattr(evaluation.Evaluation, "summary", summary)
    fed("tune", "algo=fedprox", "budget=4", *SMALL, "results_dir=b")
    one, other = (
        yaml.safe_load(next(tmp_path.glob(f"{d}/tuning/conf/experiment/tuned/*.yaml")).read_text())
        for d in "ab"
    )
    assert one == other
    rows = [
        read_run(next(tmp_path.glob(f"{d}/tuning/studies/*/*/*/runs/*/*/*/*/DONE")).parent)
        for d in "ab"
    ]
    assert rows[0].last_round()["accuracy_mean"] != rows[1].last_round()["accuracy_mean"]


def test_the_same_command_goes_on_and_a_larger_budget_keeps_its_trials(fed, tmp_path, monkeypatch):
    from fedbench.runs import training

    real, calls = training.train, []

    def stopping(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(training, "train", stopping)
        assert fed("tune", "algo=fedavg", "budget=4", *SMALL)[0] == 130
    before = {r.path: (r.path / "DONE").stat().st_mtime_ns for r in trial_runs(tmp_path, "fedavg")}
    found = []
    assert len(before) == 2
    for budget in (4, 6):
        assert fed("tune", "algo=fedavg", f"budget={budget}", *SMALL)[0] == 0
        runs = trial_runs(tmp_path, "fedavg")
        assert len(runs) == budget
        assert all((path / "DONE").stat().st_mtime_ns == then for path, then in before.items())
        found.append(trials(tmp_path, "fedavg"))
        assert len(found[-1]) == budget
    assert found[1][:4] == found[0]
    alone = tmp_path / "alone"
    alone.mkdir()
    monkeypatch.chdir(alone)
    assert fed("tune", "algo=fedavg", "budget=6", *SMALL)[0] == 0
    assert trials(alone, "fedavg") == found[1]


def test_the_tuned_experiment_is_the_setting_that_was_tuned(fed, tmp_path):
    typed = [
        "data=synthetic_1_1",
        "data.clients=6",
        "rounds=2",
        "participation=0.5",
        "data.split=0.7",
        "local.epochs=2",
    ]
    assert fed("tune", "algo=fedprox,fedadam", "budget=2", *typed, "--jobs", "1")[0] == 0
    file = tuned_file(tmp_path)
    presets = yaml.safe_load(file.read_text())["presets"]
    composer = Composer(file.parents[2])
    for algo in ("fedprox", "fedadam"):
        chosen = [f"local.lr={presets[algo]['local']['lr']}"]
        name = {"fedprox": "mu", "fedadam": "server_lr"}[algo]
        chosen.append(f"algo.{name}={presets[algo][name]}")
        tuned = composer.config([f"experiment=tuned/{file.stem}", f"algo={algo}", "seed=3"])
        assert tuned.digest == compose_run([*typed, f"algo={algo}", *chosen]).digest
        assert tuned.tuned_on == (1000,)
    status, _, err = fed(
        "--config-dir",
        str(file.parents[2]),
        f"experiment=tuned/{file.stem}",
        "algo=fedprox",
        "seed=1000",
    )
    assert status == 2
    assert "seed=1000 is one of the seeds that values were tuned on" in err
    many = composer.config([f"experiment=tuned/{file.stem}", "algo=fedprox", "data.clients=9"])
    assert many.tree["data"]["source"]["clients"] == 9  # references stay references


def test_what_a_partition_is_stays(fed, tmp_path):
    typed = ["data=mnist_dirmin0.1", "data/partition=iid", "model=linear"]
    study = Study(read_request("tune", ["algo=fedavg", *typed]), "fedavg", Composer())
    found = Tuned(study, (), Trial(0, {"local.lr": 0.5}, {100: [0.5]}))
    place = tmp_path / "experiment" / "tuned"
    place.mkdir(parents=True)
    (place / "x.yaml").write_text(tuned_experiment([found], "a command"))
    tuned = Composer(tmp_path).config(["experiment=tuned/x"])
    assert tuned.digest == compose_run([*typed, "algo=fedavg", "local.lr=0.5"]).digest
    assert tuned.names.model == "linear"


def test_pruned_trials_end_early_and_the_others_are_whole_runs(fed, tmp_path):
    given = [
        "tune",
        "algo=fedavg",
        "budget=9",
        "pruning=halving",
        "data=synthetic_leaf",
        "data.clients=6",
        "rounds=9",
    ]
    assert fed(*given, "--jobs", "1")[0] == 0
    scores = [found for _, found in trials(tmp_path, "fedavg")]
    reached = [sorted(map(int, found)) for found in scores]
    assert len(reached) == 9
    assert {tuple(r) for r in reached} == {(1,), (1, 3), (1, 3, 9)}
    best = max(range(9), key=lambda n: scores[n]["1"][0])
    assert 3 in reached[best]
    whole, *_ = [r for r in trial_runs(tmp_path, "fedavg") if r.config["rounds"] == 9]
    assert whole.meta["continues"]["rounds"] == 3
    again = fed("algo=fedavg", "data=synthetic_leaf", "data.clients=6", "rounds=9", "data.validation=0.2",
                f"local.lr={whole.config['local']['lr']}", "seed=1000", "results_dir=x")[1][-1]  # fmt: skip
    assert (tmp_path / again / "model.safetensors").read_bytes() == (
        whole.path / "model.safetensors"
    ).read_bytes()


def test_the_estimator_s_search_can_be_typed_again(fed, tmp_path):
    given = [
        "tune",
        "algo=fedprox",
        "budget=11",
        "sampler=tpe",
        "data=synthetic_leaf",
        "data.clients=4",
        "rounds=1",
    ]
    assert fed(*given, "--jobs", "1")[0] == 0
    first = trials(tmp_path, "fedprox")
    done = len(trial_runs(tmp_path, "fedprox"))
    assert fed(*given, "--jobs", "1")[0] == 0
    assert trials(tmp_path, "fedprox") == first
    assert len(trial_runs(tmp_path, "fedprox")) == done
    assert len(first) == 11


def test_trials_are_no_results(fed, tmp_path):
    fed("tune", "algo=fedavg", "budget=2", *SMALL)
    fed("algo=fedavg", "data=synthetic_leaf", "data.clients=6", "rounds=3")
    found = load_results(tmp_path / "results").runs
    assert found["seed"].tolist() == [0]
    (runs,) = tmp_path.glob("results/tuning/studies/*/*/*/runs")
    assert len(load_results(runs).runs) == 2  # which can be looked at on their own


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["tune"], "tune needs a method"),
        (["tune", "algo=fedavg", "seed=3"], "tuning has seeds of its own"),
        (["tune", "algo=fedavg", "rounds=2,3"], "the same number of rounds"),
        (["tune", "algo=fedavg", "budget=0"], "budget must be"),
        (["tune", "algo=fedavg", "budget=x"], "budget must be"),
        (["tune", "algo=fedavg", "seeds=a"], "seeds must be a number of seeds"),
        (
            ["tune", "algo=fedavg", "data.validation=0"],
            "data.validation=0 leaves no examples to choose by",
        ),
        (["tune", "algo=fedavg", "sampler=grid"], "sampler must be one of random, tpe"),
        (["tune", "algo=fedavg", "objective=accuracy_mean"], "did you mean val_accuracy_mean?"),
        (["tune", "algo=fedavg", "objective=test_loss"], "objective must be one of val_loss, "),
        (["tune", "algo=fedavg", "objective=train_loss"], "objective must be one of val_loss, "),
        (["tune", "algo=fedprox", "algo.mo=0.1,0.2"], "unknown key algo.mo"),
        (["tune", "algo=fedcorr", "pruning=halving"], "made for the total number of rounds"),
        (["tune", "algo=fedavg", "data.clients=3,4"], "type one value of data.clients"),
        (["tune", "algo=scaffold", "local.momentum=0.9"], "momentum"),
        (["tune", "algo=fedavg", "-m"], "unknown flag -m"),
        (["compare", "methods=fedavg"], "different methods"),
        (["compare", "methods=fedavg,fedavg"], "different methods"),
        (["compare", "methods=fedavg,fedprox", "algo=fedavg"], "compare takes the methods as"),
        (["compare", "methods=fedavg,fedprox", "tuning_seeds=[3]"], "they must be apart"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_is_refused(fed, tmp_path, args, text):
    status, _, err = fed(*args)
    assert status == 2
    assert text in err
    assert not list(tmp_path.glob("results/*/*/*/*/DONE"))


def test_a_seed_with_results_is_no_tuning_seed(fed):
    fed("algo=fedavg", "seed=1000", *SMALL[:3])
    status, _, err = fed("tune", "algo=fedavg", "budget=2", *SMALL)
    assert status == 2
    assert re.search(r"seed 1000 has results in .*seed_1000; tuning seeds must be apart", err)


def test_compare_tunes_runs_and_tests(fed, tmp_path):
    given = ["methods=fedavg,mine", "budget=3", "seeds=2", *SMALL]
    own = tmp_path / "own"
    (own / "algo").mkdir(parents=True)
    (own / "tune").mkdir()
    (own / "own_mine.py").write_text(textwrap.dedent(OWN))
    (own / "algo" / "mine.yaml").write_text("_target_: own_mine.mine\nx: 1.0\n")
    (own / "tune" / "mine.yaml").write_text("algo.x: [0.5, 1.0]\n")
    status, lines, err = fed("--config-dir", "own", "compare", *given)
    assert status == 0, err
    first = "fedbench: at most 6 runs of 3 rounds to tune and 4 to compare; 2 seeds"
    assert err.startswith(first)
    assert " 2 seeds can never decide 1 difference at 5 %, seeds=6 could\n" in err
    text = "\n".join(lines)
    assert "| mine   |      3 |" in text
    assert "verdict" in text
    found = load_results(tmp_path / "results").runs
    assert sorted(zip(found["algo"], found["seed"], strict=True)) == [
        ("fedavg", 0), ("fedavg", 1), ("mine", 0), ("mine", 1),
    ]  # fmt: skip
    assert set(found["data.validation"]) == {0.0}  # all training examples
    (folder,) = tmp_path.glob("results/tuning/tables/*")
    names = {p.name for p in folder.iterdir()}
    assert {"tuned.md", "tuned.json", "compared.md"} <= names
    assert (tmp_path / "results" / "synthetic_leaf" / "report" / "index.html").exists()
    status, again, _ = fed("--config-dir", "own", "compare", *given)
    assert status == 0  # from disk
    assert "done already" in "\n".join(again)


def test_a_method_whose_trials_all_diverge_is_named_and_the_status_is_1(fed, tmp_path):
    large = [
        "local.lr=1e29,1e30",
        "model=mlp",
        "data=synthetic_leaf",
        "data.clients=8",
        "rounds=50",
    ]
    status, lines, _ = fed("tune", "algo=fedavg", "budget=2", *large, "--jobs", "1")
    assert status == 1
    assert "all trials diverged or failed" in "\n".join(lines)
    assert not list(tmp_path.glob("results/tuning/conf/**/*.yaml"))


def test_seeds_are_typed_as_a_number_or_a_list():
    def seeds(word, *args):
        request = read_request(
            word, [*args, *(["algo=fedavg"] if word == "tune" else ["methods=a,b"])]
        )
        return request.seeds, request.table_seeds

    assert seeds("tune") == ((1000,), ())
    assert seeds("tune", "seeds=3") == ((1000, 1001, 1002), ())
    assert seeds("tune", "seeds=[7,8]") == seeds("tune", "seeds=7,8") == ((7, 8), ())
    assert seeds("compare") == ((1000,), tuple(range(10)))
    assert seeds("compare", "seeds=[4]", "tuning_seeds=2") == ((1000, 1001), (4,))
    with pytest.raises(RequestError, match="seeds"):
        seeds("tune", "seeds=0")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "baseline=fedavgg",
            "baseline must be one of fedavg, fedprox; got 'fedavgg'; did you mean fedavg?",
        ),
        ("metric=accuracy_men", "got 'accuracy_men'; did you mean accuracy_mean?"),
        # the runs of the table hold nothing out
        ("metric=val_accuracy_mean", "metric must be one of"),
        ("objective=val_bytes_up", "objective must be one of val_loss, "),
        ("objective=val_train_loss", "objective must be one of val_loss, "),
    ],
)
def test_what_a_comparison_cannot_show_is_refused_before_anything_is_trained(
    fed, tmp_path, typed, said
):
    status, _, err = fed("compare", "methods=fedavg,fedprox", "budget=1", "seeds=1", typed, *SMALL)
    assert status == 2
    assert said in err
    assert not list(tmp_path.glob("results/**/DONE"))


def test_a_grid_is_searched_once(fed, tmp_path):
    """Three points of a budget of nine, in any order, each of them once."""
    status, _, err = fed("tune", "algo=fedavg", "budget=9", "local.lr=0.01,0.1,1.0", *SMALL)
    assert status == 0
    assert "its space has 3 points, fewer than the budget" in err
    assert sorted(params["local.lr"] for params, _ in trials(tmp_path, "fedavg")) == [0, 1, 2]


def test_methods_that_share_a_range_get_the_same_values_of_it(fed, tmp_path):
    assert fed("tune", "algo=fedavg,fedadam", "budget=3", *SMALL)[0] == 0
    rates = [
        [params["local.lr"] for params, _ in trials(tmp_path, algo)]
        for algo in ("fedavg", "fedadam")
    ]
    assert rates[0] == rates[1]


def test_an_interval_is_no_axis_of_a_sweep(fed):
    status, _, err = fed("-m", "local.lr=interval(0.01,0.5)", "rounds=1")
    assert status == 2
    assert (
        "local.lr=interval(0.01,0.5) has no list of values; type some, or use `fedbench tune`"
        in err
    )


def test_the_objective_is_no_part_of_the_identity():
    assert compose_run(["objective=test_loss"]).digest == compose_run([]).digest

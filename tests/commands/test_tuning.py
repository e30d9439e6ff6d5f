"""``fedbench tune`` and ``fedbench compare``: budgets, validation examples and tuning seeds."""

import json
import shutil

import optuna
import pytest
import yaml
from command_line import model_of, write_files
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from fedbench.commands.tune import _outlook
from fedbench.config.compose import Composer, compose_run
from fedbench.core.errors import RequestError
from fedbench.reports.tuning import edges_text
from fedbench.runs import training
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.results import Results, load_results
from fedbench.runs.run import read_run
from fedbench.simulation import evaluation
from fedbench.tuning.chosen import tuned_experiment
from fedbench.tuning.request import read_request
from fedbench.tuning.search import Study, Trial, Tuned
from fedbench.tuning.space import Axis

pytestmark = pytest.mark.whole

DATA = ["data=synthetic_leaf", "data.clients=6"]
SMALL = [*DATA, "rounds=3", "--jobs", "1"]


@pytest.fixture
def tune(fed):
    """Tune without an error; returns the printed lines."""

    def run(*args):
        status, lines, err = fed("tune", *args)
        assert status == 0, err
        return lines

    return run


def trials(folder, algo):
    """The values and scores of all trials of a method, as the journal has them."""
    (journal,) = folder.glob(f"results/tuning/studies/*/{algo}/*/journal.log")
    storage = JournalStorage(JournalFileBackend(str(journal)))
    study = optuna.load_study(study_name="search", storage=storage)
    return [(t.params, t.user_attrs["scores"]) for t in study.trials]


def trial_runs(folder, algo="*", results="results"):
    paths = folder.glob(f"{results}/tuning/studies/*/{algo}/*/runs/*/*/*/*/DONE")
    return [read_run(path.parent) for path in paths]


def tuned_file(folder, results="results"):
    (file,) = folder.glob(f"{results}/tuning/conf/experiment/tuned/*.yaml")
    return file


def tuned_presets(folder, results="results"):
    return yaml.safe_load(tuned_file(folder, results).read_text())["presets"]


def test_the_best_trial_on_validation_examples_is_chosen(tune, tmp_path):
    lines = tune("algo=fedprox", "budget=5", "seeds=2", *SMALL)
    scores = {}
    for run in trial_runs(tmp_path):
        assert run.config["data"]["validation"] == 0.2
        values = run.config["local"]["lr"], run.config["algo"]["mu"]
        score = run.last_round()["val_accuracy_mean"]
        scores.setdefault(values, {})[run.meta["seed"]] = score
    assert len(trials(tmp_path, "fedprox")) == 5
    assert all(set(found) == {1000, 1001} for found in scores.values())
    means = {values: sum(found.values()) / 2 for values, found in scores.items()}
    preset = tuned_presets(tmp_path)["fedprox"]
    best = max(means.values())
    assert means[preset["local"]["lr"], preset["mu"]] == best

    text = "\n".join(lines)
    assert "budget: 5 trials per method, each on 2 tuning seeds (1000, 1001)" in text
    (table,) = tmp_path.glob("results/tuning/tables/*/tuned.json")
    stored = json.loads(table.read_text())
    (tuned,) = stored.pop("methods").values()
    (chosen,) = tuned["trials"][tuned["chosen"]]["scores"].values()
    assert sum(chosen) / 2 == pytest.approx(best, rel=1e-12)
    assert len(tuned["trials"]) == 5
    assert stored["seeds"] == [1000, 1001]
    assert stored["optuna"] == optuna.__version__


def test_test_examples_play_no_part(tune, tmp_path, monkeypatch):
    """With other numbers on the test examples, the same values are chosen."""
    tune("algo=fedprox", "budget=4", *SMALL, "results_dir=a")
    real = evaluation.Evaluation.summary

    def summary(self):
        metrics = real(self)
        tested = [k for k in metrics if k.startswith("accuracy_")]
        return metrics | {key: 1 - metrics[key] for key in tested}

    monkeypatch.setattr(evaluation.Evaluation, "summary", summary)
    tune("algo=fedprox", "budget=4", *SMALL, "results_dir=b")
    assert tuned_presets(tmp_path, "a") == tuned_presets(tmp_path, "b")
    one, other = (
        {run.last_round()["accuracy_mean"] for run in trial_runs(tmp_path, results=results)}
        for results in "ab"
    )
    assert one != other


def test_an_interrupted_search_resumes_and_a_larger_budget_keeps_its_trials(
    fed, tune, tmp_path, monkeypatch
):
    calls = []
    real = training.train

    def stopping(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(training, "train", stopping)
        assert fed("tune", "algo=fedavg", "budget=4", *SMALL)[0] == 130
    stamps = {r.path / "DONE": (r.path / "DONE").stat().st_mtime_ns for r in trial_runs(tmp_path)}
    assert len(stamps) == 2
    tune("algo=fedavg", "budget=2", *SMALL)
    assert len(trial_runs(tmp_path)) == 2  # the others of the larger search are left
    tune("algo=fedavg", "budget=4", *SMALL)
    four = trials(tmp_path, "fedavg")
    assert len(four) == len(trial_runs(tmp_path)) == 4
    tune("algo=fedavg", "budget=6", *SMALL)
    six = trials(tmp_path, "fedavg")
    assert len(six) == len(trial_runs(tmp_path)) == 6
    assert six[:4] == four
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    alone = tmp_path / "alone"
    alone.mkdir()
    monkeypatch.chdir(alone)
    tune("algo=fedavg", "budget=6", *SMALL)
    assert trials(alone, "fedavg") == six


def test_the_tuned_experiment_is_the_setting_that_was_tuned(tune, refuse, tmp_path):
    data = ["data=synthetic_1_1", "data.clients=6", "data.split=0.7"]
    typed = [*data, "rounds=2", "participation=0.5", "local.epochs=2"]
    tune("algo=fedprox,fedadam", "budget=2", *typed, "--jobs", "1")
    file = tuned_file(tmp_path)
    folder = file.parents[2]
    experiment = f"experiment=tuned/{file.stem}"
    composer = Composer(folder)
    presets = tuned_presets(tmp_path)
    for algo, name in (("fedprox", "mu"), ("fedadam", "server_lr")):
        preset = presets[algo]
        chosen = [f"local.lr={preset['local']['lr']}", f"algo.{name}={preset[name]}"]
        tuned = composer.config([experiment, f"algo={algo}", "seed=3"])
        assert tuned.digest == compose_run([*typed, f"algo={algo}", *chosen]).digest
        assert tuned.tuned_on == (1000,)
    err = refuse("--config-dir", str(folder), experiment, "algo=fedprox", "seed=1000")
    assert "seed=1000 is one of the seeds that values were tuned on" in err
    more = composer.config([experiment, "algo=fedprox", "data.clients=9"])
    assert more.tree["data"]["source"]["clients"] == 9  # references stay references


def test_a_tuned_experiment_keeps_the_partition_the_model_and_scenarios(tmp_path):
    added = ["objective=ntd", "attack=alie", "compression=none"]
    typed = ["data=mnist_dirmin0.1", "data/partition=iid", "model=linear", *added]
    study = Study(
        read_request("tune", ["algo=fedavg", *typed], LocalExecutor()),
        "fedavg",
        Composer(),
    )
    best = Tuned(
        study,
        (),
        Trial(0, {"local.lr": 0.5}, {100: [0.5]}),
    )
    write_files(tmp_path, {"experiment/tuned/x.yaml": tuned_experiment([best], "a command")})
    tuned = Composer(tmp_path).config(["experiment=tuned/x"])
    same = compose_run([*typed, "algo=fedavg", "local.lr=0.5"])
    assert tuned.digest == same.digest
    assert tuned.names.model == "linear"
    assert tuned.names.additions == same.names.additions


@pytest.mark.slow
def test_pruned_trials_end_early_and_the_others_are_whole_runs(tune, train, tmp_path):
    typed = ["algo=fedavg", *DATA, "rounds=9"]
    tune(*typed, "budget=9", "pruning=halving", "--jobs", "1")
    scores = [score for _, score in trials(tmp_path, "fedavg")]
    reached = [tuple(sorted(map(int, score))) for score in scores]
    assert set(reached) == {(1,), (1, 3), (1, 3, 9)}
    best = max(range(9), key=lambda n: scores[n]["1"][0])
    assert 3 in reached[best]
    whole = next(run for run in trial_runs(tmp_path) if run.config["rounds"] == 9)
    assert whole.meta["continues"]["rounds"] == 3
    values = [f"local.lr={whole.config['local']['lr']}", "data.validation=0.2", "seed=1000"]
    assert model_of(train(*typed, *values, "results_dir=x")) == model_of(whole.path)


def test_the_search_of_an_estimator_can_be_typed_again(tune, tmp_path):
    typed = ["algo=fedprox", "budget=11", "sampler=tpe", *DATA, "rounds=1", "--jobs", "1"]
    tune(*typed)
    first = trials(tmp_path, "fedprox")
    runs = len(trial_runs(tmp_path))
    tune(*typed)
    assert trials(tmp_path, "fedprox") == first
    assert len(trial_runs(tmp_path)) == runs
    assert len(first) == 11


def test_a_search_in_which_all_but_one_method_diverge_compares_nothing_and_fails(fed):
    typed = ["compare", "methods=fedavg,fedprox", "seeds=[1]", "budget=1", "local.lr=1e29"]
    status, _, err = fed(*typed, "model=mlp", *DATA, "rounds=50", "--jobs", "1")
    assert status == 1
    assert "fewer than two methods have a successful trial" in err


def test_where_no_number_of_seeds_decides_a_comparison_it_says_so():
    methods = ",".join(f"m{i}" for i in range(58))
    request = read_request("compare", [f"methods=[{methods}]"], LocalExecutor())
    text = _outlook(request, rounds=1)
    assert "10 seeds can never decide 1653 differences at 5 %, nor could more" in text


def test_trials_are_no_results(tune, train, tmp_path):
    tune("algo=fedavg", "budget=2", *SMALL)
    train("algo=fedavg", *DATA, "rounds=3")
    assert load_results(tmp_path / "results").runs["seed"].tolist() == [0]
    (runs,) = tmp_path.glob("results/tuning/studies/*/*/*/runs")
    assert len(load_results(runs).runs) == 2  # they can be read on their own


def test_a_seed_with_results_is_no_tuning_seed(train, refuse):
    path = train("algo=fedavg", "seed=1000", *DATA, "rounds=3")
    assert path.name == "seed_1000"
    err = refuse("tune", "algo=fedavg", "budget=2", *SMALL)
    assert "seed 1000 has results in " in err
    assert "seed_1000; tuning seeds must be apart" in err


OWN = {
    "own_mine.py": """
        from fedbench import Algorithm, server_descent

        def mine(x, local=None):
            return Algorithm(**server_descent(lr=x))
    """,
    "algo/mine.yaml": "_target_: own_mine.mine\nx: 1.0\n",
    "tune/mine.yaml": "algo.x: 0.5,1.0\n",
}


def test_compare_tunes_runs_and_tests(fed, tmp_path):
    write_files(tmp_path / "own", OWN)
    compare = ["--config-dir", "own", "compare", "methods=fedavg,mine", "budget=3", "seeds=2"]
    status, lines, err = fed(*compare, *SMALL)
    assert status == 0, err
    first = "fedbench: at most 6 runs of 3 rounds to tune and 4 to compare; 2 seeds"
    assert err.startswith(first)
    assert " 2 seeds can never decide 1 difference at 5 %, seeds=6 could\n" in err
    text = "\n".join(lines)
    assert "| mine   |      3 |" in text
    assert "verdict" in text
    runs = load_results(tmp_path / "results").runs
    assert sorted(runs["algo"]) == ["fedavg", "fedavg", "mine", "mine"]
    assert set(runs["data.validation"]) == {0.0}  # all training examples
    (folder,) = tmp_path.glob("results/tuning/tables/*")
    names = {p.name for p in folder.iterdir()}
    assert {"tuned.md", "tuned.json", "compared.md"} <= names
    assert (tmp_path / "results" / "synthetic_leaf" / "report" / "index.html").exists()
    status, again, _ = fed(*compare, *SMALL)
    assert status == 0
    assert "done already" in "\n".join(again)


def test_the_weights_of_clients_are_made_equal(fed, tmp_path):
    """FedAvg's default is by size, SCAFFOLD's uniform; q-FedAvg has a rule of its own."""
    compare = ["compare", "methods=fedavg,scaffold,qfedavg", "budget=1", "seeds=1", *SMALL]
    status, lines, err = fed(*compare)
    assert status == 0, err
    differ = "fedbench: clients have different weights, size for fedavg and uniform for scaffold; "
    assert f"{differ}weights=uniform or weights=size makes them equal\n" in err
    assert (
        "the methods differ in the weights of clients (fedavg size, scaffold uniform)"
        in " ".join(lines)
    )

    status, lines, err = fed(*compare, "weights=uniform", "results_dir=equal")
    assert status == 0, err
    assert "weights" not in err
    assert "weights of clients" not in " ".join(lines)
    runs = [*Results(tmp_path / "equal"), *trial_runs(tmp_path, results="equal")]
    weights = {run.meta["algo"]: run.config["algo"].get("weights") for run in runs}
    assert weights == {"fedavg": "uniform", "scaffold": "uniform", "qfedavg": None}
    presets = tuned_presets(tmp_path, results="equal")
    assert presets["fedavg"]["weights"] == presets["scaffold"]["weights"] == "uniform"


@pytest.mark.parametrize("key", ["algo.weights=size", "algo.prior=size,uniform"])
def test_weights_are_typed_once(refuse, key):
    err = refuse("compare", "methods=fedavg,scaffold", "weights=uniform", key)
    assert "weights= sets algo.weights and algo.prior; type one of them" in err


def test_weights_that_are_searched_do_not_differ(fed):
    keys = ["methods=fedavg,scaffold", "algo.weights=size,uniform", "budget=1", "seeds=1"]
    status, _, err = fed("compare", *keys, *SMALL)
    assert status == 0, err
    assert "different weights" not in err


def test_the_values_chosen_for_ones_own_method_can_be_used(fed, tmp_path):
    write_files(tmp_path / "own", OWN)
    tune = ["--config-dir", "own", "tune", "algo=mine", "budget=1", *SMALL]
    status, lines, err = fed(*tune)
    assert status == 0, err
    (use,) = [line for line in lines if line.startswith("to use it: ")]
    name = tuned_file(tmp_path).stem
    command = f"fedbench --config-dir own -m experiment=tuned/{name} algo=mine seed="
    assert use.startswith(f"to use it: cp -R results/tuning/conf/. own && {command}")
    shutil.copytree(tmp_path / "results/tuning/conf", tmp_path / "own", dirs_exist_ok=True)
    status, _, err = fed("--config-dir", "own", f"experiment=tuned/{name}", "algo=mine")
    assert status == 0, err


def test_the_ends_of_the_values_tried_are_named():
    axis = Axis("local.lr", low=1e-4, high=1.0, log=True)
    low, high, between = tried = [{"local.lr": rate} for rate in (0.001, 0.01, 0.002)]
    assert edges_text([axis], low, tried) == "local.lr (lowest of those tried)"
    assert edges_text([axis], high, tried) == "local.lr (highest of those tried)"
    assert edges_text([axis], between, tried) == ""
    assert edges_text([axis], {"local.lr": 0.99}, tried) == "local.lr (upper)"
    assert edges_text([axis], high) == ""
    assert edges_text([axis], high, tried[:2]) == ""  # both are ends


def test_methods_are_compared_on_clients_that_never_train(fed, refuse):
    typed = ["compare", "methods=fedavg,fedprox", "budget=1", "seeds=2", *SMALL]
    typed.append("metric=held_out_accuracy_mean")
    status, lines, err = fed(*typed, "evaluate.held_out_clients=3")
    assert status == 0, err
    assert "accuracy, held-out clients" in "\n".join(lines)
    assert "held_out_accuracy_mean" in refuse(*typed)  # there are no such clients


def test_a_method_whose_trials_all_diverge_is_named_and_the_status_is_1(fed, tmp_path):
    diverging = ["local.lr=1e29,1e30", "model=mlp", *DATA, "rounds=50", "--jobs", "1"]
    status, lines, _ = fed("tune", "algo=fedavg", "budget=2", *diverging)
    assert status == 1
    assert "all trials diverged or failed" in "\n".join(lines)
    assert not list(tmp_path.glob("results/tuning/conf/**/*.yaml"))


TUNE = ["tune", "algo=fedavg"]
COMPARE = ["compare", "methods=a,b"]


@pytest.mark.parametrize(
    "typed",
    [
        "tune algo=fedavg seeds=1",
        "compare methods=fedavg,fedprox tuning_seeds=1 seeds=1",
    ],
)
def test_a_failed_trial_is_named_and_the_status_is_1(fed, monkeypatch, typed):
    """Although another trial is the best: with the failed one, the choice may be another."""
    train = training.train
    runs = []

    def fail(prepared, recorder):
        runs.append(recorder.path)
        if len(runs) == 1:
            raise MemoryError("too much")
        return train(prepared, recorder)

    words = [*typed.split(), "budget=2", "local.lr=0.1,0.3", *SMALL]
    monkeypatch.setattr(training, "train", fail)
    status, _, err = fed(*words)
    assert status == 1
    assert "MemoryError: too much" in err
    assert fed(*words)[0] == 0
    assert runs.count(runs[0]) == 2


@pytest.mark.parametrize(
    ("typed", "tuning", "table"),
    [
        (TUNE, (1000,), ()),
        ([*TUNE, "seeds=3"], (1000, 1001, 1002), ()),
        ([*TUNE, "seeds=[7,8]"], (7, 8), ()),
        ([*TUNE, "seeds=7,8"], (7, 8), ()),
        (COMPARE, (1000,), tuple(range(10))),
        (
            [*COMPARE, "seeds=[4]", "tuning_seeds=2"],
            (1000, 1001),
            (4,),
        ),
    ],
)
def test_seeds_are_typed_as_a_number_or_a_list(typed, tuning, table):
    command, *args = typed
    request = read_request(command, args, LocalExecutor())
    assert request.seeds == tuning
    assert request.table_seeds == table


def test_there_is_at_least_one_seed():
    with pytest.raises(RequestError, match="seeds"):
        read_request("tune", ["algo=fedavg", "seeds=0"], LocalExecutor())


def test_a_grid_is_searched_once(fed, tmp_path):
    """Three points of a budget of nine, in any order, each of them once."""
    status, _, err = fed("tune", "algo=fedavg", "budget=9", "local.lr=0.01,0.1,1.0", *SMALL)
    assert status == 0
    assert "its space has 3 points, fewer than the budget" in err
    assert sorted(params["local.lr"] for params, _ in trials(tmp_path, "fedavg")) == [0, 1, 2]


def test_methods_that_share_a_range_get_the_same_values_of_it(tune, tmp_path):
    tune("algo=fedavg,fedadam", "budget=3", *SMALL)
    one, other = (
        [params["local.lr"] for params, _ in trials(tmp_path, algo)]
        for algo in ("fedavg", "fedadam")
    )
    assert one == other


def test_the_metric_of_a_search_is_no_part_of_the_identity():
    assert compose_run(["tuned_by=test_loss"]).digest == compose_run([]).digest

"""The value of a key that is best on validation examples, per setting."""

import json

import pytest
from fake_runs import fake, seal

from fedbench.analysis.best import best_values
from fedbench.core.errors import RequestError
from fedbench.reports.comparison import best_text
from fedbench.runs.results import Results
from fedbench.runs.run import read_run


def runs_of(tmp_path, scores, key="local.lr", algo="fedavg", **more):
    """Runs whose last round has these scores: value -> (validation, test) per seed."""
    for value, by_seed in scores.items():
        paths = fake(tmp_path, None, algo, {key: value}, seeds=range(len(by_seed)), **more)
        for path, (validation, test) in zip(paths, by_seed, strict=True):
            file = path / "rounds.jsonl"
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            rows[-1] |= {"accuracy_mean": test, "val_loss": 1 - validation}
            rows[-1] |= {} if validation is None else {"val_accuracy_mean": validation}
            file.write_text("".join(json.dumps(r) + "\n" for r in rows))
            if (path / "DONE").exists():
                seal(path)
    return list(Results(tmp_path))


SCORES = {
    0.01: [(0.5, 0.9), (0.5, 0.9)],
    0.1: [(0.8, 0.6), (0.6, 0.4)],
    1.0: [(0.9, 0.1), (0.1, 0.2)],
}


def test_the_value_with_the_best_mean_on_validation_examples_is_reported_on_test_examples(tmp_path):
    (best,) = best_values(runs_of(tmp_path, SCORES), "local.lr", "accuracy_mean").settings
    # means 0.5, 0.7, 0.5
    assert (best.value, best.tried, best.edge) == ("0.1", ("0.01", "0.1", "1"), False)
    assert best.judged.mean == pytest.approx(70)
    assert (best.shown.mean, best.shown.n) == (pytest.approx(50), 2)


def test_lower_is_better_for_a_loss_and_an_end_of_the_values_is_named(tmp_path):
    runs = runs_of(tmp_path, {0.01: [(0.9, 0.3)], 0.1: [(0.5, 0.2)], 1.0: [(0.4, 0.1)]})
    (best,) = best_values(runs, "local.lr", "accuracy_mean", "val_loss").settings
    assert (best.value, best.edge) == ("0.01", True)
    assert best.judged.mean == pytest.approx(0.1)


def test_every_setting_has_its_own_best_value(tmp_path):
    runs_of(tmp_path, SCORES)
    runs = runs_of(tmp_path, {0.01: [(0.9, 0.3)], 0.1: [(0.5, 0.2)]}, algo="fedprox")
    found = best_values(runs, "local.lr", "accuracy_mean")
    assert {s.title: s.value for s in found.settings} == {
        "synthetic_leaf, fedavg": "0.1",
        "synthetic_leaf, fedprox": "0.01",
    }
    text = best_text(found)
    assert "70.00 ± 14.14 | 50.00 ± 14.14 |" in text


def test_settings_of_one_method_are_values_of_their_own_and_words_have_no_edge(tmp_path):
    """FedAvg is best at the rate 0.1, whatever it has at 10."""
    runs_of(tmp_path, {0.1: [(0.5, 0.3)], 10.0: [(0.05, 0.2)]})
    runs_of(tmp_path, {0.1: [(0.45, 0.4)]}, algo="fedprox")
    runs = runs_of(tmp_path, {0.1: [(0.3, 0.5)]}, algo="term")
    (best,) = best_values(runs, "algo", "accuracy_mean").settings
    assert (best.value, best.judged.mean, best.edge) == (
        "fedavg local.lr=0.1",
        pytest.approx(50),
        False,
    )
    assert set(best.tried) == {"fedavg local.lr=0.1", "fedavg local.lr=10", "fedprox", "term"}


def test_an_edge_is_one_of_the_numbers_whatever_else_differs(tmp_path):
    for every in (5, 10):
        for path, score in ((0.01, 0.9), (0.1, 0.5), (1.0, 0.4)):
            runs_of(tmp_path, {path: [(score - every / 100, 0.3)]}, cut={"eval_every": [1, every]})
    (best,) = best_values(list(Results(tmp_path)), "local.lr", "accuracy_mean").settings
    assert (best.value, best.edge) == ("0.01 eval_every=5", True)


def test_runs_without_validation_examples_are_left_out_and_named(tmp_path):
    runs_of(tmp_path, SCORES)
    for path in fake(tmp_path, None, "fedprox", {"local.lr": 0.1}, seeds=range(4)):
        rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
        assert "val_accuracy_mean" not in rows[-1]
    found = best_values(list(Results(tmp_path)), "local.lr", "accuracy_mean")
    assert [s.title for s in found.settings] == ["synthetic_leaf, fedavg"]
    assert len(found.unjudged) == 4
    (note,) = (line for line in best_text(found).splitlines() if line.startswith("- "))
    assert note.startswith("- without val_accuracy_mean, and left out: 4 runs (")
    assert note.endswith("seed_2, ...)")


def test_a_value_with_a_run_that_diverged_is_left_out(tmp_path):
    runs_of(tmp_path, SCORES)
    runs_of(tmp_path, {10.0: [(0.99, 0.99)]}, status="diverged")
    found = best_values(list(Results(tmp_path)), "local.lr", "accuracy_mean")
    assert (found.settings[0].value, found.settings[0].left_out) == ("0.1", ("10",))
    assert "local.lr=10 has runs that diverged" in best_text(found)


@pytest.mark.parametrize("by", ["accuracy_mean", "test_loss", "val_clients"])
def test_values_are_not_chosen_on_test_examples(tmp_path, by):
    with pytest.raises(RequestError, match="must be validation or a metric on validation examples"):
        best_values(runs_of(tmp_path, SCORES), "local.lr", "accuracy_mean", by)


def test_runs_without_validation_examples_are_refused(tmp_path):
    fake(tmp_path, None, "fedavg", {"local.lr": 0.1}, seeds=(0,))
    with pytest.raises(
        RequestError,
        match="no finished run has val_accuracy_mean; repeat the runs with data.validation=0.2",
    ):
        best_values(list(Results(tmp_path)), "local.lr", "accuracy_mean")


def test_the_command(fed, tmp_path):
    fed("-m", "local.lr=0.001,0.1", "seed=0,1", "rounds=3", "data.clients=8", "data.validation=0.3")
    status, lines, _ = fed(
        "report", "results", "--best", "local.lr", "--by", "validation", "--metric", "test_loss"
    )
    assert status == 0
    runs = [read_run(p.parent) for p in tmp_path.glob("results/*/*/*/*/DONE")]
    means = {}
    for run in runs:
        means.setdefault(run.config["local"]["lr"], []).append(
            run.last_round()["val_accuracy_mean"]
        )
    best = max(means, key=lambda v: sum(means[v]))
    (row,) = [
        line
        for line in lines
        if line.lstrip("| ").startswith("Synthetic (generator_seed=931231), 8 clients")
    ]
    assert [cell.strip() for cell in row.split("|")[2:4]] == [f"{best:g}", "2"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--best", "local.lx"], "did you mean local.lr"),
    ],
)
def test_what_the_command_refuses(fed, args, text):
    fed("rounds=1", "data.clients=4", "data.validation=0.3")
    status, _, err = fed("report", "results", *args)
    assert status == 2
    assert text in err

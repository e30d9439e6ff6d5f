"""``fedbench plot``: curves of runs as the files that were asked for."""

import re

import numpy as np
import pytest
import yaml
from fake_runs import ROUNDS, change_facts, fake_run, measured_curve
from report_runs import call, files, leave_runs

from fedbench.analysis.curves import run_curves
from fedbench.core.config_values import config_value
from fedbench.reports.figures import curve_panels
from fedbench.reports.write import selected
from fedbench.runs.results import Results

SEEDS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "results"
    leave_runs(root, "fedavg", "qfedavg", seeds=SEEDS)
    leave_runs(root, "qfedavg", keys={"algo.q": 2}, seeds=SEEDS)
    return root


@pytest.fixture
def fedavg(root):
    return [run for run in Results(root) if run.meta["algo"] == "fedavg"]


def values(field):
    """A field of the runs of FedAvg, [seeds, rounds]."""
    curves = [measured_curve(None, "fedavg", {}, seed, field) for seed in SEEDS]
    return np.array(curves)


ACCURACY = 100 * values("accuracy_mean")
AXES = {
    "bytes": 1e-6 * (values("bytes_up") + values("bytes_down")),
    "accuracy_std": 100 * values("accuracy_std"),
    "error_mean": 100 - ACCURACY,
}


def test_a_curve_has_a_row_per_seed_in_the_shown_unit(fedavg):
    (curve,) = run_curves(fedavg, "round", "accuracy_mean", "algo")
    assert curve.x.tolist() == list(ROUNDS)
    assert curve.y == pytest.approx(ACCURACY, rel=1e-12)


@pytest.mark.parametrize("axis", AXES)
def test_a_metric_is_an_axis_in_its_unit(fedavg, axis):
    """Communication is the sum of both directions; the error derives from the accuracy."""
    (curve,) = run_curves(fedavg, axis, "accuracy_mean", "algo")
    assert curve.x == pytest.approx(
        AXES[axis].mean(0),
        rel=1e-12,
    )


def test_every_seed_is_a_line(fedavg):
    curves = run_curves(fedavg, "round", "accuracy_mean", "seed")
    assert {curve.name: len(curve.y) for curve in curves} == {f"seed={seed}": 1 for seed in SEEDS}


def test_runs_are_chosen_by_their_scenario(tmp_path):
    fake_run(tmp_path, None, "fedavg")
    attacked = fake_run(
        tmp_path,
        None,
        "fedavg",
        {"attack.fraction": 0.2},
    )
    change_facts(attacked, attack="sign_flip")
    runs = list(Results(tmp_path))
    for name in ("sign_flip", "none"):
        (run,) = selected(runs, [f"attack={name}"])
        assert run.meta.get("attack", "none") == name


def test_settings_of_one_method_are_lines_of_their_own(root):
    runs = [run for run in Results(root) if run.meta["algo"] == "qfedavg"]
    (panel,) = curve_panels(runs, ["accuracy_mean"], by="algo")
    assert len(panel.series) == 2


def test_lines_of_two_methods_with_one_value_have_the_name_of_the_method(root):
    panels = curve_panels(list(Results(root)), ["accuracy_mean"], by="rounds")
    labels = {series.label for panel in panels for series in panel.series}
    assert labels == {"fedavg rounds=1000", "qfedavg rounds=1000"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "head"),
    [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")],
)
def test_the_named_file_and_no_other_is_written(root, tmp_path, end, head):
    file = tmp_path / f"a.{end}"
    axes = ("--x", "seconds", "--y", "train_loss", "--log")
    before = files(root)
    for _ in range(2):
        status, out, _ = call(
            "plot",
            str(root),
            "--out",
            str(file),
            *axes,
        )
        assert (status, out) == (0, f"written: {file}\n")
    assert files(root) == before
    assert list(files(tmp_path)) == [file.name]
    assert file.read_bytes().startswith(head)


def test_the_curve_of_one_run_is_drawn_below_it(tmp_path):
    run = fake_run(tmp_path, None, "fedavg")
    status, out, _ = call("plot", str(run), "--y", "train_loss")
    file = run / "plots" / "train_loss_over_round_by_algo.png"
    assert (status, out) == (0, f"written: {file}\n")
    assert file.read_bytes().startswith(b"\x89PNG")
    failed = fake_run(
        tmp_path,
        None,
        "qfedavg",
        status="failed",
    )
    status, _, err = call("plot", str(failed))
    assert (status, err) == (2, "fedbench: none of 1 runs is done\n")


WRONG = """
--x byte: --x byte was not measured; these runs have round, bytes, bytes_up
--y acuracy: --y acuracy over --x round was not measured; these runs have round
--by local.lrr: has the key local.lrr; it must be algo, data, model or a key of
--where algo: --where takes KEY=VALUE
--where algo=fedprox: no run has algo=fedprox; algo is one of fedavg, qfedavg
--where algo=qfedavg,fedprox: no run has algo=fedprox; algo is one of fedavg, qfedavg
--where foo=1: has the key foo
--out a.jpg: --out must end in .png, .svg, .pdf; got a.jpg
"""


@pytest.mark.parametrize(("words", "text"), yaml.safe_load(WRONG).items())
def test_a_wrong_request_names_the_allowed_values(root, words, text):
    status, out, err = call("plot", str(root), *words.split())
    assert (status, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("algo.mu=1e-2", ["0.01"]),
        ("algo.mu=0.010", ["0.01"]),
        ("algo.mu=1.0", ["1"]),
        ("algo.mu=1,1e-2", ["0.01", "1"]),
        ("algo.flag=True", ["2"]),
        ("algo.flag=null", ["0.01", "1"]),
    ],
)
def test_values_are_chosen_as_the_command_line_reads_them(tmp_path, where, chosen):
    for mu, flag in ((0.01, None), (1, None), (2, True)):
        fake_run(tmp_path, None, "fedprox", {"algo.mu": mu, "algo.flag": flag})
    found = selected(list(Results(tmp_path)), [where])
    assert sorted(config_value(run.flat["algo.mu"]) for run in found) == chosen


def test_too_much_for_one_figure_is_refused(tmp_path):
    for mu in range(25):
        fake_run(tmp_path, None, "fedprox", {"algo.mu": mu})
    status, _, err = call("plot", str(tmp_path), "--by", "algo.mu")
    assert status == 2
    assert "up to 25 lines each are too many to tell apart" in err


def test_a_report_has_only_the_chosen_runs(root):
    words = ("report", str(root), "--metric", "accuracy_mean")
    for chosen, methods in (((), {"fedavg", "qfedavg"}), (("algo=qfedavg",), {"qfedavg"})):
        _, text, _ = call(*words, *(f"--where={where}" for where in chosen))
        assert methods == set(re.findall(r"^\| (\w*fedavg) ", text, re.M))

"""``fedbench plot``: curves of runs as the files that were asked for."""

import json
from statistics import mean

import numpy as np
import pytest
from fake_runs import ROUNDS, fake, measured, seal
from report_runs import call, files

from fedbench.analysis.curves import run_curves
from fedbench.commands import plot
from fedbench.reports.figures import curve_panels
from fedbench.runs.results import Results

SEEDS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "results"
    for algo in ("fedavg", "qfedavg"):
        fake(root, None, algo, seeds=SEEDS)
    fake(root, None, "qfedavg", {"algo.q": 2}, seeds=SEEDS)
    return root


def test_a_curve_has_a_row_per_seed_in_the_shown_unit(root):
    curves = {c.name: c for c in run_curves(list(Results(root)), "round", "accuracy_mean", "algo")}
    curve = curves["fedavg"]
    assert curve.x.tolist() == list(ROUNDS)
    values = [
        [100 * measured(None, "fedavg", {}, s, "accuracy_mean", t) for t in ROUNDS] for s in SEEDS
    ]
    assert curve.y == pytest.approx(np.array(values), rel=1e-12)


def test_communication_is_the_sum_of_both_directions_in_megabytes(root):
    (one, *_) = run_curves(list(Results(root)), "bytes", "accuracy_mean", "algo")
    both = [
        mean(
            1e-6 * sum(measured(None, one.algo, {}, s, f"bytes_{d}", t) for d in ("up", "down"))
            for s in SEEDS
        )
        for t in ROUNDS
    ]
    assert one.x == pytest.approx(both, rel=1e-12)


def test_a_metric_is_an_axis_in_its_unit(root):
    (one, *_) = run_curves(list(Results(root)), "accuracy_std", "accuracy_mean", "algo")
    std = [
        mean(100 * measured(None, one.algo, {}, s, "accuracy_std", t) for s in SEEDS)
        for t in ROUNDS
    ]
    assert one.x == pytest.approx(std, rel=1e-12)


def test_a_derived_metric_is_an_axis(root):
    (one, *_) = run_curves(list(Results(root)), "error_mean", "accuracy_mean", "algo")
    error = [
        mean(100 * (1 - measured(None, one.algo, {}, s, "accuracy_mean", t)) for s in SEEDS)
        for t in ROUNDS
    ]
    assert one.x == pytest.approx(error, rel=1e-12)


def test_every_seed_is_a_line(root):
    found = run_curves(
        [r for r in Results(root) if r.meta["algo"] == "fedavg"], "round", "accuracy_mean", "seed"
    )
    assert {c.name: len(c.y) for c in found} == {f"seed={s}": 1 for s in SEEDS}


def test_runs_are_chosen_by_their_scenario(tmp_path):
    fake(tmp_path, None, "fedavg", seeds=(0,))
    (attacked,) = fake(tmp_path, None, "fedavg", {"attack.fraction": 0.2}, seeds=(0,))
    meta = json.loads((attacked / "meta.json").read_text())
    (attacked / "meta.json").write_text(json.dumps({**meta, "attack": "sign_flip"}))
    seal(attacked)
    runs = list(Results(tmp_path))
    for name in ("sign_flip", "none"):
        (run,) = plot._with_value(runs, f"attack={name}")
        assert run.meta.get("attack", "none") == name


def test_a_line_per_value_of_a_key(root, monkeypatch):
    seen = {}

    def draw(file, picture, title, panels, **more):
        seen.update(p=panels, **more)
        return [file]

    monkeypatch.setattr(plot, "draw", draw)
    words = ("plot", str(root), "--where", "algo=qfedavg", "--by", "algo")
    assert call(*words)[0] == 0
    # two values of algo.q are two lines
    assert len([s.label for p in seen["p"] for s in p.series]) == 2


@pytest.mark.parametrize(
    ("end", "head"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")]
)
def test_the_file_that_was_asked_for_and_no_other(root, tmp_path, end, head):
    words = (
        "plot",
        str(root),
        "--out",
        str(tmp_path / f"a.{end}"),
        "--x",
        "seconds",
        "--y",
        "train_loss",
        "--log",
    )
    before = files(root)
    assert call(*words)[:2] == (0, f"written: {tmp_path / f'a.{end}'}\n")
    assert list(files(tmp_path)) == [f"a.{end}"]
    content = files(tmp_path)[f"a.{end}"]
    assert content.startswith(head)
    call(*words)
    assert files(tmp_path)[f"a.{end}"] == content  # equal runs give equal bytes
    assert files(root) == before


def test_by_default_a_picture_below_the_runs(root):
    status, out, _ = call("plot", str(root))
    assert (status, out) == (
        0,
        f"written: {root / 'plots' / 'accuracy_mean_over_round_by_algo.png'}\n",
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--x", "byte"),
            "--x byte was not measured; these runs have round, bytes, bytes_up, bytes_down, seconds,",
        ),
        (
            ("--y", "acuracy"),
            "--y acuracy over --x round was not measured; these runs have round, bytes",
        ),
        (
            ("--by", "local.lrr"),
            "has the key local.lrr; it must be algo, data, model or a key of their config.yaml",
        ),
        (("--where", "algo"), "--where takes KEY=VALUE"),
        (("--where", "algo=fedprox"), "no run has this value; algo is one of fedavg, qfedavg"),
        (("--where", "foo=1"), "has the key foo"),
        (("--out", "a.jpg"), "--out must end in .png, .svg, .pdf; got a.jpg"),
    ],
    ids=" ".join,
)
def test_what_is_wrong_is_named_with_what_is_allowed(root, words, text):
    status, out, err = call("plot", str(root), *words)
    assert (status, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1


def test_too_much_for_one_figure_is_refused(tmp_path):
    for i in range(25):
        fake(tmp_path, None, "fedprox", {"algo.mu": i}, seeds=(0,))
    status, _, err = call("plot", str(tmp_path), "--by", "algo.mu")
    assert status == 2
    assert "up to 25 lines each are too many to tell apart" in err


def test_lines_of_two_methods_with_one_value_have_the_name_of_the_method(root):
    panels = curve_panels(list(Results(root)), ["accuracy_mean"], by="rounds")
    labels = {s.label for panel in panels for s in panel.series}
    assert labels == {"fedavg rounds=1000", "qfedavg rounds=1000"}


def test_the_curve_of_one_run_is_drawn(root, tmp_path):
    (run,) = fake(tmp_path, None, "fedavg", seeds=(0,))
    status, out, _ = call("plot", str(run), "--y", "train_loss")
    file = run / "plots" / "train_loss_over_round_by_algo.png"
    assert (status, out.splitlines()[-1]) == (0, f"written: {file}")
    assert file.read_bytes().startswith(b"\x89PNG")
    (failed,) = fake(tmp_path, None, "qfedavg", seeds=(0,), status="failed")
    assert call("plot", str(failed))[::2] == (2, "fedbench: none of 1 runs is done\n")

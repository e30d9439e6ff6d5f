"""fedbench from Python: ``run``, ``load_results`` and the names for methods of one's own."""

import importlib
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import FAST
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.version import getbase
from omegaconf import OmegaConf
from tools import ROOT

import fedbench
from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value, parse_overrides, quoted, to_overrides
from fedbench.core.errors import RequestError
from fedbench.runs import training as runner
from fedbench.runs.build_data import shared_data
from fedbench.runs.run import read_run

pytestmark = pytest.mark.whole

SMALL = " ".join(FAST)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)


def predictions_agree(run, folder=None):
    """Compare a run's last accuracy with the trained model's predictions on the test examples."""
    config = Composer(folder).config(run.meta["overrides"])
    data = shared_data(config)
    rows = torch.cat([data.test.of_clients(np.array([k])) for k in range(8)])
    model = fedbench.trained_model(run, config_dir=folder)
    with torch.no_grad():
        guesses = model(data.features(rows)).argmax(1)
    share = (guesses == data.labels(rows)).double().mean()
    assert float(share) == pytest.approx(run.last_round()["accuracy_mean_weighted"])
    return model


def test_a_trained_model_predicts_as_the_run_did():
    predictions_agree(fedbench.run("algo=fedavg model=mlp data.clients=8 rounds=3"))


TIED = """
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        size, = input_shape
        self.first = nn.Linear(size, size)
        self.second = nn.Linear(size, size)
        self.second.weight = self.first.weight
        self.head = nn.Linear(size, classes)

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))
"""


def test_a_trained_model_has_its_tied_weights(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tied_weights.py").write_text(TIED)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tied.yaml").write_text("_target_: tied_weights.Tied\n")
    run = fedbench.run("algo=fedavg model=tied data.clients=8 rounds=3", config_dir=tmp_path)
    model = predictions_agree(run, tmp_path)
    assert model.first.weight.equal(model.second.weight)
    assert not model.first.bias.equal(model.second.bias)


def test_a_trained_model_has_the_precision_of_its_run_and_its_settings():
    run = fedbench.run(f"algo=fedavg engine.precision=float64 {SMALL}")
    assert {v.dtype for v in fedbench.trained_model(run).parameters()} == {torch.float64}
    other = replace(run, meta=run.meta | {"hash": "0123456789"})
    with pytest.raises(RequestError, match="now stand for other settings"):
        fedbench.trained_model(other)


def test_a_signal_in_the_last_round_ends_a_loop_over_runs(monkeypatch):
    """The run is finished; the next one must not begin."""
    outcome = SimpleNamespace(run=None, signal=signal.SIGINT)
    monkeypatch.setattr("fedbench.api.cached_run", lambda config: outcome)
    with pytest.raises(KeyboardInterrupt):
        fedbench.run(f"algo=fedavg {SMALL}")


def test_a_damaged_run_has_a_text_as_well():
    run = fedbench.run(f"algo=fedavg seed=7 {SMALL}")
    with (run.path / "rounds.jsonl").open("a") as file:
        file.write("{}")
    again = read_run(run.path)
    assert "damaged" in repr(again)
    assert "damaged" in again._repr_html_()


def test_an_unfinished_run_has_no_trained_model(tmp_path):
    run = fedbench.run("algo=fedavg data.clients=8 rounds=1")
    (run.path / "model.safetensors").unlink()
    with pytest.raises(RequestError, match="cannot be read as the model of this run"):
        fedbench.trained_model(run)


def test_a_run_is_the_run_of_the_command_line(fed):
    run = fedbench.run(f"algo=adafedadam {SMALL} seed=3")
    assert run.meta["status"] == "done"
    assert len(run.rounds()) == 5
    status, out, _ = fed("algo=adafedadam", *FAST, "seed=3")
    assert (status, out[-1]) == (0, str(run.path))
    assert "done already" in out[0]


def test_one_request_in_four_forms():
    mapping = {
        "algo": "fedavg",
        "data": {"clients": 8},
        "rounds": 4,
        "local": {"lr": 0.1, "epochs": [1, 2]},
    }
    text = "algo=fedavg data.clients=8 rounds=4 local.lr=0.1 local.epochs=[1,2]"
    texts = text.split()
    views = (OmegaConf.create(mapping), MappingProxyType(mapping), tuple(texts), text)
    assert all(to_overrides(view) == texts for view in views)
    assert fedbench.run(mapping).config["local"]["epochs"] == [1, 2]
    assert to_overrides("results_dir='a b'  rounds=3") == ["results_dir=a b", "rounds=3"]
    assert to_overrides("") == to_overrides([]) == to_overrides({}) == []


def test_keywords_are_overrides_and_a_run_prints_in_one_line():
    mapping = {"algo": "fedprox", "data": {"clients": 8}, "rounds": 4, "seed": 3}
    run = fedbench.run(**mapping)
    assert run == fedbench.run(mapping)
    assert run == fedbench.run("rounds=4 seed=3", algo="fedprox", data={"clients": 8})
    accuracy = f"accuracy {100 * run.last_round()['accuracy_mean']:.2f} %"
    data = run.meta["experiment"] or run.meta["data"]
    assert repr(run) == f"<Run {data} fedprox seed 3: done, 4 rounds, {accuracy}>"
    table = run._repr_html_()
    assert table.startswith("<table><caption>&lt;Run ")
    assert f"<th>mean accuracy</th><td>{accuracy.removeprefix('accuracy ')}</td>" in table
    assert fedbench.sweep(**mapping | {"seed": [3]}) == [run]
    with pytest.raises(RequestError, match=r"^algo=fedavg and algo=fedprox are both given"):
        fedbench.run("algo=fedavg", algo="fedprox")


TEXTS = ("uniform", "a b", "it's", "true", "null", "1e3", "12", "back\\", "", "x=1", "~/t.csv")


@pytest.mark.parametrize("value", [None, True, 3, 0.5, 1e-8, [1, "a b"], *TEXTS])
def test_values_keep_their_type(value):
    (parsed,) = parse_overrides([f"key={as_value(value)}"])
    assert parsed.value == value
    assert type(parsed.value) is type(value)


def test_arrays_are_lists_and_their_numbers_are_numbers():
    assert as_value(np.array([0.5, 1.0])) == as_value([0.5, 1.0])
    assert as_value(np.float32(0.5)) == "0.5"
    assert as_value(torch.tensor([1, 2])) == as_value([1, 2])


@pytest.mark.parametrize("path", ["a b", "it's", "é=(1)", "C:\\x\\", "\\'"])
def test_paths_are_quoted(path):
    assert parse_overrides([f"results_dir={quoted(path)}"])[0].value == path


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"local": {"lr": -1}}, "local.lr must be > 0, got -1"),
        ("algo=fedavg,fedprox", "algo has several values"),
        ({"algo": ["fedavg", "fedprox"]}, "algo takes one choice"),
        ("-m seed=0,1", "'-m' is not an override"),
        ({"hydra": {"run": {"dir": "x"}}}, "hydra.run.dir=x configures sweeps, which -m makes"),
        (5, "overrides must be a string, several strings or a mapping, got 5"),
        ([None], "'None' is not an override"),
        ("algo='fedavg", r"cannot be split into overrides \(No closing quotation\)"),
    ],
)
def test_a_wrong_request_raises_and_leaves_nothing(tmp_path, given, message):
    with pytest.raises(RequestError, match=message):
        fedbench.run(given)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_ones_own_that_is_not_there():
    with pytest.raises(RequestError, match="config_dir=nowhere is not a directory"):
        fedbench.run(config_dir="nowhere")


def test_what_training_raises_is_raised(monkeypatch):
    def broken(*args):
        raise ZeroDivisionError("no such luck")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "evaluate", broken)
        with pytest.raises(ZeroDivisionError, match="no such luck"):
            fedbench.run(SMALL)
    assert fedbench.run(SMALL).meta["status"] == "done"


def state():
    hydra = GlobalHydra.instance().hydra
    return hydra, getbase(), list(sys.path), signal.getsignal(signal.SIGINT), list(sys.argv)


def test_nothing_of_the_process_is_changed(tmp_path):
    own = ROOT / "examples" / "own_method"
    before = state()
    fedbench.run([*FAST, "algo=median"], config_dir=own)
    assert state() == before
    with pytest.raises(RequestError):
        fedbench.run("algo=medina", config_dir=own)
    assert state() == before
    (tmp_path / "config.yaml").write_text("mine: 1\n")
    # a program that uses Hydra itself
    with initialize_config_dir(str(tmp_path), version_base="1.2"):
        inside = state()
        fedbench.run(FAST)
        assert state() == inside
        assert compose("config") == {"mine": 1}
    assert GlobalHydra.instance().hydra is before[0]


def own_method(folder, rate):
    """Write a method with a server rate that a second module has."""
    (folder / "algo").mkdir(parents=True, exist_ok=True)
    (folder / "algo" / "mine.yaml").write_text("_target_: door_method.mine\n")
    (folder / "door_rate.py").write_text(f"RATE = {rate}\n")
    (folder / "door_method.py").write_text(METHOD)
    return folder


METHOD = """
from door_rate import RATE
from fedbench import Algorithm, server_descent

def mine(local=None):
    return Algorithm(**server_descent(lr=RATE))
"""


def norm_of(folder):
    """The length of the first update, which is as long as the rate says."""
    overrides = "algo=mine data=synthetic_leaf data.clients=4 rounds=1 force=true"
    return fedbench.run(overrides, config_dir=folder).last_round()["update_norm"]


def test_a_method_of_the_same_name_in_another_directory_is_not_mistaken_for_it(
    tmp_path, monkeypatch
):
    """Afterwards the caller's own modules are back."""
    one = own_method(tmp_path / "one", rate=1.0)
    two = own_method(tmp_path / "two", rate=0.1)
    alone = norm_of(one)
    assert norm_of(two) == pytest.approx(alone / 10, rel=1e-5)
    monkeypatch.syspath_prepend(str(one))
    own = {name: importlib.import_module(name) for name in ("door_method", "door_rate")}
    assert norm_of(one) == alone
    for name, module in own.items():
        assert sys.modules.pop(name) is module


# ---- results


def test_results_are_frames_that_join(fed):
    fed("-m", *FAST, "algo=fedavg,fedprox", "seed=0,1", "keep_clients=all")
    results = fedbench.load_results("results")
    runs = results.runs.set_index("algo")
    assert len(runs) == 4
    assert results.damaged == ()
    assert runs.loc["fedprox", "algo.mu"].tolist() == [0.1, 0.1]
    assert runs.loc["fedavg", "algo.mu"].isna().all()
    assert len(results.rounds) == 4 * 5
    assert len(results.clients) == 4 * 5 * 8
    identity = ["setting", "algo", "hash", "seed"]
    joined = results.rounds.merge(results.runs, on=identity, suffixes=("", "_run"))
    assert (joined["local.lr"] == 0.01).all()
    for path, rows in joined.groupby("path"):
        written = pd.read_json(Path(path, "rounds.jsonl"), lines=True, precise_float=True)
        assert rows["accuracy_mean"].tolist() == written["accuracy_mean"].tolist()


def test_results_of_no_runs(tmp_path):
    results = fedbench.load_results(tmp_path)
    for frame in (results.runs, results.rounds, results.clients):
        assert isinstance(frame, pd.DataFrame)
        assert frame.empty
        assert {"setting", "algo", "hash", "seed"} <= set(frame)
    with pytest.raises(RequestError, match="nowhere is not a directory"):
        fedbench.load_results("nowhere")


# ---- the package


def test_the_names_are_the_ones_promised():
    promised = (
        "Algorithm Stage descent server_descent load_results run sweep report plot tune compare"
    )
    assert set(promised.split()) <= set(fedbench.__all__)
    assert dir(fedbench) == sorted(fedbench.__all__)
    assert all(getattr(fedbench, name) is not None for name in dir(fedbench))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fedbench.nothing  # noqa: B018


def test_importing_is_light():
    heavy = "{'torch', 'pandas', 'numpy', 'hydra'}"
    code = f"import sys, fedbench; sys.exit(bool({heavy} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_sweep_returns_its_runs_and_report_and_plot_what_they_wrote(capsys):
    small = {override.key: override.value for override in parse_overrides(FAST)}
    runs = fedbench.sweep({"algo": ["fedavg", "qfedavg"], "seed": range(2), **small})
    made = [(run.meta["algo"], run.meta["seed"]) for run in runs]
    assert made == [("fedavg", 0), ("fedavg", 1), ("qfedavg", 0), ("qfedavg", 1)]
    again = fedbench.sweep(f"algo=fedavg,qfedavg seed=0,1 {SMALL}")
    assert [run.path for run in again] == [run.path for run in runs]
    capsys.readouterr()
    written = fedbench.report(compare="algo", metric="test_loss").page
    assert written == Path("results/report/index.html")
    assert written.exists()
    assert "differences in test loss" in capsys.readouterr().out
    plotted = fedbench.plot(y="test_loss", where=["algo=fedavg"], log=True)
    drawn = plotted.page
    assert plotted._repr_png_() == drawn.read_bytes()
    assert drawn == Path("results/plots/test_loss_over_round_by_algo.png")
    assert drawn.exists()
    # though the package of reports has been imported
    assert fedbench.report(Path("results"), latex=False).page == written


def test_a_sweep_through_a_launcher_returns_its_runs(tmp_path):
    runs = fedbench.sweep(f"hydra/launcher=basic seed=0,1 {SMALL}", config_dir=str(tmp_path))
    assert [run.meta["seed"] for run in runs] == [0, 1]


def test_tune_and_compare_return_where_their_tables_are():
    written = fedbench.tune(["algo=fedavg", "budget=1", "local.lr=0.1,0.2", *FAST]).page
    assert written.with_name("tuned.json").exists()
    assert fedbench.compare(["methods=fedavg,term", "budget=1", "seeds=2", *FAST]).page.exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda: fedbench.plot(x="foo"),
        lambda: fedbench.report("nowhere"),
        lambda: fedbench.tune("x"),
    ],
)
def test_wrong_requests_of_words_are_raised(call):
    with pytest.raises(RequestError):
        call()

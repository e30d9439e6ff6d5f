"""The command line as users type it: what it prints, leaves on disk and returns."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from command_line import (
    FAST,
    FILES,
    interrupted,
    meta_of,
    model_of,
    rows_of,
    rows_without_clocks,
    write_files,
    wrong_requests,
)
from data_files import write_idx, write_images
from filelock import FileLock
from safetensors.torch import load_file, save_file
from tools import ALGORITHMS, ROOT

from fedbench.cli import main
from fedbench.config.overrides import SCENARIOS, parse_overrides
from fedbench.core import atomic_files
from fedbench.core.metrics import CATALOGUE
from fedbench.data.assemble import assemble
from fedbench.data.files.fetch import checksum
from fedbench.data.sources import mnist
from fedbench.data.sources.synthetic import leaf
from fedbench.papers.registry import papers
from fedbench.runs import training
from fedbench.runs.executors.base import RunBatch
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.recorder import Recorder
from fedbench.runs.run import read_run
from fedbench.runs.sweep import combinations
from fedbench.simulation.compiled.library import kernels

PARAMETERS = 610  # of the linear model on synthetic_leaf
SETUP = "experiment=adafedadam/table5_synthetic"


def data_of_fast_runs():
    """The data set of a run with the overrides ``FAST``."""
    source = leaf(clients=8)
    return assemble(
        source,
        partition=None,
        clients=8,
        split=0.8,
        local_test="split",
        seed=0,
    )


def rows_of_table(lines):
    """The cells of the methods' rows of the table that a sweep prints."""
    rows = [line for line in lines if re.match(r"\| [a-z]+ ", line)]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    return [row for row in cells if row[0] in ALGORITHMS or row[0] == "median"]


# ---- a run on disk


@pytest.fixture(scope="module")
def adafedadam(tmp_path_factory):
    """The directory of a run that is evaluated in rounds 0, 3 and 4."""
    results = tmp_path_factory.mktemp("adafedadam") / "results"
    args = [*FAST, "algo=adafedadam", "eval_every=3", "seed=5", f"results_dir={results}"]
    assert main(args) == 0
    (path,) = results.glob("synthetic_leaf/adafedadam/*/seed_5")
    return path


def test_the_rows_of_a_run(adafedadam):
    rows = rows_of(adafedadam)
    assert {p.name for p in adafedadam.iterdir()} == FILES
    assert [r["round"] for r in rows] == [0, 3, 4]  # the last is always evaluated
    tails = [f"accuracy_{side}{p}" for side in ("worst", "best") for p in (5, 10, 20, 30)]
    names = (
        "round train_loss test_loss accuracy_mean accuracy_std accuracy_variance accuracy_min "
        "accuracy_max angle_degrees kl_uniform accuracy_mean_weighted accuracy_std_weighted "
        "accuracy_worst30_weighted improved_clients update_norm clients bytes_up bytes_down "
        "seconds_train seconds_eval"
    )
    for row in rows:
        assert set(row) == {*names.split(), *tails}
        assert 0 <= row["accuracy_min"] <= row["accuracy_mean"] <= row["accuracy_max"] <= 1
        assert row["improved_clients"] is None
    assert rows[-1]["bytes_down"] == 4 * 8 * PARAMETERS * 4
    # certainty and loss in addition to the update
    assert rows[-1]["bytes_up"] == 4 * 8 * (PARAMETERS * 4 + 8 + 8)


def test_the_clients_of_a_run(adafedadam):
    table = pd.read_parquet(adafedadam / "clients.parquet")
    columns = "round client name n_train n_test correct accuracy test_loss train_loss"
    assert list(table) == columns.split()
    assert set(table["round"]) == {4}
    last = read_run(adafedadam).last_round()
    accuracy = np.average(table.accuracy, weights=table.n_test)
    loss = np.average(table.train_loss, weights=table.n_train)
    assert accuracy == pytest.approx(last["accuracy_mean_weighted"])
    assert loss == pytest.approx(last["train_loss"])


def test_the_facts_of_a_run(adafedadam):
    meta = meta_of(adafedadam)
    n_train = pd.read_parquet(adafedadam / "clients.parquet").n_train
    compiled = kernels().library is not None
    assert meta["status"] == "done"
    assert meta["seed"] == 5
    assert meta["hash"] == adafedadam.parent.name
    assert meta["engine"] == {
        "mode": "compiled" if compiled else "stacked",
        "cohort_size": 8,
        "workers": len(os.sched_getaffinity(0)) if compiled else 1,
        "precision": "float32",
    }
    assert meta["client_steps"] == 4 * int(np.ceil(n_train / 10).sum())
    assert meta["peak_memory_bytes"] > 0
    assert {"torch", "fedbench", "python"} <= set(meta["versions"])


def test_the_recorded_model_is_the_evaluated_one(train):
    """The last row can be recomputed from model.safetensors and the generator alone."""
    path = train(*FAST)
    model = load_file(path / "model.safetensors")
    data = data_of_fast_runs()
    rows = data.test.index
    guess = (data.x[rows].float() @ model["weight"].T + model["bias"]).argmax(1)
    share = (guess == data.y[rows]).double().mean().item()
    assert read_run(path).last_round()["accuracy_mean_weighted"] == pytest.approx(share)


def test_a_done_run_is_answered_from_disk(fed, train):
    path = train(*FAST)
    file = path / "model.safetensors"
    stamp = file.stat().st_mtime_ns
    # neither is part of the setting
    _, out, _ = fed(*FAST, "device=cpu", "engine.mode=loop")
    assert "done already" in out[0]
    assert file.stat().st_mtime_ns == stamp
    assert train(*FAST, "force=true") == path
    assert file.stat().st_mtime_ns > stamp


def test_the_initial_model_and_the_precision(train, tmp_path):
    w = {
        "weight": torch.randn(10, 60),
        "bias": torch.randn(10),
    }
    save_file(w, tmp_path / "w.safetensors")
    keys = ["rounds=0", "init.path=w.safetensors", "engine.precision=float64"]
    model = load_file(train("data.clients=8", *keys) / "model.safetensors")
    assert model["bias"].dtype == torch.float64
    assert all(torch.equal(model[k], v.double()) for k, v in w.items())


# ceil(2.4)
@pytest.mark.parametrize("participation", ["3", "0.3"])
def test_some_of_the_clients_take_part(train, participation):
    keys = [f"participation={participation}", "improved_clients=true", "keep_clients=[0,2]"]
    run = read_run(train(*FAST, *keys))
    rounds = run.rounds()
    improved = rounds["improved_clients"]
    assert rounds["clients"].tolist() == [0, 3, 3, 3, 3]
    assert improved.isna().tolist() == [True, False, False, False, False]
    assert (improved[1:] * 3 % 1 == 0).all()
    assert set(run.clients()["round"]) == {0, 2}


# ---- interrupted and resumed


def test_a_failure_is_recorded_and_exits_1(fed, tmp_path, monkeypatch):
    def broken(*args):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(training, "evaluate", broken)
    status, _, err = fed(*FAST)
    assert status == 1
    assert "RuntimeError: no such luck" in err
    (meta,) = tmp_path.rglob("meta.json")
    assert meta_of(meta.parent)["status"] == "failed"
    assert not (meta.parent / "DONE").exists()


def test_divergence_ends_the_run_and_is_remembered(fed, tmp_path):
    for _ in ("trained", "from disk"):
        status, out, _ = fed("data.clients=8", "rounds=50", "local.lr=1e30", "model=mlp")
        assert status == 1
        assert "diverged at round" in out[0]
    run = read_run(tmp_path / out[-1])
    assert run.meta["status"] == "diverged"
    assert len(run.rounds()) < 51
    assert run.last_round()["train_loss"] is None  # JSON has no NaN


def test_two_processes_do_not_train_one_run(fed, train, monkeypatch):
    """The second waits for the first, here a thread with its own lock, and reads its result."""
    path = train(*FAST)
    stamp = (path / "model.safetensors").stat().st_mtime_ns
    done = (path / "DONE").read_bytes()
    (path / "DONE").unlink()  # as long as the first is at work
    locked = threading.Event()
    waits = threading.Event()

    def first():
        with FileLock(path / ".lock"):
            locked.set()
            assert waits.wait(60)
            (path / "DONE").write_bytes(done)

    def shown(*words, **how):
        print(*words, **how)
        waits.set()

    monkeypatch.setattr(atomic_files, "print", shown, raising=False)
    other = threading.Thread(target=first)
    other.start()
    assert locked.wait(60)
    status, out, err = fed(*FAST)
    other.join()
    assert status == 0, err
    assert "waiting for another process that is working in results/synthetic_leaf" in err
    assert "done already" in out[0]
    assert (path / "model.safetensors").stat().st_mtime_ns == stamp
    assert {p.name for p in path.iterdir()} == FILES


@pytest.mark.parametrize("damage", ["state", "lines", "all lines"])
def test_a_damaged_checkpoint_starts_over(fed, train, tmp_path, monkeypatch, damage):
    model = model_of(train(*FAST, "results_dir=whole"))
    interrupted(fed, monkeypatch, 4, *FAST)
    (state,) = tmp_path.rglob("round_*.safetensors")
    rounds = state.parent.parent / "rounds.jsonl"
    if damage == "state":
        state.write_bytes(state.read_bytes()[:100])
    else:
        lines = rounds.read_text().splitlines(keepends=True)
        rounds.write_text("" if damage == "all lines" else lines[0] + lines[2])
    status, out, err = fed(*FAST)
    assert status == 0
    assert "starting over: " in err
    assert out[-1] in err
    assert read_run(rounds.parent).rounds()["round"].tolist() == list(range(5))
    assert model_of(rounds.parent) == model


def test_a_damaged_run_is_named_and_left_out(fed, train, tmp_path, no_figures):
    train(*FAST)
    path = train(*FAST, "seed=1")
    (path / "meta.json").write_text("garbage: [\n")
    status, out, err = fed("report")
    assert status == 1
    assert [row[1] for row in rows_of_table(out)] == ["1"]
    assert f"left out: {path.relative_to(tmp_path / 'results')}: " in err
    status, _, err = fed(*FAST, "seed=1")
    assert status == 1
    assert "force=true trains it again" in err
    train(*FAST, "seed=1", "force=true")


def test_a_damaged_run_does_not_cost_a_sweep_its_table(fed, train):
    path = train(*FAST, "seed=1")
    (path / "rounds.jsonl").write_bytes((path / "rounds.jsonl").read_bytes()[:-3])
    status, out, err = fed("-m", *FAST, "seed=0,1,2")
    assert status == 1
    assert "force=true trains it again" in err
    (repair,) = [line for line in err.splitlines() if "to repeat it" in line]
    assert [row[1] for row in rows_of_table(out)] == ["2"]
    train(*shlex.split(repair.partition("to repeat it: fedbench ")[2]))


def test_a_file_that_a_run_lacks_is_named(fed, train):
    (train(*FAST) / "model.safetensors").unlink()
    status, _, err = fed(*FAST)
    assert status == 1
    assert "model.safetensors: No such file or directory; force=true trains it again" in err


def test_refused_runs_of_a_sweep_are_counted(fed):
    status, out, err = fed("-m", *FAST, "participation=1.0,99")
    assert status == 1
    assert "refused: " in err
    assert "1 of 2 runs have ended; 1 refused: see above" in out


def test_a_sweep_that_cannot_write_has_failed_and_is_no_wrong_request(fed, monkeypatch):
    def full(*_, **__):
        raise atomic_files.NotWritten(Path("meta.json"), OSError(28, "No space left on device"))

    monkeypatch.setattr(Recorder, "begin", full)
    status, _, err = fed("-m", "--jobs", "1", *FAST, "seed=0,1")
    assert status == 1
    assert err.count("No space left on device") == 2


def test_an_experiment_may_be_named_like_a_directory_of_fedbench(fed, tmp_path, no_figures):
    write_files(tmp_path / "own", {"experiment/tuning/checks.yaml": "# @package _global_\n"})
    own = ["--config-dir", "own", "experiment=tuning/checks", *FAST]
    assert fed(*own)[0] == 0
    status, out, _ = fed("report")
    assert status == 0
    assert len(rows_of_table(out)) == 1


def test_a_large_whole_number_of_one_run_does_not_prevent_a_report(fed, train, no_figures):
    train(*FAST)
    train(*FAST, "seed=1", "local.clip_norm=100000000000000000000")
    assert fed("report")[0] == 0


def test_a_second_head_needs_as_many_logits_as_classes(fed, refuse, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.eye(8), y=np.arange(8) % 2, owner=np.arange(8) // 4)
    error = refuse("algo=fedrod", "data=npz", "data.file=d.npz", "model=logistic", "rounds=1")
    assert "that of model=logistic has 1 output for 2 classes; use model=linear" in error


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        ("default_int_handler", (130, "fedbench: interrupted\n")),
        ("SIG_IGN", (0, "")),
    ],
)
def test_ctrl_c_while_starting_ends_the_process(handler, result):
    """An import may swallow KeyboardInterrupt; the run must stop unless it ignores Ctrl-C."""
    code = f"""
import os, signal, time
signal.signal(signal.SIGINT, signal.{handler})
from fedbench.runs.process import on_signal, end_at_once
with on_signal(end_at_once):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    except KeyboardInterrupt:
        pass
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == result


@pytest.mark.parametrize(
    ("data", "remark"),
    [
        ("cifar10_dirmin0.5", ""),
        (
            "cifar10_dir0.5",
            "fedbench: data=cifar10_dir0.5: Earlier name of cifar10_dirmin0.5 (16 clients, rule "
            "dirichlet_min_share); for the rule of other data sets named dir, add "
            "data/partition=dirichlet\n",
        ),
    ],
)
def test_an_earlier_name_of_a_data_set_is_remarked(refuse, data, remark):
    err = refuse(f"data={data}", "data_dir=nowhere", "data.download=false")
    assert err.startswith(f"{remark}fedbench: CIFAR-10: files are missing")
    row = "experiment=adafedadam/table5_cifar10_dir005"  # chosen by the experiment
    assert refuse(row, "data_dir=nowhere", "data.download=false").startswith("fedbench: CIFAR-10:")


def test_a_path_may_have_any_characters_and_a_group_may_read_the_model(train, tmp_path):
    path = train(*FAST, "results_dir=rés (ü) =1", "experiment=null")
    assert path.is_relative_to(tmp_path / "rés (ü) =1")
    modes = {(path / name).stat().st_mode for name in ("model.safetensors", "meta.json")}
    assert len(modes) == 1


# ---- wrong requests: one clear line, status 2, nothing on disk

WRONG = wrong_requests(Path(__file__).with_name("wrong_requests.txt"))


@pytest.mark.parametrize(("args", "message"), WRONG)
def test_a_wrong_request_is_one_line(fed, tmp_path, args, message):
    status, out, err = fed(*args)
    assert status == 2, err
    assert message in err
    assert err.count("\n") == 1
    assert out == []
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_name_is_remarked_once_in_a_sweep(fed):
    name = "data=cifar10_dir0.5"
    _, _, err = fed("-m", "seed=0,1", name, "data_dir=nowhere", "data.download=false")
    assert err.count("Earlier name of") == 1


def test_an_error_of_an_own_method_is_one_line_with_its_place(fed, refuse, tmp_path):
    write_files(
        tmp_path / "own",
        {
            "algo/mine.yaml": "_target_: mine.mine\n",
            "mine.py": "def mine(local):\n    return {}['rate']\n",
        },
    )
    args = ["--config-dir", "own", "algo=mine", *FAST]
    message = "algo._target_=mine.mine: raised KeyError in own/mine.py, line 2: 'rate'"
    assert refuse(*args) == f"fedbench: {message}\n"
    assert not (tmp_path / "results").exists()
    lines = refuse(*args, "-m", "seed=0,1").splitlines()
    refused = [line for line in lines if line.startswith("fedbench: refused: algo=mine")]
    assert len(refused) == 2
    assert all(line.endswith(message) for line in refused)


def test_a_command_for_an_own_method_can_be_typed(fed, refuse, tmp_path):
    """Messages name the file that declares an argument, and the directory of the files."""
    files = {
        "algo/mine.yaml": "_target_: mine.mine\n",
        "mine.py": """
            from fedbench.core.algorithm import averaging_method

            def mine(local, damp: float = 1.0):
                return averaging_method(local, damp, "size")
        """,
    }
    write_files(tmp_path / "own", files)
    own = ["--config-dir", "own"]
    unknown = refuse(*own, "algo=mine", "algo.damp=2", *FAST)
    assert "unknown key algo.damp" in unknown
    assert unknown.endswith("an argument of your own function needs a line in algo/mine.yaml\n")
    assert refuse("algo=mine").endswith(
        "; one of your own is algo/mine.yaml in DIR, with --config-dir DIR\n"
    )
    assert "--config-dir is given twice" in refuse(*own, "algo=mine", *own)

    _, out, _ = fed(*own, "algo=mine", *FAST)
    _, lines, _ = fed("show", out[-1])
    assert any(line.startswith("  fedbench --config-dir DIR algo=mine ") for line in lines)


def test_a_wrong_device_is_refused_also_when_the_run_is_done(train, refuse):
    path = train(*FAST)
    message = "device must be one of auto, cpu, cuda or text that matches ^cuda"
    assert message in refuse(*FAST, "device=foo")
    assert train(*FAST, "device=cuda:99") == path  # nothing is trained


@pytest.mark.parametrize("wrong", ["local.batch_size=0", "model=cnn"])
def test_a_wrong_request_leaves_an_earlier_run_alone(train, refuse, wrong):
    path = train(*FAST)
    before = {p: p.read_bytes() for p in path.iterdir()}
    refuse(*FAST, "force=true", wrong)
    assert {p: p.read_bytes() for p in path.iterdir()} == before


def test_a_traceback_on_request(refuse, monkeypatch):
    assert "Traceback" in refuse("local.batch_size=0", "debug=true")
    assert "HYDRA_FULL_ERROR" not in os.environ
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert "Traceback" in refuse("local.batch_size=0")


def test_a_cluster_that_is_not_there(refuse):
    err = refuse("algo=fedavg", *FAST, "--on", "ray://127.0.0.1:1")
    assert "there is no Ray cluster at 127.0.0.1:1" in err


def test_keys_of_the_method_are_checked_before_the_data_are_read(refuse):
    err = refuse("algo=fedprox", "algo.mu=-1", "data=femnist", "data_dir=.", "data.download=false")
    assert err == "fedbench: algo.mu must be >= 0, got -1\n"


# ---- sweeps


def test_a_sweep_ends_with_a_table(fed, tmp_path):
    status, out, _ = fed("-m", *FAST, SETUP, "algo=fedavg,qfedavg", "seed=0,1")
    assert status == 0
    assert len(list((tmp_path / "results").rglob("DONE"))) == 4
    # their numbers in the paper
    rows = [row for row in out if "88.34±0.55" in row or "90.04±0.66" in row]
    assert [row.split("|")[1].strip() for row in rows] == [
        "FedAvg",
        "q-FedAvg",
    ]
    title = "## AdaFedAdam, Table 5: Synthetic, vanilla SGD (reduced)"
    assert max(map(len, out[out.index(title) :])) <= 100
    assert out[-1].startswith("next: fedbench report results ")
    reduced = "data.clients 8 (paper 100), rounds 4 (paper 1000), seeds 2 (paper 3)"
    assert f"- reduced, all runs: {reduced}" in out


def test_the_table_of_an_interrupted_sweep_says_so(fed, monkeypatch):
    """The results of runs that have ended, without the others."""

    def stop(executor, batch):
        finished = RunBatch(batch.configs[:1])
        execute(executor, finished)
        batch.results.extend(finished.results)
        raise KeyboardInterrupt

    execute = LocalExecutor.execute
    monkeypatch.setattr(LocalExecutor, "execute", stop)
    status, out, _ = fed("-m", *FAST, SETUP, "algo=fedavg", "seed=0,1", "--jobs", "1")
    assert status == 130
    assert "1 of 2 runs have ended; the same command trains the others" in out


def test_a_directory_counts_once_in_a_table(fed):
    status, out, err = fed("-m", *FAST, "engine.mode=loop,stacked")
    assert status == 0, err
    (row,) = rows_of_table(out)
    assert row[1] == "1"
    assert "±" not in "".join(row)


def test_a_refused_job_does_not_stop_the_others(fed, tmp_path):
    status, out, err = fed("-m", *FAST, "model=linear,cnn")
    assert status == 1
    assert "refused: data.clients=8 rounds=4 model=cnn: this model needs images" in err
    assert len(list((tmp_path / "results").rglob("DONE"))) == 1
    assert len(rows_of_table(out)) == 1


@pytest.mark.parametrize("bad", ["local.batch_size=0,-1", "algo=fedavg,foo", "alpha=-1,0"])
def test_a_sweep_that_is_all_wrong_leaves_nothing(refuse, tmp_path, bad):
    assert "Traceback" not in refuse("-m", *FAST, bad)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_of_one_run_ends_with_its_path(fed, tmp_path):
    status, out, _ = fed("-m", *FAST)
    assert status == 0
    assert (tmp_path / out[-1] / "DONE").exists()
    assert not [line for line in out if line.startswith("|")]


def test_a_choice_and_keys_of_its_section_are_axes_of_their_own():
    choice = ["algo=fedprox", "algo={server_lr:0.5}", "local={lr:0.1}", "local={momentum:0.5}"]
    runs = combinations(parse_overrides([*choice, "seed=0", "seed=1,2"]))
    assert runs == [[*choice, f"seed={s}"] for s in (1, 2)]
    runs = combinations(parse_overrides(["algo=fedprox", "algo={mu:0.5},{mu:0.25}"]))
    assert runs == [["algo=fedprox", f"algo={{mu:{mu}}}"] for mu in (0.5, 0.25)]


# ---- presets


@pytest.fixture
def show(fed):
    """Return the configuration that the command prints."""

    def composed(*args):
        status, out, err = fed("--cfg", "job", *args)
        assert status == 0, err
        return yaml.safe_load("\n".join(out))

    return composed


@pytest.mark.parametrize("shown", [["--cfg", "job"], ["--resolve"]])
@pytest.mark.parametrize("several", ["-m", "--on=ray"])
def test_the_configuration_is_shown_of_a_single_run(refuse, shown, several):
    err = refuse(several, *shown, "algo=fedavg,fedprox")
    assert "--cfg and --resolve show a single run; remove -m and --on" in err


def test_presets_win_over_defaults_and_lose_to_the_command_line(show):
    assert show("algo=qfedavg")["algo"]["L"] is None
    chosen = [SETUP, "algo=qfedavg"]
    assert show(*chosen)["algo"]["L"] == 1.0
    assert show(*chosen, "algo.L=7")["algo"]["L"] == 7
    assert show(*chosen, "presets.qfedavg.L=5")["algo"]["L"] == 5
    assert "presets" not in show(*chosen)


def test_presets_reach_the_run_and_are_no_departures(train):
    run = read_run(train(*FAST, SETUP, "algo=qfedavg"))
    assert run.config["algo"]["L"] == 1
    assert run.meta["departures"]["rounds"] == [1000, 4]
    assert "algo.L" not in run.meta["departures"]


def test_the_later_choice_of_an_experiment_wins(show):
    smoke = show("experiment=smoke")
    plain = show()
    assert smoke != plain
    assert show("experiment=smoke", "experiment=null") == plain
    assert show("experiment=null", "experiment=smoke") == smoke


# ---- help and lists


@pytest.fixture
def listed(fed):
    """Return the choices that a group lists, and their descriptions."""

    def of(group):
        lines = [line.split(maxsplit=1) for line in fed("list", group)[1]]
        return {line[0]: line[-1] for line in lines}

    return of


def test_lists(fed, listed):
    assert fed()[1] == fed("--help")[1]
    assert list(listed("algo")) == sorted([*ALGORITHMS, "fedcorr_adafed"])
    assert "LEAF's synthetic data" in listed("data")["synthetic_leaf"]
    tables = listed("table")
    assert tables["adafedadam/table5"] == papers()["adafedadam"].tables["table5"].caption
    assert "adafedadam/figure2" in tables
    metrics = listed("metric")
    assert metrics["accuracy_std"] == "STD of the accuracy (%); lower is better"
    assert {*CATALOGUE, "client:K", "val_NAME"} == {*metrics}


def test_all_lists_at_once(fed):
    _, out, _ = fed("list")
    groups = ["algo", "data", "model", "experiment", "partition", "tracker", "objective"]
    groups += [*SCENARIOS, "benchmark", "table", "metric"]
    headings = [f"{group}:" for group in groups]
    assert [line for line in out if line.endswith(":")] == headings
    assert {"fedprox", "simplecnn"} <= {word for line in out for word in line.split()}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("commands", "status", "heavy"),
    [
        (["--help", "list", f"--cfg job {SETUP}"], 0, "torch pandas numpy"),
        (["list metric", "list algo"], 0, "torch"),
        (["reproduce --plan fedfa/table2"], 0, "torch matplotlib"),
        (["foo=1", "algo=fedpro", "algo.mux=1", "local.lr=x", "data=mnist_2clas"], 2, "torch"),
        # a sweep composes all combinations before it checks a method
        (["-m algo=fedavg,fedpro", "-m local.lr=0.1,x", "-m rounds=-1"], 2, "torch"),
    ],
    ids=["configuration", "lists", "plan", "wrong requests", "wrong sweeps"],
)
def test_light_commands_import_no_heavy_package(tmp_path, commands, status, heavy):
    """Torch alone takes most of a second to import."""
    code = (
        "import sys; from fedbench.cli import main; "
        f"assert {{main(words.split()) for words in {commands}}} == {{{status}}}; "
        f"assert not set({heavy.split()}) & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- fedbench data


@pytest.fixture
def raw(tmp_path):
    """The directory of MNIST with a few images, which are not the official ones."""
    folder = tmp_path / "MNIST" / "raw"
    write_idx(folder)
    return folder


def test_data_show_and_prepare(fed, raw):
    keys = ["data_dir=.", "data.clients=3", "data.download=false"]
    status, out, err = fed("data", "show", "mnist_iid", *keys)
    assert status == 0, err
    assert "clients" in out[1]
    assert out[-1].startswith("written: results/data/mnist_iid/labels.png and labels.html")
    assert (raw.parents[1] / "results/data/mnist_iid/labels.html").stat().st_size > 500_000
    _, out, _ = fed("data", "prepare", "synthetic_leaf", "data.clients=5")
    assert out[0].startswith("synthetic_leaf: 5 clients, ")


def test_data_verify_names_what_is_missing(fed, tmp_path):
    """It never downloads."""
    status, out, _ = fed("data", "verify", "mnist_iid", "data_dir=.", "data.download=true")
    assert status == 2
    missing = tmp_path / "MNIST/raw/train-images-idx3-ubyte.gz"
    assert f"download yourself: {missing.relative_to(tmp_path)} from https" in out[0]


def test_data_verify_compares_the_files_that_a_run_would_read(fed, raw, tmp_path, monkeypatch):
    command = ["data", "verify", "mnist_iid", f"data_dir={tmp_path}"]
    status, out, _ = fed(*command)
    assert status == 1
    assert len(out) == 5
    assert all(re.search(r"-ubyte  WRONG: md5 \w{32} instead of \w{32}$", line) for line in out[:4])
    assert out[4].startswith("mnist_iid: 4 of 4 files are not the official ones; remove them")

    (files,) = mnist.FILES
    paths = [raw / path.split("/")[-1] for path in files.layouts[0]]
    sums = {path.name: f"md5:{checksum(path)}" for path in paths}
    monkeypatch.setattr(mnist, "FILES", [replace(files, sums=sums)])
    status, out, _ = fed(*command)
    assert status == 0
    assert out[:4] == [f"{path}  official: md5 {checksum(path)}" for path in paths]


# ---- methods with more than a model


# APFL: and α_k
@pytest.mark.parametrize(
    ("algo", "numbers"),
    [("ditto", 610), ("pfedme", 610), ("apfl", 611)],
)
def test_personal_methods_are_judged_on_models_of_the_clients_own(train, algo, numbers):
    """The table can be recomputed from personal.safetensors, which has the order of the data."""
    path = train(*FAST, f"algo={algo}", "participation=0.5", "improved_clients=true")
    assert {p.name for p in path.iterdir()} == {*FILES, "personal.safetensors"}
    own = load_file(path / "personal.safetensors")
    assert own["weight"].shape == (8, 10, 60)
    assert own["bias"].shape == (8, 10)
    data = data_of_fast_runs()
    table = read_run(path).clients()
    for k in range(8):
        rows = data.test.of_clients(np.array([k]))
        logits = data.x[rows].float() @ own["weight"][k].T + own["bias"][k]
        accuracy = (logits.argmax(1) == data.y[rows]).double().mean().item()
        assert table["accuracy"][k] == pytest.approx(accuracy, nan_ok=True)
    assert meta_of(path)["client_state"] == {
        "bytes": 8 * numbers * 4,
        "place": "device",
    }


@pytest.mark.parametrize(
    ("place", "files"),
    [
        ("device", []),
        ("file", ["c.bin"]),
    ],
    ids=["auto", "file"],
)
def test_client_states_survive_an_interruption(fed, train, tmp_path, monkeypatch, place, files):
    key = f"engine.client_state={'file' if files else 'auto'}"
    args = [*FAST, "algo=scaffold", "participation=3", "rounds=8", key]
    whole = train(*args, "results_dir=whole")
    err = interrupted(fed, monkeypatch, 6, *args)
    assert "run the same command again to resume" in err
    (state,) = tmp_path.rglob("round_*.safetensors")
    assert [p.name for p in state.parent.glob("client_states/*")] == files
    path = train(*args)
    assert model_of(path) == model_of(whole)
    assert {p.name for p in path.iterdir()} == FILES
    assert meta_of(path)["client_state"]["place"] == place


RATIO = [
    "+algo.server._target_=fedbench.algorithms.adafedadam.adafedadam",
    "+algo.server.inverse_rate=ratio",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [["engine.client_state=file"], RATIO],
    ids=["file", "ratio"],
)
def test_relabelled_data_survive_an_interruption(fed, train, monkeypatch, more):
    """Also with levels in files, and with losses at the first model, of the first labels."""
    small = ["data.clients=6", "rounds=20", "data.noise.clients=0.5"]
    args = [*small, "algo=fedcorr", "algo.iterations=2", *more]
    whole = train(*args, "results_dir=whole")
    interrupted(fed, monkeypatch, 17, *args)
    path = train(*args)
    assert model_of(path) == model_of(whole)
    assert rows_without_clocks(path) == rows_without_clocks(whole)


def test_ditto_has_diverged_when_the_models_of_its_clients_have(fed, tmp_path):
    """η λ = 10 makes every personal step overshoot nine times over; the global model is finite."""
    local = ["algo=ditto", "algo.lam=100", "local.lr=0.1", "local.epochs=5"]
    status, out, _ = fed(*local, "rounds=60", "data.clients=4")
    assert status == 1
    assert "diverged" in out[0]
    model = load_file(tmp_path / out[-1] / "model.safetensors")
    assert torch.isfinite(model["bias"]).all()


def test_the_exchange_before_the_first_round_is_counted(train):
    """STEM: 2/2 a round and 1/1 before; t is a number of 8 bytes."""
    rows = read_run(train(*FAST, "algo=stem", "rounds=3")).rounds()
    rounds = np.arange(4)
    models = 8 * PARAMETERS * 4 * (2 * rounds + (rounds > 0))
    assert rows["bytes_up"].tolist() == models.tolist()
    assert rows["bytes_down"].tolist() == (models + 8 * 8 * rounds).tolist()


OWN_METHOD = str(ROOT / "examples" / "own_method")


def test_a_method_outside_the_package(fed, train):
    """examples/own_method: one Python file and one YAML file next to it."""
    own = ["--config-dir", OWN_METHOD]
    path = list(sys.path)
    train(*own, "algo=median", *FAST)
    assert sys.path == path
    assert "median" not in sys.modules
    assert "median" in [line.split()[0] for line in fed(*own, "list", "algo")[1]]
    status, out, _ = fed("-m", *own, "algo=fedavg,median", *FAST)
    assert status == 0
    assert [row[0] for row in rows_of_table(out)] == ["fedavg", "median"]


def test_the_median_of_the_example(monkeypatch):
    monkeypatch.syspath_prepend(OWN_METHOD)
    from median import median

    up = {"delta": torch.tensor([[1.0, 5.0], [3.0, -1.0], [2.0, 0.0]])}
    updated = median(server_lr=0.5).update({"w": torch.zeros(2)}, up, None)
    assert updated["w"].tolist() == [-1.0, 0.0]


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_the_loss_of_the_example(train, mode):
    """τ = 0 is FedAvg."""

    def model(*args):
        keys = [*FAST, "rounds=2", f"engine.mode={mode}", "engine.precision=float64"]
        return load_file(train("--config-dir", OWN_METHOD, *keys, *args) / "model.safetensors")

    several = model("algo=fedavg")
    torch.testing.assert_close(model("algo=calibrated", "algo.tau=0"), several)
    distance = max((model("algo=calibrated")[name] - w).abs().max() for name, w in several.items())
    assert distance > 1e-3


def test_the_documentation_shows_the_loss_of_the_example():
    code = (ROOT / "examples" / "own_method" / "calibrated.py").read_text()
    values = code[code.index("    def values(") : code.index("    return Algorithm(")]
    page = (ROOT / "docs" / "own_method.md").read_text()
    assert values.strip() in page


# ---- other data, from files to the results


def test_debug_profile_writes_a_trace_with_the_operations_of_workers(fed, tmp_path):
    write_images(tmp_path / "img", "train", 12, side=8)
    data = ["data=imagefolder", "data.root=img", "data.clients=3", "data.local_test=split"]
    model = ["model.channels=[2]", "model.hidden=4", "engine.workers=2"]
    status, out, err = fed("debug=profile", *data, *model)
    assert status == 0, err
    events = json.loads((tmp_path / out[-1] / "trace.json").read_text())["traceEvents"]
    names = [event.get("name") for event in events]
    assert names.count("ProfilerStep#2") == 1  # rounds 2 and 3
    assert "aten::convolution_backward" in names
    assert "Self CPU" in err


NPZ = ["data=npz", "data.file=t.npz", "data/partition=iid", "data.clients=2"]
LSTM = ["model=lstm_char", "model.hidden=4", "rounds=1"]


def write_npz(x):
    np.savez(
        "t.npz",
        x=x,
        y=np.arange(10) % 2,
    )


@pytest.fixture
def tokens(fed):
    """Ten examples of four tokens, from 0 to 6."""
    x = np.arange(40).reshape(10, 4) % 7
    write_npz(x)
    return x


def test_tokens_are_read_by_a_model_of_text(train, tokens):
    model = load_file(train(*NPZ, *LSTM) / "model.safetensors")
    assert model["embedding.weight"].shape == (7, 8)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "consists of tokens, which model=linear cannot read"),
        ([*LSTM, "algo=fedcorr", "rounds=30"], "blends examples by mixup, and these are tokens"),
        ([*LSTM, "model.every=true"], "has a label for every example; set model.every=false"),
        (
            [*LSTM, "model.embedding=frozen"],
            "model.embedding=frozen, but this data set has no vectors",
        ),
    ],
)
def test_tokens_that_do_not_fit_are_refused(refuse, tokens, args, message):
    assert message in refuse(*NPZ, *args)


def test_tokens_are_integers_from_0(refuse, train, tokens):
    write_npz(tokens - 1)
    assert "tokens must be integers from 0 to 9999999, got -1 to 5" in refuse(*NPZ)
    write_npz(tokens.astype(float))  # these are no tokens
    train(*NPZ, "rounds=1")


def test_images_end_to_end(train, tmp_path):
    write_images(tmp_path / "img", "train", 12, side=8)
    write_images(tmp_path / "img", "test", 6, side=8)
    data = ["data=imagefolder", "data.root=img", "data.clients=3", "model.channels=[4,4]"]
    args = [*data, "rounds=2", "algo=adafedadam"]
    loop = read_run(train(*args))
    assert loop.clients().n_test.sum() == 12
    assert loop.meta["engine"]["mode"] == "loop"


@pytest.mark.data("MNIST")
def test_real_mnist_in_two_classes(train, real_data):
    path = train("data=mnist_2class", "model=linear", "rounds=2", f"data_dir={real_data}")
    assert {p.name for p in path.iterdir()} == FILES
    clients = read_run(path).clients()
    sizes = clients.n_train + clients.n_test
    assert len(sizes) == 1000
    assert sizes.min() >= 10
    assert sizes.sum() == pytest.approx(69035, rel=0.02)  # FedFa, Table 1


@pytest.mark.slow
@pytest.mark.data("cifar-10-batches-py")
def test_real_cifar10(train, real_data):
    keys = ["data.clients=4", "participation=2", "local.steps=2", "rounds=1"]
    train("data=cifar10_dir0.05", *keys, f"data_dir={real_data}")

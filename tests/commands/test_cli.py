"""The command line as users type it: what it prints, leaves on disk and returns."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import FAST, FILES, interrupted, run_dir
from data_files import leaf_file, write_idx, write_images
from safetensors.torch import load_file, save_file

from fedbench.cli import main
from fedbench.config.overrides import SCENARIOS, parse_overrides
from fedbench.data.files.fetch import checksum
from fedbench.data.sources import mnist
from fedbench.papers.registry import papers
from fedbench.runs.run import read_run
from fedbench.runs.sweep import combinations
from fedbench.simulation.compiled.library import kernels

# ---- a run on disk


def test_a_run_leaves_what_the_interface_names(fed, tmp_path):
    status, out, _ = fed(*FAST, "algo=adafedadam", "eval_every=3", "seed=5")
    path = run_dir(tmp_path, out)
    assert status == 0
    assert path.relative_to(tmp_path).parts[:3] == ("results", "synthetic_leaf", "adafedadam")
    assert path.name == "seed_5"
    assert {p.name for p in path.iterdir()} == FILES
    rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    assert [r["round"] for r in rows] == [0, 3, 4]  # the last is always evaluated
    tails = [f"accuracy_{side}{p}" for side in ("worst", "best") for p in (5, 10, 20, 30)]
    names = (
        "round train_loss test_loss accuracy_mean accuracy_std accuracy_variance accuracy_min accuracy_max "
        "angle_degrees kl_uniform accuracy_mean_weighted accuracy_std_weighted accuracy_worst30_weighted "
        "improved_clients update_norm clients bytes_up bytes_down seconds_train seconds_eval"
    ).split()
    for row in rows:
        assert set(row) == {*names, *tails}
        assert 0 <= row["accuracy_min"] <= row["accuracy_mean"] <= row["accuracy_max"] <= 1
        assert row["improved_clients"] is None
    parameters = 610 * 4
    assert rows[-1]["bytes_down"] == 4 * 8 * parameters
    # certainty and loss in addition to the update
    assert rows[-1]["bytes_up"] == 4 * 8 * (parameters + 8 + 8)
    table = pd.read_parquet(path / "clients.parquet")
    assert (
        list(table)
        == "round client name n_train n_test correct accuracy test_loss train_loss".split()
    )
    assert set(table["round"]) == {4}
    last = rows[-1]
    assert np.average(table.accuracy, weights=table.n_test) == pytest.approx(
        last["accuracy_mean_weighted"]
    )
    assert np.average(table.train_loss, weights=table.n_train) == pytest.approx(last["train_loss"])
    model = load_file(path / "model.safetensors")
    assert {k: tuple(v.shape) for k, v in model.items()} == {"weight": (10, 60), "bias": (10,)}
    meta = json.loads((path / "meta.json").read_text())
    assert (meta["status"], meta["seed"], meta["hash"]) == ("done", 5, path.parent.name)
    compiled = kernels().library is not None
    assert meta["engine"] == {
        "mode": "compiled" if compiled else "stacked",
        "cohort_size": 8,
        "workers": len(os.sched_getaffinity(0)) if compiled else 1,
        "precision": "float32",
    }
    assert meta["client_steps"] == 4 * int(np.ceil(table.n_train / 10).sum())
    assert meta["peak_memory_bytes"] > 0
    assert {"torch", "fedbench", "python"} <= set(meta["versions"])


def test_the_recorded_model_is_the_evaluated_one(fed, tmp_path):
    """The last row can be recomputed from model.safetensors and the generator alone."""
    from fedbench.data.assemble import assemble
    from fedbench.data.sources.synthetic import leaf

    _, out, _ = fed(*FAST)
    path = run_dir(tmp_path, out)
    model = load_file(path / "model.safetensors")
    data = assemble(
        leaf(clients=8), partition=None, clients=8, split=0.8, local_test="split", seed=0
    )
    rows = data.test.index
    guess = (data.x[rows].float() @ model["weight"].T + model["bias"]).argmax(1)
    share = (guess == data.y[rows]).double().mean().item()
    assert read_run(path).last_round()["accuracy_mean_weighted"] == pytest.approx(share)


def test_a_done_run_is_answered_from_disk(fed, tmp_path):
    _, out, _ = fed(*FAST)
    path = run_dir(tmp_path, out)
    stamp = (path / "model.safetensors").stat().st_mtime_ns
    # neither is part of the setting
    status, again, _ = fed(*FAST, "device=cpu", "engine.mode=loop")
    assert (status, again[-1]) == (0, out[-1])
    assert "done already" in again[0]
    assert (path / "model.safetensors").stat().st_mtime_ns == stamp
    _, forced, _ = fed(*FAST, "force=true")
    assert forced[-1] == out[-1]
    assert (path / "model.safetensors").stat().st_mtime_ns > stamp


def test_the_setting_decides_the_directory(fed, tmp_path):
    paths = [
        fed(*FAST, *more)[1][-1]
        for more in (
            [],
            ["algo.server_lr=1"],
            ["seed=1"],
            ["local.lr=0.02"],
            ["engine.precision=float64"],
        )
    ]
    parents = [p.rsplit("/", 1)[0] for p in paths]
    assert paths[0] == paths[1]  # 1 and 1.0 are one setting
    assert parents[0] == parents[2]
    assert len(set(parents)) == 3


def test_precision_init_and_participation(fed, tmp_path):
    w = {"weight": torch.randn(10, 60), "bias": torch.randn(10)}
    save_file(w, tmp_path / "w.safetensors")
    _, out, _ = fed(
        "data.clients=8",
        "rounds=0",
        f"init.path={tmp_path / 'w.safetensors'}",
        "engine.precision=float64",
    )
    model = load_file(run_dir(tmp_path, out) / "model.safetensors")
    assert all(torch.equal(model[k], v.double()) for k, v in w.items())
    assert model["bias"].dtype == torch.float64
    _, out, _ = fed(*FAST, "participation=3", "improved_clients=true", "keep_clients=[0,2]")
    run = read_run(run_dir(tmp_path, out))
    rounds = run.rounds()
    assert rounds["clients"].tolist() == [0, 3, 3, 3, 3]
    assert rounds["improved_clients"].isna().tolist() == [True, False, False, False, False]
    assert (rounds["improved_clients"][1:] * 3 % 1 == 0).all()
    assert set(run.clients()["round"]) == {0, 2}
    _, out, _ = fed(*FAST, "participation=0.3")
    # ceil(2.4)
    assert read_run(run_dir(tmp_path, out)).rounds()["clients"].tolist() == [0, 3, 3, 3, 3]


def test_another_initial_model_at_the_same_path_is_another_setting(fed, tmp_path):
    paths = []
    for value in (0.0, 1.0):
        save_file(
            {"weight": torch.full((10, 60), value), "bias": torch.zeros(10)},
            tmp_path / "w.safetensors",
        )
        paths.append(fed(*FAST, f"init.path={tmp_path / 'w.safetensors'}")[1][-1])
    assert paths[0] != paths[1]


# ---- interrupted and resumed


def test_ctrl_c_exits_130_and_keeps_what_there_is(fed, tmp_path, monkeypatch):
    from fedbench.runs import training as runner

    real = runner.evaluate
    calls = []

    def interrupting(*args):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(runner, "evaluate", interrupting)
    status, _, err = fed(*FAST)
    assert status == 130
    assert "run the same command again to resume" in err
    (meta,) = tmp_path.rglob("meta.json")
    assert json.loads(meta.read_text())["status"] == "interrupted"
    monkeypatch.setattr(runner, "evaluate", real)
    status, out, _ = fed(*FAST)
    assert status == 0
    assert read_run(run_dir(tmp_path, out)).rounds()["round"].tolist() == [0, 1, 2, 3, 4]


def test_a_failure_is_recorded_and_exits_1(fed, tmp_path, monkeypatch):
    from fedbench.runs import training as runner

    def broken(*args):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(runner, "evaluate", broken)
    status, _, err = fed(*FAST)
    assert status == 1
    assert "RuntimeError: no such luck" in err
    (meta,) = tmp_path.rglob("meta.json")
    assert json.loads(meta.read_text())["status"] == "failed"
    assert not (meta.parent / "DONE").exists()


def test_divergence_ends_the_run_and_is_remembered(fed, tmp_path):
    for expected in ("diverged at round", "diverged at round"):  # trained, then from disk
        status, out, _ = fed("data.clients=8", "rounds=50", "local.lr=1e30", "model=mlp")
        assert status == 1
        assert expected in out[0]
    run = read_run(run_dir(tmp_path, out))
    assert run.meta["status"] == "diverged"
    assert len(run.rounds()) < 51
    assert run.last_round()["train_loss"] is None  # JSON has no NaN


def test_two_processes_do_not_train_one_run(fed, tmp_path, monkeypatch):
    """The second waits for the first, here a thread with a lock of its own, and answers from what it left."""
    from filelock import FileLock

    from fedbench.core import atomic_files

    _, out, _ = fed(*FAST)
    path = run_dir(tmp_path, out)
    stamp = (path / "model.safetensors").stat().st_mtime_ns
    done = (path / "DONE").read_bytes()
    (path / "DONE").unlink()  # as long as the first is at work
    locked, waits = threading.Event(), threading.Event()

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


def test_a_directory_counts_once_in_a_table(fed, tmp_path):
    status, out, err = fed("-m", *FAST, "engine.mode=loop,stacked")
    assert status == 0, err
    (row,) = [line for line in out if line.startswith("| fedavg")]
    assert row.split("|")[2].strip() == "1"
    assert "±" not in row


@pytest.mark.parametrize("damage", ["state", "lines", "all lines"])
def test_a_damaged_checkpoint_starts_over(fed, tmp_path, monkeypatch, damage):
    _, out, _ = fed(*FAST, "results_dir=whole")
    model = (run_dir(tmp_path, out) / "model.safetensors").read_bytes()
    interrupted(fed, monkeypatch, 4, *FAST)
    (state,) = tmp_path.rglob("round_*.safetensors")
    path = state.parent.parent
    if damage == "state":
        state.write_bytes(state.read_bytes()[:100])
    else:
        lines = (path / "rounds.jsonl").read_text().splitlines(keepends=True)
        (path / "rounds.jsonl").write_text("" if damage == "all lines" else lines[0] + lines[2])
    status, out, err = fed(*FAST)
    assert status == 0
    assert "starting over: " in err
    assert str(path.relative_to(tmp_path)) in err
    assert read_run(path).rounds()["round"].tolist() == [0, 1, 2, 3, 4]
    assert (path / "model.safetensors").read_bytes() == model


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """The results of a sweep over two seeds; a test that changes them copies them."""
    results = tmp_path_factory.mktemp("two_runs") / "results"
    assert main(["-m", *FAST, "seed=0,1", f"results_dir={results}"]) == 0
    return results


@pytest.mark.parametrize("name", ["rounds.jsonl", "meta.json", "config.yaml"])
@pytest.mark.parametrize("content", ["", "garbage: [\n"])
def test_a_damaged_run_is_named_and_left_out(fed, tmp_path, two_runs, no_figures, name, content):
    shutil.copytree(two_runs, tmp_path / "results")
    (path,) = tmp_path.rglob("seed_1")
    (path / name).write_text(content)
    status, out, err = fed("report")
    assert status == 1
    (row,) = [line for line in out if line.startswith("| fedavg")]
    assert row.split("|")[2].strip() == "1"
    assert f"left out: {path.relative_to(tmp_path / 'results')}: " in err
    status, _, err = fed(*FAST, "seed=1")
    assert status == 1
    assert "force=true trains it again" in err
    assert fed(*FAST, "seed=1", "force=true")[0] == 0


@pytest.mark.parametrize(
    ("handler", "result"),
    [("default_int_handler", (130, "fedbench: interrupted\n")), ("SIG_IGN", (0, ""))],
)
def test_ctrl_c_while_starting_ends_the_process(tmp_path, handler, result):
    """An import may swallow KeyboardInterrupt; the run must stop nevertheless, unless it is to ignore Ctrl-C."""
    code = (
        f"import os, signal\nsignal.signal(signal.SIGINT, signal.{handler})\n"
        "from fedbench.runs.process import answered_by, end_at_once\n"
        "with answered_by(end_at_once):\n"
        "    try:\n        os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(0.01)\n"
        "    except KeyboardInterrupt:\n        pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == result


def test_a_group_may_read_the_model_and_a_path_may_hold_anything(fed, tmp_path):
    _, out, _ = fed(*FAST, "results_dir=rés (ü) =1", "experiment=null")
    path = run_dir(tmp_path, out)
    assert path.is_relative_to(tmp_path / "rés (ü) =1")
    modes = [(path / name).stat().st_mode for name in ("model.safetensors", "meta.json")]
    assert modes[0] == modes[1]


# ---- wrong requests: one clear line, status 2, nothing on disk

BAD = [
    (["algo=foo"], "algo=foo is unknown. Choices: `fedbench list algo`"),
    (["experiment=adafedadam/table5_syn"], "did you mean adafedadam/table5_synthetic?"),
    (["alpha=-1"], "unknown key alpha"),
    (["local.momentun=0.9"], "did you mean local.momentum?"),
    (["+algo.foo=1"], "unknown key algo.foo; fedavg has the keys server_lr, weights"),
    (["algo=adafedadam", "algo.alpha=-1"], "algo.alpha must be >= 0, got -1"),
    (["algo=qfedavg", "algo.L=0"], "algo.L must be > 0, got 0"),
    (["algo=fedcorr", "algo.server=3"], "algo.server must be an instance of Algorithm, got 3"),
    (
        ["algo.weights=sizes"],
        "algo.weights must be one of size, uniform; got 'sizes'; did you mean size?",
    ),
    (["local.batch_size=0"], "local.batch_size must be full or >= 1, got 0"),
    (["local.lr=0"], "local.lr must be > 0, got 0"),
    (["local.epochs=[3,1]"], "lo <= hi"),
    (["local.optimizer=adamw"], "local.optimizer must be sgd, got 'adamw'"),
    (["local.nesterov=true"], "local.nesterov must be false without momentum"),
    (["rounds=1.5"], "rounds must be an integer, got 1.5"),
    (["participation=0"], "participation must be > 1 or > 0, got 0; 1.0 is all clients"),
    (
        ["participation=1.5"],
        "participation must be an integer or <= 1, got 1.5; 1.0 is all clients",
    ),
    (
        ["local.epochs=1", "local.steps=5"],
        "local.epochs and local.steps are both given; steps replace epochs: remove one",
    ),
    (["keep_clients=first"], "keep_clients must be one of last, all or a list"),
    (["keep_clients=[3]", "eval_every=2"], "keep_clients names round 3, which is not evaluated"),
    (
        ["sampling=size"],
        "by its weights and by sampling=size; set algo.weights=uniform or sampling=",
    ),
    (["data.clients=0"], "data.clients must be >= 1"),
    (["data=leaf_json"], "data.train is required; type data.train=..."),
    (
        ["data=leaf_json", "data.train=/nowhere.json"],
        "data.train=/nowhere.json is neither a file nor a directory",
    ),
    (
        ["data=mnist_iid", "data_dir=/nowhere", "data.download=false"],
        "/nowhere/MNIST/raw/train-images-idx3-ubyte.gz",
    ),
    (
        ["data=synthetic_leaf", "data/partition=dirichlet"],
        "data set assigns examples to clients itself; remove data/partition",
    ),
    (["data=mnist_iid", "data/partitions=iid"], "unknown key data/partitions"),
    (["data=imagefolder", "data.root=/nowhere"], "data.root=/nowhere has no directory train/"),
    (
        ["model=cnn"],
        "this model needs images of shape [channels, height, width], got examples of shape [60]",
    ),
    (
        ["init.path=/nowhere.safetensors"],
        "/nowhere.safetensors of init.path cannot be read as a .safetensors file",
    ),
    (["device=tpu"], "device must be one of auto, cpu, cuda or text that matches ^cuda"),
    (["device=cuda:99"], "device=cuda:99, but PyTorch finds"),
    (["engine.precision=tf32"], "engine.precision=tf32 needs a CUDA device; use float32"),
    (["local.flip=true"], "local.crop and local.flip are for images, got examples of shape [60]"),
    (["seed=x"], "seed must be an integer, got 'x'"),
    (
        ["algo._target_=fedbench.algorithms.nothing.at_all"],
        "there is no module fedbench.algorithms.nothing",
    ),
    (
        ["algo._target_=fedbench.algorithms.fedavg.fedav"],
        "fedbench.algorithms.fedavg has no function fedav; did you",
    ),
    (
        ["rounds=1,2"],
        "rounds has several values (1, 2); to run each of them, add -m; a list is [A,B]",
    ),
    (["rounds=1,"], "'rounds=1,' cannot be read as KEY=VALUE"),
    (["algo="], "algo needs a choice. Choices: `fedbench list algo`"),
    (["~local.lr"], "~local.lr: keys cannot be removed"),
    (["data.source=null"], "data.source must be a section with keys, got null"),
    (["results_dir="], "results_dir must be a path, got"),
    (["results_dir=/proc/none"], "results_dir=/proc/none cannot be written to"),
    (
        ["+data.partition.alpha=0.1"],
        "data=synthetic_leaf assigns examples to clients itself; remove data.partition",
    ),
    (["model=mlp", "model.hidden=64"], "model.hidden must be a list, got 64"),
    (["local.lr=1e300"], "local.lr must be <= 1e+30, got 1e+300"),
    (
        ["participation=1000"],
        "participation=1000 exceeds the number of clients, 100; use participation=1.0 for all of them",
    ),
    (
        ["algo=scaffold", "local.momentum=0.9"],
        "scaffold cannot be combined with local momentum: with option 2 the",
    ),
    (
        ["algo=fafed", "participation=0.5"],
        "fafed needs all clients in every round, and in every stage, participation=1.0, got 0.5: a client that",
    ),
    (["algo=afl", "participation=0.5"], "algo.partial=true updates λ for the cohort only"),
    (
        ["algo=drfa", "participation=10", "sampling=size"],
        "drfa needs cohorts that are drawn uniformly: each measured loss stands for those of N/C clients; use",
    ),
    (
        ["algo=fedcorr", "rounds=300", "+algo.server._target_=fedbench.algorithms.stem.stem"],
        "fedcorr needs all clients in every round, and in every stage, participation=1.0, got",
    ),
    (
        ["algo=fedcorr", "rounds=300", "+algo.server._target_=fedbench.algorithms.fedcorr.fedcorr"],
        "algo.server must be null or a method with its _target_, got",
    ),
    (
        ["algo=fedmgda", "sampling=size"],
        "large clients twice, by its weights and by sampling=size; set algo.prior=",
    ),
    (
        ["algo=fedfa", "local.momentum=0.5"],
        "fedfa cannot be combined with local momentum: its clients' momentum is",
    ),
    (["algo=fedcorr", "rounds=5"], "rounds=5 is too few for fedcorr"),
    (["data.noise.level=2"], "data.noise.level must be <= 1, got 2"),
    (["--config-dir", "/nowhere", "algo=fedavg"], "config_dir=/nowhere is not a directory"),
    (["--quick"], "unknown flag --quick"),
    (["--cfg"], "argument -c/--cfg: expected one argument"),
    (["--cfg", "job", "-m", "seed=0,1"], "seed has several values (0, 1)"),
    (["-m", "algo=fedavg,fedprox", "algo.mu=1,2"], "unknown key algo.mu"),
    (
        ["lis"],
        "'lis' is neither a command of fedbench (run, list, data, new, tune, compare, report, status, show, "
        "plot, reproduce, completion) nor an override (KEY=VALUE); did you mean list?",
    ),
    (
        ["xyz"],
        "nor an override (KEY=VALUE); to run an experiment, type fedbench KEY=VALUE ...; see `fedbench --help`",
    ),
    (
        ["algo=fedavg", "rounds"],
        "'rounds' is not an override; overrides are KEY=VALUE, such as rounds=10",
    ),
    (["data={a: 1}"], "data={...} sets a key that data does not have"),
    (
        ["data.partition.alpha=1"],
        "this data set assigns examples to clients itself; remove data.partition.alpha",
    ),
    (["=3"], "'=3' is not an override; overrides are KEY=VALUE, such as rounds=10"),
    (["rounds=${foo}"], "rounds: Interpolation key 'foo' not found"),
    (["--rounds=3"], "unknown flag --rounds; keys are typed without dashes: rounds=3"),
    (
        ["data=mnist_iid", "data/partition=idd"],
        "data/partition=idd is unknown; did you mean iid? Choices: bernoulli",
    ),
    (["list", "algos"], "did you mean algo?"),
    (["report", "/nowhere"], "/nowhere is not a directory"),
    (["data"], "the following arguments are required: action, NAME"),
    (["data", "sow", "mnist_iid"], "did you mean show?"),
    (["data", "show"], "the following arguments are required: NAME"),
    (["data", "show", "minst_iid"], "did you mean mnist_iid?"),
    (
        ["data", "show", "mnist_iid", "data_dir=/nowhere", "data.download=false"],
        "are disabled by data.download=false",
    ),
    # what is meant, not the nearest spelling
    (["lr=0.1"], "unknown key lr; did you mean local.lr?"),
    (["epoch=5"], "did you mean local.epochs?"),
    (["mu=1"], "unknown key mu; did you mean algo.mu (with algo=fedprox)"),
    (["algo.q=1"], "unknown key algo.q; did you mean algo.q (with algo=qfedavg)?"),
    (
        ["data.alpha=1"],
        "did you mean data.partition.alpha (with data/partition=bernoulli_dirichlet, dirichlet, ",
    ),
    (
        ["data=mnist"],
        "did you mean mnist_2class or mnist_dirmin0.1 or mnist_iid or mnist_lda0.1 or mnist_lda0.5 or mnist_shards2?",
    ),
    (["seed=0..2"], "seed must be an integer, got '0..2'; for several seeds type -m seed=0,1,2"),
    (["-m", "seed=0-19"], "got '0-19'; for several seeds type -m seed=0,1,2"),
    (["--force"], "unknown flag --force; keys are typed without dashes: force=..."),
    (["--mutlirun", "seed=0,1"], "unknown flag --mutlirun; did you mean --multirun?"),
    # a group takes one choice
    (
        ["-m", "algo=[fedavg,fedprox]"],
        "algo takes one choice, got [fedavg,fedprox]; to run each of them, type -m algo=fedavg,fedprox",
    ),
    # a number, a device
    (["init.path=5"], "init.path must be a path, got 5"),
    (["data.partition=iid"], "unknown key data.partition; did you mean data/partition?"),
    # sweeps
    (
        ["-m", "hydra.sweeper.params={seed: 1}"],
        "type the axes of the sweep as overrides, such as seed=0,1,2",
    ),
    (
        ["-m", "results_dir=/proc/none", "seed=0,1"],
        " cannot be written to (No such file or directory); change",
    ),
    # what configures sweeps
    (["hydra.sweep.dir=x"], "hydra.sweep.dir=x configures sweeps, which -m makes"),
    (["--config-dir"], "argument --config-dir/-cd: expected one argument"),
    (
        ["--config-dir", "/", "reproduce"],
        "unknown flag --config-dir; see `fedbench reproduce --help`",
    ),
]


def test_the_later_choice_of_an_experiment_wins(fed):
    smoke = show(fed, "experiment=smoke")
    plain = show(fed)
    assert smoke != plain
    assert show(fed, "experiment=smoke", "experiment=null") == plain
    assert show(fed, "experiment=null", "experiment=smoke") == smoke


def test_an_error_of_an_own_method_is_one_line_with_its_place(fed, tmp_path):
    (tmp_path / "own/algo").mkdir(parents=True)
    (tmp_path / "own/algo/mine.yaml").write_text("_target_: mine.mine\n")
    (tmp_path / "own/mine.py").write_text("def mine(local):\n    return {}['rate']\n")
    message = "algo._target_=mine.mine: raised KeyError in own/mine.py, line 2: 'rate'"
    status, out, err = fed("--config-dir", "own", "algo=mine", *FAST)
    assert (status, out, err) == (2, [], f"fedbench: {message}\n")
    assert not (tmp_path / "results").exists()
    status, out, err = fed("--config-dir", "own", "algo=mine", *FAST, "-m", "seed=0,1")
    refused = [line for line in err.splitlines() if line.startswith("fedbench: refused: algo=mine")]
    assert (status, out, len(refused)) == (2, [], 2)
    assert all(line.endswith(message) for line in refused)


def test_a_wrong_device_is_refused_also_when_the_run_is_done(fed, tmp_path):
    assert fed(*FAST)[0] == 0
    status, _, err = fed(*FAST, "device=foo")
    assert status == 2
    assert "device must be one of auto, cpu, cuda or text that matches ^cuda" in err
    assert fed(*FAST, "device=cuda:99")[0] == 0  # nothing is trained


@pytest.mark.parametrize(
    ("args", "message"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_a_wrong_request_is_one_line(fed, tmp_path, args, message):
    status, out, err = fed(*args)
    assert status == 2, err
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert out == []
    assert list(tmp_path.iterdir()) == []


def test_partition_alpha(fed, tmp_path):
    """A data set in the official form, and a partition that cannot be."""

    write_idx(tmp_path / "data" / "MNIST" / "raw")
    status, _, err = fed(
        "data=mnist_dirmin0.1", "data.partition.alpha=-1", f"data_dir={tmp_path / 'data'}"
    )
    assert status == 2
    assert err == "fedbench: data.partition.alpha must be > 0, got -1\n"
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_a_wrong_request_leaves_an_earlier_run_alone(fed, tmp_path):
    _, out, _ = fed(*FAST)
    before = {p: p.read_bytes() for p in run_dir(tmp_path, out).iterdir()}
    assert fed(*FAST, "force=true", "local.batch_size=0")[0] == 2
    assert fed(*FAST, "force=true", "model=cnn")[0] == 2
    assert {p: p.read_bytes() for p in run_dir(tmp_path, out).iterdir()} == before


@pytest.mark.parametrize("loud", ["debug=true", "HYDRA_FULL_ERROR"])
def test_a_traceback_on_request(fed, monkeypatch, loud):
    if loud == "HYDRA_FULL_ERROR":
        monkeypatch.setenv(loud, "1")
    _, _, err = fed("local.batch_size=0", *([loud] if "=" in loud else []))
    assert "Traceback" in err
    assert os.environ.get("HYDRA_FULL_ERROR") == ("1" if loud == "HYDRA_FULL_ERROR" else None)


# ---- sweeps


def test_a_sweep_ends_with_a_table(fed, tmp_path):
    status, out, _ = fed(
        "-m", *FAST, "experiment=adafedadam/table5_synthetic", "algo=fedavg,qfedavg", "seed=0,1"
    )
    assert status == 0
    runs = list((tmp_path / "results").rglob("DONE"))
    assert len(runs) == 4
    table = [line for line in out if line.startswith("|")]
    first = [row for row in table if "88.34±0.55" in row or "90.04±0.66" in row]
    assert [row.split("|")[1].strip() for row in first] == ["FedAvg", "q-FedAvg"]
    assert "## AdaFedAdam, Table 5: Synthetic, vanilla SGD (reduced)" in out
    assert max(map(len, out[out.index(table[0]) :])) <= 100
    assert out[-1].startswith("next: fedbench report results ")
    assert any(
        line
        == "- reduced, all runs: data.clients 8 (paper 100), rounds 4 (paper 1000), seeds 2 (paper 3)"
        for line in out
    )


def test_a_refused_job_does_not_stop_the_others(fed, tmp_path):
    status, out, err = fed("-m", *FAST, "model=linear,cnn")
    assert status == 1
    assert "refused: data.clients=8 rounds=4 model=cnn: this model needs images" in err
    assert len(list((tmp_path / "results").rglob("DONE"))) == 1
    assert any(line.startswith("| fedavg") for line in out)


@pytest.mark.parametrize(
    "bad", [["local.batch_size=0,-1"], ["algo=fedavg,foo"], ["seed=0,1", "alpha=-1"]]
)
def test_a_sweep_that_is_all_wrong_leaves_nothing(fed, tmp_path, bad):
    status, _, err = fed("-m", *FAST, *bad)
    assert status == 2
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


# ---- presets


def show(fed, *args):
    import yaml

    status, out, err = fed("--cfg", "job", *args)
    assert status == 0, err
    return yaml.safe_load("\n".join(out))


def test_presets_win_over_defaults_and_lose_to_the_command_line(fed):
    assert show(fed, "algo=qfedavg")["algo"]["L"] is None
    chosen = ["experiment=adafedadam/table5_synthetic", "algo=qfedavg"]
    assert show(fed, *chosen)["algo"]["L"] == 1.0
    assert show(fed, *chosen, "algo.L=7")["algo"]["L"] == 7
    assert show(fed, *chosen, "presets.qfedavg.L=5")["algo"]["L"] == 5
    fedadam = show(fed, chosen[0], "algo=fedadam")["algo"]
    assert (fedadam["tau"], fedadam["v0"], fedadam["bias_correction"]) == (1e-8, 0, True)
    assert "presets" not in show(fed, *chosen)


def test_presets_reach_the_run(fed, tmp_path):
    _, out, _ = fed(*FAST, "experiment=adafedadam/table5_synthetic", "algo=qfedavg")
    run = read_run(run_dir(tmp_path, out))
    assert run.config["algo"]["L"] == 1
    assert run.meta["departures"]["rounds"] == [1000, 4]
    assert "algo.L" not in run.meta["departures"]
    _, out, _ = fed(*FAST, "experiment=adafedadam/table5_synthetic", "algo=qfedavg", "algo.L=2")
    assert read_run(run_dir(tmp_path, out)).meta["departures"]["algo.L"] == [1, 2]


# ---- words


def test_help_version_and_lists(fed):
    from tools import ALGORITHMS

    import fedbench
    from fedbench.core.metrics import CATALOGUE

    assert fed("--version")[1] == [f"fedbench {fedbench.__version__}"]
    assert fed()[1] == fed("--help")[1]
    text = "\n".join(fed("list")[1])
    assert all(
        name in text
        for name in [*ALGORITHMS, "cifar10_dir0.05", "adafedadam/table5_synthetic", "simplecnn"]
    )
    listed = [line.split()[0] for line in fed("list", "algo")[1]]
    assert listed == sorted([*ALGORITHMS, "fedcorr_adafed"])
    assert "LEAF's synthetic data" in "\n".join(fed("list", "data")[1])
    tables = dict(line.split(maxsplit=1) for line in fed("list", "table")[1])
    assert tables["adafedadam/table5"] == papers()["adafedadam"].tables["table5"].caption
    assert "adafedadam/figure2" in tables
    assert not any("/_" in line for line in fed("list", "experiment")[1])
    assert [line for line in fed("list")[1] if line.endswith(":")] == [
        "algo:",
        "data:",
        "model:",
        "experiment:",
        "partition:",
        "tracker:",
        *(f"{group}:" for group in SCENARIOS),
        "table:",
        "metric:",
    ]
    metrics = dict(line.split(maxsplit=1) for line in fed("list", "metric")[1])
    assert metrics["accuracy_std"] == "STD of the accuracy (%); lower is better"
    assert {*CATALOGUE, "client:K", "val_NAME"} == {*metrics}
    assert fed("list", "metric", "accuracy_std")[0] == 2


def test_help_and_configuration_do_without_torch(tmp_path):
    """They answer at once: torch alone takes most of a second to import."""
    code = (
        "import sys; from fedbench.cli import main; "
        "assert main(['--help']) == main(['list']) == 0; "
        "assert main(['--cfg', 'job', 'experiment=adafedadam/table5_synthetic']) == 0; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'pandas', 'numpy')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_wrong_keys_and_choices_are_refused_without_torch(tmp_path):
    wrong = [
        "foo=1",
        "algo=fedpro",
        "algo.mux=1",
        "local.lr=x",
        "rounds=-1",
        "participation=-1",
        "data=mnist_2clas",
    ]
    # a sweep composes all combinations before it checks a method
    wrong += ["algo=fedavg,fedpro", "local.lr=0.1,x"]
    code = (
        "import sys; from fedbench.cli import main; "
        f"assert {{main([*m, w]) for w in {wrong} for m in ([], ['-m'])}} == {{2}}; "
        "assert main(['list', 'metric']) == main(['list', 'algo']) == 0; "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_keys_of_the_method_are_checked_before_the_data_are_read(fed, tmp_path):
    missing = [f"data_dir={tmp_path}", "data.download=false"]
    status, _, err = fed("algo=fedprox", "algo.mu=-1", "data=femnist", *missing)
    assert (status, err) == (2, "fedbench: algo.mu must be >= 0, got -1\n")


def test_report_writes_tables(fed, tmp_path):
    fed("-m", *FAST, "algo=fedavg,fedprox", "algo.server_lr=1,0.5")
    status, out, _ = fed("report")
    assert status == 0
    folder = tmp_path / "results" / "report"
    pictures = {
        f"figures/synthetic_leaf_{k}.{e}" for k in ("curves", "clients") for e in ("png", "svg")
    }
    tables = {f"tables/synthetic_leaf.{e}" for e in ("md", "csv", "tex")}
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert files == {"index.html", "runs.parquet", "summary.json", *tables, *pictures}
    assert len(pd.read_parquet(folder / "runs.parquet")) == 4
    csv = pd.read_csv(folder / "tables" / "synthetic_leaf.csv")
    assert csv["settings"].tolist() == ["algo.server_lr=0.5", "algo.server_lr=1"] * 2 or set(csv["settings"]) == {
        "algo.server_lr=0.5", "algo.server_lr=1",
    }  # fmt: skip
    assert out[-1] == "written: results/report/index.html"


# ---- data words


def test_data_show_prepare_verify(fed, tmp_path):

    write_idx(tmp_path / "data" / "MNIST" / "raw")
    where = f"data_dir={tmp_path / 'data'}"
    status, out, err = fed(
        "data", "show", "mnist_iid", where, "data.clients=3", "data.download=false"
    )
    assert status == 0, err
    assert "clients" in out[1]
    assert out[-1] == "written: results/data/mnist_iid/labels.png"
    assert fed("data", "prepare", "synthetic_leaf", "data.clients=5")[1][0].startswith(
        "synthetic_leaf: 5 clients, "
    )
    status, out, _ = fed("data", "verify", "mnist_iid", where)
    assert status == 1
    assert len(out) == 5
    assert all(re.search(r"-ubyte  WRONG: md5 \w{32} instead of \w{32}$", line) for line in out[:4])
    assert out[4].startswith("mnist_iid: 4 of 4 files are not the official ones; remove them")
    assert not (tmp_path / "results" / "mnist_iid").exists()


def test_data_verify(fed, tmp_path, monkeypatch):
    """It compares what a run would read, reads it, and never downloads."""
    folder = tmp_path / "data" / "MNIST" / "raw"
    where = f"data_dir={tmp_path / 'data'}"
    status, out, _ = fed("data", "verify", "mnist_iid", where, "data.download=true")
    assert status == 2
    assert f"download yourself: {folder / 'train-images-idx3-ubyte.gz'} from https" in out[0]
    write_idx(folder)
    (files,) = mnist.FILES
    names = [path.split("/")[-1] for path in files.layouts[0]]
    sums = {name: f"md5:{checksum(folder / name)}" for name in names}
    monkeypatch.setattr(mnist, "FILES", [replace(files, sums=sums)])
    status, out, _ = fed("data", "verify", "mnist_iid", where)
    assert status == 0
    assert out[:4] == [
        f"{folder / name}  official: md5 {checksum(folder / name)}" for name in names
    ]
    (folder / names[3]).write_bytes((folder / names[3]).read_bytes()[:-1] + b"\x07")
    status, out, _ = fed("data", "verify", "mnist_iid", where)
    assert status == 1
    assert out[-2].startswith(
        f"{folder / names[3]}  WRONG: md5 {checksum(folder / names[3])} instead of "
    )
    assert fed("data", "verify", "synthetic_leaf")[:2] == (
        0,
        ["LEAF synthetic generator: 100 clients, seed 931231"],
    )


# ---- methods with more than a model


# APFL: and α_k
@pytest.mark.parametrize(("algo", "numbers"), [("ditto", 610), ("pfedme", 610), ("apfl", 611)])
def test_personal_methods_are_judged_on_models_of_the_clients_own(fed, tmp_path, algo, numbers):
    """personal.safetensors holds them in the data's order; the table can be recomputed from it."""
    from fedbench.data.assemble import assemble
    from fedbench.data.sources.synthetic import leaf

    _, out, _ = fed(*FAST, f"algo={algo}", "participation=0.5", "improved_clients=true")
    path = run_dir(tmp_path, out)
    assert {p.name for p in path.iterdir()} == {*FILES, "personal.safetensors"}
    own = load_file(path / "personal.safetensors")
    assert {k: tuple(v.shape) for k, v in own.items()} == {"weight": (8, 10, 60), "bias": (8, 10)}
    data = assemble(
        leaf(clients=8), partition=None, clients=8, split=0.8, local_test="split", seed=0
    )
    table = read_run(path).clients()
    for k in range(8):
        for rows, column in ((data.test, "accuracy"), (data.train, None)):
            index = rows.of_clients(np.array([k]))
            logits = data.x[index].float() @ own["weight"][k].T + own["bias"][k]
            if column:
                want = (logits.argmax(1) == data.y[index]).double().mean().item()
                assert table[column][k] == pytest.approx(want, nan_ok=True)
            else:
                loss = torch.nn.functional.cross_entropy(logits, data.y[index]).item()
                assert table["train_loss"][k] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert read_run(path).meta["client_state"] == {"bytes": 8 * numbers * 4, "place": "device"}


@pytest.mark.parametrize("place", ["auto", "file"])
def test_client_states_survive_an_interruption(fed, tmp_path, monkeypatch, place):
    args = [*FAST, "algo=scaffold", "participation=3", f"engine.client_state={place}", "rounds=8"]
    _, out, _ = fed(*args, "results_dir=whole")
    whole = run_dir(tmp_path, out)
    interrupted(fed, monkeypatch, 6, *args)
    (state,) = tmp_path.rglob("round_*.safetensors")
    assert [p.name for p in state.parent.glob("client_states/*")] == (
        ["c.bin"] if place == "file" else []
    )
    status, out, _ = fed(*args)
    assert status == 0
    path = run_dir(tmp_path, out)
    assert (path / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert {p.name for p in path.iterdir()} == FILES
    assert read_run(path).meta["client_state"]["place"] == ("file" if place == "file" else "device")


@pytest.mark.parametrize(
    "more",
    [
        ["engine.client_state=file"],
        [
            "+algo.server._target_=fedbench.algorithms.adafedadam.adafedadam",
            "+algo.server.inverse_rate=ratio",
        ],
    ],
    ids=["file", "ratio"],
)
def test_relabelled_data_survive_an_interruption(fed, tmp_path, monkeypatch, more):
    """Also with levels in files, and with losses at the first model, which are of the labels of the beginning."""
    args = [
        "data.clients=6",
        "rounds=20",
        "algo=fedcorr",
        "data.noise.clients=0.5",
        "algo.iterations=2",
        *more,
    ]
    _, out, _ = fed(*args, "results_dir=whole")
    whole = run_dir(tmp_path, out)
    interrupted(fed, monkeypatch, 17, *args)
    _, out, _ = fed(*args)
    path = run_dir(tmp_path, out)
    assert (path / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    times = ["seconds_train", "seconds_eval"]
    a, b = (read_run(p).rounds().drop(columns=times) for p in (path, whole))
    pd.testing.assert_frame_equal(a, b)


def test_ditto_has_diverged_when_the_models_of_its_clients_have(fed, tmp_path):
    """η λ = 10 makes every personal step overshoot nine times over, while the global model stays finite."""
    args = [
        "algo=ditto",
        "algo.lam=100",
        "local.lr=0.1",
        "local.epochs=5",
        "rounds=60",
        "data.clients=4",
    ]
    status, out, _ = fed(*args)
    assert status == 1
    assert "diverged" in out[0]
    assert torch.isfinite(load_file(run_dir(tmp_path, out) / "model.safetensors")["bias"]).all()


def test_afl_deploys_its_average(fed, tmp_path):
    """What is saved is what was judged."""
    paths = [
        run_dir(tmp_path, fed(*FAST, "algo=afl", f"algo.average={v}")[1]) for v in ("true", "false")
    ]
    models = [load_file(p / "model.safetensors")["bias"] for p in paths]
    assert not torch.equal(*models)
    assert (
        read_run(paths[0]).last_round()["test_loss"] != read_run(paths[1]).last_round()["test_loss"]
    )


def test_the_exchange_before_the_first_round_is_counted(fed, tmp_path):
    """STEM: 2/2 a round and 1/1 before; t is a number of 8 bytes on top of 610 parameters of 4."""
    _, out, _ = fed(*FAST, "algo=stem", "rounds=3")
    rows = read_run(run_dir(tmp_path, out)).rounds()
    model, rounds = 610 * 4, np.arange(4)
    assert rows["bytes_up"].tolist() == (8 * model * (2 * rounds + (rounds > 0))).tolist()
    assert (
        rows["bytes_down"].tolist()
        == (8 * (model * (2 * rounds + (rounds > 0)) + 8 * rounds)).tolist()
    )
    assert rows["round"].tolist() == [0, 1, 2, 3]


def test_a_method_outside_the_package(fed, tmp_path, monkeypatch):
    """examples/own_method: one Python file and one YAML file next to it."""
    from tools import ROOT

    own = str(ROOT / "examples" / "own_method")
    before = list(sys.path)
    status, _, err = fed("--config-dir", own, "algo=median", *FAST)
    assert status == 0, err
    assert sys.path == before
    assert "median" not in sys.modules
    monkeypatch.syspath_prepend(own)
    from median import median
    from tools import federation, final, make

    data = federation(sizes=(9,))
    assert torch.equal(final(median(), data, rounds=3), final(make("fedavg"), data, rounds=3))
    up = {"delta": torch.tensor([[1.0, 5.0], [3.0, -1.0], [2.0, 0.0]])}
    made = median(server_lr=0.5)
    assert made.update({"w": torch.zeros(2)}, up, None)["w"].tolist() == [-1.0, 0.0]
    for words in (("list", "algo", "--config-dir", own), ("--config-dir", own, "list", "algo")):
        assert "median" in [line.split()[0] for line in fed(*words)[1]]
    status, out, _ = fed("-m", "--config-dir", own, "algo=fedavg,median", *FAST)
    assert status == 0
    assert [line.split("|")[1].strip() for line in out if line.startswith("| ")][2:] == [
        "fedavg",
        "median",
    ]


# ---- the whole path for other data


def test_leaf_json_end_to_end(fed, tmp_path):

    rng = np.random.default_rng(0)
    users = {
        f"u{k}": (rng.normal(size=(n, 3)).tolist(), rng.integers(0, 2, n).tolist())
        for k, n in enumerate((4, 9))
    }
    train = leaf_file(tmp_path / "t.json", users)
    args = [
        "data=leaf_json",
        f"data.train={train}",
        f"data.test={train}",
        "local.batch_size=full",
        "rounds=2",
    ]
    status, out, _ = fed(*args)
    assert status == 0
    table = read_run(run_dir(tmp_path, out)).clients()
    assert table.n_train.tolist() == table.n_test.tolist() == [4, 9]
    assert table.name.tolist() == ["u0", "u1"]
    path = run_dir(tmp_path, out)
    leaf_file(tmp_path / "t.json", {**users, "u2": users["u0"]})  # other content, another setting
    assert fed(*args)[1][-1] != str(path.relative_to(tmp_path))


def test_debug_profile_writes_a_trace(fed, tmp_path):
    status, out, err = fed("debug=profile", "data.clients=3", "results_dir=here")
    assert status == 0
    events = json.loads((tmp_path / out[-1] / "trace.json").read_text())["traceEvents"]
    assert sum(e.get("name") == "ProfilerStep#2" for e in events) == 1  # rounds 2 and 3
    assert "Self CPU" in err
    image = {
        "x": np.zeros((40, 1, 8, 8), dtype=np.uint8),
        "y": np.arange(40) % 3,
        "owner": np.arange(40) % 4,
    }
    np.savez(tmp_path / "i.npz", **image)
    small = ["model=cnn", "model.channels=[2]", "model.hidden=4", "engine.workers=2"]
    _, out, _ = fed("debug=profile", "data=npz", f"data.file={tmp_path / 'i.npz'}", *small)
    events = json.loads((tmp_path / out[-1] / "trace.json").read_text())["traceEvents"]
    # what the workers would do
    assert any(e.get("name") == "aten::convolution_backward" for e in events)


def test_tokens_need_a_model_that_reads_them(fed, tmp_path):
    np.savez(tmp_path / "t.npz", x=np.arange(40).reshape(10, 4) % 7, y=np.arange(10) % 2)
    args = ["data=npz", f"data.file={tmp_path / 't.npz'}", "data/partition=iid", "data.clients=2"]
    status, _, err = fed(*args)
    assert status == 2
    assert "consists of tokens, which model=linear cannot read" in err
    small = ["model=lstm_char", "model.hidden=4", "rounds=1"]
    status, out, err = fed(*args, *small)
    assert status == 0, err
    w = load_file(run_dir(tmp_path, out) / "model.safetensors")
    assert w["embedding.weight"].shape == (7, 8)
    for algo in ("fedcorr", "fedcorr_adafed"):
        assert (
            "blends examples by mixup, and these are tokens"
            in fed(*args, *small, f"algo={algo}", "rounds=30")[2]
        )
    np.savez(tmp_path / "odd.npz", x=np.arange(40).reshape(10, 4) - 1, y=np.arange(10) % 2)
    assert (
        "tokens must be integers from 0 to 9999999, got -1 to 38"
        in fed(args[0], "data.file=odd.npz", *args[2:])[2]
    )
    assert (
        "has a label for every example; set model.every=false"
        in fed(*args, *small, "model.every=true")[2]
    )
    assert (
        "model.embedding=frozen, but this data set has no vectors"
        in fed(*args, *small, "model.embedding=frozen")[2]
    )
    np.savez(tmp_path / "t.npz", x=np.arange(40.0).reshape(10, 4) % 7, y=np.arange(10) % 2)
    assert fed(*args, "rounds=1")[0] == 0


def test_images_end_to_end(fed, tmp_path):

    write_images(tmp_path / "img", "train", 12, side=8)
    write_images(tmp_path / "img", "test", 6, side=8)
    args = [
        "data=imagefolder",
        f"data.root={tmp_path / 'img'}",
        "data.clients=3",
        "rounds=2",
        "model.channels=[4,4]",
    ]
    status, out, _ = fed(*args, "algo=adafedadam")
    assert status == 0
    run = read_run(run_dir(tmp_path, out))
    assert run.clients().n_test.sum() == 12
    assert run.meta["engine"]["mode"] == "loop"
    status, out, _ = fed(*args, "algo=adafedadam", "engine.mode=stacked", "force=true")
    other = read_run(run_dir(tmp_path, out))
    assert other.meta["engine"]["mode"] == "stacked"
    assert other.last_round()["train_loss"] == pytest.approx(
        run.last_round()["train_loss"], rel=1e-4
    )


@pytest.mark.data("MNIST", "cifar-10-batches-py")
@pytest.mark.parametrize(
    "args",
    [
        ["data=mnist_2class", "model=linear", "rounds=2"],
        ["data=mnist_dirmin0.1", "rounds=1", "participation=0.1"],
        pytest.param(
            [
                "data=cifar10_dir0.05",
                "rounds=1",
                "participation=2",
                "local.steps=2",
                "data.clients=4",
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda a: a[0],
)
def test_real_images(fed, real_data, tmp_path, args):
    status, out, err = fed(*args, f"data_dir={real_data}")
    assert status == 0, err
    path = run_dir(tmp_path, out)
    assert {p.name for p in path.iterdir()} == FILES
    if args[0] == "data=mnist_2class":
        n = read_run(path).clients()
        sizes = n.n_train + n.n_test
        assert len(sizes) == 1000
        assert sizes.min() >= 10
        assert sizes.sum() == pytest.approx(69035, rel=0.02)  # FedFa, Table 1


def test_a_choice_and_keys_of_its_section_are_axes_of_their_own():
    typed = [
        "algo=fedprox",
        "algo={server_lr:0.5}",
        "local={lr:0.1}",
        "local={momentum:0.5}",
        "seed=0",
        "seed=1,2",
    ]
    runs = combinations(parse_overrides(typed))
    assert runs == [[*typed[:4], f"seed={s}"] for s in (1, 2)]
    runs = combinations(parse_overrides(["algo=fedprox", "algo={mu:0.5},{mu:0.25}"]))
    assert runs == [["algo=fedprox", f"algo={{mu:{mu}}}"] for mu in (0.5, 0.25)]


def test_a_single_run_is_carried_out_where_on_says(fed):
    status, _, err = fed("algo=fedavg", "data=synthetic_leaf", "rounds=1", "--on", "slurm")
    assert (status, err) == (
        2,
        "fedbench: --on must be ray, perhaps with ://HOST:PORT; got slurm\n",
    )
    status, _, err = fed(
        "algo=fedavg", "data=synthetic_leaf", "rounds=1", "--on", "ray://127.0.0.1:1"
    )
    assert (status, "there is no Ray cluster at 127.0.0.1:1" in err) == (2, True)


def test_a_sweep_of_one_run_ends_with_its_path(fed, tmp_path):
    status, out, _ = fed("-m", *FAST)
    assert status == 0
    assert run_dir(tmp_path, out).joinpath("DONE").exists()
    assert not [line for line in out if line.startswith("|")]

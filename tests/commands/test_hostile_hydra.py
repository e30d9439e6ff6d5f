"""Config files that came from elsewhere and speak to Hydra: nothing of theirs is executed."""

import os
import subprocess
import sys

import pytest
from command_line import FAST
from tools import ROOT

from fedbench.commands.launch import sweep_plan
from fedbench.config.compose import Composer

COPY = "{_target_: shutil.copyfile, src: %(source)s, dst: %(proof)s}"
HANDLER = "{version: 1, root: {handlers: []}, formatters: {x: {(): shutil.copyfile, src: %(source)s, dst: %(proof)s}}}"
FILE_HANDLER = "{version: 1, handlers: {x: {class: logging.FileHandler, filename: %(proof)s}}, root: {handlers: [x]}}"
TRUSTING = "{FEDBENCH_TRUST: shutil, CHOSEN: shutil.copyfile}"
JOBLIB = "_target_: hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher\n"
EXPERIMENT = "# @package _global_\n"

# what is wrong -> (the key that the message names, files of the directory, what is typed)
HOSTILE = {
    "a callback": (
        "hydra.callbacks.x._target_",
        {"experiment/evil": EXPERIMENT + f"hydra: {{callbacks: {{x: {COPY}}}}}"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "a callback in a sweep without a launcher": (
        "hydra.callbacks.x._target_",
        {"experiment/evil": EXPERIMENT + f"hydra: {{callbacks: {{x: {COPY}}}}}"},
        ["experiment=evil"],
    ),
    "a callback by way of an innocent group": (
        "hydra.callbacks.x._target_",
        {"mine/bad": f"x: {COPY}", "experiment/evil": EXPERIMENT + "defaults: [{/mine@hydra.callbacks: bad}]"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "a callback by reference": (
        "hydra.callbacks.x",
        {"experiment/evil": EXPERIMENT + f"presets: {{afl: {COPY}}}\nhydra: {{callbacks: {{x: '${{presets.afl}}'}}}}"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "an argument of a launcher": (
        "hydra.launcher.temp_folder",
        {"hydra/launcher/mine": f"defaults: [joblib, _self_]\ntemp_folder: {COPY}"},
        ["hydra/launcher=mine"],
    ),
    "an argument of a launcher in the place of a number": (
        "hydra.launcher.n_jobs",
        {"hydra/launcher/mine": JOBLIB + f"n_jobs: {COPY}"},
        ["hydra/launcher=mine"],
    ),
    "an argument of a launcher by reference": (
        "hydra.launcher.n_jobs",
        {
            "hydra/launcher/mine": JOBLIB + "n_jobs: ${presets.afl}",
            "experiment/evil": EXPERIMENT + f"presets: {{afl: {COPY}}}",
        },
        ["hydra/launcher=mine", "experiment=evil"],
    ),
    "a launcher": (
        "hydra.launcher._target_",
        {"hydra/launcher/mine": f"{COPY}"},
        ["hydra/launcher=mine"],
    ),
    "a sweeper": (
        "hydra.sweeper._target_",
        {"hydra/sweeper/mine": f"{COPY}"},
        ["hydra/sweeper=mine"],
    ),
    "an argument of a sweeper": (
        "hydra.sweeper.x._target_",
        {"hydra/sweeper/mine": f"_target_: hydra._internal.core_plugins.basic_sweeper.BasicSweeper\nx: {COPY}"},
        ["hydra/sweeper=mine"],
    ),
    "an environment that trusts more": (
        "hydra.job.env_set.FEDBENCH_TRUST",
        {
            "experiment/evil": EXPERIMENT + f"hydra: {{job: {{env_set: {TRUSTING}}}}}\n"
            "tracker: {_target_: '${oc.env:CHOSEN,fedbench.runs.trackers.none.none}', "
            "src: %(source)s, dst: %(proof)s}"
        },
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "a logger of jobs": (
        "hydra.job_logging",
        {"experiment/evil": EXPERIMENT + f"hydra: {{job_logging: {HANDLER}}}"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "a group of loggers": (
        "hydra.job_logging",
        {"hydra/job_logging/mine": HANDLER},
        ["hydra/job_logging=mine", "hydra/launcher=basic"],
    ),
    "a logger of Hydra's": (
        "hydra.hydra_logging",
        {"experiment/evil": EXPERIMENT + f"hydra: {{hydra_logging: {FILE_HANDLER}}}"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "a method that brings a logger": (
        "hydra.job_logging",
        {"algo/evil": EXPERIMENT + f"defaults: [{{/algo@algo: fedavg}}]\nhydra: {{job_logging: {HANDLER}}}"},
        ["algo=fedavg,evil", "hydra/launcher=basic"],
    ),
    "another directory": (
        "hydra.sweep.dir",
        {"experiment/evil": EXPERIMENT + "hydra: {sweep: {dir: %(proof)s}}"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "another directory of a run": (
        "hydra.run.dir",
        {"experiment/evil": EXPERIMENT + "hydra: {run: {dir: %(proof)s}}"},
        ["experiment=evil"],
    ),
    "copies of the configuration elsewhere": (
        "hydra.output_subdir",
        {"experiment/evil": EXPERIMENT + "hydra: {output_subdir: %(proof)s}"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "shell commands of a batch job": (
        "hydra.launcher.setup",
        {"hydra/launcher/mine": "defaults: [submitit_slurm, _self_]\nsetup: [touch %(proof)s]"},
        ["hydra/launcher=mine"],
    ),
    "a shell command in a name": (
        "hydra.launcher.partition",
        {"hydra/launcher/mine": 'defaults: [submitit_slurm, _self_]\npartition: "x\\ntouch %(proof)s"'},
        ["hydra/launcher=mine"],
    ),
    "overrides that were not typed": (
        "hydra.overrides.hydra",
        {"experiment/evil": EXPERIMENT + "hydra: {overrides: {hydra: ['hydra.job.env_set={A: b}']}}"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
    "axes that were not typed": (
        "hydra.sweeper.params",
        {"experiment/evil": EXPERIMENT + "hydra: {sweeper: {params: {hydra.output_subdir: %(proof)s}}}"},
        ["experiment=evil", "hydra/launcher=basic"],
    ),
}


def written(folder, files):
    """Write the files of a config tree; they refer to a file to copy and to where it must not come to lie."""
    (folder / "source").write_text("here")
    own, places = folder / "own", {"source": folder / "source", "proof": folder / "proof"}
    for name, text in files.items():
        path = own / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text % places)
    return own


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sweep_with_such_a_file_is_refused(fed, tmp_path, monkeypatch, name):
    key, files, typed = HOSTILE[name]
    before = dict(os.environ)
    own = written(tmp_path, files)
    status, _, err = fed("-m", "--config-dir", str(own), *typed, "seed=0,1", *FAST)
    assert not (tmp_path / "proof").exists()
    assert status == 2, err
    assert f"{key}" in err, err
    assert dict(os.environ) == before
    assert not (tmp_path / "results").exists()


def test_what_a_sweep_draws_is_refused_in_the_job(fed, tmp_path):
    """Only the first of several values is composed before a sweeper that draws begins."""
    text = EXPERIMENT + f"defaults: [{{/algo@algo: fedavg}}]\nhydra: {{job_logging: {HANDLER}}}"
    own = written(tmp_path, {"algo/evil": text})
    status, _, err = fed(
        "-m", "--config-dir", str(own), "algo=fedavg,evil", "hydra.sweeper.max_batch_size=1", "seed=0", *FAST
    )
    assert not (tmp_path / "proof").exists()
    assert (status, "hydra.job_logging" in err) == (2, True)
    assert not (tmp_path / "results" / "sweeps").exists()


@pytest.mark.parametrize(
    "typed",
    [[], ["-m"], ["-m", "hydra/launcher=basic"]],
    ids=["a run", "a sweep", "a launcher"],
)
def test_tags_of_yaml_make_nothing(fed, tmp_path, typed):
    own = written(tmp_path, {"algo/evil": "_target_: !!python/object/apply:shutil.copyfile [%(source)s, %(proof)s]"})
    status, _, err = fed(*typed, "--config-dir", str(own), "algo=evil", *FAST)
    assert not (tmp_path / "proof").exists()
    assert (status, "is not valid YAML" in err) == (2, True), err


def test_a_single_run_refuses_what_a_sweep_refuses(fed, tmp_path):
    key, files, _ = HOSTILE["a callback"]
    own = written(tmp_path, files)
    status, _, err = fed("--config-dir", str(own), "experiment=evil", *FAST)
    assert (status, key in err, (tmp_path / "proof").exists()) == (2, True, False)


def test_a_searched_directory_says_no_more(fed, tmp_path):
    key, files, _ = HOSTILE["a callback"]
    own = written(tmp_path, files)
    typed = ["experiment=evil", f"hydra.searchpath=[file://{own}]"]
    status, _, err = fed("-m", *typed, "seed=0,1", *FAST)
    assert (status, key in err, (tmp_path / "proof").exists()) == (2, True, False)


@pytest.mark.parametrize("flag", ["-cp", "--config-path", "-cn", "--config-name"])
def test_there_is_no_other_tree_of_configs(fed, tmp_path, flag):
    own = written(tmp_path, {"config": "hydra: {}"})
    status, _, err = fed(flag, str(own), *FAST)
    assert (status, f"unknown flag {flag}" in err) == (2, True)


def test_a_launcher_of_ones_own_sets_sizes(fed, tmp_path):
    """And an experiment may choose it; what is typed stays the user's own."""
    mine = "defaults: [basic, _self_]\n"
    slurm = "defaults: [submitit_slurm, _self_]\ntimeout_min: 5\npartition: gpu,big\nconstraint: a100&nvlink\n"
    own = written(tmp_path, {"hydra/launcher/mine": mine, "hydra/launcher/ours": slurm,
                             "experiment/e": EXPERIMENT + "defaults: [{override /hydra/launcher: mine}]\n"
                                             "hydra: {sweeper: {max_batch_size: 1}}"})  # fmt: skip
    status, _, err = fed(
        "-m", "--config-dir", str(own), "experiment=e", "hydra.sweep.dir=there", "hydra.job.env_copy=[PATH]",
        "+hydra.job.env_set.A=b", "seed=0,1", *FAST,
    )  # fmt: skip
    assert status == 0, err
    assert len(list((tmp_path / "there" / "runs").iterdir())) == 2
    plan = sweep_plan(Composer(own), "config", ["hydra/launcher=ours", "hydra.launcher.setup=[module load cuda]"])
    assert not plan.basic


def test_a_function_for_hydra_is_trusted_by_the_environment(fed, tmp_path, monkeypatch):
    _, files, typed = HOSTILE["a callback"]
    own = written(tmp_path, files)
    monkeypatch.setenv("FEDBENCH_TRUST", "shutil")
    with pytest.warns(UserWarning, match="Callback"):  # a function is none, and has been called all the same
        status, _, err = fed("-m", "--config-dir", str(own), *typed, "seed=0,1", *FAST)
    assert (status, (tmp_path / "proof").read_text()) == (0, "here"), err


def test_a_trusted_function_gets_plain_arguments_only(fed, tmp_path, monkeypatch):
    inside = f"{{_target_: textwrap.dedent, text: {{y: {COPY}}}}}"
    own = written(tmp_path, {"experiment/evil": EXPERIMENT + f"hydra: {{callbacks: {{x: {inside}}}}}"})
    monkeypatch.setenv("FEDBENCH_TRUST", "textwrap,fedbench")
    status, _, err = fed("-m", "--config-dir", str(own), "experiment=evil", "hydra/launcher=basic", "seed=0,1", *FAST)
    assert (status, "hydra.callbacks.x.text.y._target_" in err, (tmp_path / "proof").exists()) == (2, True, False)


def test_a_plugin_in_the_directory_is_not_imported(tmp_path):
    """Hydra imports whatever a package hydra_plugins has; in a fresh process, since it looks once."""
    plugin = tmp_path / "own" / "hydra_plugins" / "mine"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text(f"open({str(tmp_path / 'proof')!r}, 'w')")
    command = [sys.executable, "-m", "fedbench", "-m", "--config-dir", "own", "hydra/launcher=basic", "seed=0,1", *FAST]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FEDBENCH_OFFLINE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, (tmp_path / "proof").exists()) == (0, False), done.stderr


def test_a_refused_sweep_removes_nothing_that_it_has_not_made(fed, tmp_path):
    """hydra.sweep.dir may be any directory of the user's."""
    kept = tmp_path / "mine" / "runs" / "notes.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")
    text = EXPERIMENT + f"defaults: [{{/algo@algo: fedavg}}]\nhydra: {{job_logging: {HANDLER}}}"
    own = written(tmp_path, {"algo/evil": text})
    typed = ["algo=fedavg,evil", "hydra.sweeper.max_batch_size=1", "hydra.sweep.dir=mine"]
    status, _, err = fed("-m", "--config-dir", str(own), *typed, "seed=0", *FAST)
    assert (status, "hydra.job_logging" in err) == (2, True), err
    assert list((tmp_path / "mine").rglob("*")) == [kept.parent, kept]

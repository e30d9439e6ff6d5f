"""Trackers get every evaluated round; none of them is needed for a complete run."""

import json
import sys
import types

import pytest

from fedbench.runs.trackers import Tracker, numbers

ROWS = [
    {"round": 0, "accuracy_mean": 0.25, "train_loss": 2.5, "improved_clients": None},
    {"round": 3, "accuracy_mean": 0.5, "train_loss": None, "improved_clients": 0.75},
]


def follow(tracker, path, status="done"):
    tracker.start(path, "a run", {"rounds": 3, "local": {"lr": 0.1}})
    for row in ROWS:
        tracker.log(row)
    tracker.finish(status)


def test_numbers_leaves_out_what_is_none():
    assert numbers(ROWS[1]) == {"accuracy_mean": 0.5, "improved_clients": 0.75}


def test_no_tracker_leaves_nothing(tmp_path):
    follow(Tracker(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_writes_events(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from fedbench.runs.trackers.tensorboard import TensorboardTracker

    follow(TensorboardTracker(), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("accuracy_mean")] == [(0, 0.25), (3, 0.5)]
    assert [e.step for e in events.Scalars("train_loss")] == [0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of wandb's own dependencies
def test_wandb_offline_goes_on_under_its_id(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    from fedbench.runs.trackers.wandb import WandbTracker

    follow(WandbTracker("fedbench"), tmp_path)
    first = (tmp_path / "wandb_id").read_text()
    folders = list((tmp_path / "wandb").glob("offline-run-*"))
    assert [f.name.rsplit("-", 1)[1] for f in folders] == [first]
    assert b"accuracy_mean" in next(folders[0].glob("*.wandb")).read_bytes()
    follow(WandbTracker("fedbench"), tmp_path, "diverged")
    assert (tmp_path / "wandb_id").read_text() == first


def test_mlflow_calls(tmp_path, monkeypatch):
    """A stand-in for the package records the calls; their form is that of MLflow's fluent interface."""
    calls = []
    names = ("set_experiment", "start_run", "log_dict", "log_metrics", "end_run")
    stand_in = types.ModuleType("mlflow")
    for name in names:
        setattr(stand_in, name, lambda *a, _name=name, **k: calls.append((_name, a, k)))
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    monkeypatch.delitem(sys.modules, "fedbench.runs.trackers.mlflow", raising=False)
    from fedbench.runs.trackers.mlflow import MlflowTracker

    follow(MlflowTracker("fedbench"), tmp_path, "failed")
    monkeypatch.delitem(sys.modules, "fedbench.runs.trackers.mlflow")
    assert calls == [
        ("set_experiment", ("fedbench",), {}),
        ("start_run", (), {"run_name": "a run"}),
        ("log_dict", ({"rounds": 3, "local": {"lr": 0.1}}, "config.json"), {}),
        ("log_metrics", ({"accuracy_mean": 0.25, "train_loss": 2.5},), {"step": 0}),
        ("log_metrics", ({"accuracy_mean": 0.5, "improved_clients": 0.75},), {"step": 3}),
        ("end_run", ("FAILED",), {}),
    ]


def test_a_tracker_changes_neither_the_place_nor_the_numbers(tmp_path, monkeypatch, capsys):
    from fedbench.cli import main

    monkeypatch.chdir(tmp_path)
    lines = []
    for options in ([], ["tracker=tensorboard", "force=true"]):
        assert main(["data.clients=5", "rounds=2", *options]) == 0
        path = tmp_path / capsys.readouterr().out.splitlines()[-1]
        lines.append((path, (path / "model.safetensors").read_bytes()))
    assert lines[0] == lines[1]
    assert (path / "tensorboard").is_dir()
    assert json.loads((path / "meta.json").read_text())["status"] == "done"


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch, capsys):
    from fedbench.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.delitem(sys.modules, "fedbench.runs.trackers.mlflow", raising=False)
    assert main(["data.clients=5", "rounds=1", "tracker=mlflow"]) == 2
    assert "mlflow, which is not installed; run: pip install 'fedbench-harness[mlflow]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

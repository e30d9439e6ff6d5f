"""Trackers get every evaluated round; none of them is needed for a complete run."""

import os
import sys
import time
from unittest.mock import Mock, call

import pytest
from command_line import FAST, meta_of, model_of

from fedbench.runs.trackers import Guarded, TensorboardTracker, Tracker, numbers

ROWS = [
    {"round": 0, "accuracy_mean": 0.25, "train_loss": 2.5, "improved_clients": None},
    {"round": 3, "accuracy_mean": 0.5, "train_loss": None, "improved_clients": 0.75},
]


def follow(tracker, path, config=None, status="done", rows=ROWS):
    """Have a tracker follow a run from its start to its end."""
    tracker.start(path, "a run", config or {})
    for row in rows:
        tracker.log(row)
    tracker.finish(status)


@pytest.fixture
def seed_0(tmp_path):
    path = tmp_path / "smoke" / "fedavg" / "0123456789" / "seed_0"
    path.mkdir(parents=True)
    return path


# ---- TensorBoard


def tensorboard_events(path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(path / "tensorboard")).Reload()


def tensorboard_curve(path, name):
    return [(e.step, e.value) for e in tensorboard_events(path).Scalars(name)]


def test_tensorboard_has_the_keys_of_a_run_as_hyperparameters(tmp_path):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    config = {"data_dir": "/here", "local": {"lr": 0.1, "epochs": [1, 3], "steps": None}}
    follow(TensorboardTracker(), tmp_path, config)
    written = {
        name.rpartition("/")[2]: HParamsPluginData.FromString(content)
        for name, content in tensorboard_events(tmp_path).PluginTagToContent("hparams").items()
    }
    keys = written["session_start_info"].session_start_info.hparams
    values = {name: value.number_value or value.string_value for name, value in keys.items()}
    assert values == {"local.lr": 0.1, "local.epochs": "[1,3]"}
    metrics = written["experiment"].experiment.metric_infos
    assert "accuracy/mean" in {m.name.tag for m in metrics}
    assert tensorboard_curve(tmp_path, "loss/train") == [(0, 2.5)]  # None is no value


def test_a_resumed_run_is_one_curve_in_tensorboard(tmp_path):
    """Rounds after the checkpoint are logged again; their later values count."""

    def rows(values):
        return [{"round": t, "accuracy_mean": value} for t, value in values.items()]

    follow(
        TensorboardTracker(),
        tmp_path,
        rows=rows({0: 0.25, 1: 0.5, 2: 0.125}),
    )
    # cut back to the checkpoint
    (tmp_path / "rounds.jsonl").write_text('{"round": 0}\n{"round": 1}\n')
    time.sleep(1.1)  # names of event files have seconds
    follow(
        TensorboardTracker(),
        tmp_path,
        rows=rows({2: 0.75, 3: 1.0}),
    )
    curve = [(0, 0.25), (1, 0.5), (2, 0.75), (3, 1.0)]
    assert tensorboard_curve(tmp_path, "accuracy/mean") == curve


# ---- Weights & Biases


@pytest.fixture
def wandb_tracker(monkeypatch, tmp_path):
    """The tracker in a home directory without a login, and without variables of wandb."""
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    for name in ("HOME", "XDG_CONFIG_HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    import wandb

    from fedbench.runs.trackers import WandbTracker

    monkeypatch.setattr(wandb, "init", Mock(wraps=wandb.init))
    return WandbTracker("fedbench")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of wandb's own dependencies
def test_wandb_without_a_login_writes_files(wandb_tracker, seed_0, capsys):
    import wandb

    wandb_tracker.start(seed_0, "a run", {"rounds": 3})
    wandb_tracker._run = run = Mock(wraps=wandb_tracker._run)
    for row in ROWS:
        wandb_tracker.log(row)
    wandb_tracker.finish("done")
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("fedbench")]
    message = f"no login for wandb; `wandb sync {seed_0 / 'wandb'}/*` sends the run"
    assert lines == [f"fedbench: {message}"]
    options = {
        "id": (seed_0 / "wandb_id").read_text(),
        "project": "fedbench",
        "name": "a run",
        "group": "smoke/fedavg/0123456789",
        "config": {"rounds": 3},
    }
    assert wandb.init.call_args.kwargs.items() >= options.items()
    assert run.log.call_args_list == [call(numbers(row), step=row["round"]) for row in ROWS]
    run.finish.assert_called_once_with(exit_code=0)
    (folder,) = (seed_0 / "wandb").glob(f"offline-run-*-{options['id']}")
    assert list(folder.glob("*.wandb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wandb_continues_under_its_id_and_a_run_that_is_trained_anew_has_another(
    wandb_tracker, tmp_path
):
    ids = []
    for config in ({}, {}, {"force": True}):
        follow(wandb_tracker, tmp_path, config)
        ids.append((tmp_path / "wandb_id").read_text())
    assert ids[0] == ids[1] != ids[2]


# ---- MLflow


@pytest.mark.filterwarnings("ignore")  # of MLflow's own dependencies
def test_mlflow_has_parameters_and_a_resumed_run_stays_one(seed_0, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    from fedbench.runs.trackers import MlflowTracker

    client = mlflow.tracking.MlflowClient()
    config = {
        "rounds": 3,
        "force": False,
        "local": {"lr": 0.1, "steps": None},
    }
    for status, state, rows in (
        ("interrupted", "KILLED", ROWS[:1]),
        ("done", "FINISHED", ROWS[1:]),
    ):
        follow(MlflowTracker("fedbench"), seed_0, config, status, rows)
        run = client.get_run((seed_0 / "mlflow_id").read_text())
        assert run.info.status == state
    assert run.data.params == {
        "rounds": "3",
        "force": "false",
        "local.lr": "0.1",
        "local.steps": "null",
    }
    assert run.data.tags["setting"] == "smoke/fedavg/0123456789"
    curve = client.get_metric_history(run.info.run_id, "accuracy_mean")
    assert [(m.step, m.value) for m in curve] == [(0, 0.25), (3, 0.5)]
    assert len(client.search_runs([run.info.experiment_id])) == 1


# ---- any tracker


class Failing(Tracker):
    """Fails in one of its methods, and lists the calls that it gets."""

    def __init__(self, at):
        self.at = at
        self.calls = []

    def called(self, name):
        self.calls.append(name)
        if name == self.at:
            raise ConnectionError("no\nnetwork")

    def start(self, path, name, config):
        self.called("start")

    def log(self, row):
        self.called("log")

    def finish(self, status):
        self.called("finish")


@pytest.mark.parametrize(
    ("at", "calls"),
    [
        ("start", ["start"]),
        ("log", ["start", "log"]),
        ("finish", ["start", "log", "log", "finish"]),
    ],
)
def test_a_tracker_that_fails_stops_nothing_and_says_so_once(at, calls, tmp_path, capsys):
    tracker = Failing(at)
    guarded = Guarded(tracker)
    guarded.call("start", tmp_path, "a run", {})
    for row in ROWS:
        guarded.call("log", row)
    guarded.call("finish", "done")
    assert tracker.calls == calls
    message = "Failing failed, the run continues without it: ConnectionError: no network"
    assert capsys.readouterr().err == f"fedbench: {message}\n"


def test_a_tracker_changes_neither_the_place_nor_the_numbers(train):
    plain = train(*FAST)
    model = model_of(plain)
    path = train(*FAST, "tracker=tensorboard", "force=true")
    assert path == plain
    assert model_of(path) == model
    assert (path / "tensorboard").is_dir()
    assert meta_of(path)["status"] == "done"


def test_a_package_that_is_missing_is_named(refuse, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    message = "mlflow, which is not installed; run: pip install 'fedbench-harness[mlflow]'"
    assert message in refuse(*FAST, "tracker=mlflow")
    assert list(tmp_path.iterdir()) == []

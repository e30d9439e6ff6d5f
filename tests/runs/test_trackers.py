"""Trackers get every evaluated round; none of them is needed for a complete run."""

import json
import os
import sys
import time

import pytest

from fedbench.runs.trackers import Guarded, TensorboardTracker, Tracker, numbers, tag

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


def test_tensorboard_writes_events(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    follow(TensorboardTracker(), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("accuracy/mean")] == [(0, 0.25), (3, 0.5)]
    assert [e.step for e in events.Scalars("loss/train")] == [0]


def test_tensorboard_has_the_keys_of_a_run_as_hyperparameters(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    tracker = TensorboardTracker()
    local = {"lr": 0.1, "epochs": [1, 3], "nesterov": False, "steps": None}
    tracker.start(
        tmp_path,
        "a run",
        {"rounds": 3, "data_dir": "/here", "local": local, "algo": {"_target_": "a.b"}},
    )
    tracker.finish("done")
    written = EventAccumulator(str(tmp_path / "tensorboard")).Reload().PluginTagToContent("hparams")
    start = HParamsPluginData.FromString(
        written["_hparams_/session_start_info"]
    ).session_start_info.hparams
    assert {k: v.number_value or v.string_value or v.bool_value for k, v in start.items()} == {
        "rounds": 3, "local.lr": 0.1, "local.epochs": "[1,3]", "local.nesterov": False, "algo._target_": "a.b",
    }  # fmt: skip
    experiment = HParamsPluginData.FromString(written["_hparams_/experiment"]).experiment
    assert "accuracy/mean" in {m.name.tag for m in experiment.metric_infos}


def test_charts_in_tensorboard_are_in_groups():
    keys = ("accuracy_mean_weighted", "train_loss", "val_loss", "bytes_up", "clients")
    assert [tag(key) for key in keys] == [
        "accuracy/mean_weighted",
        "loss/train",
        "loss/val",
        "bytes/up",
        "clients",
    ]


def wandb_records(folder):
    """The records of a run that wandb has written offline: protobuf messages in LevelDB's log format.

    A file is a header of 7 bytes and blocks of 32768 bytes; a piece of a record has a header of 7
    bytes (checksum, length, kind), where kinds 1 and 4 end a record, and what is left of a block
    below 7 bytes is empty.
    """
    # wandb's process may write the last records after the run has finished
    deadline = time.monotonic() + 60
    while "exit" not in {r.WhichOneof("record_type") for r in written_records(folder)}:
        assert time.monotonic() < deadline, "wandb has not written the end of the run"
        time.sleep(0.05)
    return written_records(folder)


def written_records(folder):
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("*.wandb")
    content, at, record, found = file.read_bytes(), 7, b"", []
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            found.append(Record.FromString(record))
            record = b""
    return found


def wandb_history(records):
    """The logged rows: step and numbers."""
    rows = []
    for r in records:
        if r.WhichOneof("record_type") == "history":
            items = {
                "/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in r.history.item
            }
            rows.append(
                (r.history.step.num, {k: v for k, v in items.items() if not k.startswith("_")})
            )
    return rows


def wandb_folders(path):
    return sorted((path / "wandb").glob("offline-run-*"))


@pytest.fixture
def wandb_tracker(monkeypatch, tmp_path):
    """The tracker in a home directory without a login; no variable says that it shall be offline."""
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "home" / "netrc"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    from fedbench.runs.trackers import WandbTracker

    return WandbTracker


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of wandb's own dependencies
def test_wandb_without_a_login_writes_files(wandb_tracker, tmp_path, capsys):
    path = tmp_path / "smoke" / "fedavg" / "0123456789" / "seed_0"
    path.mkdir(parents=True)
    follow(wandb_tracker("fedbench"), path)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedbench")]
    assert said == [f"fedbench: no login for wandb; `wandb sync {path / 'wandb'}/*` sends the run"]
    (folder,) = wandb_folders(path)
    records = wandb_records(folder)
    assert wandb_history(records) == [(row["round"], numbers(row)) for row in ROWS]
    (begun,) = [r.run for r in records if r.WhichOneof("record_type") == "run"]
    assert begun.run_id == (path / "wandb_id").read_text()
    assert begun.project == "fedbench"
    assert begun.display_name == "a run"
    assert begun.run_group == "smoke/fedavg/0123456789"
    assert {c.key: json.loads(c.value_json) for c in begun.config.update}["local"] == {"lr": 0.1}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wandb_goes_on_under_its_id_and_a_run_that_is_trained_anew_has_another(
    wandb_tracker, tmp_path
):
    follow(wandb_tracker("fedbench"), tmp_path)
    first = (tmp_path / "wandb_id").read_text()
    follow(wandb_tracker("fedbench"), tmp_path, "diverged")
    assert (tmp_path / "wandb_id").read_text() == first
    # a number follows within one second
    assert {f.name.split("-")[3] for f in wandb_folders(tmp_path)} == {first}
    tracker = wandb_tracker("fedbench")
    tracker.start(tmp_path, "a run", {"force": True})
    tracker.finish("done")
    assert (tmp_path / "wandb_id").read_text() != first


def test_a_resumed_run_is_one_curve_in_tensorboard(tmp_path):
    """What was logged after the checkpoint is logged again, and counts once, with the later value."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def log(rounds):
        tracker = TensorboardTracker()
        tracker.start(tmp_path, "a run", {})
        for number, value in rounds:
            tracker.log({"round": number, "accuracy_mean": value})
        tracker.finish("interrupted")

    log([(0, 0.25), (1, 0.5), (2, 0.125)])
    # cut back to the checkpoint
    (tmp_path / "rounds.jsonl").write_text('{"round": 0}\n{"round": 1}\n')
    time.sleep(1.1)  # names of event files have seconds
    log([(2, 0.75), (3, 1.0)])
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("accuracy/mean")
    assert [(e.step, e.value) for e in events] == [(0, 0.25), (1, 0.5), (2, 0.75), (3, 1.0)]


def mlflow_run(path):
    import mlflow

    return mlflow.tracking.MlflowClient().get_run((path / "mlflow_id").read_text())


@pytest.mark.filterwarnings("ignore")  # of MLflow's own dependencies
def test_mlflow_has_parameters_and_a_resumed_run_stays_one(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    from fedbench.runs.trackers import MlflowTracker

    path = tmp_path / "smoke" / "fedavg" / "0123456789" / "seed_0"
    path.mkdir(parents=True)
    config = {"rounds": 3, "force": False, "local": {"lr": 0.1, "steps": None}}
    for status, rows in (("interrupted", ROWS[:1]), ("done", ROWS[1:])):
        tracker = MlflowTracker("fedbench")
        tracker.start(path, "a run", config)
        for row in rows:
            tracker.log(row)
        tracker.finish(status)
        assert mlflow_run(path).info.status == {"interrupted": "KILLED", "done": "FINISHED"}[status]
    client = mlflow.tracking.MlflowClient()
    found = mlflow_run(path)
    assert found.data.params == {
        "rounds": "3",
        "force": "false",
        "local.lr": "0.1",
        "local.steps": "null",
    }
    assert found.data.tags["setting"] == "smoke/fedavg/0123456789"
    curve = client.get_metric_history(found.info.run_id, "accuracy_mean")
    assert [(m.step, m.value) for m in curve] == [(0, 0.25), (3, 0.5)]
    assert len(client.search_runs([found.info.experiment_id])) == 1


class Failing(Tracker):
    """Fails where it is told to, and counts what it gets."""

    def __init__(self, at):
        self.at, self.got = at, []

    def _get(self, what):
        self.got.append(what)
        if what == self.at:
            raise ConnectionError("no\nnetwork")

    def start(self, path, name, config):
        self._get("start")

    def log(self, row):
        self._get("log")

    def finish(self, status):
        self._get("finish")


@pytest.mark.parametrize(
    ("at", "got"),
    [
        ("start", ["start"]),
        ("log", ["start", "log"]),
        ("finish", ["start", "log", "log", "finish"]),
    ],
)
def test_a_tracker_that_fails_stops_nothing_and_says_so_once(at, got, tmp_path, capsys):
    tracker = Failing(at)
    guarded = Guarded(tracker)
    guarded.call("start", tmp_path, "a run", {})
    for row in ROWS:
        guarded.call("log", row)
    guarded.call("finish", "done")
    assert tracker.got == got
    assert capsys.readouterr().err == (
        "fedbench: Failing failed, the run continues without it: ConnectionError: no network\n"
    )
    assert list(tmp_path.iterdir()) == []


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
    assert main(["data.clients=5", "rounds=1", "tracker=mlflow"]) == 2
    assert (
        "mlflow, which is not installed; run: pip install 'fedbench-harness[mlflow]'"
        in capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == []

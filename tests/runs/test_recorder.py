"""The files of a run: they are read as they were written, damage is found, none is half written."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from command_line import FAST, meta_of
from fake_runs import seal

from fedbench.config.user_sources import user_code_from
from fedbench.core.atomic_files import NotWritten
from fedbench.runs.environment import commit, environment
from fedbench.runs.recorder import Recorder
from fedbench.runs.results import Results
from fedbench.runs.run import DamagedRun, read_run

META = {
    "status": "done",
    "algo": "fedavg",
    "hash": "abc",
    "seed": 0,
    "data": "d",
    "model": "m",
    "experiment": None,
    "rounds": 1,
}


def write(path):
    """Record the first round of a run of one round, and a checkpoint of it."""
    recorder = Recorder(path)
    recorder.begin({"rounds": 1}, META | {"status": "running"})
    recorder.append({"round": 0, "accuracy_mean": 0.25})
    recorder.keep_clients(0, {"client": [0], "accuracy": [0.25]})
    recorder.save(
        {"w": torch.arange(3.0)},
        {"round": 0},
    )
    return recorder


def finish(recorder, meta=META):
    recorder.append({"round": 1, "accuracy_mean": 0.5})
    w = torch.zeros(2, 3)
    # tensors that share their memory
    models = {
        "model": {"a": w[0], "b": w[1]},
        "personal": {"w": w.T},
    }
    recorder.finish(models, {}, dict(meta))
    shutil.rmtree(recorder.checkpoint)


def parts(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


CHECKPOINT = ["clients_000000000.parquet", "manifest.json", "round_000000000.safetensors"]


def test_a_checkpoint_is_read_as_it_was_written_and_the_files_are_cut_back(tmp_path):
    recorder = write(tmp_path)
    recorder.append({"round": 1, "accuracy_mean": 0.5})  # after the checkpoint
    with recorder.rounds.open("a") as file:
        file.write('{"rou')  # the disk was full
    recorder.keep_clients(1, {"client": [0], "accuracy": [0.5]})
    tensors, progress = Recorder(tmp_path).load()
    assert torch.equal(tensors["w"], torch.arange(3.0))
    assert progress == {"round": 0}
    assert json.loads(recorder.rounds.read_text())["round"] == 0
    assert [p.name for p in parts(recorder.checkpoint)] == CHECKPOINT


def flip(content):
    return content[:-2] + bytes(
        [
            content[-2] ^ 1,
            content[-1],
        ]
    )


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
@pytest.mark.parametrize("name", [*CHECKPOINT, "rounds.jsonl"])
def test_damage_to_any_part_of_a_checkpoint_is_found(tmp_path, name, damage):
    write(tmp_path)
    (path,) = tmp_path.rglob(name)
    content = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(flip(content) if damage == "flip" else content[:-2])
    if name == "manifest.json" and damage == "remove":
        assert Recorder(tmp_path).load() is None  # it was never written
    else:
        with pytest.raises(DamagedRun, match=name):
            Recorder(tmp_path).load()
    path.write_bytes(content)
    assert Recorder(tmp_path).load() is not None


def test_the_previous_checkpoint_counts_until_the_next_one_is_whole(tmp_path, monkeypatch):
    recorder = write(tmp_path)
    recorder.append({"round": 1, "accuracy_mean": 0.5})

    def full(tensors, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedbench.runs.recorder.save_tensors", full)
        with pytest.raises(NotWritten):
            recorder.save(
                {"w": torch.zeros(3)},
                {"round": 1},
            )
    assert Recorder(tmp_path).load()[1] == {"round": 0}
    recorder.save(
        {"w": torch.zeros(3)},
        {"round": 1},
    )
    names = [p.name for p in parts(recorder.checkpoint)]
    assert names == [*CHECKPOINT[:2], "round_000000001.safetensors"]


def test_a_checkpoint_stays_if_its_files_cannot_be_cut_back(tmp_path, monkeypatch):
    """It is whole: starting over would lose it."""
    write(tmp_path)
    real = Path.open

    def refuse(self, mode="r", **options):
        if "a" in mode:
            raise OSError(30, "Read-only file system")
        return real(self, mode, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(
            NotWritten, match="rounds.jsonl cannot be written: Read-only file system"
        ):
            Recorder(tmp_path).load()
    assert Recorder(tmp_path).load()[1] == {"round": 0}


def test_all_parts_are_on_the_disk_before_what_lets_them_count(tmp_path, file_calls):
    """Every file and directory is synchronised before the last name is given."""
    path = tmp_path / "run"
    recorder = write(path)
    before = file_calls[: file_calls.index("-> manifest.json")]
    last = before.index("-> clients_000000000.parquet")
    assert {*CHECKPOINT, "rounds.jsonl"} <= set(before[last + 1 :])
    assert file_calls[-1] == "checkpoint"
    file_calls.clear()
    finish(recorder)
    before = file_calls[: file_calls.index("-> DONE")]
    last = before.index("-> meta.json")
    # DONE among them
    assert set(before[last + 1 :]) == {p.name for p in path.iterdir()}
    assert file_calls[-1] == "run"


FINISHED = [
    "clients.parquet",
    "config.yaml",
    "meta.json",
    "model.safetensors",
    "personal.safetensors",
    "rounds.jsonl",
]


def test_damage_to_any_file_of_a_finished_run_is_found(tmp_path):
    finish(write(tmp_path))
    run = read_run(tmp_path)
    run.verify()
    assert [p.name for p in parts(tmp_path)] == ["DONE", *FINISHED]
    for name in FINISHED:
        path = tmp_path / name
        content = path.read_bytes()
        for change in (content[:-1], flip(content), b""):
            path.write_bytes(change)
            with pytest.raises(DamagedRun, match=name):
                run.verify()
        path.write_bytes(content)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "",
        lambda text: text.replace("sha256", "sha257", 1),
    ],
)
def test_damage_to_the_mark_of_a_finished_run_is_found(tmp_path, change):
    finish(write(tmp_path))
    run = read_run(tmp_path)
    mark = tmp_path / "DONE"
    mark.write_text(change(mark.read_text()))
    for read in (run.verify, run.rounds, lambda: read_run(tmp_path)):
        with pytest.raises(DamagedRun, match="DONE has changed since it was written"):
            read()


# a file, its content and the fault
UNREADABLE = r"""
- [rounds.jsonl, "{\"round\": 0}\n", "rounds.jsonl: it ends with round 0, and the run with round 1"]
- [rounds.jsonl, "{\"round\": 0}\n{\"round\": 1", "rounds.jsonl: it ends with round 0, and the run"]
- [rounds.jsonl, "", "rounds.jsonl: it has no round"]
- [rounds.jsonl, null, "rounds.jsonl: No such file or directory"]
- [clients.parquet, text, "clients.parquet: "]
- [config.yaml, "rounds: [", while parsing]
- [config.yaml, "seed: 0", "config.yaml: rounds is missing"]
- [meta.json, torn, Expecting value]
- [meta.json, '{"status": "done"}', "meta.json: experiment is missing"]
- [meta.json, "[]", "meta.json: status is missing"]
"""


@pytest.mark.parametrize(("name", "content", "fault"), yaml.safe_load(UNREADABLE))
def test_a_run_that_cannot_be_read_is_left_out_with_its_path_and_the_fault(
    tmp_path, name, content, fault
):
    path = tmp_path / "a" / "seed_0"
    finish(write(path))
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content)
        seal(path)  # damaged before it was sealed, or by somebody who knows how
    store = Results(tmp_path)
    assert not list(store)
    (message,) = store.damaged
    assert message.startswith("a/seed_0: ")
    assert message.endswith("; force=true trains it again")
    assert fault in message


def test_a_copy_of_a_run_does_not_count_twice(tmp_path):
    finish(write(tmp_path / "a" / "seed_0"))
    shutil.copytree(tmp_path / "a" / "seed_0", tmp_path / "b")
    store = Results(tmp_path)
    assert [run.path for run in store] == [tmp_path / "a" / "seed_0"]
    assert store.damaged == ["b: a copy of a/seed_0: the same setting and the same seed"]
    finish(write(tmp_path / "c"), META | {"seed": 1})
    assert len(list(store)) == 2


def test_seeds_of_a_setting_have_their_own_seed(tmp_path):
    config = {
        "rounds": 1,
        "local": {"lr": 0.1},
        "data": {"seed": 3},
    }
    for seed in (0, 7):
        path = tmp_path / str(seed)
        finish(write(path), META | {"seed": seed})
        (path / "config.yaml").write_text(yaml.safe_dump(config | {"seed": seed}))
        seal(path)
    for seed in (0, 7):
        assert read_run(tmp_path / str(seed)).config == config | {"seed": seed}


def test_a_run_whose_last_files_cannot_be_written_has_failed(fed, train, tmp_path, monkeypatch):
    def full(self, *_, **__):
        raise NotWritten(self.path, OSError(28, "No space left on device"))

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "finish", full)
        assert fed(*FAST)[0] == 1
    (meta,) = tmp_path.rglob("meta.json")
    facts = meta_of(meta.parent)
    assert facts["status"] == "failed"
    assert "No space left" in facts["error"]
    assert train(*FAST) == meta.parent


def test_the_commits_are_those_of_fedbench_and_of_the_users_own_code(tmp_path):
    """Untracked files are no change of fedbench, but may be a method of the user's own."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "mine").mkdir()
    with user_code_from(tmp_path / "mine"):
        assert "own_commit" not in environment(torch.device("cpu"))
    for words in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run([*git, *words], check=True)
    commit.cache_clear()
    head = subprocess.check_output(
        [*git, "rev-parse", "HEAD"],
        text=True,
    ).strip()
    with user_code_from(tmp_path / "mine"):
        assert environment(torch.device("cpu"))["own_commit"] == head
    (tmp_path / "mine" / "method.py").write_text("")
    assert commit(tmp_path, "no") == (head, False)
    assert commit(tmp_path, "all") == (head, True)
    assert "own_commit" not in environment(torch.device("cpu"))

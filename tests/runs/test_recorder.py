"""The files of a run: what was written is what is read, damage is found, and half of a file is never left."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from command_line import FAST, run_dir
from fake_runs import seal

from fedbench.config.user_sources import user_code_from
from fedbench.core.atomic_files import NotWritten
from fedbench.runs import training
from fedbench.runs.environment import commit, environment
from fedbench.runs.recorder import Recorder
from fedbench.runs.results import Results
from fedbench.runs.run import DamagedRun, read_run

META = {
    "status": "done", "algo": "fedavg", "hash": "abc", "seed": 0, "data": "d", "model": "m", "experiment": None,
    "rounds": 1,
}  # fmt: skip


def write(path, meta=META):
    """A finished run of one round, with a checkpoint of round 0 before."""
    recorder = Recorder(path)
    recorder.begin({"rounds": 1}, meta | {"status": "running"})
    recorder.append({"round": 0, "accuracy_mean": 0.25})
    recorder.keep_clients(0, {"client": [0], "accuracy": [0.25]})
    recorder.save({"w": torch.arange(3.0)}, {"round": 0})
    return recorder


def finish(recorder, meta=META):
    recorder.append({"round": 1, "accuracy_mean": 0.5})
    w = torch.zeros(2, 3)
    recorder.finish(
        {"model": {"a": w[0], "b": w[1]}, "personal": {"w": w.T}}, {}, dict(meta)
    )  # which share their memory
    shutil.rmtree(recorder.folder)


def parts(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def test_a_checkpoint_is_read_as_it_was_written_and_the_files_are_cut_back(tmp_path):
    recorder = write(tmp_path)
    recorder.append({"round": 1, "accuracy_mean": 0.5})  # after the checkpoint
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write('{"rou')  # the disk was full
    recorder.keep_clients(1, {"client": [0], "accuracy": [0.5]})
    tensors, progress = Recorder(tmp_path).load()
    assert torch.equal(tensors["w"], torch.arange(3.0))
    assert progress == {"round": 0}
    assert [
        json.loads(line)["round"] for line in (tmp_path / "rounds.jsonl").read_text().splitlines()
    ] == [0]
    assert [p.name for p in recorder.folder.glob("clients_*")] == ["clients_000000000.parquet"]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_to_any_part_of_a_checkpoint_is_found(tmp_path, damage):
    write(tmp_path)
    found = [*parts(tmp_path / "checkpoint"), tmp_path / "rounds.jsonl"]
    assert [p.name for p in found] == [
        "clients_000000000.parquet", "manifest.json", "round_000000000.safetensors", "rounds.jsonl",
    ]  # fmt: skip
    for path in found:
        content = path.read_bytes()
        if damage == "remove":
            path.unlink()
        else:
            path.write_bytes(
                content[:-2] + (bytes([content[-2] ^ 1, content[-1]]) if damage == "flip" else b"")
            )
        if (path.name, damage) == ("manifest.json", "remove"):
            assert Recorder(tmp_path).load() is None  # it was never written
        else:
            with pytest.raises(DamagedRun, match=path.name):
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
            recorder.save({"w": torch.zeros(3)}, {"round": 1})
    assert Recorder(tmp_path).load()[1] == {"round": 0}
    recorder.save({"w": torch.zeros(3)}, {"round": 1})
    assert {p.name for p in parts(tmp_path / "checkpoint")} == {
        "clients_000000000.parquet", "manifest.json", "round_000000001.safetensors",
    }  # fmt: skip


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


def test_all_parts_are_on_the_disk_before_what_lets_them_count(tmp_path, monkeypatch):
    """In the sense of fsync: the file or directory itself, after it was written and before the last name is given."""
    calls, fsync, replace = [], os.fsync, Path.replace

    def synchronised(handle):
        path = Path(f"/proc/self/fd/{handle}").readlink()
        calls.append(path.name.removesuffix(".part"))
        fsync(handle)

    def renamed(self, target):
        calls.append(f"-> {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synchronised)
    monkeypatch.setattr(Path, "replace", renamed)
    recorder = write(tmp_path / "run")
    before = calls[: calls.index("-> manifest.json")]
    assert {
        "round_000000000.safetensors",
        "clients_000000000.parquet",
        "rounds.jsonl",
        "manifest.json",
    } <= {*before[before.index("-> clients_000000000.parquet") + 1 :]}
    assert calls[-1] == "checkpoint"
    calls.clear()
    finish(recorder)
    before = calls[: calls.index("-> DONE")]
    last = before.index("-> meta.json")
    # DONE among them
    assert {*before[last + 1 :]} == {p.name for p in (tmp_path / "run").iterdir()}
    assert calls[-1] == "run"


def test_damage_to_any_file_of_a_finished_run_is_found(tmp_path):
    finish(write(tmp_path))
    run = read_run(tmp_path)
    run.verify()
    names = [p.name for p in parts(tmp_path) if p.name != "DONE"]
    assert names == [
        "clients.parquet", "config.yaml", "meta.json", "model.safetensors", "personal.safetensors", "rounds.jsonl",
    ]  # fmt: skip
    for name in names:
        path = tmp_path / name
        content = path.read_bytes()
        for change in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b""):
            path.write_bytes(change)
            with pytest.raises(DamagedRun, match=name):
                run.verify()
        path.write_bytes(content)
    for change in ("", "{}", (tmp_path / "DONE").read_text().replace("sha256", "sha257", 1)):
        (tmp_path / "DONE").write_text(change)
        for read in (run.verify, run.rounds, lambda: read_run(tmp_path)):
            with pytest.raises(DamagedRun, match="DONE has changed since it was written"):
                read()


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        (
            "rounds.jsonl",
            '{"round": 0}\n',
            "rounds.jsonl: it ends with round 0, and the run with round 1",
        ),
        (
            "rounds.jsonl",
            '{"round": 0}\n{"round": 1',
            "rounds.jsonl: it ends with round 0, and the run with round 1",
        ),
        ("rounds.jsonl", "", "rounds.jsonl: it has no round"),
        ("rounds.jsonl", None, "rounds.jsonl: No such file or directory"),
        ("clients.parquet", "text", "clients.parquet: "),
        ("config.yaml", "rounds: [", "while parsing"),
        ("config.yaml", "seed: 0", "config.yaml: rounds is missing"),
        ("meta.json", "torn", "Expecting value"),
        ("meta.json", json.dumps({"status": "done"}), "meta.json: experiment is missing"),
        ("meta.json", "[]", "meta.json: status is missing"),
    ],
)
def test_a_run_that_cannot_be_read_is_left_out_with_its_path_and_the_fault(
    tmp_path, name, content, fault
):
    finish(write(tmp_path / "a" / "seed_0"))
    path = tmp_path / "a" / "seed_0" / name
    path.unlink() if content is None else path.write_text(content)
    if content is not None:
        seal(path.parent)  # damaged before it was sealed, or by somebody who knows how
    store = Results(tmp_path)
    assert not list(store)
    (why,) = store.damaged
    assert why.startswith("a/seed_0: ")
    assert why.endswith("; force=true trains it again")
    assert fault in why


def test_a_copy_of_a_run_does_not_count_twice(tmp_path):
    finish(write(tmp_path / "a" / "seed_0"))
    shutil.copytree(tmp_path / "a" / "seed_0", tmp_path / "b")
    store = Results(tmp_path)
    assert [run.path for run in store] == [tmp_path / "a" / "seed_0"]
    assert store.damaged == ["b: a copy of a/seed_0: the same setting and the same seed"]
    finish(write(tmp_path / "c"), META | {"seed": 1})
    assert len(list(store)) == 2


def test_seeds_of_a_setting_have_their_own_seed(tmp_path):
    for seed in (0, 7):
        finish(write(tmp_path / str(seed)), META | {"seed": seed})
        text = f"rounds: 1\nlocal:\n  lr: 0.1\nseed: {seed}\ndata:\n  seed: 3\n"
        (tmp_path / str(seed) / "config.yaml").write_text(text)
        seal(tmp_path / str(seed))
    one, other = (read_run(tmp_path / str(seed)).config for seed in (0, 7))
    assert other == {"rounds": 1, "local": {"lr": 0.1}, "seed": 7, "data": {"seed": 3}}
    assert one["seed"] == 0
    assert other["seed"] == 7


def test_a_full_disk_ends_a_run_with_one_line_and_it_resumes_later(fed, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_CHECKPOINT_EVERY", 0)
    _, out, _ = fed(*FAST, "results_dir=whole")
    whole = (run_dir(tmp_path, out) / "model.safetensors").read_bytes()
    real = Recorder.save

    def full(self, tensors, progress):
        if progress["round"] == 2:
            raise NotWritten(self.folder, OSError(28, "No space left on device"))
        real(self, tensors, progress)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "save", full)
        status, _, err = fed(*FAST)
    (path,) = (tmp_path / "results").rglob("meta.json")
    begun, error = err.splitlines()
    assert status == 1
    assert "evaluating the initial model" in begun
    assert (
        f"{path.parent.relative_to(tmp_path)}/checkpoint cannot be written: No space left on device; free"
        in error
    )
    assert json.loads(path.read_text())["status"] == "failed"
    status, out, _ = fed(*FAST)
    assert status == 0
    assert (run_dir(tmp_path, out) / "model.safetensors").read_bytes() == whole


def test_a_run_whose_last_files_cannot_be_written_has_failed(fed, tmp_path, monkeypatch):
    def full(self, *_, **__):
        raise NotWritten(self.path, OSError(28, "No space left on device"))

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "finish", full)
        assert fed(*FAST)[0] == 1
    (path,) = (tmp_path / "results").rglob("meta.json")
    facts = json.loads(path.read_text())
    assert facts["status"] == "failed"
    assert "No space left" in facts["error"]
    status, out, _ = fed(*FAST)
    assert status == 0
    assert run_dir(tmp_path, out) == path.parent


def test_the_commits_are_those_of_fedbench_and_of_the_users_own_code(tmp_path):
    """Untracked files are no change of fedbench, but may be a method of the user's own."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "mine").mkdir()
    with user_code_from(tmp_path / "mine"):
        assert "own_commit" not in environment(torch.device("cpu"))
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit.cache_clear()
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    with user_code_from(tmp_path / "mine"):
        assert environment(torch.device("cpu"))["own_commit"] == head
    (tmp_path / "mine" / "method.py").write_text("")
    assert commit(tmp_path, "no") == (head, False)
    assert commit(tmp_path, "all") == (head, True)
    assert "own_commit" not in environment(torch.device("cpu"))

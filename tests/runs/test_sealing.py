"""What was written is what is read: every part of a checkpoint and of a finished run has a checksum."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from fedbench.core.sealing import GrowingFile, from_text, seal, to_text
from fedbench.core.writing import NotWritten
from fedbench.runs.checkpoints import Checkpoint
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
    recorder.write_config({"rounds": 1})
    recorder.append({"round": 0, "accuracy_mean": 0.25})
    recorder.keep_clients(0, {"client": [0], "accuracy": [0.25]})
    big = path / "c.bin"
    big.write_bytes(b"0123")
    recorder.save(Checkpoint({"w": torch.arange(3.0)}, {"round": 0}, {"c": big}))
    big.unlink()
    recorder.close()  # the next line opens rounds.jsonl again
    return recorder


def finish(recorder, meta=META):
    recorder.append({"round": 1, "accuracy_mean": 0.5})
    recorder.finish({"w": torch.ones(3)}, {"w": torch.zeros(2, 3)}, dict(meta))


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def parts(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    recorder = write(tmp_path)
    recorder.append({"round": 1, "accuracy_mean": 0.5})  # after the checkpoint
    recorder.close()
    found = Recorder(tmp_path).load()
    assert torch.equal(found.tensors["w"], torch.arange(3.0))
    assert found.progress == {"round": 0}
    assert found.files["c"].read_bytes() == b"0123"
    assert [json.loads(line)["round"] for line in (tmp_path / "rounds.jsonl").read_text().splitlines()] == [0]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_to_any_part_of_a_checkpoint_is_found(tmp_path, part, damage):
    write(tmp_path)
    found = [*parts(tmp_path / "checkpoint"), tmp_path / "rounds.jsonl"]
    assert [p.name for p in found] == [
        "clients_000000000.parquet", "c.bin", "manifest.json", "state_000000000.safetensors", "rounds.jsonl",
    ]  # fmt: skip
    path = [p for p in found if p.name != "manifest.json"][part]
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), max(1, len(content) // 8)) if damage == "flip" else (0,):
        if damage == "flip":
            flip(path, bit)
        elif damage == "cut":
            path.write_bytes(content[:-1])
        else:
            path.unlink()
        with pytest.raises(DamagedRun, match=path.name):
            Recorder(tmp_path).load()
        path.write_bytes(content)
    assert Recorder(tmp_path).load() is not None


def test_damage_to_the_manifest_is_found(tmp_path):
    write(tmp_path)
    path = tmp_path / "checkpoint" / "manifest.json"
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flip(path, bit)
        with pytest.raises(DamagedRun, match=r"manifest.json: "):
            Recorder(tmp_path).load()
        path.write_bytes(content)


def test_a_checkpoint_of_an_earlier_version_is_named(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "state.safetensors").touch()
    with pytest.raises(DamagedRun, match="earlier version"):
        Recorder(tmp_path).load()


def test_the_previous_checkpoint_counts_until_the_next_one_is_whole(tmp_path):
    recorder = write(tmp_path)
    recorder.append({"round": 1, "accuracy_mean": 0.5})
    recorder.close()
    missing = Checkpoint({"w": torch.zeros(3)}, {"round": 1}, {"c": tmp_path / "nowhere.bin"})
    with pytest.raises(NotWritten):
        recorder.save(missing)
    assert Recorder(tmp_path).load().progress == {"round": 0}
    recorder.save(Checkpoint({"w": torch.zeros(3)}, {"round": 1}))
    assert {p.name for p in parts(tmp_path / "checkpoint")} == {
        "clients_000000000.parquet", "manifest.json", "state_000000001.safetensors",
    }  # fmt: skip


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
    assert {"state_000000000.safetensors", "c.bin", "clients_000000000.parquet", "rounds.jsonl", "manifest.json"} <= {
        *before[before.index("-> clients_000000000.parquet") + 1 :]
    }
    assert calls[-1] == "checkpoint"
    calls.clear()
    finish(recorder)
    before = calls[: calls.index("-> DONE")]
    last = before.index("-> meta.json")
    assert {*before[last + 1 :]} == {p.name for p in (tmp_path / "run").iterdir()}  # DONE among them
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


def test_a_copy_of_a_run_does_not_count_twice(tmp_path):
    finish(write(tmp_path / "a" / "seed_0"))
    shutil.copytree(tmp_path / "a" / "seed_0", tmp_path / "b")
    store = Results(tmp_path)
    assert [run.path for run in store] == [tmp_path / "a" / "seed_0"]
    assert store.damaged == ["b: a copy of a/seed_0: the same setting and the same seed"]
    finish(write(tmp_path / "c"), META | {"seed": 1})
    assert len(list(store)) == 2


def test_damaged_runs_are_named_by_their_path_below_the_root(tmp_path):
    finish(write(tmp_path / "a" / "seed_0"))
    shutil.copytree(tmp_path / "a" / "seed_0", tmp_path / "b")
    (tmp_path / "a" / "seed_0" / "meta.json").write_text("torn")
    (tmp_path / "b" / "rounds.jsonl").unlink()
    store = Results(tmp_path)
    assert not list(store)
    assert [why.partition(": ")[0] for why in store.damaged] == ["a/seed_0", "b"]
    assert not any(str(tmp_path) in why for why in store.damaged)  # not within the fault either


def test_a_growing_file_has_the_seal_of_a_whole_one(tmp_path):
    path = tmp_path / "f"
    growing = GrowingFile(path)
    assert growing.seal()[0] == 0
    for piece in ("one\n", "", "two\n"):
        with path.open("a") as file:
            file.write(piece)
        assert growing.seal() == seal(path)
    assert seal(path, 4) == [4, "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806"]
    with pytest.raises(ValueError, match="f has 8 bytes, not 9"):
        seal(path, 9)


def test_a_document_with_its_checksum():
    assert from_text(to_text({"a": [1.5, None]})) == {"a": [1.5, None]}
    for text in ("", "{}", "[]", '{"sha256": "0", "content": "{}"}', '{"sha256": "0", "content": 3}'):
        with pytest.raises(ValueError, match=r"."):
            from_text(text)

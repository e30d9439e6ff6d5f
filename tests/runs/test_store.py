"""Files of a run that cannot be written leave nothing behind, and what was there before stays."""

import json
from pathlib import Path

import pytest
import torch
from command_line import FAST, run_dir

from fedbench.core import writing
from fedbench.core.writing import NotWritten
from fedbench.runs import tensors, training
from fedbench.runs.checkpoints import Checkpoint, Checkpoints
from fedbench.runs.recorder import Recorder


def test_a_checkpoint_that_cannot_be_written_leaves_the_previous_one(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path)
    recorder.append({"round": 0})
    recorder.save(Checkpoint({"w": torch.ones(3)}, {"round": 0}))

    def full(v):
        yield v.numpy()[:1]
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tensors, "_pieces", full)
        with pytest.raises(OSError, match="No space left"):
            recorder.save(Checkpoint({"w": torch.zeros(3)}, {"round": 1}))
    recorder.close()
    assert {p.name for p in (tmp_path / "checkpoint").iterdir()} == {"manifest.json", "state_000000000.safetensors"}
    found = Recorder(tmp_path).load()
    assert found.progress == {"round": 0}
    assert torch.equal(found.tensors["w"], torch.ones(3))
    assert json.loads((tmp_path / "rounds.jsonl").read_text()) == {"round": 0}


@pytest.mark.parametrize("gone", ["config.yaml", "rounds.jsonl", None])
def test_a_run_whose_files_are_gone_is_not_done(tmp_path, gone):
    """Somebody has moved the directory away and a new one has been made in its place: DONE would hide that."""
    recorder = Recorder(tmp_path)
    recorder.write_config({"rounds": 1})
    recorder.append({"round": 0})
    if gone is None:
        recorder.finish({"w": torch.ones(3)}, None, {"rounds": 1, "status": "done"})
        assert (tmp_path / "DONE").exists()
        return
    (tmp_path / gone).unlink()
    with pytest.raises(NotWritten, match=f"{gone} cannot be written: No such file or directory; its directory was"):
        recorder.finish({"w": torch.ones(3)}, None, {"rounds": 1, "status": "done"})
    assert not (tmp_path / "DONE").exists()


def test_a_line_that_does_not_fit_is_not_left_in_part(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path)
    recorder.append({"round": 0})

    class Full:
        """A file of which the disk takes three more bytes."""

        def __init__(self, file):
            self.file, self.left, self.tell, self.truncate, self.close = file, 3, file.tell, file.truncate, file.close

        def write(self, content):
            if not self.left:
                raise OSError(28, "No space left on device")
            taken, self.left = self.file.write(content[: self.left]), 0
            return taken

    recorder._rounds = Full(recorder._rounds)
    with pytest.raises(NotWritten, match="rounds.jsonl cannot be written: No space left on device, 13 bytes needed, "):
        recorder.append({"round": 1})
    recorder.close()
    assert (tmp_path / "rounds.jsonl").read_text() == '{"round": 0}\n'


def test_a_checkpoint_stays_if_its_files_cannot_be_cut_back(tmp_path, monkeypatch):
    """It is whole: starting over would lose it."""
    recorder = Recorder(tmp_path)
    recorder.append({"round": 0})
    recorder.save(Checkpoint({"w": torch.ones(3)}, {"round": 0}))
    recorder.close()

    def refused():
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        real = Path.open
        patch.setattr(Path, "open", lambda self, mode="r", **k: refused() if "a" in mode else real(self, mode, **k))
        with pytest.raises(NotWritten, match="rounds.jsonl cannot be written: Read-only file system"):
            Recorder(tmp_path).load()
    assert Recorder(tmp_path).load().progress == {"round": 0}


def test_a_full_disk_ends_a_run_with_one_line_and_it_goes_on_later(fed, tmp_path, monkeypatch):
    """Neither the checkpoint nor the status fits; what was there stays."""
    monkeypatch.setattr(training, "_CHECKPOINT_SHARE", 0)
    _, out, _ = fed(*FAST, "results_dir=whole")
    whole = (run_dir(tmp_path, out) / "model.safetensors").read_bytes()
    real = Checkpoints.save

    def full(self, checkpoint):
        if checkpoint.progress["round"] == 2:
            monkeypatch.setattr(writing.Path, "write_bytes", no_space)
            raise NotWritten(self.folder, OSError(28, "No space left on device"), 10**12)
        real(self, checkpoint)

    def no_space(self, content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", full)
        status, _, err = fed(*FAST)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (path,) = (tmp_path / "results").rglob("meta.json")
    assert (status, len(err.splitlines())) == (1, 1)
    place = path.parent.relative_to(tmp_path)
    assert f"{place}/checkpoint cannot be written: No space left on device, 1000.0 GB needed, " in err
    assert json.loads(path.read_text())["status"] == "running"
    status, out, _ = fed(*FAST)
    assert status == 0
    assert (run_dir(tmp_path, out) / "model.safetensors").read_bytes() == whole

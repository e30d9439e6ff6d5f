"""Files of a run that cannot be written leave nothing behind, and what was there before stays."""

import json

import pytest
import torch

from fedbench.runs import tensors
from fedbench.runs.checkpoints import Checkpoint
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

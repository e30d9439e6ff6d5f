"""Client states live where they fit, and it makes no difference to the numbers."""

import errno

import numpy as np
import pytest
import torch
from tools import federation, make, snapshots

from fedbench.core.atomic_files import NotWritten
from fedbench.simulation.client_states import StateAllocator

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["scaffold", "ditto", "local_adam"])
@pytest.mark.parametrize("place", ["host", "file"])
def test_the_place_changes_nothing(name, place, tmp_path):
    data = federation()
    runs = [
        snapshots(
            make(name), data, rounds=5, participation=3, allocator=StateAllocator(CPU, p, tmp_path)
        )[-1]
        for p in ("device", place)
    ]
    assert torch.equal(runs[0].server["w"], runs[1].server["w"])
    assert all(torch.equal(runs[0].clients[k], runs[1].clients[k]) for k in runs[0].clients)


def test_a_file_holds_what_the_tensor_says(tmp_path):
    room = StateAllocator(CPU, "file", tmp_path / "x")
    kept = room.allocate(
        {"a": torch.tensor([1.0, 2.0]), "b": torch.ones(1, dtype=torch.float64)}, 3
    )
    kept["a"][1] = torch.tensor([7.0, 8.0])
    assert np.fromfile(tmp_path / "x" / "a.bin", np.float32).tolist() == [1, 2, 7, 8, 1, 2]
    assert room.bytes == 3 * (8 + 8)
    # a file from an earlier run does not shine through
    again = room.allocate({"a": torch.zeros(2)}, 3)
    assert not again["a"].any()


def test_the_size_decides(monkeypatch, tmp_path):
    one = {"v": torch.zeros(1000)}
    # 40 000 bytes for 10 clients
    for free, place in ((10**9, "device"), (80_000, "device"), (79_999, "file")):
        monkeypatch.setattr(
            "psutil.virtual_memory", lambda free=free: type("M", (), {"available": free})()
        )
        room = StateAllocator(CPU, "auto", tmp_path)
        room.allocate(one, 10)
        assert room.place == place
    assert [p.name for p in tmp_path.iterdir()] == ["v.bin"]


def test_a_file_that_cannot_be_mapped_is_named_as_one_that_cannot_be_written(tmp_path, monkeypatch):
    """Here it is gone before it is mapped."""
    real, folder = np.memmap, tmp_path / "states"

    def moved_away(*args, **kwargs):
        folder.rename(tmp_path / "elsewhere")
        return real(*args, **kwargs)

    monkeypatch.setattr(np, "memmap", moved_away)
    words = (
        "c.bin cannot be written: No such file or directory; its directory was removed meanwhile"
    )
    with pytest.raises(NotWritten, match=words) as found:
        StateAllocator(CPU, "file", folder).allocate({"c": torch.zeros(10)}, 3)
    assert found.value.errno == errno.ENOENT


def test_no_state_has_no_place():
    room = StateAllocator(CPU)
    assert room.allocate({}, 5) == {}
    assert (room.place, room.bytes) == (None, 0)


@pytest.mark.parametrize("place", ["device", "file"])
@pytest.mark.parametrize("changed", [[], [4], [0, 5, 9], [*range(9)]])
def test_what_a_checkpoint_has_is_every_bit_of_the_states(place, changed, tmp_path):
    """Those of clients that were not drawn are stored once, if they are most."""
    one = {
        "w": torch.tensor([0.0, 2.0]),
        "n": torch.zeros((), dtype=torch.int64),
        "b": torch.zeros(2, dtype=torch.bool),
    }
    room, other = (StateAllocator(CPU, place, tmp_path / name) for name in "xy")
    states = room.allocate(one, 10)
    for k in changed:
        states["w"][k] = torch.tensor([-0.0, 2.0] if k else [np.nan, 1.0])
        states["n"][k] = k - 3
        states["b"][k, 0] = True
    kept = torch.arange(20).view(10, 2)  # of an earlier stage
    packed = room.packed(states | {"kept": kept})
    assert packed["kept"] is kept
    few = len(changed) <= 5
    assert [len(packed[name]) for name in one] == [
        len(changed) - (3 in changed) * (name == "n") if few else 10 for name in one
    ]
    again = other.unpacked(packed, {k: v + 1 if k == "w" else v for k, v in one.items()}, 10)
    for name, v in states.items():
        assert again[name].numpy().tobytes() == v.numpy().tobytes()
    assert all(torch.equal(other.first[k], v) for k, v in one.items()) or not few

"""Client states live where they fit, and it makes no difference to the numbers."""

import errno
from types import SimpleNamespace

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
    def run(place):
        allocator = StateAllocator(CPU, place, tmp_path)
        how = {"rounds": 5, "participation": 3, "allocator": allocator}
        return snapshots(
            make(name),
            federation(),
            **how,
        )[-1]

    ours = run(place)
    device = run("device")
    assert torch.equal(ours.server["w"], device.server["w"])
    for name, states in device.clients.items():
        assert torch.equal(ours.clients[name], states)


def test_a_file_holds_what_the_tensor_says(tmp_path):
    room = StateAllocator(CPU, "file", tmp_path / "x")
    states = room.allocate({"a": torch.tensor([1.0, 2.0]), "b": torch.ones(1).double()}, 3)
    states["a"][1] = torch.tensor([7.0, 8.0])
    assert np.fromfile(tmp_path / "x" / "a.bin", np.float32).tolist() == [1, 2, 7, 8, 1, 2]
    assert room.bytes == 3 * (8 + 8)
    # a file from an earlier run does not shine through
    again = room.allocate({"a": torch.zeros(2)}, 3)
    assert not again["a"].any()


@pytest.mark.parametrize(("free", "place"), [(80_000, "device"), (79_999, "file")])
def test_the_size_decides(free, place, monkeypatch, tmp_path):
    """40 000 bytes for 10 clients."""
    memory = SimpleNamespace(available=free)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    room = StateAllocator(CPU, "auto", tmp_path)
    room.allocate({"v": torch.zeros(1000)}, 10)
    assert room.place == place
    assert (tmp_path / "v.bin").exists() == (place == "file")


def test_a_file_that_cannot_be_mapped_is_named_as_one_that_cannot_be_written(tmp_path, monkeypatch):
    """Here it is gone before it is mapped."""
    real = np.memmap
    folder = tmp_path / "states"

    def moved_away(*args, **kwargs):
        folder.rename(tmp_path / "elsewhere")
        return real(*args, **kwargs)

    monkeypatch.setattr(np, "memmap", moved_away)
    message = "c.bin cannot be written: No such file .*; its directory was removed meanwhile"
    with pytest.raises(NotWritten, match=message) as raised:
        StateAllocator(CPU, "file", folder).allocate({"c": torch.zeros(10)}, 3)
    assert raised.value.errno == errno.ENOENT


def test_no_state_has_no_place():
    room = StateAllocator(CPU)
    assert room.allocate({}, 5) == {}
    assert (room.place, room.bytes) == (None, 0)


@pytest.mark.parametrize("place", ["device", "file"])
@pytest.mark.parametrize(
    ("changed", "stored"),
    [
        ([], [0, 0, 0]),
        ([4], [1, 1, 1]),
        ([0, 3, 9], [3, 2, 3]),  # n of client 3 is set to what it was
        ([*range(9)], [10, 10, 10]),
    ],
)
def test_what_a_checkpoint_has_is_every_bit_of_the_states(place, changed, stored, tmp_path):
    """States of clients that were not drawn are stored once, if they are most."""
    first = {
        "w": torch.tensor([0.0, 2.0]),
        "n": torch.zeros((), dtype=torch.int64),
        "b": torch.zeros(2, dtype=torch.bool),
    }
    room = StateAllocator(CPU, place, tmp_path / "x")
    states = room.allocate(first, 10)
    for k in changed:
        states["w"][k] = torch.tensor([-0.0, 2.0] if k else [np.nan, 1.0])
        states["n"][k] = k - 3
        states["b"][k, 0] = True
    kept = torch.arange(20).view(10, 2)  # of an earlier stage
    packed = room.packed(states | {"kept": kept})
    assert packed["kept"] is kept
    assert [len(packed[name]) for name in first] == stored
    other = StateAllocator(CPU, place, tmp_path / "y")
    again = other.unpacked(
        packed,
        first | {"w": first["w"] + 1},
        10,
    )
    for name, v in states.items():
        assert again[name].numpy().tobytes() == v.numpy().tobytes()
        assert len(changed) > 5 or torch.equal(other.first[name], first[name])

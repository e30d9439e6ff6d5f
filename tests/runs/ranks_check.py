"""Assertions on the joint work of processes, in each: torchrun ranks_check.py RESULT."""

import sys
from pathlib import Path

import pytest
import torch

from fedbench.core.errors import FailedElsewhere
from fedbench.simulation.engine import Engine
from fedbench.simulation.memory import OutOfMemory
from fedbench.simulation.ranks import Ranks

ranks = Ranks(torch.device("cpu"))
engine = Engine(None, "loop", 4, workers=2, ranks=ranks)
ITEMS = list(range(7))

# outcomes keep the order of the items in every process, and tensors arrive as they were
found = engine.map(
    lambda i: {"one": torch.full((i,), i), "two": (torch.tensor(i > 3), torch.eye(2)[:, 1], i)},
    ITEMS,
)
for i, outcome in enumerate(found):
    assert outcome["one"].tolist() == [i] * i
    assert outcome["two"][0].item() is (i > 3)
    assert outcome["two"][1].tolist() == [0, 1]
    assert outcome["two"][2] == i
assert engine.map(lambda i: i, []) == []

# every process takes in every outcome once, and works out a third or a half of them itself
made, taken = [], []
assert (
    engine.map(
        lambda i: made.append(i) or torch.tensor(i), ITEMS, lambda i, v: taken.append((i, v.item()))
    )
    == []
)
assert sorted(taken) == [(i, i) for i in ITEMS]
assert sum(ranks._exchange(len(made))) == len(ITEMS)
assert len(made) <= 4

# memory runs out in one process: all do less at once, and what was finished is not repeated
done = []


def work(i):
    if i == 1 and ranks.rank == 1 and engine.limits.errors == 0:
        raise MemoryError("made up")
    return torch.tensor(i)


def left():
    return [i for i in ITEMS if i not in done]


engine.within_memory(
    lambda: engine.map(work, left(), lambda i, v: done.append(i)), "clients", lambda: 4, "alone"
)
assert sorted(done) == ITEMS
assert engine.limits.errors == 1
assert engine.cohort_size == 2


def never(i):
    if ranks.rank == 1:
        raise MemoryError("made up")
    return torch.tensor(i)


with pytest.raises(OutOfMemory, match="alone"):
    engine.within_memory(
        lambda: engine.map(never, ITEMS),
        "clients",
        lambda: 1,
        "alone",
    )


# another error of one process ends all, and names it
def fault(i):
    if i == 1:
        raise ValueError("made up")


with pytest.raises(
    ValueError if ranks.rank == 1 else FailedElsewhere,
    match="made up",
) as error:
    engine.map(fault, ITEMS)
assert (
    ranks.rank == 1 or str(error.value) == f"process 1 of {ranks.world_size}: ValueError: made up"
)

assert ranks.broadcast(["from", ranks.rank]) == ["from", 0]
assert ranks.from_first(lambda: ["from", ranks.rank]) == ["from", 0]
calls = Path(sys.argv[1]) / "calls"


def call():
    """Return how many processes have called this before."""
    count = len(calls.read_text()) if calls.exists() else 0
    calls.write_text("x" * (count + 1))
    return count


assert ranks.after_first(call) == ranks.rank
ranks.all_gather(None)
calls.unlink(missing_ok=True)
assert ranks.facts() == {"processes": ranks.world_size, "bytes_sent": ranks.sent}
assert ranks.all_gather(ranks.rank) == list(range(ranks.world_size))


# memory that runs out in one process alone ends it: it would come to other parts than the others
def outside():
    raise MemoryError("outside")


if ranks.rank == 1:
    with pytest.raises(MemoryError, match="outside"):
        engine.within_memory(outside, "clients", lambda: 4, "alone")

# different models are noticed after the round
assert (
    ranks.agreed(
        3,
        torch.tensor([float("nan")]),
        None,
    )
    is None
)
assert (
    ranks.agreed(
        3,
        torch.ones(2),
        15 if ranks.rank == 1 else None,
    )
    == 15
)
with pytest.raises(RuntimeError, match="different models in round 4"):
    ranks.agreed(4, torch.tensor([float(ranks.rank)]), None)
engine.close()
(Path(sys.argv[1]) / str(ranks.rank)).touch()

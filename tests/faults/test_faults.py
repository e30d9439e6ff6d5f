"""The short form of the fault suites; `make test-faults` is the long one."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from faults import damage
from faults.outcomes import BAD, Outcome, Tally, table
from faults.process import Child, End
from faults.reports import _judged
from faults.shim import why_not

GROUPS = {
    "ends": ["kills", "signals", "early", "shared"],
    "surroundings": ["errors", "disks", "readonly", "vanishing", "clocks", "reports", "preparations"],
    "damage": ["runs", "checkpoints", "resumed", "caches"],
}


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("group", GROUPS)
def test_faults_do_no_harm(group):
    """Every run survives or ends with a clear message, and has the bytes of a run left in peace in the end."""
    command = [sys.executable, "-m", "faults", "--count", "100", *GROUPS[group]]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    name, injected, *_, wrong, crashed, hung = next(x for x in done.stdout.splitlines() if x.startswith("all ")).split()
    assert (name, wrong, crashed, hung) == ("all", "0", "0", "0")
    assert int(injected) >= 2 * len(GROUPS[group])


def test_a_checksum_that_is_not_compared_is_noticed(tmp_path, monkeypatch):
    """The suite of damage without the code that it is about."""
    monkeypatch.setattr("fedbench.data.files.cache.check", lambda *_: None)
    tally = damage.caches(tmp_path, 60, random.Random(0))
    assert tally.counts[Outcome.WRONG] > 0
    monkeypatch.undo()
    tally = damage.caches(tmp_path, 60, random.Random(0))
    assert (tally.bad, tally.counts.total()) == (0, 60)


def test_damage_changes_a_file():
    draw, before = random.Random(0), b"0123456789"
    changed = [damage.damages(before, draw) for _ in range(200)]
    flips = [c for c in changed if len(c) == len(before) and sum(a != b for a, b in zip(c, before, strict=True)) == 1]
    assert len(flips) > 100
    assert len({len(c) for c in changed}) > 5


def test_how_a_process_ends():
    assert Child(lambda: 3).end() == End(3, "", False)
    assert Child(lambda: os.write(1, b"said\n") * 0).end() == End(0, "said\n", False)
    internal = Child(lambda: 1 // 0).end()
    assert (internal.status, internal.crashed) == (70, True)
    assert End(-11, "", False).crashed
    assert not End(-9, "", False).crashed


def test_a_report_that_is_neither_the_old_nor_the_new_one_is_wrong():
    old, new, killed = {"a": b"1"}, {"a": b"2"}, End(-9, "", False)
    assert [_judged(killed, found, old, new) for found in (old, new)] == [Outcome.CLEAN] * 2
    assert _judged(killed, {}, old, new) == Outcome.WRONG
    assert _judged(End(0, "", False), old, old, new) == Outcome.WRONG
    assert _judged(End(1, "OSError; debug=true shows the traceback", False), old, old, new) == Outcome.CRASHED


def test_the_table_counts():
    one, two = Tally("one"), Tally("two", skipped="no mount")
    for outcome in Outcome:
        one.add(outcome, "x")
    assert (one.bad, len(one.reports)) == (3, len(BAD))
    assert table([one, two]).splitlines() == [
        "suite  injected  survived  clean  wrong  crashed  hung",
        "one           5         1      1      1        1     1",
        "two           0         0      0      0        0     0",
        "all           5         1      1      1        1     1",
        "two skipped: no mount",
    ]

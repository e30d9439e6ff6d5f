"""A short form of ``make test-fuzz``: the valid and the hostile files of every reader, and some changed ones."""

import json
import random
import subprocess
import sys

import fuzz_run
import pytest
from fuzz_mutations import mutated
from fuzz_readers import READERS, Reader, into

from fedbench.core.errors import RequestError

FEW = 12  # changed files of a reader


@pytest.mark.slow
def test_no_reader_crashes_hangs_fills_the_memory_or_runs_code(tmp_path):
    work = [[r.name, 0, len(r.contents()) + len(r.hostile()) + FEW] for r in READERS]
    command = [sys.executable, fuzz_run.__file__, "--child", json.dumps(work), str(tmp_path / "counts.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
    counts = json.loads((tmp_path / "counts.json").read_text())["counts"]
    assert {name: sum(kinds.values()) for name, kinds in counts.items()} == {name: n for name, _, n in work}
    assert all(kinds.get("read") for kinds in counts.values())  # the valid files at least
    assert all(kinds.keys() <= {"read", "clean"} for kinds in counts.values())


def started(root):
    subprocess.Popen([sys.executable, "-c", ""]).wait()


def filled(root):
    return bytearray(2 * fuzz_run.MEMORY)


def refused(root):
    raise RequestError("no")


def failed(root):
    raise KeyError("x")


def written(root):
    (root.parent / "outside").write_text("x")


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (failed, "crashed"),
        (refused, "clean"),
        (filled, "memory"),
        (started, "ran code"),
        (written, "ran code"),
        (str, "read"),
    ],
)
def test_a_case_is_classified(tmp_path, read, kind):
    """The suite finds what it looks for."""
    watch, root = WATCH, tmp_path / "case"
    root.mkdir()
    found, _ = fuzz_run.classified(Reader("x", [b""], into("a"), read), root, b"", watch)
    assert found == kind


WATCH = fuzz_run.Watch()


def test_changes_are_repeatable_and_change_something():
    one = [mutated(random.Random(k), b"0123456789" * 5, [b"other"]) for k in range(50)]
    assert one == [mutated(random.Random(k), b"0123456789" * 5, [b"other"]) for k in range(50)]
    assert sum(c != b"0123456789" * 5 for c in one) > 40

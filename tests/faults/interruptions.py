"""Runs that end early: killed, asked to end by a signal, or with several processes at work on the same runs."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from faults.outcomes import Tally
from faults.process import Child, End
from faults.shim import Harm
from faults.subject import Subject

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT)
_PLACES = 12  # operations of a subject at which there are faults, before another subject has some
_FRESH = 3.0  # seconds within which a new process gets its signal


def spread(subjects: Sequence[Subject], wanted: int) -> Iterator[tuple[Subject, int]]:
    """About ``wanted`` pairs of a subject and one of its operations, evenly spread; every pair if there are no more."""
    few = max(1, wanted // _PLACES)
    chosen = subjects[:: max(1, len(subjects) // few)]
    for subject in chosen:
        share = max(1, round(wanted / len(chosen)))
        yield from ((subject, n) for n in range(0, subject.operations, max(1, subject.operations // share)))


def kills(subjects: Sequence[Subject], wanted: int) -> Tally:
    """SIGKILL at an operation on files; a write leaves its first half."""
    tally = Tally("kills")
    for subject, n in spread(subjects, wanted):
        assert subject.reference
        subject.clear()
        end = subject.harmed(Harm.TEAR, n)
        subject.judge(tally, f"killed at operation {n}", end, lambda e: e.status == -signal.SIGKILL)
    return tally


def signals(subjects: Sequence[Subject], wanted: int) -> Tally:
    """A signal at an operation on files."""
    tally, turn = Tally("signals"), 0
    for subject, n in spread(subjects, wanted):
        number = SIGNALS[turn := (turn + 1) % len(SIGNALS)]
        assert subject.reference
        subject.clear()
        end = subject.harmed(Harm.SEND, n, number)
        ends = (0, 128 + number)
        subject.judge(tally, f"{number.name} at operation {n}", end, lambda e, ends=ends: e.status in ends)
    return tally


def early_signals(subjects: Sequence[Subject], wanted: int, draw: random.Random) -> Tally:
    """A signal to a new process, in its first seconds: the interpreter starts, and imports what it needs."""
    tally = Tally("early signals")
    for k in range(wanted):
        subject, number, delay = subjects[k % len(subjects)], SIGNALS[k % len(SIGNALS)], draw.uniform(0, _FRESH)
        assert subject.reference
        subject.clear()
        end = _fresh(subject, number, delay)
        # before Python runs, a signal does what the system does by default
        ends = (0, 128 + number, -number)
        what = f"{number.name} after {delay:.3f} s"
        subject.judge(tally, what, end, lambda e, ends=ends: e.status in ends)
    return tally


def _fresh(subject: Subject, number: int, delay: float) -> End:
    command = [sys.executable, "-m", "fedbench", *subject.overrides, f"results_dir={subject.folder}"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        time.sleep(delay)
        process.send_signal(number)
        try:
            status, hung = process.wait(120), False
        except subprocess.TimeoutExpired:
            process.kill()
            status, hung = process.wait(), True
        output.seek(0)
        text = output.read().decode(errors="replace")
    quiet = status == -number and "fedbench" not in text
    return End(status, "" if quiet else text, hung)


def shared(subjects: Sequence[Subject], wanted: int, draw: random.Random) -> Tally:
    """Two or four processes carry out the same runs at once; every second time one of them is killed on the way."""
    tally = Tally("shared runs")
    for k in range(wanted):
        subject, processes = subjects[k % len(subjects)], 2 + 2 * (k % 2)
        assert subject.reference
        subject.clear()
        children = [Child(subject.command) for _ in range(processes)]
        if killed := k % 4 > 1:
            time.sleep(draw.uniform(0, 0.3))
            with contextlib.suppress(ProcessLookupError):
                children[0].send(signal.SIGKILL)
        ends = [child.end() for child in children]
        worst = max(ends[killed:], key=lambda e: (e.hung, e.crashed, e.status))
        subject.judge(tally, f"{processes} processes", worst, lambda e: not e.status)
    return tally


def room_of(folder: Path) -> Path:
    """An empty directory for runs, in memory where there is such a place: nothing waits for a disk."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="faults", dir=memory if os.access(memory, os.W_OK) else folder))

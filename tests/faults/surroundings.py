"""What is around a run: full disks, directories that are read-only or vanish, and the clock."""

import errno
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from faults.interruptions import spread
from faults.outcomes import Tally
from faults.process import Child, End
from faults.shim import Harm, let_the_clock_jump
from faults.subject import Subject

_PAGE = 4096


def clear_message(end: End) -> bool:
    """Whether a run that failed has said in one line what cannot be written."""
    if not end.status:
        return True
    said = [line for line in end.text.splitlines() if "cannot be written" in line]
    full = "No space" in end.text
    return end.status in (1, 2) and len(said) == 1 and (not full or " free" in said[0])


def _whole_facts(subject: Subject) -> bool:
    """Whether every meta.json can be read."""
    return all(json.loads(p.read_bytes()) for p in subject.room.rglob("meta.json"))


def errors(subjects: Sequence[Subject], wanted: int) -> Tally:
    """From an operation on, or only once, the system says that the disk is full, is read-only or has failed."""
    tally = Tally("failing operations")
    kinds = [(h, e) for e in (errno.ENOSPC, errno.EROFS, errno.EIO) for h in (Harm.FAIL_FROM, Harm.FAIL_ONCE)]
    for turn, (subject, n) in enumerate(spread(subjects, wanted)):
        harm, number = kinds[turn % len(kinds)]
        assert subject.reference
        subject.clear()
        end = subject.harmed(harm, n, number)
        what = f"{harm.name} {errno.errorcode[number]} at operation {n}"
        subject.judge(tally, what, end, lambda e, s=subject: clear_message(e) and _whole_facts(s))
    return tally


def full_disks(subjects: Sequence[Subject], wanted: int, room: Path) -> Tally:
    """A file system of so many pages; then it grows, and the run goes on."""
    tally = Tally("full disks")
    share = -(-wanted // len(subjects))
    for subject in (Subject(s.name, s.overrides, room) for s in subjects):
        with _mounted(room, 1024) as why:
            if why:
                tally.skipped = why
                return tally
            assert subject.reference
            most = sum(-(-p.stat().st_size // _PAGE) + 1 for p in room.rglob("*")) + 8
        for pages in range(2, most, max(1, most // share)):
            with _mounted(room, pages):
                end = subject.left_in_peace()
                whole = _whole_facts(subject)
                subprocess.run(["mount", "-o", f"remount,size={1024 * _PAGE}", str(room)], check=True)
                subject.judge(tally, f"{pages} pages", end, lambda e, whole=whole: clear_message(e) and whole)
    return tally


@contextmanager
def _mounted(room: Path, pages: int) -> Iterator[str | None]:
    """A file system in memory of so many pages; yields why there can be none."""
    room.mkdir(exist_ok=True)
    options = ["mount", "-t", "tmpfs", "-o", f"size={pages * _PAGE}", "none", str(room)]
    try:
        made = subprocess.run(options, capture_output=True, text=True)
        why = made.stderr.strip() or "mount failed" if made.returncode else None
    except FileNotFoundError as error:
        why = str(error)
    try:
        yield why
    finally:
        if why is None:
            subprocess.run(["umount", str(room)], check=True)


def read_only(subjects: Sequence[Subject], room: Path) -> Tally:
    """A read-only directory: a new run is refused, a finished one is answered from disk."""
    tally = Tally("read-only directories")
    for subject in (Subject(s.name, s.overrides, room) for s in subjects):
        for finished in (False, True):
            with _mounted(room, 1024) as why:
                if why:
                    tally.skipped = why
                    return tally
                assert subject.reference
                subject.clear()
                if finished:
                    subject.finished()
                subprocess.run(["mount", "-o", "remount,ro", str(room)], check=True)
                end = subject.left_in_peace()
                subprocess.run(["mount", "-o", "remount,rw", str(room)], check=True)
                wanted = 0 if finished else 2
                subject.judge(tally, f"finished: {finished}", end, lambda e, wanted=wanted: e.status == wanted)
    return tally


def vanishing(subjects: Sequence[Subject], wanted: int) -> Tally:
    """At an operation, somebody moves the results away."""
    tally = Tally("vanishing directories")
    for subject, n in spread(subjects, wanted):
        assert subject.reference
        subject.clear()
        end = subject.harmed(Harm.VANISH, n)
        gone = Path(f"{subject.folder}.gone")
        if not end.status and gone.exists() and not list(subject.folder.rglob("DONE")):
            shutil.rmtree(subject.folder, ignore_errors=True)
            gone.rename(subject.folder)  # it was done when it went
        subject.judge(tally, f"moved at operation {n}", end, lambda e: clear_message(e) or "force=true" in e.text)
    return tally


def clocks(subjects: Sequence[Subject], wanted: int) -> Tally:
    """The time of day is years off at every look."""
    tally = Tally("clock jumps")
    for k in range(wanted):
        subject = subjects[k % len(subjects)]
        assert subject.reference
        subject.clear()

        def work(seed: int = k, subject: Subject = subject) -> int:
            let_the_clock_jump(seed)
            return subject.command()

        subject.judge(tally, f"clock {k}", Child(work).end(), lambda e: not e.status)
    return tally

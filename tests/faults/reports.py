"""Reports and prepared data that are being written when a fault comes: the old ones stay, or the new ones are whole."""

import errno
import shutil
import signal
from pathlib import Path

import numpy as np
from fake_runs import fake

from faults.outcomes import Outcome, Tally, files
from faults.process import Child, End, answer
from faults.shim import Harm, arm, count
from faults.surroundings import clear_message
from fedbench.cli import main
from fedbench.data.examples import Examples
from fedbench.data.files.cache import prepared
from fedbench.report import figures, write

_HARMS = ((Harm.KILL, 0), (Harm.FAIL_FROM, errno.ENOSPC), (Harm.FAIL_ONCE, errno.ENOSPC), (Harm.FAIL_FROM, errno.EROFS))


def _report(root: Path) -> int:
    figures.FigureMaker.all = lambda self: []
    write.run_figures = lambda *_: []
    return main(["report", str(root)])


def reports(room: Path, wanted: int) -> Tally:
    """A report of one more run than the last one had."""
    tally, root = Tally("reports"), room / "runs"
    shutil.rmtree(room, ignore_errors=True)
    fake(root, None, "fedavg", seeds=[0])
    (root / "report").mkdir()
    (root / "report" / "notes.txt").write_text("the user's own")
    assert Child(lambda: _report(root)).end().status == 0
    old = files(root / "report")
    fake(root, None, "fedprox", seeds=[0])
    shutil.copytree(root, room / "before")

    def counted() -> int:
        arm(root, Harm.COUNT)
        assert _report(root) == 0
        return count()

    operations = int(answer(counted))
    new = files(root / "report")
    assert old != new
    for k in range(wanted):
        harm, number = _HARMS[k % len(_HARMS)]
        n = k // len(_HARMS) * len(_HARMS) * operations // wanted
        shutil.rmtree(root)
        shutil.copytree(room / "before", root)

        def work(harm: Harm = harm, n: int = n, number: int = number) -> int:
            arm(root, harm, n, number)
            return _report(root)

        end = Child(work).end()
        found = files(root / "report")
        tally.add(_judged(end, found, old, new), f"{harm.name} at operation {n}: status {end.status}: {end.text}")
    return tally


def _judged(end: End, found: object, old: object, new: object) -> Outcome:
    if end.hung:
        return Outcome.HUNG
    if end.status == 0:
        return Outcome.SURVIVED if found == new else Outcome.WRONG
    if end.crashed or not (end.status == -signal.SIGKILL or clear_message(end)):
        return Outcome.CRASHED
    return Outcome.CLEAN if found in (old, new) else Outcome.WRONG


def preparations(room: Path, wanted: int) -> Tally:
    """Data that are being prepared: they are returned all the same, and are right when they are read again."""
    tally, folder = Tally("preparations"), room / "data"
    made = Examples(x=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 3, classes=3)

    def prepare() -> str:
        found = prepared(folder, "set", [room / "source"], {}, lambda: made)
        return str((found.x.sum(), found.y.tolist(), found.classes))

    def counted() -> int:
        arm(folder, Harm.COUNT)
        prepare()
        return count()

    shutil.rmtree(room, ignore_errors=True)
    room.mkdir()
    (room / "source").touch()
    operations, right = int(answer(counted)), answer(prepare)
    for k in range(wanted):
        harm, number = _HARMS[k % len(_HARMS)]
        n = k // len(_HARMS) * len(_HARMS) * operations // wanted
        shutil.rmtree(folder)

        def work(harm: Harm = harm, n: int = n, number: int = number) -> int:
            arm(folder, harm, n, number)
            print(prepare())
            return 0

        end = Child(work).end()
        outcome = Outcome.SURVIVED
        if end.hung:
            outcome = Outcome.HUNG
        elif end.crashed or end.status not in (0, -signal.SIGKILL):
            outcome = Outcome.CRASHED
        elif (not end.status and end.text.splitlines()[-1] != right) or answer(prepare) != right:
            outcome = Outcome.WRONG
        elif len(end.text.splitlines()) > 1:
            outcome = Outcome.CLEAN
        tally.add(outcome, f"{harm.name} at operation {n}: status {end.status}: {end.text}")
    return tally

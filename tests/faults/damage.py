"""Files that are not what they were: flipped bits, truncation and zeros, in runs, checkpoints and prepared data."""

import contextlib
import io
import random
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faults.outcomes import Outcome, Tally, files
from faults.shim import Harm
from faults.subject import Subject
from fedbench.data.examples import Examples
from fedbench.data.files.cache import prepared
from fedbench.runs.recorder import Recorder
from fedbench.runs.results import load_results
from fedbench.runs.run import DamagedRun

_PATIENCE = 30  # seconds
_FRAMES = ("runs", "rounds", "clients")


def damages(content: bytes, draw: random.Random) -> bytes:
    """A file with a flipped bit (three of four times), cut, with bytes more, or with zeros at its end."""
    kind = draw.randrange(8)
    if kind < 6 and content:
        place = draw.randrange(8 * len(content))
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        return bytes(changed)
    cut = draw.randrange(len(content) + 1)
    return content[:cut] if kind == 6 else content[:cut] + bytes(len(content) - cut + draw.randrange(2))


def _restore(folder: Path, content: dict[str, bytes]) -> None:
    for name in files(folder).keys() - content.keys():
        (folder / name).unlink()
    for name, text in content.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    def late(number: int, frame: object) -> None:
        raise TimeoutError("it hung")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _each(
    tally: Tally, folder: Path, wanted: int, draw: random.Random, read: Callable[[], Any], same: Callable[[Any], bool],
    clean: tuple[type[Exception], ...],
) -> None:  # fmt: skip
    """Damage one file after the other and read again."""
    content = files(folder)
    for k in range(wanted):
        name = sorted(content)[k % len(content)]
        changed = damages(content[name], draw)
        (folder / name).write_bytes(changed)
        said = io.StringIO()
        try:
            with _in_time(), contextlib.redirect_stderr(said):
                found = read()
            outcome, why = (Outcome.SURVIVED if same(found) else Outcome.WRONG), ""
            if outcome == Outcome.SURVIVED and said.getvalue():
                outcome = Outcome.CLEAN
        except clean as error:
            outcome, why = Outcome.CLEAN, str(error)
        except TimeoutError:
            outcome, why = Outcome.HUNG, ""
        except Exception as error:
            outcome, why = Outcome.CRASHED, repr(error)
        tally.add(outcome, f"{name} with {len(content[name])} bytes: {_difference(content[name], changed)}: {why}")
        _restore(folder, content)


def _difference(before: bytes, after: bytes) -> str:
    at = next((k for k, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    return f"byte {at}, {len(after)} bytes"


def finished_runs(subjects: Sequence[Subject], wanted: int, draw: random.Random) -> Tally:
    """Damage to a finished run: it is left out with its reason, or its numbers are the same."""
    tally = Tally("damage to runs")
    for subject in subjects:
        subject.finished()
        whole = load_results(subject.folder)

        def read(subject: Subject = subject) -> Any:
            found = load_results(subject.folder)
            if found.damaged and not any(len(getattr(found, k)) for k in _FRAMES):
                raise DamagedRun(found.damaged[0])
            return found

        def same(found: Any, whole: Any = whole) -> bool:
            return all(getattr(found, k).equals(getattr(whole, k)) for k in _FRAMES)

        counted = Tally(tally.suite)
        _each(counted, subject.folder, wanted // len(subjects), draw, read, same, (DamagedRun,))
        _join(tally, counted)
    return tally


def checkpoints(subjects: Sequence[Subject], wanted: int, draw: random.Random) -> Tally:
    """Damage to the checkpoint of a run that was killed: it is found, or what is read is the same."""
    tally = Tally("damage to checkpoints")
    for subject in subjects:
        path = _interrupted(subject)
        whole = _tree(Recorder(path).load())

        def read(path: Path = path) -> Any:
            return _tree(Recorder(path).load())

        def same(found: Any, whole: Any = whole) -> bool:
            return bool(found == whole)

        counted = Tally(tally.suite)
        _each(counted, path, wanted // len(subjects), draw, read, same, (DamagedRun,))
        _join(tally, counted)
    return tally


def _join(tally: Tally, counted: Tally) -> None:
    tally.counts += counted.counts
    tally.reports += counted.reports


def _interrupted(subject: Subject) -> Path:
    """The directory of a run that was killed with a checkpoint."""
    assert subject.reference
    late = subject.operations * 3 // 4
    subject.clear()
    end = subject.harmed(Harm.KILL, late)
    assert end.status == -signal.SIGKILL
    (manifest,) = subject.folder.rglob("manifest.json")
    return manifest.parent.parent


def _tree(checkpoint: Any) -> Any:
    tensors = {k: (str(v.dtype), v.tolist()) for k, v in checkpoint.tensors.items()}
    return tensors, checkpoint.progress, {k: p.read_bytes() for k, p in checkpoint.files.items()}


def resumed(subjects: Sequence[Subject], wanted: int, draw: random.Random) -> Tally:
    """Damage to any file of a run that was killed, then the same command again."""
    tally = Tally("damage, then resumed")
    for subject in subjects:
        path = _interrupted(subject)
        content = files(path)
        for k in range(wanted // len(subjects)):
            subject.clear()
            _restore(path, content)
            name = sorted(content)[draw.randrange(len(content))] if k else "checkpoint/manifest.json"
            changed = damages(content[name], draw)
            (path / name).write_bytes(changed)
            end = subject.left_in_peace()
            what = f"{name}: {_difference(content[name], changed)}"
            subject.judge(tally, what, end, lambda e: not e.status)
    return tally


def caches(room: Path, wanted: int, draw: random.Random) -> Tally:
    """Damage to prepared data: they are rebuilt, or the same."""
    tally, folder = Tally("damage to caches"), room / "data"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = folder / "source"
    source.write_bytes(b"source")
    random_numbers = np.random.default_rng(0)
    made = Examples(
        x=random_numbers.random((40, 5), dtype=np.float32),
        y=random_numbers.integers(0, 3, 40),
        owner=random_numbers.integers(0, 4, 40),
        classes=3,
        names=("a", "b", "c", "d"),
        sources=("somewhere",),
    )

    def read() -> Examples:
        return prepared(folder, "set", [source], {}, lambda: made)

    def same(found: Examples) -> bool:
        arrays = all(np.array_equal(getattr(found, k), getattr(made, k)) for k in ("x", "y", "owner"))
        return arrays and all(
            getattr(found, k) == getattr(made, k) for k in ("held_out", "classes", "names", "sources")
        )

    assert same(read())
    _each(tally, next((folder / "prepared").glob("set-*/")), wanted, draw, read, same, ())
    return tally

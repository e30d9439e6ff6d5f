"""The small runs that faults happen to, and the room in which they are."""

import contextlib
import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tools import ALGORITHMS

from faults.outcomes import Outcome, Tally, lasting
from faults.process import Child, End, answer
from faults.shim import Harm, arm, count
from fedbench.cli import main
from fedbench.runs import training
from fedbench.runs.run import DamagedRun

_SMALL = [
    "data=synthetic_leaf", "data.clients=3", "rounds=2", "keep_clients=all", "device=cpu", "engine.mode=stacked",
    "engine.cohort_size=4", "engine.workers=1",
]  # fmt: skip
_OWN = {"fedcorr": ["rounds=6", "algo.iterations=1"]}


@dataclass(frozen=True)
class Subject:
    """A run: a name, and the overrides of the command."""

    name: str
    overrides: tuple[str, ...]
    room: Path = field(repr=False)

    @property
    def folder(self) -> Path:
        """Its results_dir."""
        return self.room / "results"

    def command(self) -> int:
        """Run it, with a checkpoint after every round."""
        training._CHECKPOINT_EVERY = 0
        return main([*self.overrides, f"results_dir={self.folder}"])

    def clear(self) -> None:
        """Remove what is there of it."""
        for path in self.room.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def harmed(self, harm: Harm, at: int, number: int = 0) -> End:
        """Run it with a fault."""

        def work() -> int:
            arm(self.folder, harm, at, number)
            return self.command()

        return Child(work).end()

    def left_in_peace(self) -> End:
        """Run it, or the rest of it."""
        return Child(self.command).end()

    def finished(self) -> None:
        """Start over and run it to its end."""
        self.clear()
        end = self.left_in_peace()
        assert end.status == 0, end.text

    @cached_property
    def operations(self) -> int:
        """Number of its operations on files."""
        self.clear()

        def work() -> int:
            arm(self.folder, Harm.COUNT)
            assert self.command() == 0
            return count()

        return int(answer(work))

    @cached_property
    def reference(self) -> dict[str, object]:
        """Its files when nothing happens."""
        self.finished()
        return lasting(self.folder)

    def judge(self, tally: Tally, what: str, first: End, expected: Callable[[End], bool]) -> None:
        """Run the rest after a fault, and count what became of it.

        Args:
            tally: Counts it.
            what: The fault.
            first: How the run with the fault has ended.
            expected: Whether that is one of the ends that the fault may have.
        """
        outcome, why = self._outcome(first, expected)
        tally.add(outcome, f"{self.name}: {what}: {why}")

    def _outcome(self, first: End, expected: Callable[[End], bool]) -> tuple[Outcome, str]:
        if first.hung:
            return Outcome.HUNG, first.text
        if first.crashed or not expected(first):
            return Outcome.CRASHED, f"status {first.status}: {first.text}"
        if not first.status and (why := self._difference()):
            return Outcome.WRONG, f"after status 0: {why}"
        last = self.left_in_peace()
        if last.hung:
            return Outcome.HUNG, last.text
        if last.status or last.crashed:
            return Outcome.CRASHED, f"again: status {last.status}: {last.text}"
        if why := self._difference():
            return Outcome.WRONG, why
        said = first.status > 0 or "starting over" in first.text
        return (Outcome.CLEAN if said else Outcome.SURVIVED), ""

    def _difference(self) -> str:
        """What differs from the reference; empty if nothing does."""
        try:
            found = lasting(self.folder)
        except (DamagedRun, ValueError) as error:
            return str(error)
        names = sorted({*found, *self.reference})
        return ", ".join(n for n in names if found.get(n) != self.reference.get(n))


def subjects(room: Path) -> list[Subject]:
    """All methods, and runs with states in files and with diagnostics."""
    room.mkdir(parents=True, exist_ok=True)
    every = [Subject(name, (f"algo={name}", *_SMALL, *_OWN.get(name, ())), room) for name in ALGORITHMS]
    files = Subject("scaffold in files", ("algo=scaffold", *_SMALL, "engine.client_state=file"), room)
    more = Subject("ditto improved", ("algo=ditto", *_SMALL, "improved_clients=true"), room)
    return [*every, files, more]


def warm(subjects: Sequence[Subject]) -> None:
    """Import, compose and compile everything here, so that forked children need not."""
    import fedbench.runs.build
    from fedbench.config.compose import compose_run

    assert fedbench.runs.build
    for subject in subjects:
        compose_run([*subject.overrides])
    subjects[0].clear()
    with contextlib.redirect_stdout(io.StringIO()):
        assert subjects[0].command() == 0
    subjects[0].clear()

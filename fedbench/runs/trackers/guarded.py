"""A tracker that cannot end a run: its first error is one line on standard error, and the run goes on without it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedbench.config.targets import Component, call
from fedbench.runs.run import Fields, Run
from fedbench.runs.trackers import Tracker

_SENT = "tracked"  # file in a run's directory: a line per tracker that has the whole run


class Guarded(Tracker):
    """Passes everything on to a tracker until it fails.

    Args:
        tracker: The tracker.
        component: What it was made from.
    """

    def __init__(self, tracker: Tracker, component: Component) -> None:
        self.tracker = tracker
        self.mark = _mark(component)
        self.failed = False
        self._path: Path | None = None

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Start to follow a run."""
        self._path = path
        if config.get("force"):  # what was sent is no longer what the run will be
            (path / _SENT).unlink(missing_ok=True)
        self._try(lambda: self.tracker.start(path, name, config))

    def log(self, row: dict[str, Any]) -> None:
        """Log one evaluated round."""
        self._try(lambda: self.tracker.log(row))

    def finish(self, status: str) -> None:
        """End with the status of the run, and note in its directory that the tracker has all of it."""
        self._try(lambda: self.tracker.finish(status))
        if status in ("done", "diverged"):
            self._try(self._note)

    def _note(self) -> None:
        assert self._path is not None
        marks = dict.fromkeys([*_marks(self._path), self.mark])
        (self._path / _SENT).write_text("".join(f"{m}\n" for m in marks), encoding="utf-8")

    def _try(self, step: Callable[[], None]) -> None:
        """Take a step, unless an earlier one has failed."""
        if self.failed:
            return
        try:
            step()
        except Exception as error:
            self.failed = True
            text = " ".join(str(error).split()) or "no message"
            print(
                f"fedbench: {type(self.tracker).__name__} failed, the run goes on without it: "
                f"{type(error).__name__}: {text}",
                file=sys.stderr,
            )


def export(run: Run, component: Component, config: Fields) -> None:
    """Send a finished run to a tracker that has not got all of it yet.

    Args:
        run: The run on disk.
        component: Makes the tracker; without a target there is nothing to do.
        config: The resolved configuration.
    """
    if component.target is None or _mark(component) in _marks(run.path):
        return
    meta = run.meta
    tracker = Guarded(call(component, "tracker"), component)
    print(f"fedbench: sending the finished run {run.path} to {type(tracker.tracker).__name__}", file=sys.stderr)
    tracker.start(run.path, f"{meta['algo']} seed {meta['seed']} {meta['experiment'] or meta['data']}", config)
    table = run.rounds()
    for values in table.astype(object).where(table.notna(), None).to_dict("records"):
        tracker.log({str(k): v for k, v in values.items()})
    tracker.finish(str(meta["status"]))


def _mark(component: Component) -> str:
    """Return the name of a tracker with its options, on one line."""
    return " ".join([str(component.target), *(f"{k}={v}" for k, v in sorted(component.options.items()))])


def _marks(path: Path) -> list[str]:
    file = path / _SENT
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

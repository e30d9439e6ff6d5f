"""Write fedbench/papers/durations.json: the times of finished runs, which say what a plan takes on other machines.

    python scripts/durations.py results results/published/fedfa --machine "2 cores of an Intel Xeon, PyTorch 2.13.0"

reads the finished runs of directories, or of the bundles of published reports. Times of other settings that are in the
file are kept, as long as the machine has the same name; with another name they are dropped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from fedbench.config.compose import compose_run
from fedbench.papers.registry import home_of
from fedbench.papers.stored_durations import FILE, StoredDurations, Timing, from_text, merged, timing_of, to_text
from fedbench.runs.results import Results
from fedbench.runs.run import Run


def main() -> None:
    """Read the runs and write the file."""
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="directory of runs, or published report")
    p.add_argument("--machine", required=True, help="what the runs were made on: cores, processor, PyTorch")
    p.add_argument("--into", type=Path, default=FILE, help="the file (default: that of fedbench)")
    asked = p.parse_args()
    new = merged(t for folder in asked.folders for t in _timings(Results(folder)))
    before = from_text(asked.into.read_text(encoding="utf-8")) if asked.into.exists() else None
    old = _kept(before, new) if before is not None and before.machine == asked.machine else []
    timings: dict[str, tuple[Timing, ...]] = {}
    for t in merged([*old, *new]):
        timings[t.experiment] = (*timings.get(t.experiment, ()), t)
    rounds = {e: compose_run([f"experiment={e}", f"algo={of[0].algo}"]).rounds for e, of in timings.items()}
    asked.into.write_text(to_text(StoredDurations(asked.machine, rounds, timings)), encoding="utf-8")
    print(f"{asked.into}: {len(new)} settings measured, {len(old)} kept", file=sys.stderr)


def _timings(runs: Iterable[Run]) -> list[Timing]:
    """Return the times of the finished runs of the papers' experiments."""
    mine = (run for run in runs if run.done and home_of(run.meta["experiment"]) is not None)
    return [t for run in mine if (t := timing_of(run)) is not None]


def _kept(before: StoredDurations, new: Iterable[Timing]) -> list[Timing]:
    measured = {(t.experiment, t.algo, t.work, t.rounds) for t in new}
    every = (t for of in before.timings.values() for t in of)
    return [t for t in every if (t.experiment, t.algo, t.work, t.rounds) not in measured]


if __name__ == "__main__":
    main()

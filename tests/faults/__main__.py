"""``python -m faults [--count N] [--seed S] [SUITE ...]``: inject faults, print a table, and fail if one did harm."""

import argparse
import gc
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from faults.shim import preloaded, why_not  # noqa: E402

# shares of the count; a suite has at least _LEAST faults
_SHARES = {
    "kills": 0.265, "signals": 0.02, "early": 0.0024, "shared": 0.008, "errors": 0.05, "disks": 0.02, "readonly": 0,
    "vanishing": 0.02, "clocks": 0.005, "runs": 0.4, "checkpoints": 0.5, "resumed": 0.02, "caches": 0.1,
    "reports": 0.02, "preparations": 0.02,
}  # fmt: skip
_LEAST = 2


def main() -> int:
    """Run the suites."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[[], *_SHARES], metavar="SUITE", help=", ".join(_SHARES))
    parser.add_argument("--count", type=int, default=10_000, help="damaged files; the other suites follow (10000)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the places of faults (0)")
    asked = parser.parse_args()
    if why := why_not():
        print(f"skipped: {why}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if "FAULTS_SHIM" not in os.environ:  # the shim is there from the start of a process
            command = [sys.executable, "-m", "faults", *sys.argv[1:]]
            paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
            # the caches of the user stay as they are
            own = {"PYTHONPATH": paths, "XDG_CACHE_HOME": folder, "PYTHONHASHSEED": "0"}
            return os.spawnve(os.P_WAIT, sys.executable, command, {**preloaded(Path(folder)), **own})
        return _carry_out(asked.suites or list(_SHARES), asked.count, random.Random(asked.seed), Path(folder))


def _carry_out(names: list[str], count: int, draw: random.Random, folder: Path) -> int:
    from faults import damage, interruptions, reports, surroundings
    from faults.outcomes import Tally, table
    from faults.subject import subjects, warm

    room = interruptions.room_of(folder)
    every = subjects(room / "runs")
    plain, in_files = (next(s for s in every if s.name == name) for name in ("ditto", "scaffold in files"))
    some, disk, parts = [plain, in_files], folder / "disk", {n: _part(n, count) for n in _SHARES}
    suites: dict[str, Callable[[], Tally]] = {
        "kills": lambda: interruptions.kills(every, parts["kills"]),
        "signals": lambda: interruptions.signals(some, parts["signals"]),
        "early": lambda: interruptions.early_signals(some, parts["early"], draw),
        "shared": lambda: interruptions.shared(some, parts["shared"], draw),
        "errors": lambda: surroundings.errors(some, parts["errors"]),
        "disks": lambda: surroundings.full_disks(some, parts["disks"], disk),
        "readonly": lambda: surroundings.read_only(some, disk),
        "vanishing": lambda: surroundings.vanishing(some, parts["vanishing"]),
        "clocks": lambda: surroundings.clocks(every, parts["clocks"]),
        "runs": lambda: damage.finished_runs(some, parts["runs"], draw),
        "checkpoints": lambda: damage.checkpoints(some, parts["checkpoints"], draw),
        "resumed": lambda: damage.resumed(some, parts["resumed"], draw),
        "caches": lambda: damage.caches(room / "caches", parts["caches"], draw),
        "reports": lambda: reports.reports(room / "reports", parts["reports"]),
        "preparations": lambda: reports.preparations(room / "preparations", parts["preparations"]),
    }
    try:
        warm(every)
        gc.collect()
        gc.freeze()  # children then copy fewer pages
        tallies = []
        for name in names:
            started = time.monotonic()
            tallies.append(suites[name]())
            print(f"{tallies[-1].suite}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(room)
    print(*(report for t in tallies for report in t.reports[:20]), sep="\n")
    print(table(tallies))
    return 1 if any(t.bad for t in tallies) else 0


def _part(name: str, count: int) -> int:
    return max(_LEAST, round(_SHARES[name] * count))


if __name__ == "__main__":
    sys.exit(main())

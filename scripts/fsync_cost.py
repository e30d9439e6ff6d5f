#!/usr/bin/env python
"""Measure what fsync costs a run of workload W1 that writes a checkpoint after every round, and one at its defaults.

usage: python scripts/fsync_cost.py [--rounds N] [--repeats N] [--folder DIR]

Runs with fsync and with a function that does nothing in its place alternate, so that both see the same load of the
machine and of the disk. The numbers are medians, in milliseconds per round.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest.mock import patch

import fedbench
from fedbench.runs import train

W1 = "algo=fedavg data=synthetic_leaf data.clients=100 local.batch_size=10 local.epochs=1 device=cpu force=true"


def seconds(rounds: int, folder: Path, fsync: Callable[[int], None]) -> tuple[float, int]:
    """Return how long a run takes, and how often it called fsync."""
    calls = 0

    def counted(handle: int) -> None:
        nonlocal calls
        calls += 1
        fsync(handle)

    with patch.object(os, "fsync", counted):
        start = time.perf_counter()
        fedbench.run(f"{W1} rounds={rounds} results_dir={folder}")
        return time.perf_counter() - start, calls


def main() -> None:
    """Print the two comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the runs are written (default: the system's temporary one)")
    asked = parser.parse_args()
    by_default = train._CHECKPOINT_SHARE
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for share, name in ((0, "a checkpoint after every round"), (by_default, "at the defaults")):
            train._CHECKPOINT_SHARE = share
            found: dict[str, list[tuple[float, int]]] = {"fsync": [], "none": []}
            seconds(asked.rounds, Path(folder), os.fsync)  # imports, compiles, reads the data
            for _ in range(asked.repeats):
                found["fsync"].append(seconds(asked.rounds, Path(folder), os.fsync))
                found["none"].append(seconds(asked.rounds, Path(folder), lambda handle: None))
            with_it, without = (1000 * median(s for s, _ in runs) / asked.rounds for runs in found.values())
            calls = found["fsync"][0][1]
            print(f"{name}: {with_it:.1f} ms with fsync ({calls} calls), {without:.1f} ms without, per round")


if __name__ == "__main__":
    main()

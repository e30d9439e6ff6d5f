#!/usr/bin/env python
"""Measure what fsync costs a run of workload W1 that writes a checkpoint after every round, and one at its defaults.

usage: python scripts/fsync_cost.py [--rounds N] [--repeats N] [--folder DIR]

Runs with fsync and with a function that does nothing in its place alternate, so that both see the same load of the
machine and of the disk. The numbers are the quotients of neighbours, with fsync over without: median and quartiles.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from unittest.mock import patch

import fedbench
from fedbench.runs import training

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
    parser.add_argument("--repeats", type=int, default=10, help="pairs of runs; at least 2")
    parser.add_argument("--folder", type=Path, help="where the runs are written (default: the system's temporary one)")
    asked = parser.parse_args()
    by_default = training._CHECKPOINT_SHARE
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for share, name in ((0, "a checkpoint after every round"), (by_default, "at the defaults")):
            training._CHECKPOINT_SHARE = share
            seconds(asked.rounds, Path(folder), os.fsync)  # imports, compiles, reads the data
            quotients, calls = [], 0
            for i in range(asked.repeats):
                took, calls = seconds(asked.rounds, Path(folder), os.fsync) if i % 2 else (0.0, calls)
                without, _ = seconds(asked.rounds, Path(folder), lambda handle: None)
                if i % 2 == 0:  # each is first as often as the other
                    took, calls = seconds(asked.rounds, Path(folder), os.fsync)
                quotients.append(took / without)
            low, middle, high = quantiles(quotients, n=4, method="inclusive")
            print(f"{name}: {middle:.2f} times as long with fsync (quartiles {low:.2f} to {high:.2f}, {calls} calls)")


if __name__ == "__main__":
    main()

"""Write fedbench/runs/durations.json: the mean times of rounds, which say what a plan takes on other machines.

    python scripts/durations.py results results/published/fedfa --machine "2 cores of an Intel Xeon, PyTorch 2.13.0"

reads the finished runs of directories, or of the bundles of published reports. Times of other experiments, models,
local work and algorithms that are in the file are kept, as long as the machine has the same name; with another name
they are dropped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

from fedbench.papers.registry import home_of
from fedbench.runs.durations import FILE, per_round, task_of
from fedbench.runs.results import Results


def main() -> None:
    """Read the runs and write the file."""
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="directory of runs, or published report")
    p.add_argument("--machine", required=True, help="what the runs were made on: cores, processor, PyTorch")
    p.add_argument("--into", type=Path, default=FILE, help="the file (default: that of fedbench)")
    asked = p.parse_args()
    measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in (run for folder in asked.folders for run in Results(folder)):
        experiment = run.meta["experiment"]
        if run.done and home_of(experiment) is not None and (seconds := per_round(run.last_round())) is not None:
            task = task_of(experiment, run.meta["departures"])
            measured[task][run.meta["algo"]].append(seconds)
    before = json.loads(asked.into.read_text(encoding="utf-8")) if asked.into.exists() else {}
    times = before["seconds_per_round"] if before.get("machine") == asked.machine else {}
    for experiment, of in measured.items():
        times.setdefault(experiment, {}).update({algo: round(mean(s), 4) for algo, s in of.items()})
    lines = ",\n".join(f"  {json.dumps(e)}: {json.dumps(of, sort_keys=True)}" for e, of in sorted(times.items()))
    text = f'{{\n "machine": {json.dumps(asked.machine)},\n "seconds_per_round": {{\n{lines}\n }}\n}}\n'
    asked.into.write_text(text, encoding="utf-8")
    print(f"{asked.into}: {sum(map(len, measured.values()))} times measured", file=sys.stderr)


if __name__ == "__main__":
    main()

#!/usr/bin/env python
"""Measure and draw what a round, an evaluation, the data and the memory cost over the number of clients.

    python scripts/population_picture.py [--clients 10000,100000,1000000] [--picture FILE.png] [--json FILE]

Synthetic(1, 1) with 5 examples a client and a linear model of 610 parameters, 100 clients a round, 200 rounds, every
20th evaluated on 1000 clients or all; a checkpoint and the final files are written too. Times are seconds of a CPU,
which other processes on the machine hardly change; those of a round and of an evaluation are medians. Every point has a
process of its own, and its peak memory is the one that the system reports. By default the picture is
docs/figures/population.png.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedbench.config.compose import compose_run
from fedbench.runs.build import build
from fedbench.runs.recorder import Recorder
from fedbench.runs.training import TrainingSession

ROOT = Path(__file__).parent.parent
FIXED = ["data=synthetic_1_1", "data.source.most=5", "participation=100", "rounds=200", "eval_every=20"]
LINES = {  # label: overrides, colour, dashes
    "FedAvg": (["algo=fedavg", "evaluate.clients=1000"], "#0072B2", "-"),
    "AdaFedAdam": (["algo=adafedadam", "evaluate.clients=1000"], "#009E73", "--"),
    "SCAFFOLD": (["algo=scaffold", "evaluate.clients=1000"], "#D55E00", "-."),
    "FedAvg, all evaluated": (["algo=fedavg"], "#56B4E9", ":"),
}
PANELS = {  # key: label of the axis, factor, lowest value shown
    "round": ("a round of 100 clients, CPU ms", 1e3, 0.1),
    "evaluation": ("an evaluation, CPU ms", 1e3, 0.1),
    "memory": ("peak memory, GB", 1e-9, 0.1),
    "data": ("making the data, CPU s", 1, 0.1),
}


def point(overrides: list[str]) -> dict[str, float]:
    """Return CPU seconds of the data, of a round, of an evaluation and of a checkpoint, and bytes, of a run here."""
    torch.set_num_threads(1)
    took: dict[str, list[float]] = {"round": [], "evaluation": []}
    begun = time.process_time()
    prepared = build(compose_run([*overrides, "engine.workers=1"]))
    data = time.process_time() - begun
    with tempfile.TemporaryDirectory() as folder:
        session = TrainingSession(prepared, Recorder(Path(folder) / "run"))
        snapshots = session.snapshots()
        while True:
            begun = time.process_time()
            snapshot = next(snapshots, None)
            if snapshot is None:
                break
            took["round"].append(time.process_time() - begun)
            if session.evaluates(snapshot.round):
                begun = time.process_time()
                session.record(snapshot)
                took["evaluation"].append(time.process_time() - begun)
        begun = time.process_time()
        session._save(session.last)
        saved = time.process_time() - begun
        written = sum(file.stat().st_size for file in session.recorder.folder.rglob("*.safetensors"))
        session.finish({})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    medians = {k: float(np.median(v[1:])) for k, v in took.items()}
    return {"data": data, **medians, "checkpoint": saved, "checkpoint_bytes": written, "memory": peak}


def picture(found: dict[str, dict[int, dict[str, float]]]) -> Any:
    """Return a panel for each quantity over the number of clients."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.6), layout="constrained")
    panels = figure.subplots(1, len(PANELS))
    for axes, (key, (label, factor, least)) in zip(panels, PANELS.items(), strict=True):
        for name, (_, colour, dashes) in LINES.items():
            points = found[name]
            values = [factor * p[key] for p in points.values()]
            axes.plot(list(points), values, "o", linestyle=dashes, color=colour, label=name, markersize=4)
        axes.set(xlabel="clients", title=label, xscale="log", yscale="log")
        axes.set_ylim(min(least, axes.get_ylim()[0]), max(10, axes.get_ylim()[1]))
        axes.grid(color="0.9")
    panels[2].axhline(4, color="0.4", linewidth=0.8)
    panels[2].text(min(found["FedAvg"]), 4.2, "4 GB", color="0.3", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(LINES), frameon=False)
    return figure


def main() -> None:
    """Measure all points, print a row for each, and draw them; with --point, measure one for the parent process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="10000,100000,1000000", help="numbers of clients")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "figures" / "population.png")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(point(args.point)))
        return
    found: dict[str, dict[int, dict[str, float]]] = {name: {} for name in LINES}
    heads = ("", "clients", "data s", "round ms", "eval. ms", "checkpoint ms", "MB", "peak GB")
    print("{:<22} {:>9} {:>8} {:>9} {:>9} {:>14} {:>8} {:>8}".format(*heads))
    for clients in map(int, args.clients.split(",")):
        for name, (overrides, *_) in LINES.items():
            command = [sys.executable, __file__, "--point", json.dumps([*FIXED, *overrides, f"data.clients={clients}"])]
            got = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            found[name][clients] = got
            row = f"{got['data']:8.1f} {1e3 * got['round']:9.2f} {1e3 * got['evaluation']:9.1f}"
            row += f" {1e3 * got['checkpoint']:14.0f} {got['checkpoint_bytes'] / 1e6:8.1f} {got['memory'] / 1e9:8.2f}"
            print(f"{name:<22} {clients:9} {row}", flush=True)
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    picture(found).savefig(args.picture, dpi=120)
    print(f"written: {args.picture}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Figures of a user's own runs: a picture of the curves and one of the clients per experiment or data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.analysis.matching import Found, reductions
from fedbench.report import plots
from fedbench.report.figures import axis, last_clients, scale
from fedbench.report.plots import Panel, Series
from fedbench.report.tables import settings_of
from fedbench.report.views import FigureView
from fedbench.runs.store import Run

_FIELDS = ("train_loss", "accuracy_mean", "accuracy_worst30")


def own_figures(name: str, runs: Sequence[Run], folder: Path) -> list[FigureView]:
    """Draw the runs of an experiment or data set, and return the pictures.

    Args:
        name: of the experiment or data set.
        runs: those that are not done are left out.
        folder: where pictures go.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.done and run.meta["status"] == "done":
            groups.setdefault((run.meta["algo"], run.meta["hash"]), []).append(run)
    if not groups:
        return []
    found = {key: Found({r.meta["seed"]: r for r in members}) for key, members in sorted(groups.items())}
    labels = {key: f"{key[0]} {settings_of(groups, key)}".rstrip() for key in found}
    base = folder / name.replace("/", "_")
    panels = []
    for field in _FIELDS:
        series = [_series(labels[key], f, field, i) for i, (key, f) in enumerate(found.items())]
        if known := [s for s in series if s is not None]:
            panels.append(Panel("", known, "round", axis(field)))
    cuts = {key: reductions(runs[0].meta["departures"], runs[0].meta["model"]) for key, runs in sorted(groups.items())}
    reduced = tuple(f"{labels[key]}: {', '.join(words)}" for key, words in cuts.items() if words)
    files = plots.curves(base.with_name(f"{base.name}_curves"), name, panels, reduced=bool(reduced)) if panels else []
    clients = [(labels[key], _accuracies(f), i) for i, (key, f) in enumerate(found.items())]
    if shown := [c for c in clients if len(c[1])]:
        panel = ("clients of all seeds", shown)
        files += plots.distribution(base.with_name(f"{base.name}_clients"), name, [panel], reduced=bool(reduced))
    svgs = [f for f in files if f.suffix == ".svg"]
    return [FigureView(f.stem, name, "", f.read_text(encoding="utf-8"), reduced, "") for f in svgs]


def _series(label: str, found: Found, field: str, index: int) -> Series | None:
    curves = found.curve(field)
    if not curves:
        return None
    table = pd.DataFrame(curves)
    return Series(label, table.index.to_numpy(float), table.to_numpy().T * scale(field), index)


def _accuracies(found: Found) -> np.ndarray:
    kept = [run for run in found.runs.values() if (run.path / "clients.parquet").exists()]
    parts = [last_clients(run.clients())["accuracy"].dropna().to_numpy(float) for run in kept]
    return 100 * np.concatenate([*parts, np.empty(0)])

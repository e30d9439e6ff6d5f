"""The figures of a paper and of runs that belong to no paper, as PNG and SVG."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.analysis.matching import Evidence, MatchedRuns, departure_texts, last_clients
from fedbench.analysis.measures import final, low_and_high, moments
from fedbench.analysis.metrics_catalogue import metric_info
from fedbench.analysis.settings import keys_text
from fedbench.analysis.tables import Line, TableData
from fedbench.papers.registry import Adjustments, CurvesPerSetup, Figure, FrontPerSetup, Paper, Row, SweepPerSetup
from fedbench.report import plots
from fedbench.report.plots import Panel, Series
from fedbench.report.views import FigureView
from fedbench.runs.store import Run

_FIELDS = ("train_loss", "accuracy_mean", "accuracy_worst30")  # figures of runs of no paper
LABELS = "labels"  # folder in the results directory: examples per client and class, by experiment
Found = dict[int, MatchedRuns]  # the runs of a figure's rows, by the index of the row
# suffix of the file, drawing function, and its arguments after the title: the panels, and what else it needs
Picture = tuple[str, Callable[..., list[Path]], list[Any], tuple[Any, ...]]


class FigureMaker:
    """Draws the figures of a paper for which ``root`` contains runs, and writes them to ``folder``."""

    def __init__(self, paper: Paper, evidence: Evidence, root: Path, folder: Path) -> None:
        self.paper, self.evidence, self.root, self.folder = paper, evidence, root, folder
        self._kinds: dict[str, Callable[[Figure, Found], list[Picture]]] = {
            "curves": self._curves,
            "distribution": self._distribution,
            "sweep": self._sweep,
            "front": self._front,
            "labels": self._labels,
            "two_clients": self._two_clients,
            "functions": self._functions,
            "cka": self._cka,
        }

    def all(self) -> list[FigureView]:
        """Return the figures of the paper, except for sketches."""
        return [view for f in self.paper.figures.values() if f.kind != "schematic" for view in self.one(f)]

    def one(self, figure: Figure) -> list[FigureView]:
        """Draw a figure if runs exist, and return it; a figure with several pictures is returned as several."""
        found = {i: f for i, r in enumerate(figure.rows) if (f := self.evidence.find(self.paper, r)).runs}
        why: dict[tuple[str, ...], list[str]] = {}
        for i, f in found.items():
            if f.reduced:
                row = figure.rows[i]
                name = f"{self._label(row)} on {self._setup(row.setup)}"
                why.setdefault(departure_texts(f.reduced), []).append(name)
        cuts = [
            ("all runs" if len(names) == len(found) > 1 else ", ".join(dict.fromkeys(names))) + ": " + ", ".join(words)
            for words, names in why.items()
        ]
        heading = f"{self.paper.name}, {figure.id.replace('figure', 'Figure ').replace('_', '')}"
        files = []
        for part, draw, panels, others in self._kinds[figure.kind](figure, found):
            if panels or others:
                base = self.folder / f"{self.paper.id}_{figure.id}{part}"
                files += draw(base, heading, panels, *others, reduced=bool(cuts))
        missing = len(figure.rows) - len(found)
        view = FigureView(
            f"{self.paper.id}/{figure.id}",
            f"{self.paper.name}, Figure {figure.id.removeprefix('figure').replace('_', '').upper()}",
            figure.caption,
            "",
            tuple(dict.fromkeys(cuts)),
            f"{missing} of {len(figure.rows)} runs are missing" if missing else "",
        )
        svgs = [f for f in files if f.suffix == ".svg"]
        drawn = [replace(view, name=f.stem.replace("_", "/", 1), svg=f.read_text(encoding="utf-8")) for f in svgs]
        return drawn or [view]

    def _setup(self, setup: str) -> str:
        return self.paper.setups[setup].title

    def _label(self, row: Row) -> str:
        return f"{self.paper.methods[row.algo].label} {keys_text(row.hyperparameters)}".rstrip()

    def _index(self, figure: Figure, row: Row) -> int:
        """Return a method's index in the paper's list, so that it looks the same in all figures."""
        same = list(dict.fromkeys(self._label(r) for r in figure.rows if r.algo == row.algo))
        order = list(self.paper.methods)
        return order.index(row.algo) if len(same) == 1 else same.index(self._label(row))

    def _panels(self, figure: Figure, found: Found, fields: Iterable[str]) -> list[Panel]:
        """Return a panel per setup and field, with the curves of all rows."""
        panels = []
        for setup in figure.setups:
            here = [(figure.rows[i], f) for i, f in found.items() if figure.rows[i].setup == setup]
            for field in fields:
                curves = [(row, c.values()) for row, f in here if (c := f.curve(field))]
                drawn = [_series(self._label(row), c, field, self._index(figure, row)) for row, c in curves]
                if drawn:
                    panels.append(Panel(self._setup(setup), drawn, "round", metric_info(field).axis))
        return panels

    def _curves(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, CurvesPerSetup)
        fields = figure.spec.fields
        draw = partial(plots.curves, log_y=fields == ("update_norm",))
        clients = self._distribution(figure, found, "_distribution") if figure.spec.distribution else []
        return [("", draw, self._panels(figure, found, fields), ()), *clients]

    def _distribution(self, figure: Figure, found: Found, part: str = "") -> list[Picture]:
        panels = []
        for setup in figure.setups:
            here = [(figure.rows[i], f) for i, f in found.items() if figure.rows[i].setup == setup]
            values = [(self._label(r), _accuracies(f.runs.values()), self._index(figure, r)) for r, f in here]
            if values:
                panels.append((self._setup(setup), values))
        return [(part, plots.distribution, panels, ())]

    def _sweep(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, SweepPerSetup)
        parameter, panels = figure.spec.parameter, []
        for setup in figure.setups:
            here = [i for i in found if figure.rows[i].setup == setup]
            for field in figure.spec.fields if here else ():
                x = np.array([float(figure.rows[i].hyperparameters[parameter]) for i in here])
                y = _columns([found[i] for i in here], field) * metric_info(field).factor
                algo = figure.rows[here[0]].algo
                drawn = [Series(self.paper.methods[algo].label, x, y, list(self.paper.methods).index(algo))]
                panels.append(Panel(self._setup(setup), drawn, parameter, metric_info(field).axis))
        return [("", plots.sweep, panels, ())]

    def _front(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, FrontPerSetup)
        if not found:
            return []
        sweep, (one, two) = figure.spec.sweep, figure.spec.fields
        swept = {i: f for i, f in found.items() if sweep.parameter in figure.rows[i].hyperparameters}
        points = []
        for i in (i for i in found if i not in swept):
            x, y = (_columns([found[i]], field)[:, 0] for field in (one, two))
            points.append((self._label(figure.rows[i]), x, y, self._index(figure, figure.rows[i])))
        connected = []
        if swept:
            x, y = (_columns(list(swept.values()), field).T for field in (one, two))
            texts = [f"{figure.rows[i].hyperparameters[sweep.parameter]:g}" for i in swept]
            name = f"{self.paper.methods[sweep.algo].label} over {sweep.parameter}"
            connected.append((name, x, y, texts, list(self.paper.methods).index(sweep.algo)))
        axes = (metric_info(one).axis, metric_info(two).axis)
        return [
            ("", plots.front, points, (connected, *axes)),
            ("_curves", plots.curves, self._panels(figure, swept, (one, two)), ()),
        ]

    def _labels(self, figure: Figure, found: Found) -> list[Picture]:
        panels = []
        for setup in figure.setups:
            path = self.root / LABELS / f"{self.paper.setups[setup].experiment}.json"
            if path.exists():
                panels.append((self._setup(setup), np.array(json.loads(path.read_text(encoding="utf-8")))))
        return [("", plots.bars, panels, ())]

    def _two_clients(self, figure: Figure, found: Found) -> list[Picture]:
        panels = []
        for i, f in found.items():
            pairs = [low_and_high(run.clients()) for run in f.runs.values()]
            drawn = [
                _series(name, [pair[k] for pair in pairs], "train_loss", k)
                for k, name in enumerate(("lowest loss at first", "highest loss at first"))
            ]
            panels.append(Panel(self._setup(figure.rows[i].setup), drawn, "round", "training loss"))
        return [("", plots.curves, panels, ())]

    def _cka(self, figure: Figure, found: Found) -> list[Picture]:
        first = {i: next(iter(moments(f).items()), None) for i, f in found.items()}
        panels = [(f"{self._label(figure.rows[i])}, seed {x[0].seed}", x[1]) for i, x in first.items() if x is not None]
        return [("", plots.matrix, panels, ())]

    def _functions(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, Adjustments)
        t = np.arange(1, figure.spec.rounds + 1)
        z = figure.spec.beta**t
        kinds = {"1 + z": 1 + z, "1 + z²": 1 + z**2, "1 + sin z": 1 + np.sin(z), "1 + √z": 1 + np.sqrt(z)}
        drawn = [Series(name, t.astype(float), y[None], i) for i, (name, y) in enumerate(kinds.items())]
        panel = Panel(f"z = {figure.spec.beta} to the power of the round", drawn, "round", "denominator")
        return [("", plots.curves, [panel], ())]


def _series(label: str, curves: Iterable[pd.Series], field: str, index: int) -> Series:
    """Return the curves of a field, one per run, as they are drawn: in its printed unit."""
    table = pd.DataFrame(dict(enumerate(curves)))
    return Series(label, table.index.to_numpy(float), table.to_numpy().T * metric_info(field).factor, index)


def _accuracies(runs: Iterable[Run]) -> np.ndarray:
    """Return the accuracies of the clients of all runs in their last rounds, in percent."""
    parts = [last_clients(run)["accuracy"].dropna().to_numpy(float) for run in runs]
    return 100 * np.concatenate([*parts, np.empty(0)])


def _columns(found: Sequence[MatchedRuns], field: str) -> np.ndarray:
    """Return final values [seeds, rows], NaN where a seed was not run."""
    return pd.DataFrame([final(f, field) for f in found]).sort_index(axis=1).to_numpy(float).T


# ---- runs of no paper


def run_figures(table: TableData, folder: Path) -> list[FigureView]:
    """Draw the runs of a table and return the pictures; settings of different lengths have separate panels."""
    lines = table.lines
    if not lines:
        return []
    base, name = folder / table.name.replace("/", "_"), table.name
    reduced = tuple(f"{_label(x)}: {', '.join(departure_texts(x.found.reduced))}" for x in lines if x.found.reduced)
    lengths = sorted({_length(line) for line in lines})
    panels = [p for field in _FIELDS for n in lengths if (p := _panel(lines, field, n, len(lengths) > 1)) is not None]
    files = plots.curves(base.with_name(f"{base.name}_curves"), name, panels, reduced=bool(reduced)) if panels else []
    clients = []
    for n in lengths:
        shown = [(_label(x), values, i) for i, x in _of_length(lines, n) if len(values := _kept_accuracies(x))]
        if shown:
            clients.append(("clients of all seeds" + (f", {n} rounds" if len(lengths) > 1 else ""), shown))
    if clients:
        files += plots.distribution(base.with_name(f"{base.name}_clients"), name, clients, reduced=bool(reduced))
    svgs = [f for f in files if f.suffix == ".svg"]
    return [FigureView(f.stem, name, "", f.read_text(encoding="utf-8"), reduced, "") for f in svgs]


def _label(line: Line) -> str:
    return f"{line.label} {keys_text(line.keys)}".rstrip()


def _length(line: Line) -> int:
    """Return the number of rounds in the configuration of a setting, which all its seeds share."""
    return max(int(run.config["rounds"]) for run in line.found.runs.values())


def _of_length(lines: Sequence[Line], rounds: int) -> list[tuple[int, Line]]:
    return [(i, line) for i, line in enumerate(lines) if _length(line) == rounds]


def _panel(lines: Sequence[Line], field: str, rounds: int, several: bool) -> Panel | None:
    series = [_of_line(line, field, i) for i, line in _of_length(lines, rounds)]
    known = [s for s in series if s is not None]
    return Panel(f"{rounds} rounds" if several else "", known, "round", metric_info(field).axis) if known else None


def _of_line(line: Line, field: str, index: int) -> Series | None:
    """Return the curves of a setting; if its seeds end in different rounds, the label lists these."""
    curves = line.found.curve(field)
    ends = sorted({int(curve.index[-1]) for curve in curves.values()})
    label = _label(line) + (f" (seeds end at rounds {', '.join(map(str, ends))})" if len(ends) > 1 else "")
    return _series(label, curves.values(), field, index) if curves else None


def _kept_accuracies(line: Line) -> np.ndarray:
    return _accuracies(run for run in line.found.runs.values() if (run.path / "clients.parquet").exists())

"""The figures of a paper and of runs that belong to no paper, as PNG and SVG."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.analysis.claims.curves import final, low_and_high, moments
from fedbench.analysis.matching import Evidence, MatchedRuns, departure_texts, last_clients
from fedbench.analysis.settings import keys_text
from fedbench.analysis.tables import Line, TableData
from fedbench.core.metrics import metric_info
from fedbench.papers.registry import LABELS
from fedbench.papers.schema import Adjustments, CurvesPerSetup, Figure, FrontPerSetup, Paper, Row, SweepPerSetup
from fedbench.report import alt_text, grids, plots
from fedbench.report.drawing import Drawing
from fedbench.report.looks import Look, looks
from fedbench.report.plots import Clients, Panel, Point, Series, Spread, Swept
from fedbench.report.views import FigureView, tuning_of
from fedbench.runs.run import Run

_FIELDS = ("train_loss", "accuracy_mean", "accuracy_worst30")  # figures of runs of no paper
_MOST = 24  # settings in a figure of runs of no paper; more cannot be told apart
_OF_COHORT = ("improved_clients",)  # fields measured on the clients of a round, which are few
Found = dict[int, MatchedRuns]  # the runs of a figure's rows, by the index of the row
Looks = dict[tuple[str, str], Look]  # by method and label


@dataclass(frozen=True)
class Picture:
    """A picture of a figure.

    Attributes:
        part: Suffix of its files; a figure may have several pictures.
        draw: Drawing function of ``fedbench.report.plots``.
        panels: Its argument after the title.
        others: Its further arguments.
        seen: Function of ``fedbench.report.alt_text`` with the same arguments.
    """

    part: str
    draw: Callable[..., list[Path]]
    panels: list[Any]
    seen: Callable[..., str]
    others: tuple[Any, ...] = ()


class FigureMaker:
    """Has the figures of a paper drawn for which ``root`` contains runs, into ``folder``."""

    def __init__(self, paper: Paper, evidence: Evidence, root: Path, folder: Path, drawing: Drawing) -> None:
        self.paper, self.evidence, self.root, self.folder, self.drawing = paper, evidence, root, folder, drawing
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
        run = {figure.rows[i].setup for i in found}
        if lacking := [self._setup(s) for s in figure.setups if run and s not in run]:
            heading += f"; not run: {', '.join(lacking)}"
        drawn: list[FigureView] = []
        missing = len(figure.rows) - len(found)
        view = FigureView(
            f"{self.paper.id}/{figure.id}",
            f"{self.paper.name}, Figure {figure.id.removeprefix('figure').replace('_', '').upper()}",
            figure.caption,
            "",
            tuple(dict.fromkeys(cuts)),
            f"{missing} of {len(figure.rows)} runs are missing" if missing else "",
            tuning=tuning_of(figure.tuning),
        )
        for picture in self._kinds[figure.kind](figure, found):
            if picture.panels or picture.others:
                base = self.folder / f"{self.paper.id}_{figure.id}{picture.part}"
                alt = picture.seen(picture.panels, *picture.others)
                one = replace(view, name=base.name.replace("_", "/", 1), alt=alt)
                given = (heading, picture.panels, *picture.others)
                drawn.append(self.drawing.draw(one, picture.draw, base, *given, reduced=bool(cuts)))
        return drawn or [view]

    def _setup(self, setup: str) -> str:
        return self.paper.setups[setup].title

    def _label(self, row: Row) -> str:
        return f"{self.paper.methods[row.algo].label} {keys_text(row.hyperparameters)}".rstrip()

    def _looks(self, rows: Iterable[Row]) -> Looks:
        """Return the looks of a figure's runs; the subject is the method whose algo is named like the paper."""
        return looks([(self.paper.methods[r.algo].algo, self._label(r)) for r in rows], self.paper.id)

    def _look(self, given: Looks, row: Row) -> Look:
        return given[self.paper.methods[row.algo].algo, self._label(row)]

    def _note(self, figure: Figure, found: Found, setup: str, rows: Iterable[int] | None = None) -> str:
        """Return which of the figure's runs on a setup are not drawn, and why; empty if none is drawn."""
        wanted = range(len(figure.rows)) if rows is None else rows
        here = [i for i in wanted if figure.rows[i].setup == setup]
        why: dict[str, list[str]] = {}
        for i in here:
            if i not in found:
                lost = self.evidence.find(self.paper, figure.rows[i]).diverged
                why.setdefault("diverged" if lost else "not run", []).append(self._label(figure.rows[i]))
        texts = [f"{', '.join(dict.fromkeys(names))} ({reason})" for reason, names in why.items()]
        return f"not drawn: {'; '.join(texts)}" if texts and len(here) > sum(map(len, why.values())) else ""

    def _panels(self, figure: Figure, found: Found, fields: Iterable[str], tags: str = "") -> list[Panel]:
        """Return a panel per setup and field, with the curves of all rows; ``tags`` is a parameter to write at them."""
        panels = []
        for setup in figure.setups:
            here = [(figure.rows[i], f) for i, f in found.items() if figure.rows[i].setup == setup]
            look = self._looks(row for row, _ in here) if tags else self._looks(figure.rows)
            for field in fields:
                curves = [(row, c.values()) for row, f in here if (c := f.curve(field))]
                drawn = [
                    replace(_series(self._label(row), c, field, self._look(look, row)), tag=_tag(row, tags))
                    for row, c in curves
                ]
                if drawn:
                    axis = metric_info(field).axis
                    cut = "the first tenth of the rounds may exceed the axis"
                    note = cut if tags else self._note(figure, found, setup)
                    panels.append(Panel(self._setup(setup), drawn, "round", axis, note, _window(field, drawn)))
        return panels

    def _curves(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, CurvesPerSetup)
        fields = figure.spec.fields
        draw = partial(plots.curves, log_y=fields == ("update_norm",))
        clients = self._distribution(figure, found, "_distribution") if figure.spec.distribution else []
        return [Picture("", draw, self._panels(figure, found, fields), alt_text.of_curves), *clients]

    def _distribution(self, figure: Figure, found: Found, part: str = "") -> list[Picture]:
        panels, look = [], self._looks(figure.rows)
        for setup in figure.setups:
            here = [(figure.rows[i], f) for i, f in found.items() if figure.rows[i].setup == setup]
            rows = [
                Clients(self._label(r), _accuracies(f.runs.values()), self._look(look, r), len(f.runs)) for r, f in here
            ]
            if rows:
                panels.append(Spread(self._setup(setup), rows, self._note(figure, found, setup)))
        return [Picture(part, plots.distribution, panels, alt_text.of_clients)]

    def _sweep(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, SweepPerSetup)
        parameter, panels = figure.spec.parameter, []
        for setup in figure.setups:
            here = [i for i in found if figure.rows[i].setup == setup]
            for field in figure.spec.fields if here else ():
                x = np.array([float(figure.rows[i].hyperparameters[parameter]) for i in here])
                y = _columns([found[i] for i in here], field) * metric_info(field).factor
                method = self.paper.methods[figure.rows[here[0]].algo]
                look = looks([(method.algo, method.label)], self.paper.id)[method.algo, method.label]
                note = self._note(figure, found, setup)
                axis = metric_info(field).axis
                panels.append(Panel(self._setup(setup), [Series(method.label, x, y, look)], parameter, axis, note))
        return [Picture("", plots.sweep, panels, alt_text.of_sweep)]

    def _front(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, FrontPerSetup)
        if not found:
            return []
        sweep, (one, two) = figure.spec.sweep, figure.spec.fields
        swept = {i: f for i, f in found.items() if sweep.parameter in figure.rows[i].hyperparameters}
        name = f"{self.paper.methods[sweep.algo].label} over {sweep.parameter}"
        algo = self.paper.methods[sweep.algo].algo
        others = [figure.rows[i] for i in found if i not in swept]
        look = looks(
            [*((self.paper.methods[r.algo].algo, self._label(r)) for r in others), (algo, name)], self.paper.id
        )
        factors = metric_info(one).factor, metric_info(two).factor
        points = []
        for i in (i for i in found if i not in swept):
            x, y = (_columns([found[i]], f)[:, 0] * factor for f, factor in zip((one, two), factors, strict=True))
            points.append(Point(self._label(figure.rows[i]), x, y, self._look(look, figure.rows[i])))
        connected = []
        if swept:
            runs = list(swept.values())
            x, y = (_columns(runs, f).T * factor for f, factor in zip((one, two), factors, strict=True))
            texts = [f"{figure.rows[i].hyperparameters[sweep.parameter]:g}" for i in swept]
            connected.append(Swept(name, x, y, texts, look[algo, name]))
        axes = (metric_info(one).axis, metric_info(two).axis)
        panels = self._panels(figure, swept, (one, two), sweep.parameter)
        return [
            Picture("", plots.front, points, alt_text.of_front, (connected, *axes)),
            Picture("_curves", plots.curves, panels, alt_text.of_curves),
        ]

    def _labels(self, figure: Figure, found: Found) -> list[Picture]:
        panels = []
        for setup in figure.setups:
            path = self.root / LABELS / f"{self.paper.setups[setup].experiment}.json"
            if path.exists():
                panels.append((self._setup(setup), np.array(json.loads(path.read_text(encoding="utf-8")))))
        return [Picture("", grids.bars, panels, alt_text.of_labels)]

    def _two_clients(self, figure: Figure, found: Found) -> list[Picture]:
        panels = []
        for i, f in found.items():
            pairs = [low_and_high(run.clients()) for run in f.runs.values()]
            names = ("lowest loss at first", "highest loss at first")
            look = _plain_looks(names)
            drawn = [_series(name, [pair[k] for pair in pairs], "train_loss", look[k]) for k, name in enumerate(names)]
            panels.append(Panel(self._setup(figure.rows[i].setup), drawn, "round", "training loss"))
        return [Picture("", plots.curves, panels, alt_text.of_curves)]

    def _cka(self, figure: Figure, found: Found) -> list[Picture]:
        first = {i: next(iter(moments(f).items()), None) for i, f in found.items()}
        panels = [(f"{self._label(figure.rows[i])}, seed {x[0].seed}", x[1]) for i, x in first.items() if x is not None]
        return [Picture("", grids.matrix, panels, alt_text.of_matrices)]

    def _functions(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, Adjustments)
        t = np.arange(1, figure.spec.rounds + 1)
        z = figure.spec.beta**t
        kinds = {"1 + z": 1 + z, "1 + z²": 1 + z**2, "1 + sin z": 1 + np.sin(z), "1 + √z": 1 + np.sqrt(z)}
        look = _plain_looks(list(kinds))
        drawn = [Series(name, t.astype(float), y[None], look[i]) for i, (name, y) in enumerate(kinds.items())]
        panel = Panel(f"z = {figure.spec.beta} to the power of the round", drawn, "round", "denominator")
        return [Picture("", plots.curves, [panel], alt_text.of_curves)]


def _plain_looks(names: Sequence[str]) -> list[Look]:
    """Return looks for lines that are not methods."""
    return list(looks([("", name) for name in names]).values())


def _tag(row: Row, parameter: str) -> str:
    return f"{row.hyperparameters[parameter]:g}" if parameter else ""


def _window(field: str, drawn: Sequence[Series]) -> int:
    """Return how many points a line averages: a tenth, an odd number, where a point is measured on few clients."""
    points = max(len(s.x) for s in drawn)
    return 2 * (points // 20) + 1 if field in _OF_COHORT and points >= 20 else 1


def _series(label: str, curves: Iterable[pd.Series], field: str, look: Look) -> Series:
    """Return the curves of a field, one per run, as they are drawn: in its printed unit."""
    table = pd.DataFrame(dict(enumerate(curves)))
    return Series(label, table.index.to_numpy(float), table.to_numpy().T * metric_info(field).factor, look)


def _accuracies(runs: Iterable[Run]) -> np.ndarray:
    """Return the accuracies of the clients of all runs in their last rounds, in percent."""
    parts = [last_clients(run)["accuracy"].dropna().to_numpy(float) for run in runs]
    return 100 * np.concatenate([*parts, np.empty(0)])


def _columns(found: Sequence[MatchedRuns], field: str) -> np.ndarray:
    """Return final values [seeds, rows], NaN where a seed was not run."""
    return pd.DataFrame([final(f, field) for f in found]).sort_index(axis=1).to_numpy(float).T


# ---- runs of no paper


def run_figures(table: TableData, folder: Path, drawing: Drawing) -> list[FigureView]:
    """Have the runs of a table drawn and return the pictures; settings of different lengths have separate panels.

    Of many settings, only the first ones of the table are drawn, which a note says.
    """
    lines = table.lines[:_MOST]
    left = len(table.lines) - len(lines)
    note = f"not drawn: {left} of {len(table.lines)} settings; drawn are the first {_MOST} of the table" if left else ""
    if not lines:
        return []
    base, name = folder / table.name.replace("/", "_"), table.name
    reduced = tuple(f"{_label(x)}: {', '.join(departure_texts(x.found.reduced))}" for x in lines if x.found.reduced)
    lengths = sorted({_length(line) for line in lines})
    look = looks([(line.algo, _label(line)) for line in lines])
    panels = [p for field in _FIELDS for p in curve_panels(table, field)]
    pictures = [Picture("_curves", plots.curves, panels, alt_text.of_curves)]
    clients = []
    for n in lengths:
        shown = [
            Clients(_label(x), values, look[x.algo, _label(x)], len(x.found.runs))
            for x in _of_length(lines, n)
            if len(values := _kept_accuracies(x))
        ]
        if shown:
            clients.append(Spread("clients" + (f", {n} rounds" if len(lengths) > 1 else ""), shown))
    pictures.append(Picture("_clients", plots.distribution, clients, alt_text.of_clients))
    views = []
    for picture in pictures:
        if picture.panels:
            file = base.with_name(base.name + picture.part)
            view = FigureView(file.name, name, "", "", reduced, note, picture.seen(picture.panels))
            views.append(drawing.draw(view, picture.draw, file, name, picture.panels, reduced=bool(reduced)))
    return views


def curve_panels(table: TableData, field: str) -> list[Panel]:
    """Return the panels of a field for the runs of a table, one per number of rounds; of many settings, the first."""
    lines = table.lines[:_MOST]
    lengths = sorted({_length(line) for line in lines})
    look = looks([(line.algo, _label(line)) for line in lines])
    panels = [_panel(lines, field, n, look, len(lengths) > 1) for n in lengths]
    return [p for p in panels if p is not None]


def _label(line: Line) -> str:
    return f"{line.label} {keys_text(line.keys)}".rstrip()


def _length(line: Line) -> int:
    """Return the number of rounds in the configuration of a setting, which all its seeds share."""
    return max(int(run.config["rounds"]) for run in line.found.runs.values())


def _of_length(lines: Sequence[Line], rounds: int) -> list[Line]:
    return [line for line in lines if _length(line) == rounds]


def _panel(lines: Sequence[Line], field: str, rounds: int, look: Looks, several: bool) -> Panel | None:
    series = [_of_line(line, field, look[line.algo, _label(line)]) for line in _of_length(lines, rounds)]
    known = [s for s in series if s is not None]
    return Panel(f"{rounds} rounds" if several else "", known, "round", metric_info(field).axis) if known else None


def _of_line(line: Line, field: str, look: Look) -> Series | None:
    """Return the curves of a setting; if its seeds end in different rounds, the label lists these."""
    curves = line.found.curve(field)
    ends = sorted({int(curve.index[-1]) for curve in curves.values()})
    label = _label(line) + (f" (seeds end at rounds {', '.join(map(str, ends))})" if len(ends) > 1 else "")
    return _series(label, curves.values(), field, look) if curves else None


def _kept_accuracies(line: Line) -> np.ndarray:
    return _accuracies(run for run in line.found.runs.values() if run.has_clients)

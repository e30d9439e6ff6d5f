"""The figures of a paper, as PNG and SVG."""

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
from fedbench.analysis.departures import departure_texts
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.measured import last_clients
from fedbench.analysis.settings import keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.figures import Adjustments, CurvesPerSetup, Figure, FrontPerSetup, SweepPerSetup
from fedbench.papers.registry import LABELS
from fedbench.papers.rows import Row
from fedbench.papers.schema import Paper
from fedbench.report import alt_text, grids, plots
from fedbench.report.canvas import Look, looks
from fedbench.report.paper import DrawnFigure
from fedbench.report.plots import Clients, Panel, Point, Series, Spread, Swept
from fedbench.runs.run import Run

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
        alt: What is seen in it, in words.
        others: Its further arguments.
    """

    part: str
    draw: Callable[..., list[Path]]
    panels: list[Any]
    alt: str
    others: tuple[Any, ...] = ()


class FigureMaker:
    """Draws the figures of a paper for which ``root`` contains runs, into ``folder``."""

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

    def all(self) -> list[DrawnFigure]:
        """Return the figures of the paper, except for sketches."""
        return [view for f in self.paper.figures.values() if f.kind != "schematic" for view in self.one(f)]

    def one(self, figure: Figure) -> list[DrawnFigure]:
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
        missing = len(figure.rows) - len(found)
        tuning = figure.tuning
        view = DrawnFigure(
            f"{self.paper.id}/{figure.id}",
            f"{self.paper.name}, Figure {figure.id.removeprefix('figure').replace('_', '').upper()}",
            figure.caption,
            reduced=tuple(dict.fromkeys(cuts)),
            note=f"{missing} of {len(figure.rows)} runs are missing" if missing else "",
            tuning=(("in the paper", tuning.paper), ("here", tuning.here)) if tuning else (),
        )
        drawn = []
        for picture in self._kinds[figure.kind](figure, found):
            if picture.panels or picture.others:
                base = self.folder / f"{self.paper.id}_{figure.id}{picture.part}"
                one = replace(view, name=base.name.replace("_", "/", 1))
                drawn.append(drawn_figure(one, picture, base, heading))
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
                    replace(series_of(self._label(row), c, field, self._look(look, row)), tag=_tag(row, tags))
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
        panels = self._panels(figure, found, fields)
        return [Picture("", draw, panels, alt_text.of_curves(panels)), *clients]

    def _distribution(self, figure: Figure, found: Found, part: str = "") -> list[Picture]:
        panels, look = [], self._looks(figure.rows)
        for setup in figure.setups:
            here = [(figure.rows[i], f) for i, f in found.items() if figure.rows[i].setup == setup]
            rows = [
                Clients(self._label(r), accuracies_of(f.runs.values()), self._look(look, r), len(f.runs))
                for r, f in here
            ]
            if rows:
                panels.append(Spread(self._setup(setup), rows, self._note(figure, found, setup)))
        return [Picture(part, plots.distribution, panels, alt_text.of_clients(panels))]

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
        return [Picture("", plots.sweep, panels, alt_text.of_sweep(panels))]

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
            Picture("", plots.front, points, alt_text.of_front(points, connected, *axes), (connected, *axes)),
            Picture("_curves", plots.curves, panels, alt_text.of_curves(panels)),
        ]

    def _labels(self, figure: Figure, found: Found) -> list[Picture]:
        panels = []
        for setup in figure.setups:
            path = self.root / LABELS / f"{self.paper.setups[setup].experiment}.json"
            if path.exists():
                panels.append((self._setup(setup), np.array(json.loads(path.read_text(encoding="utf-8")))))
        return [Picture("", grids.bars, panels, alt_text.of_labels(panels))]

    def _two_clients(self, figure: Figure, found: Found) -> list[Picture]:
        panels = []
        for i, f in found.items():
            pairs = [low_and_high(run.clients()) for run in f.runs.values()]
            names = ("lowest loss at first", "highest loss at first")
            look = _plain_looks(names)
            drawn = [
                series_of(name, [pair[k] for pair in pairs], "train_loss", look[k]) for k, name in enumerate(names)
            ]
            panels.append(Panel(self._setup(figure.rows[i].setup), drawn, "round", "training loss"))
        return [Picture("", plots.curves, panels, alt_text.of_curves(panels))]

    def _cka(self, figure: Figure, found: Found) -> list[Picture]:
        first = {i: next(iter(moments(f).items()), None) for i, f in found.items()}
        panels = [(f"{self._label(figure.rows[i])}, seed {x[0].seed}", x[1]) for i, x in first.items() if x is not None]
        return [Picture("", grids.matrix, panels, alt_text.of_matrices(panels))]

    def _functions(self, figure: Figure, found: Found) -> list[Picture]:
        assert isinstance(figure.spec, Adjustments)
        t = np.arange(1, figure.spec.rounds + 1)
        z = figure.spec.beta**t
        kinds = {"1 + z": 1 + z, "1 + z²": 1 + z**2, "1 + sin z": 1 + np.sin(z), "1 + √z": 1 + np.sqrt(z)}
        look = _plain_looks(list(kinds))
        drawn = [Series(name, t.astype(float), y[None], look[i]) for i, (name, y) in enumerate(kinds.items())]
        panel = Panel(f"z = {figure.spec.beta} to the power of the round", drawn, "round", "denominator")
        return [Picture("", plots.curves, [panel], alt_text.of_curves([panel]))]


def _plain_looks(names: Sequence[str]) -> list[Look]:
    """Return looks for lines that are not methods."""
    return list(looks([("", name) for name in names]).values())


def _tag(row: Row, parameter: str) -> str:
    return f"{row.hyperparameters[parameter]:g}" if parameter else ""


def _window(field: str, drawn: Sequence[Series]) -> int:
    """Return how many points a line averages: a tenth, an odd number, where a point is measured on few clients."""
    points = max(len(s.x) for s in drawn)
    return 2 * (points // 20) + 1 if field in _OF_COHORT and points >= 20 else 1


def series_of(label: str, curves: Iterable[pd.Series], field: str, look: Look) -> Series:
    """Return the curves of a field, one per run, as they are drawn: in its printed unit."""
    table = pd.DataFrame(dict(enumerate(curves)))
    return Series(label, table.index.to_numpy(float), table.to_numpy().T * metric_info(field).factor, look)


def accuracies_of(runs: Iterable[Run]) -> np.ndarray:
    """Return the accuracies of the clients of all runs in their last rounds, in percent."""
    parts = [last_clients(run)["accuracy"].dropna().to_numpy(float) for run in runs]
    return 100 * np.concatenate([*parts, np.empty(0)])


def _columns(found: Sequence[MatchedRuns], field: str) -> np.ndarray:
    """Return final values [seeds, rows], NaN where a seed was not run."""
    return pd.DataFrame([final(f, field) for f in found]).sort_index(axis=1).to_numpy(float).T


def drawn_figure(figure: DrawnFigure, picture: Picture, base: Path, title: str) -> DrawnFigure:
    """Draw a picture and return its figure with it."""
    files = picture.draw(base, title, picture.panels, *picture.others, reduced=bool(figure.reduced))
    svg = next(file for file in files if file.suffix == ".svg").read_text(encoding="utf-8")
    return replace(figure, svg=svg, alt=picture.alt)

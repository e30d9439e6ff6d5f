"""The figures of a paper, drawn from runs, as PNG and SVG."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.analysis.matching import Evidence, MatchedRuns, departure_texts
from fedbench.analysis.measures import low_and_high, moments
from fedbench.analysis.metrics_catalogue import metric_info
from fedbench.analysis.settings import keys_text
from fedbench.papers.registry import (
    Adjustments,
    CurvesPerSetup,
    Figure,
    FrontPerSetup,
    Paper,
    Row,
    SweepPerSetup,
)
from fedbench.report import plots
from fedbench.report.plots import Panel, Series
from fedbench.report.views import FigureView

LABELS = "labels"  # folder in the results directory: examples per client and class, by experiment


class FigureMaker:
    """Draws the figures of a paper for which runs exist.

    Args:
        paper: The paper.
        evidence: The runs.
        root: Directory that contains the runs.
        folder: Directory of the pictures.
    """

    def __init__(self, paper: Paper, evidence: Evidence, root: Path, folder: Path) -> None:
        self.paper, self.evidence, self.root, self.folder = paper, evidence, root, folder
        self._kinds: dict[str, Callable[[Figure, dict[int, MatchedRuns]], Sequence[Path]]] = {
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
        files = self._kinds[figure.kind](figure, found)
        why: dict[tuple[str, ...], list[str]] = {}
        for i, f in found.items():
            if f.reduced:
                why.setdefault(departure_texts(f.reduced), []).append(self._title(figure, i))
        cuts = [
            ("all runs" if len(names) == len(found) > 1 else ", ".join(dict.fromkeys(names))) + ": " + ", ".join(words)
            for words, names in why.items()
        ]
        missing = len(figure.rows) - len(found)
        note = f"{missing} of {len(figure.rows)} runs are missing" if missing else ""
        number = figure.id.removeprefix("figure").replace("_", "").upper()
        title, reduced = f"{self.paper.name}, Figure {number}", tuple(dict.fromkeys(cuts))
        svgs = [f for f in files if f.suffix == ".svg"]
        if not svgs:
            return [FigureView(f"{self.paper.id}/{figure.id}", title, figure.caption, "", reduced, note)]
        return [
            FigureView(f.stem.replace("_", "/", 1), title, figure.caption, f.read_text(encoding="utf-8"), reduced, note)
            for f in svgs
        ]

    def _base(self, figure: Figure, part: str = "") -> Path:
        return self.folder / f"{self.paper.id}_{figure.id}{part}"

    def _title(self, figure: Figure, i: int) -> str:
        row = figure.rows[i]
        return f"{self._label(row)} on {self.paper.setups[row.setup].title}"

    def _label(self, row: Row) -> str:
        return f"{self.paper.methods[row.algo].label} {keys_text(row.hyperparameters)}".rstrip()

    def _heading(self, figure: Figure) -> str:
        return f"{self.paper.name}, {figure.id.replace('figure', 'Figure ').replace('_', '')}"

    def _index(self, figure: Figure, row: Row) -> int:
        """Return a method's index in the paper's list, so that it looks the same in all figures."""
        same = list(dict.fromkeys(self._label(r) for r in figure.rows if r.algo == row.algo))
        order = list(self.paper.methods)
        return order.index(row.algo) if len(same) == 1 else same.index(self._label(row))

    def _curves(self, figure: Figure, found: dict[int, MatchedRuns]) -> Sequence[Path]:
        assert isinstance(figure.spec, CurvesPerSetup)
        panels = []
        for setup in figure.setups:
            for field in figure.spec.fields:
                series = self._series(figure, found, setup, field)
                if series:
                    panels.append(Panel(self.paper.setups[setup].title, series, "round", metric_info(field).axis))
        if not panels:
            return []
        reduced = any(f.reduced for f in found.values())
        log = figure.spec.fields == ("update_norm",)
        files = plots.curves(self._base(figure), self._heading(figure), panels, log_y=log, reduced=reduced)
        if figure.spec.distribution:
            files = [*files, *self._distribution(figure, found, "_distribution")]
        return files

    def _series(self, figure: Figure, found: dict[int, MatchedRuns], setup: str, field: str) -> list[Series]:
        series = []
        for i, f in found.items():
            row = figure.rows[i]
            curves = f.curve(field) if row.setup == setup else {}
            if curves:
                table = pd.DataFrame(curves)
                y = table.to_numpy().T * metric_info(field).factor
                series.append(Series(self._label(row), table.index.to_numpy(float), y, self._index(figure, row)))
        return series

    def _distribution(self, figure: Figure, found: dict[int, MatchedRuns], part: str = "") -> Sequence[Path]:
        panels = []
        for setup in figure.setups:
            values = []
            for i, f in found.items():
                row = figure.rows[i]
                if row.setup == setup:
                    clients = [last_clients(run.clients())["accuracy"].dropna() for run in f.runs.values()]
                    joined = 100 * np.concatenate([c.to_numpy(float) for c in clients])
                    values.append((self._label(row), joined, self._index(figure, row)))
            if values:
                panels.append((self.paper.setups[setup].title, values))
        if not panels:
            return []
        reduced = any(f.reduced for f in found.values())
        return plots.distribution(self._base(figure, part), self._heading(figure), panels, reduced=reduced)

    def _sweep(self, figure: Figure, found: dict[int, MatchedRuns]) -> Sequence[Path]:
        assert isinstance(figure.spec, SweepPerSetup)
        parameter, panels = figure.spec.parameter, []
        for setup in figure.setups:
            here = [i for i in found if figure.rows[i].setup == setup]
            for field in figure.spec.fields if here else ():
                x = np.array([float(figure.rows[i].hyperparameters[parameter]) for i in here])
                y = _columns([found[i] for i in here], field) * metric_info(field).factor
                name = self.paper.methods[figure.rows[here[0]].algo].label
                series = [Series(name, x, y, list(self.paper.methods).index(figure.rows[here[0]].algo))]
                panels.append(Panel(self.paper.setups[setup].title, series, parameter, metric_info(field).axis))
        if not panels:
            return []
        reduced = any(f.reduced for f in found.values())
        return plots.sweep(self._base(figure), self._heading(figure), panels, reduced=reduced)

    def _front(self, figure: Figure, found: dict[int, MatchedRuns]) -> Sequence[Path]:
        assert isinstance(figure.spec, FrontPerSetup)
        if not found:
            return []
        sweep, (one, two) = figure.spec.sweep, figure.spec.fields
        swept = [i for i in found if sweep.parameter in figure.rows[i].hyperparameters]
        points = []
        for i in found:
            if i not in swept:
                x, y = (_columns([found[i]], field)[:, 0] for field in (one, two))
                points.append((self._label(figure.rows[i]), x, y, self._index(figure, figure.rows[i])))
        connected = []
        if swept:
            x, y = (_columns([found[i] for i in swept], field).T for field in (one, two))
            texts = [f"{figure.rows[i].hyperparameters[sweep.parameter]:g}" for i in swept]
            name = f"{self.paper.methods[sweep.algo].label} over {sweep.parameter}"
            connected.append((name, x, y, texts, list(self.paper.methods).index(sweep.algo)))
        reduced = any(f.reduced for f in found.values())
        heading = self._heading(figure)
        files = plots.front(
            self._base(figure),
            heading,
            points,
            connected,
            metric_info(one).axis,
            metric_info(two).axis,
            reduced=reduced,
        )
        panels = [
            Panel(self.paper.setups[setup].title, series, "round", metric_info(field).axis)
            for setup in figure.setups
            for field in (one, two)
            if (series := self._series(figure, {i: found[i] for i in swept}, setup, field))
        ]
        if panels:
            files += plots.curves(self._base(figure, "_curves"), heading, panels, reduced=reduced)
        return files

    def _labels(self, figure: Figure, found: dict[int, MatchedRuns]) -> Sequence[Path]:
        panels = []
        for setup in figure.setups:
            path = self.root / LABELS / f"{self.paper.setups[setup].experiment}.json"
            if path.exists():
                counts = np.array(json.loads(path.read_text(encoding="utf-8")))
                panels.append((self.paper.setups[setup].title, counts))
        return plots.bars(self._base(figure), self._heading(figure), panels) if panels else []

    def _two_clients(self, figure: Figure, found: dict[int, MatchedRuns]) -> Sequence[Path]:
        panels = []
        for i, f in found.items():
            pairs = [low_and_high(run.clients()) for run in f.runs.values()]
            series = []
            for k, name in enumerate(("lowest loss at first", "highest loss at first")):
                table = pd.DataFrame({s: pair[k] for s, pair in enumerate(pairs)})
                series.append(Series(name, table.index.to_numpy(float), table.to_numpy().T, k))
            panels.append(Panel(self.paper.setups[figure.rows[i].setup].title, series, "round", "training loss"))
        if not panels:
            return []
        reduced = any(f.reduced for f in found.values())
        return plots.curves(self._base(figure), self._heading(figure), panels, reduced=reduced)

    def _cka(self, figure: Figure, found: dict[int, MatchedRuns]) -> Sequence[Path]:
        panels = []
        for i, f in found.items():
            seed, matrix = next(iter(moments(f).items()), (0, None))
            if matrix is not None:
                panels.append((f"{self._label(figure.rows[i])}, seed {seed}", matrix))
        if not panels:
            return []
        reduced = any(f.reduced for f in found.values())
        return plots.matrix(self._base(figure), self._heading(figure), panels, reduced=reduced)

    def _functions(self, figure: Figure, found: dict[int, MatchedRuns]) -> Sequence[Path]:
        assert isinstance(figure.spec, Adjustments)
        t = np.arange(1, figure.spec.rounds + 1)
        z = figure.spec.beta**t
        kinds = {"1 + z": 1 + z, "1 + z²": 1 + z**2, "1 + sin z": 1 + np.sin(z), "1 + √z": 1 + np.sqrt(z)}
        series = [Series(name, t.astype(float), y[None], i) for i, (name, y) in enumerate(kinds.items())]
        panel = Panel(f"z = {figure.spec.beta} to the power of the round", series, "round", "denominator")
        return plots.curves(self._base(figure), self._heading(figure), [panel])


def last_clients(clients: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the last round of a per-client table."""
    last: pd.DataFrame = clients[clients["round"] == clients["round"].max()]
    return last


def _columns(found: Sequence[MatchedRuns], field: str) -> np.ndarray:
    """Return final values [seeds, settings], NaN where a seed was not run."""
    ends: list[Mapping[int, Any]] = [{s: c.iloc[-1] for s, c in f.curve(field).items()} for f in found]
    seeds = sorted(set().union(*ends))
    return np.array([[float(e.get(s, np.nan)) for e in ends] for s in seeds])

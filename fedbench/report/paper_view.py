"""A paper beside what was measured: its tables cell by cell, its claims, what it leaves open."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedbench.analysis.claims import judge
from fedbench.analysis.matching import Evidence, Found
from fedbench.analysis.stats import interval
from fedbench.core.trees import config_value, leaves
from fedbench.papers.claims import functions
from fedbench.papers.consistency import why_impossible
from fedbench.papers.ledger import Entry, Ledger
from fedbench.papers.registry import Metric, Paper, Reported, Row, Table
from fedbench.report.render import href
from fedbench.report.views import Block, Cell, ClaimView, FigureView, Line, PaperView, TableView

_DIGITS = {"kl": 4}  # of columns whose numbers are small; 2 otherwise
_NOT_RUN = "not run"
_WATCHING = {"eval_every", "keep_clients", "improved_clients"}  # kept with a run, and no departure


class PaperReport:
    """Everything that is said of a paper.

    Args:
        paper: the paper.
        evidence: the runs.
        ledger: what was planned and what failed.
        root: the directory below which the runs are.
        page: the directory of the page, from which links to runs lead; None: the page is to stand without its runs.
    """

    def __init__(self, paper: Paper, evidence: Evidence, ledger: Ledger, root: Path, page: Path | None) -> None:
        self.paper, self.evidence, self.ledger, self.root, self.page = paper, evidence, ledger, root, page

    def view(self, figures: Sequence[FigureView]) -> PaperView:
        """Return the paper as the page shows it."""
        p = self.paper
        return PaperView(
            id=p.id,
            title=p.name,
            citation=p.citation,
            tables=tuple(self.table(t) for t in p.tables.values()),
            figures=tuple(figures),
            claims=self.claims(),
            assumptions=tuple((g.id, g.field, g.adopted, f"{g.why} (confidence: {g.confidence})") for g in p.gaps),
            contradictions=p.contradictions,
        )

    def claims(self) -> tuple[ClaimView, ...]:
        """Return the claims with their verdicts."""
        out = []
        for claim in self.paper.claims:
            v = judge(self.paper, claim, self.evidence, functions(self.paper.id))
            out.append(
                ClaimView(
                    claim.id, claim.text, claim.reference, v.verdict, v.evidence, v.reduced, claim.printed, v.basis
                )
            )
        return tuple(out)

    def table(self, table: Table) -> TableView:
        """Return a table, a block per setup."""
        p = self.paper
        blocks = tuple(
            Block(p.setups[s].title, tuple(self._line(table, r) for r in table.rows if r.setup == s))
            for s in table.setups
        )
        metrics = [p.metrics[c] for c in table.columns]
        number = table.id.removeprefix("table").replace("_", "").upper()
        notes = [f"{m.label}: {m.definition}" for m in metrics]
        open_here = sorted({g for s in table.setups for g in p.setups[s].gaps})
        if open_here:
            notes.append(f"what the paper leaves open here: {', '.join(open_here)}, listed with the paper")
        if table.round == "best":
            notes.append("best round of each run, as the paper is read; that of the last round is in rounds.jsonl")
        title = f"{p.name}, Table {number}"
        name = f"{p.id}/{table.id}"
        return TableView(name, title, table.caption, tuple(m.label for m in metrics), blocks, tuple(notes))

    def _line(self, table: Table, row: Row) -> Line:
        p, setup = self.paper, self.paper.setups[row.setup]
        method, wanted = p.methods[row.algo], p.overrides(row)
        found = self.evidence.find(p, row)
        cut = {k: v for k, v in wanted.items() if k != "rounds"}  # what a profile leaves of them
        planned = [e for w in (wanted, cut) for e in self.ledger.of(setup.experiment, method.algo, w)]
        why = why_impossible(p, row)
        cells = tuple(
            _cell(p.metrics[c], found, row.values.get(c), table.round, why, setup.seeds) for c in table.columns
        )
        return Line(
            label=method.label,
            settings=" ".join(f"{k}={v}" for k, v in row.hyperparameters.items() if v is not None),
            seeds=len(found.runs),
            status=_status(found, planned),
            reduced=found.reduced if found.runs else (),
            cells=cells,
            runs=() if self.page is None else tuple(href(r.path, self.page) for r in found.runs.values()),
            command=command(setup.experiment, method.algo, wanted, found, setup.seeds),
            note=_note(found, planned, why if any(_weighted(p.metrics[c]) for c in table.columns) else None),
        )


def _status(found: Found, planned: Sequence[Entry]) -> str:
    if found.runs:
        return "reduced" if found.reduced else "full"
    if any(e.status == "refused" for e in planned):
        return "no data"
    if any(e.status in ("failed", "diverged") for e in planned) or any(w != "not finished" for _, w in found.others):
        return "failed"
    return _NOT_RUN


def _weighted(metric: Metric) -> bool:
    return metric.field.endswith("_weighted")


def _note(found: Found, planned: Sequence[Entry], why: str | None) -> str:
    impossible = [f"impossible as statistics of unweighted clients ({why}); compared with weighted ones"] if why else []
    parts = [f"seed {seed} {what}" for seed, what in found.others]
    errors = dict.fromkeys(e.error for e in planned if e.error and e.seed not in found.runs)
    return "; ".join([*impossible, *parts, *(str(e) for e in errors)])


def _cell(metric: Metric, found: Found, printed: Reported | None, which: str, why: str | None, runs: int) -> Cell:
    values = list(found.values(metric, which).values())
    digits = _digits(metric, printed)
    paper = "" if printed is None else _with_spread(printed.mean, printed.std, digits)
    if _weighted(metric):
        why = None  # it says nothing of weighted statistics; the row says it
    if not values:
        note = f"no accuracies of unweighted clients have these numbers: {why}" if why and printed else ""
        return Cell("", paper, "", "impossible" if note else "missing", None, note)
    centre = mean(values)
    own = _with_spread(centre, stdev(values) if len(values) > 1 else None, digits)
    if printed is None:
        return Cell(own, "", "", "none", centre, f"n = {len(values)}")
    verdict, note = compare_with_print(values, printed, digits)
    if runs == 1 and printed.std is None and len(values) > 1:
        note += one_more(values, digits)
    if why:
        verdict = "impossible"
        note += f". No accuracies of unweighted clients have the printed numbers of this row: {why}"
    return Cell(own, paper, f"{centre - printed.mean:+.{digits}f}", verdict, centre, note)


def _digits(metric: Metric, printed: Reported | None) -> int:
    behind_the_point = 0 if printed is None else len(repr(printed.mean).partition(".")[2])
    return max(_DIGITS.get(metric.id, 2), behind_the_point)


def compare_with_print(values: Sequence[float], printed: Reported, digits: int = 2) -> tuple[str, str]:
    """Say whether a printed number agrees with what was measured.

    Args:
        values: one per seed.
        printed: the paper's number.
        digits: of the numbers in the text.

    Returns:
        inside or outside the interval of the mean, widened by the paper's ±, or single (one seed has no interval); and
        a sentence.
    """
    bounds = interval(values)
    if bounds is None:
        return "single", "one seed gives no interval"
    wide = printed.std or 0.0
    low, high = bounds[0] - wide, bounds[1] + wide
    inside = low <= printed.mean <= high
    by = f", widened by the paper's {wide:.{digits}f} on both sides" if wide else ""
    text = (
        f"n = {len(values)}, 95 % interval of the mean {bounds[0]:.{digits}f} to {bounds[1]:.{digits}f}{by}: "
        f"{printed.mean:.{digits}f} lies {'inside' if inside else 'outside'}"
    )
    return ("inside" if inside else "outside"), text


def one_more(values: Sequence[float], digits: int = 2) -> str:
    """Return a sentence on where one more run would lie, which is what a number from one run is fairly set beside.

    Args:
        values: two or more, one per seed.
        digits: of the numbers.
    """
    bounds = interval(values)
    assert bounds is not None
    centre, half = sum(bounds) / 2, (bounds[1] - bounds[0]) / 2 * math.sqrt(len(values) + 1)
    return (
        f". The paper names one run; one more of these would lie within {centre - half:.{digits}f} to "
        f"{centre + half:.{digits}f} (95 % prediction interval)"
    )


def _with_spread(value: float, spread: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def command(experiment: str, algo: str, wanted: Mapping[str, Any], found: Found, seeds: int) -> str:
    """Return the command that gives the runs of a row; of a row that was not run, at the paper's setting."""
    parts = {**wanted}
    numbers = list(range(seeds))
    if found.runs:
        run = next(iter(found.runs.values()))
        numbers = list(found.runs)
        keys, typed = set(run.meta["departures"]), {o.split("=")[0] for o in run.meta["overrides"]}
        if "model._target_" in keys:  # of another model only what was typed is not by default
            parts["model"] = run.meta["model"]
            keys = {k for k in keys if not k.startswith("model.")} | {k for k in typed if k.startswith("model.")}
        keys |= (typed & _WATCHING) | (wanted.keys() & {"rounds"})
        flat = leaves(run.config)
        parts |= {k: flat[k] for k in sorted(keys) if k in flat}
    words = [f"experiment={experiment}", f"algo={algo}", *(f"{k}={config_value(v)}" for k, v in parts.items())]
    words.append("seed=" + ",".join(map(str, numbers)))
    return "fedbench -m " + " ".join(shlex.quote(w) for w in words)

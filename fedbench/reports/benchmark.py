"""The page of a benchmark, and its table on the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import isinf
from pathlib import Path

import numpy as np

from fedbench.analysis.benchmark import Lead, Results, leads, ranked, results_of, scores_of
from fedbench.analysis.ranks import average_ranks
from fedbench.analysis.stats import ROUNDING
from fedbench.analysis.trials import searches_of
from fedbench.benchmarks.definition import Benchmark
from fedbench.benchmarks.entries import Entry
from fedbench.config.overrides import parse_overrides
from fedbench.core.atomic_files import replace_file
from fedbench.core.config_values import keys_text
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.reports import benchmark_charts
from fedbench.reports.comparison import mean_cell
from fedbench.reports.methods import environment_of
from fedbench.reports.page import PAGE, render_page
from fedbench.reports.table_pages import best_names
from fedbench.reports.text_table import (
    Cell,
    Table,
    Values,
    csv_text,
    markdown,
    table_of,
    table_rows,
)
from fedbench.reports.tuning import edges_text
from fedbench.runs.run import Run
from fedbench.tuning.space import axis_of

TUNED = "tuned"
HELD_OUT = "held out"
_TONES = {
    "ahead": "good",
    "behind": "bad",
    "open": "",
}
_SHOWN = 6  # methods whose lines are shown at first, besides the baseline and the user's own
_MISSING = Cell("–")

Column = Mapping[str, Cell]  # by method
Leads = Mapping[tuple[str, str, str], Mapping[str, Lead]]  # by side, setting, metric and method


def write_benchmark(
    benchmark: Benchmark,
    entries: Sequence[Entry],
    own: Sequence[str],
    folder: Path,
    checked: Sequence[str] = (),
) -> Path:
    """Write the page of a benchmark with its numbers and gains as CSV, and return the page.

    Args:
        benchmark: The benchmark.
        entries: The entries of all methods and settings.
        own: The user's own methods.
        folder: Directory of the page.
        checked: Sentences on the check of published runs.
    """
    view = _View(
        benchmark,
        entries,
        own,
    )
    gains = view.leads(benchmark.baseline)
    numbers = view.number_tables(gains)
    text = render_page(
        "benchmark.html",
        charts=True,
        title=f"{benchmark.title} ({benchmark.label})",
        view=view,
        gains=gains,
        numbers=numbers,
        checked=checked,
        charts_of=benchmark_charts,
        environment_of=environment_of,
        hours_of=_hours,
    )
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / PAGE, text)
    replace_file(folder / "numbers.csv", csv_text(table_rows(numbers)))
    replace_file(folder / "gains.csv", csv_text(list(_gain_rows(gains))))
    return folder / PAGE


def benchmark_text(
    benchmark: Benchmark,
    entries: Sequence[Entry],
    own: Sequence[str],
) -> str:
    """Return the leads of the user's own methods over each other method as Markdown.

    Without methods of the user's own, the leads are those of all methods over the baseline.
    """
    view = _View(
        benchmark,
        entries,
        own,
    )
    tables = []
    for method in own:
        title = f"Gain of {method} in"
        tables += view.lead_tables(view.leads(method, over=True), title)
    if not own:
        title = f"Gain over {benchmark.baseline} in"
        tables += view.lead_tables(view.leads(benchmark.baseline), title)
    return markdown(tables, benchmark.label).rstrip()


class _View:
    """The values of the page, which has the settings with entries.

    Args:
        benchmark: The benchmark.
        entries: The entries of all methods and settings.
        own: The user's own methods.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        entries: Sequence[Entry],
        own: Sequence[str],
    ) -> None:
        present = {entry.setting for entry in entries}
        settings = {name: s for name, s in benchmark.settings.items() if name in present}
        self.without_runs = benchmark.settings.keys() - present
        benchmark = replace(benchmark, settings=settings)
        self.benchmark = benchmark
        self.entries = entries
        self.judged = [metric_info(metric) for metric in benchmark.metrics[:2]]
        self.criterion = metric_info(benchmark.search.metric)
        self.sides = {TUNED: results_of(benchmark, entries)}
        if any(entry.held_out for entry in entries):
            self.sides[HELD_OUT] = results_of(
                benchmark,
                entries,
                held_out=True,
            )
        self.searches = {}
        for setting in benchmark.settings:
            self.searches[setting] = searches_of(
                entries,
                setting,
                self.criterion.sign,
            )
        self.origins: dict[str, list[Run]] = {"published runs": [], "run here": []}
        for entry in entries:
            origin = "published runs" if entry.published else "run here"
            self.origins[origin] += [*entry.runs, *entry.held_out]

        scores = self.scores(TUNED, self.judged[0].name)
        blocks = np.array(list(scores.values())).T
        blocks[:, np.isnan(blocks).any(0)] = -np.inf  # a method without a rank is the last
        ranks = zip(average_ranks(blocks), scores, strict=True)
        self.order = [method for _, method in sorted(ranks)]
        lines = {*own, benchmark.baseline, *self.order[:_SHOWN]}
        self.names = benchmark_charts.Names(
            own,
            benchmark.baseline,
            lines,
        )

    @property
    def variants(self) -> Iterator[tuple[str, str, Results]]:
        """The side, the setting and the results of every variant."""
        for side, settings in self.sides.items():
            for setting, results in settings.items():
                yield side, setting, results

    def scores(self, side: str, metric: str) -> dict[str, list[float]]:
        """Return the scores of all methods in the displayed unit.

        Settings without the baseline are left out, unless it is missing in all of them.
        """
        results = self.sides[side].values()
        compared = [one for one in results if self.benchmark.baseline in one]
        return scores_of(compared or results, metric)

    def leads(self, method: str, over: bool = False) -> Leads:
        """Return the leads of all other methods over one, or of the one over the others."""
        of_variants = {}
        for side, setting, results in self.variants:
            for metric in self.judged:
                of_metric = leads(
                    results,
                    metric.name,
                    method,
                    over=over,
                )
                of_variants[side, setting, metric.name] = of_metric
        return of_variants

    def table(self, title: str, columns: Mapping[str, Column]) -> Table:
        """Return a table with a row for every method that has a cell."""
        rows: list[Values] = []
        for method in self.order:
            if any(method in column for column in columns.values()):
                cells = [column.get(method, _MISSING) for column in columns.values()]
                rows.append((self.names.label(method), *cells))
        return table_of(
            title,
            ("method", *columns),
            rows,
        )

    def rank_table(self) -> Table:
        """Return the average ranks."""
        columns = {}
        for metric in self.judged:
            for side in self.sides:
                ranks = ranked(self.scores(side, metric.name))
                cells = {method: Cell(f"{rank:.2f}", rank) for method, rank in ranks.items()}
                columns[f"{metric.label}, {side}"] = cells
        return self.table("Average ranks", columns)

    def lead_tables(self, of_variants: Leads, title: str) -> list[Table]:
        """Return a table per metric and side, with a column per setting."""
        tables = []
        for metric in self.judged:
            for side, settings in self.sides.items():
                columns = {}
                for setting in settings:
                    of_metric = of_variants[side, setting, metric.name]
                    columns[setting] = {m: _lead_cell(lead) for m, lead in of_metric.items()}
                table = self.table(f"{title} {metric.axis}, {side}", columns)
                if table.rows:
                    tables.append(table)
        return tables

    def number_tables(self, gains: Leads) -> list[Table]:
        """Return a table per setting with the means of all metrics and the verdicts."""
        tables = []
        for setting in self.benchmark.settings:
            columns: dict[str, Column] = {}
            for metric in map(metric_info, self.benchmark.metrics):
                for side, settings in self.sides.items():
                    columns[f"{metric.axis}, {side}"] = _means(settings[setting], metric)
            for metric in self.judged:
                by_side = [gains[side, setting, metric.name] for side in self.sides]
                columns[f"{metric.label}: {' / '.join(self.sides)}"] = _verdicts(by_side)
            for side, settings in self.sides.items():
                reasons = {m: Cell(result.reason) for m, result in settings[setting].items()}
                columns[f"missing, {side}"] = reasons
            tables.append(self.table(setting, columns))
        return tables

    def trials_tables(self) -> list[Table]:
        """Return the numbers of trials from which on methods are above the baseline.

        One table is for the baseline's best trial, the other for its expected best after as many
        trials, which is its best one after all of them.
        """
        baseline = self.benchmark.baseline
        titles = (
            f"Trials until the expected best is above the best trial of {baseline}",
            f"Trials until the expected best is above that of {baseline} after as many trials",
        )
        tables = []
        for title, is_best in zip(titles, (True, False), strict=True):
            columns = {}
            for setting, searches in self.searches.items():
                expected = {search.method: search.value[0] for search in searches}
                of_baseline = expected.pop(baseline, np.array([np.inf]))
                if is_best:
                    of_baseline = of_baseline[-1:]
                cells = {
                    method: _trials_above(line, of_baseline) for method, line in expected.items()
                }
                columns[setting] = cells
            tables.append(self.table(title, columns))
        return tables

    def search_table(self) -> Table:
        """Return the searches with the chosen values, those at an edge, and the best score."""
        rows: list[Values] = []
        for setting, searches in self.searches.items():
            for search in searches:
                entry = search.entry
                chosen = entry.chosen or {}
                best = benchmark_charts.shown(max(search.scores), self.criterion)
                row: Values = (
                    self.names.label(entry.method),
                    setting,
                    len(entry.trials),
                    sum(trial.score is None for trial in entry.trials),
                    keys_text(chosen),
                    edges_text(map(axis_of, parse_overrides(entry.space)), chosen),
                    Cell(self.criterion.text(best), best) if chosen else _MISSING,
                    " ".join(entry.space),
                )
                rows.append(row)
        heads = ("method", "setting", "trials", "diverged", "chosen", "at the edge")
        return table_of(
            "What was tuned",
            (*heads, self.criterion.axis, "axes"),
            rows,
        )


def _trials_above(expected: np.ndarray, reference: np.ndarray) -> Cell:
    """Return the number of trials from which on one line is above another.

    Args:
        expected: The expected best score of n trials [N].
        reference: The other line [M], which stays at its last value.
    """
    count = len(expected)
    others = reference[np.minimum(np.arange(count), len(reference) - 1)]
    above = (expected > others) & ~np.isclose(expected, others, rtol=ROUNDING, atol=0.0)
    behind = np.flatnonzero(~above)
    needed = behind[-1] + 2 if len(behind) else 1
    return Cell(f"{needed} of {count}" if needed <= count else f"> {count}")


def _lead_cell(lead: Lead) -> Cell:
    difference = lead.difference
    if isinf(difference.mean):
        diverged = "diverged" if difference.mean < 0 else "other diverged"
        return Cell(f"{diverged}, {lead.state}", tone=_TONES[lead.state])
    text = f"{difference.mean:+.2f}"
    if difference.low is not None:
        text += f" [{difference.low:+.2f}, {difference.high:+.2f}]"
    return Cell(
        f"{text} {lead.state}",
        difference.mean,
        tone=_TONES[lead.state],
    )


def _means(results: Results, metric: MetricInfo) -> Column:
    """Return the means of a metric, of which the best without missing seeds is marked."""
    cells = {method: result.cell(metric.name) for method, result in results.items()}
    means = {}
    for method, cell in cells.items():
        if cell.mean is not None and not results[method].reason:
            means[method] = cell.mean
    best = best_names(means, metric)
    return {
        method: mean_cell(
            cell,
            metric,
            method in best,
        )
        for method, cell in cells.items()
    }


def _verdicts(by_side: Sequence[Mapping[str, Lead]]) -> Column:
    """Return the verdicts of every side, with the tone of a warning if they do not agree."""
    cells = {}
    for method in by_side[0]:
        states = [of_side[method].state for of_side in by_side if method in of_side]
        tone = _TONES[states[0]] if len(set(states)) == 1 else "warn"
        cells[method] = Cell(" / ".join(states), tone=tone)
    return cells


def _hours(runs: Sequence[Run]) -> float:
    """Return the time from start to end of runs that have ended, in hours."""
    seconds = 0.0
    for run in runs:
        if run.meta.get("ended"):
            ended = datetime.fromisoformat(str(run.meta["ended"]))
            started = datetime.fromisoformat(str(run.meta["started"]))
            seconds += (ended - started).total_seconds()
    return seconds / 3600


def _gain_rows(gains: Leads) -> Iterator[dict[str, object]]:
    for (side, setting, metric), of_metric in gains.items():
        for method, lead in of_metric.items():
            place = {
                "setting": setting,
                "side": side,
                "metric": metric,
                "method": method,
            }
            yield place | vars(lead.difference) | {"adjusted": lead.p, "verdict": lead.state}

"""The page of the fairness benchmark: three tables, ranks under both weights, and what was tuned."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmark.comparisons import TABLES, Comparisons
from benchmark.pictures import front_figure, rank_figure
from benchmark.values import COMPARED, Line, front_of, lines_of, ranked, without_ranks
from fedbench.config.overrides import parse_overrides
from fedbench.core.atomic_files import replace_file
from fedbench.core.config_values import config_value, from_yaml
from fedbench.core.errors import RequestError
from fedbench.core.metrics import metric_info
from fedbench.reports.canvas import draw
from fedbench.reports.page import Chapter, Content, page
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.text_table import Cell, Table, Values, csv_text, table_of
from fedbench.tuning.space import axis_of

NOTES = "notes.yaml"
_SHOWN = ("accuracy_mean", "accuracy_worst10", "accuracy_worst30", "accuracy_std", "angle_degrees")
_SHORT = {
    "uniform": "uniform weights",
    "size": "weights by size",
    "worst10": "tuned for worst 10 %",
}
_TITLES = {
    "uniform": "Uniform weights, tuned for the mean",
    "size": "Weights by size, tuned for the mean",
    "worst10": "Uniform weights, tuned for the worst 10 %",
}
_LEADS = {
    "uniform": "Clients count alike where a method lets them be weighted; other methods have a rule of their own",
    "size": "The methods with a choice of weights, clients weighted by their number of training examples",
    "worst10": "As the first table, with values chosen by the worst 10 % of the clients on validation examples",
}
_DRAWN_RANKS = (
    ("uniform", "accuracy_mean"),
    ("size", "accuracy_mean"),
    ("worst10", "accuracy_worst10"),
)


_STATES = ("ahead", "behind", "open")
_HOW = (
    "Differences are of the same seeds, with the 95 % t interval of their mean; ahead or behind: p ≤ 0.05 by the "
    "sign-flip test, adjusted in each direction for the number of methods in the setting; a run that diverged is behind"
)


def read_notes(file: Path) -> dict[str, Any]:
    """Return what people write about a benchmark: title, lead and command, and facts by name.

    Raises:
        RequestError: If the file cannot be read, has other keys or has no title.
    """
    try:
        tree = from_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RequestError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    known = ("title", "lead", "command", "facts")
    if not isinstance(tree, dict) or "title" not in tree or set(tree) - {*known}:
        raise RequestError(
            f"{file} must be a mapping with title and, optionally, {', '.join(known[1:])}"
        )
    return {
        k: {n: str(t).strip() for n, t in v.items()} if isinstance(v, dict) else str(v).strip()
        for k, v in tree.items()
    }


def write_benchmark(found: Comparisons, notes: Mapping[str, Any], folder: Path) -> Path:
    """Write the page, its figures and its table as CSV to a directory, and return the page."""
    lines = {table: lines_of(found, table) for table in TABLES if found.methods(table)}
    chapters = [_picture(found, notes, folder / "figures"), _ahead(lines)]
    for table, those in lines.items():
        grids = [
            _table(setting, [li for li in those if li.setting == setting])
            for setting in found.settings
        ]
        chapters.append(Chapter(_TITLES[table], _LEADS[table], tuple(grids)))
    chapters += [*_ranks(found, folder / "figures"), _tuning(found, notes)]
    notes_of_page = tuple(
        f"{s}: {text}"
        for s, t in found.searches.items()
        for text in (*t["sources"], *t["unofficial"])
    )
    unique = tuple(dict.fromkeys(notes_of_page))
    view = Content(
        notes["title"], environment=_environment(found), notes=unique, chapters=tuple(chapters)
    )
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "index.html", page(view))
    replace_file(
        folder / "table.csv", csv_text([_csv(line) for those in lines.values() for line in those])
    )
    return folder / "index.html"


def _picture(found: Comparisons, notes: Mapping[str, Any], figures: Path) -> Chapter:
    fronts = [front_of(found, "uniform", s, *COMPARED) for s in found.settings]
    files = draw(
        figures / "mean_worst10",
        front_figure,
        fronts,
        "Mean accuracy against the worst 10 % of the clients",
    )
    figure = DrawnFigure(
        "mean_worst10",
        "Mean against worst 10 %",
        "Uniform weights, tuned for the mean; means over seeds. Methods on the Pareto front of a setting (no other is "
        "at least as good in both and better in one) are named, solid and joined by a line, with bars of one sample "
        "STD over seeds.",
        _svg(files),
        alt="Mean accuracy across and the mean of the worst 10 % upwards, a panel per setting.",
    )
    return Chapter("The methods at a glance", notes.get("lead", ""), figures=(figure,))


def _ahead(lines: Mapping[str, Sequence[Line]]) -> Chapter:
    rows: list[Values] = []
    for table, those in lines.items():
        for setting in dict.fromkeys(line.setting for line in those):
            here = [line for line in those if line.setting == setting and line.leads]
            states = [[line.leads[metric].state for line in here] for metric in COMPARED]
            counts = [found.count(state) for found in states for state in _STATES]
            rows.append((_SHORT[table], setting, len(here), *counts))
    heads = (
        "table",
        "setting",
        "methods",
        *(f"{metric_info(m).label}: {state}" for m in COMPARED for state in _STATES),
    )
    caption = (
        "methods that are ahead of FedAvg, behind it, or neither (open), as in the tables below"
    )
    return Chapter("Who is ahead of FedAvg", _HOW, (table_of("Counts", heads, rows, caption),))


def _table(setting: str, lines: Sequence[Line]) -> Table:
    axes = [metric_info(m).axis for m in _SHOWN]
    leads = [f"{metric_info(m).label} minus FedAvg" for m in COMPARED]
    heads = ["method", "seeds", *axes, *leads, "MB per round", "missing"]
    best = {m: _best(lines, m) for m in _SHOWN}
    rows: list[Values] = []
    for line in lines:
        cells = [_cell(line, m, best[m]) for m in _SHOWN]
        cells += [*(_lead(line, m) for m in COMPARED), _plain(line, "bytes_per_round", 1e-6, 3)]
        rows.append((line.method, line.done, *cells, line.reason))
    caption = (
        "mean ± sample STD over the seeds whose runs are done; STD and angle as in docs/metrics.md. MB per round: "
        "uploads and messages of the whole cohort, in 10⁶ bytes"
    )
    note = "the best mean is marked; a dash is a missing number, for the reason in the last column"
    return table_of(setting, heads, rows, caption, [note])


def _lead(line: Line, metric: str) -> Cell:
    if metric not in line.leads:
        return Cell("–")
    info, lead = metric_info(metric), line.leads[metric]
    mean, low, high = (
        info.factor * v for v in (lead.found.mean, lead.found.low or 0.0, lead.found.high or 0.0)
    )
    within = "" if lead.found.low is None else f" [{low:+.1f}, {high:+.1f}]"
    return Cell(f"{mean:+.1f}{within} {lead.state}", mean)


def _best(lines: Sequence[Line], metric: str) -> float | None:
    sign = metric_info(metric).sign
    means = [li.numbers[metric].mean for li in lines if metric in li.numbers and not li.reason]
    return max(means, key=lambda v: sign * v, default=None)


def _cell(line: Line, metric: str, best: float | None) -> Cell:
    info, number = metric_info(metric), line.numbers.get(metric)
    if number is None:
        return Cell("–")
    spread = "" if number.std is None else f" ± {info.text(info.factor * number.std)}"
    mean = info.factor * number.mean
    return Cell(info.text(mean) + spread, mean, not line.reason and number.mean == best)


def _plain(line: Line, name: str, factor: float, digits: int) -> Cell:
    number = line.numbers.get(name)
    return (
        Cell("–")
        if number is None
        else Cell(f"{factor * number.mean:.{digits}f}", factor * number.mean)
    )


def _ranks(found: Comparisons, figures: Path) -> list[Chapter]:
    tests = {
        (t, m): test for t in TABLES for m in COMPARED if (test := ranked(found, t, m)) is not None
    }
    if not tests:
        return []
    names = {(t, m): f"{_SHORT[t]}: {metric_info(m).label}" for t, m in tests}
    drawn = [(names[key], tests[key]) for key in _DRAWN_RANKS]
    files = draw(figures / "ranks", rank_figure, drawn, "Average ranks over the settings")
    figure = DrawnFigure(
        "ranks",
        "Average ranks",
        "The band reaches one critical difference from the best method: within it, ranks do not differ significantly.",
        _svg(files),
        alt="Average ranks of the methods, a panel per table, the best on top.",
    )
    first = next(iter(tests.values()))
    facts = [
        (names[key], f"Friedman χ² {t.test.statistic:.2f}, p {t.test.p:.3g}; Iman–Davenport F {t.f:.2f}, "
         f"p {t.f_p:.3g}; not significantly below the best: {len(t.level_with_best())} of {len(t.methods)} methods")
        for key, t in tests.items()
    ]  # fmt: skip
    ranks = {key: dict(test.ordered) for key, test in tests.items()}
    rows: list[Values] = [
        (m, *(Cell(f"{r[m]:.2f}", r[m]) for r in ranks.values())) for m, _ in first.ordered
    ]
    left, own = without_ranks(found), sorted(set(first.methods) - set(found.methods("size")))
    notes = [f"left out, since a setting refuses them: {', '.join(left)}"] if left else []
    notes.append(
        f"weights by a rule of their own, the same numbers under both weights: {', '.join(own)}"
    )
    caption = (
        f"1 is best; ties share the mean rank; critical difference (Nemenyi, 5 %) {first.test.critical_difference:.1f} "
        f"for {len(first.methods)} methods and {first.blocks} settings"
    )
    lead = (
        "Blocks are the settings, each with the means over its seeds (Demšar, 2006): seeds of one setting are no "
        "independent samples of settings. A method with a run that diverged is the last of its setting"
    )
    grid = table_of(
        "Average ranks over the settings", ("method", *names.values()), rows, caption, notes
    )
    return [Chapter("Average ranks under both weights", lead, (grid,), (figure,), tuple(facts))]


def _tuning(found: Comparisons, notes: Mapping[str, Any]) -> Chapter:
    facts = [("command", notes["command"])] if "command" in notes else []
    facts += notes.get("facts", {}).items()
    hours = sum(search["hours"] for search in found.searches.values())
    facts.append(("hours spent", f"{hours:.1f} of wall-clock time, summed over trials and runs"))
    rows, spaces = [], {}
    for setting, search in found.searches.items():
        protocol = ", ".join(f"{k}={config_value(v)}" for k, v in search["protocol"].items())
        facts.append(
            (setting, f"{search['clients']} clients, {search['parameters']} parameters: {protocol}")
        )
        facts += [(f"{setting} without {method}", why) for method, why in search["refused"].items()]
        for table, entries in search["tables"].items():
            for method, entry in entries.items():
                spaces[method] = " ".join(entry["space"])
                rows.append(_search_row(setting, table, method, entry))
    heads = (
        "method",
        "setting",
        "tuned for",
        "weights",
        "trials",
        "diverged",
        "chosen",
        "at the edge",
        "validation",
    )
    caption = (
        "every method has the same budget, judged on validation examples: rates with its own keys at their defaults, "
        "then its own keys at the best rate. A value at an end of its axis is named: a better one may lie beyond it"
    )
    trials = table_of("What was tuned", heads, rows, caption)
    space = table_of(
        "Spaces", ("method", "axes"), sorted(spaces.items()), "axes of the search per method"
    )
    return Chapter("Settings and tuning", "", (trials, space), facts=tuple(facts))


def _search_row(setting: str, table: str, method: str, entry: Mapping[str, Any]) -> Values:
    name = TABLES[table][1]
    info = metric_info(name)
    scores = [score for t in entry["trials"] if (score := t["scores"][name]) is not None]
    chosen, best = entry["chosen"] or {}, max(scores, default=None)
    text = " ".join(f"{k}={config_value(v)}" for k, v in chosen.items()) or "none"
    axes = [axis_of(o) for o in parse_overrides(entry["space"])]
    edges = " ".join(
        f"{axis.key} ({end})"
        for axis in axes
        if axis.key in chosen and (end := axis.edge(chosen[axis.key]))
    )
    weights = entry["weights"][0].partition("=")[2] if entry["weights"] else "its own"
    score = Cell("–") if best is None else Cell(info.text(info.factor * best), info.factor * best)
    trials = len(entry["trials"])
    return (method, setting, info.label, weights, trials, trials - len(scores), text, edges, score)


def _environment(found: Comparisons) -> dict[str, Counter[str]]:
    environment: dict[str, Counter[str]] = defaultdict(Counter)
    for search in found.searches.values():
        for name, value in search["environment"].items():
            environment[name][value] += 1
    return environment


def _csv(line: Line) -> dict[str, object]:
    numbers: dict[str, object] = {}
    for name, number in line.numbers.items():
        numbers[name] = number.mean
        numbers[f"{name}_std"] = number.std
    for name, lead in line.leads.items():
        numbers |= {f"{name}_lead": lead.found.mean, f"{name}_lead_low": lead.found.low}
        numbers |= {f"{name}_lead_high": lead.found.high, f"{name}_state": lead.state}
    named = {"table": line.table, "setting": line.setting, "method": line.method}
    return {**named, "seeds": line.done, "missing": line.reason, **numbers}


def _svg(files: Sequence[Path]) -> str:
    return next(f for f in files if f.suffix == ".svg").read_text(encoding="utf-8")

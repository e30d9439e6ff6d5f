"""The page of the fairness benchmark: three tables, ranks under both weights, and the tuning."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmark.comparisons import TABLES, Comparisons
from benchmark.pictures import front_charts, front_figure, rank_figure
from benchmark.ranks import RankTest
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
MISSING = Cell("–")
SHOWN = (
    "accuracy_mean",
    "accuracy_worst10",
    "accuracy_worst30",
    "accuracy_std",
    "angle_degrees",
)
STATES = ("ahead", "behind", "open")
SHORT_TITLES = {
    "uniform": "uniform weights",
    "size": "weights by size",
    "worst10": "tuned for worst 10 %",
}
TITLES = {
    "uniform": "Uniform weights, tuned for the mean",
    "size": "Weights by size, tuned for the mean",
    "worst10": "Uniform weights, tuned for the worst 10 %",
}
ABOUT = {
    "uniform": (
        "Clients count alike where a method lets them be weighted; other methods have a rule of "
        "their own"
    ),
    "size": (
        "The methods with a choice of weights, clients weighted by their number of training "
        "examples"
    ),
    "worst10": (
        "As the first table, with values chosen by the worst 10 % of the clients on validation "
        "examples"
    ),
}
RANKED_BY = {  # of the panels of the figure
    "uniform": "accuracy_mean",
    "size": "accuracy_mean",
    "worst10": "accuracy_worst10",
}
TESTS = (
    "Differences are of the same seeds, with the 95 % t interval of their mean; ahead or behind: "
    "p ≤ 0.05 by the sign-flip test, adjusted in each direction for the number of methods in the "
    "setting; a run that diverged is behind"
)
FRONT = (
    "Uniform weights, tuned for the mean; means over seeds. Methods on the Pareto front of a "
    "setting (no other is at least as good in both and better in one) are named, solid and joined "
    "by a line, with bars of one sample STD over seeds."
)
NUMBERS = (
    "mean ± sample STD over the seeds whose runs are done; STD and angle as in docs/metrics.md. MB "
    "per round: uploads and messages of the whole cohort, in 10⁶ bytes"
)
BLOCKS = (
    "Blocks are the settings, each with the means over its seeds (Demšar, 2006): seeds of one "
    "setting are no independent samples of settings. A method with a run that diverged is the last "
    "of its setting"
)
TUNING = (
    "every method has the same budget, judged on validation examples: rates with its own keys at "
    "their defaults, then its own keys at the best rate. A value at an end of its axis is named: a "
    "better one may lie beyond it"
)


@dataclass(frozen=True)
class Notes:
    """Texts of the page.

    Attributes:
        title: Title of the page.
        lead: Text below the first heading.
        command: Command that makes the measurements.
        facts: Further facts by name.
    """

    title: str
    lead: str = ""
    command: str = ""
    facts: dict[str, str] = field(default_factory=dict)


def read_notes(file: Path) -> Notes:
    """Return the texts of a page.

    Raises:
        RequestError: If the file cannot be read, has other keys or has no title.
    """
    try:
        tree = from_yaml(file.read_text(encoding="utf-8"))
        facts = _stripped(tree.pop("facts", {}))
        return Notes(**_stripped(tree), facts=facts)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"{file} cannot be read: {reason}") from error
    except (AttributeError, TypeError) as error:
        raise RequestError(
            f"{file} must be a mapping with title and, optionally, lead, command, facts"
        ) from error


def _stripped(texts: Mapping[str, object]) -> dict[str, str]:
    return {name: str(text).strip() for name, text in texts.items()}


def write_benchmark(comparisons: Comparisons, notes: Notes, folder: Path) -> Path:
    """Write the page, its figures and its table as CSV to a directory, and return the page."""
    lines: dict[str, list[Line]] = {}
    for table in TABLES:
        if comparisons.methods(table):
            lines[table] = lines_of(comparisons, table)

    chapters = [
        _fronts(comparisons, notes, folder / "figures"),
        _counts(lines),
    ]
    for table, lines_of_table in lines.items():
        grids = []
        for setting in comparisons.settings:
            grids.append(_grid(setting, _in_setting(lines_of_table, setting)))
        chapters.append(Chapter(TITLES[table], ABOUT[table], tuple(grids)))
    chapters += _ranks(comparisons, folder / "figures")
    chapters.append(_tuning(comparisons, notes))

    remarks: dict[str, None] = {}
    environment: dict[str, Counter[str]] = defaultdict(Counter)
    for setting, search in comparisons.searches.items():
        for text in (*search["sources"], *search["unofficial"]):
            remarks[f"{setting}: {text}"] = None
        for name, value in search["environment"].items():
            environment[name][value] += 1

    content = Content(
        notes.title,
        environment=environment,
        notes=tuple(remarks),
        chapters=tuple(chapters),
    )
    rows = []
    for lines_of_table in lines.values():
        rows += map(_csv_row, lines_of_table)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "index.html", page(content))
    replace_file(folder / "table.csv", csv_text(rows))
    return folder / "index.html"


def _in_setting(lines: Sequence[Line], setting: str) -> list[Line]:
    return [line for line in lines if line.setting == setting]


def _labels(metrics: Sequence[str]) -> list[str]:
    return [metric_info(metric).label for metric in metrics]


def _csv_row(line: Line) -> dict[str, object]:
    row: dict[str, object] = {
        "table": line.table,
        "setting": line.setting,
        "method": line.method,
        "seeds": line.done,
        "missing": line.reason,
    }
    for name, number in line.numbers.items():
        row[name] = number.mean
        row[f"{name}_std"] = number.std
    for name, lead in line.leads.items():
        row[f"{name}_lead"] = lead.difference.mean
        row[f"{name}_lead_low"] = lead.difference.low
        row[f"{name}_lead_high"] = lead.difference.high
        row[f"{name}_state"] = lead.state
    return row


# ---- fronts


def _fronts(comparisons: Comparisons, notes: Notes, figures: Path) -> Chapter:
    fronts = [front_of(comparisons, setting) for setting in comparisons.settings]
    *_, svg = draw(
        figures / "mean_worst10",
        front_figure,
        fronts,
        "Mean accuracy against the worst 10 % of the clients",
    )
    figure = DrawnFigure(
        "mean_worst10",
        "Mean against worst 10 %",
        FRONT,
        svg.read_text(encoding="utf-8"),
        alt="Mean accuracy across and the mean of the worst 10 % upwards, a panel per setting.",
        charts=front_charts(fronts),
    )
    return Chapter(
        "The methods at a glance",
        notes.lead,
        figures=(figure,),
    )


# ---- tables of numbers


def _counts(lines: Mapping[str, Sequence[Line]]) -> Chapter:
    """Return the numbers of methods that are ahead of FedAvg, behind it, or neither."""
    rows: list[Values] = []
    for table, lines_of_table in lines.items():
        for setting in dict.fromkeys(line.setting for line in lines_of_table):
            lines_of_setting = _in_setting(lines_of_table, setting)
            others = [line for line in lines_of_setting if line.leads]
            counts = []
            for metric in COMPARED:
                states = Counter(line.leads[metric].state for line in others)
                counts += [states[state] for state in STATES]
            rows.append((SHORT_TITLES[table], setting, len(others), *counts))

    heads = ["table", "setting", "methods"]
    for label in _labels(COMPARED):
        heads += [f"{label}: {state}" for state in STATES]
    table = table_of(
        "Counts",
        heads,
        rows,
        "methods that are ahead of FedAvg, behind it, or neither (open), as in the tables below",
    )
    return Chapter("Who is ahead of FedAvg", TESTS, (table,))


def _grid(setting: str, lines: Sequence[Line]) -> Table:
    """Return the numbers of all methods in a setting."""
    best = {metric: _best(lines, metric) for metric in SHOWN}
    rows: list[Values] = []
    for line in lines:
        numbers = [_number(line, metric, best[metric]) for metric in SHOWN]
        leads = [_lead(line, metric) for metric in COMPARED]
        last = (_megabytes(line), line.reason)
        rows.append((line.method, line.done, *numbers, *leads, *last))

    axes = [metric_info(metric).axis for metric in SHOWN]
    leads_heads = [f"{label} minus FedAvg" for label in _labels(COMPARED)]
    heads = ["method", "seeds", *axes, *leads_heads, "MB per round", "missing"]
    note = "the best mean is marked; a dash is a missing number, for the reason in the last column"
    return table_of(
        setting,
        heads,
        rows,
        NUMBERS,
        [note],
    )


def _best(lines: Sequence[Line], metric: str) -> float | None:
    """Return the best mean of the methods without missing seeds."""
    means = []
    for line in lines:
        if metric in line.numbers and not line.reason:
            means.append(line.numbers[metric].mean)
    best = min if metric_info(metric).sign < 0 else max
    return best(means, default=None)


def _number(line: Line, metric: str, best: float | None) -> Cell:
    number = line.numbers.get(metric)
    if number is None:
        return MISSING
    info = metric_info(metric)
    mean = info.factor * number.mean
    text = info.text(mean)
    if number.std is not None:
        text += f" ± {info.text(info.factor * number.std)}"
    is_best = not line.reason and number.mean == best
    return Cell(text, mean, is_best)


def _lead(line: Line, metric: str) -> Cell:
    lead = line.leads.get(metric)
    if lead is None:
        return MISSING
    difference = lead.difference
    factor = metric_info(metric).factor
    mean = factor * difference.mean
    text = f"{mean:+.1f}"
    if difference.low is not None and difference.high is not None:
        text += f" [{factor * difference.low:+.1f}, {factor * difference.high:+.1f}]"
    return Cell(f"{text} {lead.state}", mean)


def _megabytes(line: Line) -> Cell:
    number = line.numbers.get("bytes_per_round")
    if number is None:
        return MISSING
    megabytes = 1e-6 * number.mean
    return Cell(f"{megabytes:.3f}", megabytes)


# ---- ranks


def _ranks(comparisons: Comparisons, figures: Path) -> list[Chapter]:
    """Return the chapter on ranks; none if there are too few settings or methods."""
    tests: dict[str, RankTest] = {}
    drawn = []
    for table in TABLES:
        for metric in COMPARED:
            test = ranked(comparisons, table, metric)
            if test is None:
                return []
            name = f"{SHORT_TITLES[table]}: {metric_info(metric).label}"
            tests[name] = test
            if RANKED_BY[table] == metric:
                drawn.append((name, test))

    chapter = Chapter(
        "Average ranks under both weights",
        BLOCKS,
        (_rank_table(comparisons, tests),),
        (_rank_picture(drawn, figures),),
        tuple((name, _test_text(test)) for name, test in tests.items()),
    )
    return [chapter]


def _rank_picture(tests: Sequence[tuple[str, RankTest]], figures: Path) -> DrawnFigure:
    *_, svg = draw(
        figures / "ranks",
        rank_figure,
        tests,
        "Average ranks over the settings",
    )
    return DrawnFigure(
        "ranks",
        "Average ranks",
        "The band reaches one critical difference from the best method: within it, ranks do not "
        "differ significantly.",
        svg.read_text(encoding="utf-8"),
        alt="Average ranks of the methods, a panel per table, the best on top.",
    )


def _rank_table(comparisons: Comparisons, tests: Mapping[str, RankTest]) -> Table:
    first = next(iter(tests.values()))
    ranks = [dict(test.ordered) for test in tests.values()]
    rows: list[Values] = []
    for method, _ in first.ordered:
        cells = [Cell(f"{of_test[method]:.2f}", of_test[method]) for of_test in ranks]
        rows.append((method, *cells))

    notes = []
    left_out = without_ranks(comparisons)
    if left_out:
        notes.append(f"left out, since a setting refuses them: {', '.join(left_out)}")
    own_weights = sorted(set(first.methods) - set(comparisons.methods("size")))
    notes.append(
        "weights by a rule of their own, the same numbers under both weights: "
        f"{', '.join(own_weights)}"
    )
    caption = (
        "1 is best; ties share the mean rank; critical difference (Nemenyi, 5 %) "
        f"{first.critical_difference:.1f} for {len(first.methods)} methods and "
        f"{first.blocks} settings"
    )
    return table_of(
        "Average ranks over the settings",
        ("method", *tests),
        rows,
        caption,
        notes,
    )


def _test_text(test: RankTest) -> str:
    return (
        f"Friedman χ² {test.statistic:.2f}, p {test.p:.3g}; "
        f"Iman–Davenport F {test.f:.2f}, p {test.f_p:.3g}; "
        f"not significantly below the best: {len(test.level_with_best())} of "
        f"{len(test.methods)} methods"
    )


# ---- tuning


def _tuning(comparisons: Comparisons, notes: Notes) -> Chapter:
    facts: list[tuple[str, str]] = []
    if notes.command:
        facts.append(("command", notes.command))
    facts += notes.facts.items()
    hours = sum(search["hours"] for search in comparisons.searches.values())
    facts.append(("hours spent", f"{hours:.1f} of wall-clock time, summed over trials and runs"))

    rows: list[Values] = []
    spaces: dict[str, str] = {}
    for setting, search in comparisons.searches.items():
        keys = [f"{key}={config_value(value)}" for key, value in search["protocol"].items()]
        size = f"{search['clients']} clients, {search['parameters']} parameters"
        facts.append((setting, f"{size}: {', '.join(keys)}"))
        for method, reason in search["refused"].items():
            facts.append((f"{setting} without {method}", reason))
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
    trials = table_of(
        "What was tuned",
        heads,
        rows,
        TUNING,
    )
    space = table_of(
        "Spaces",
        ("method", "axes"),
        sorted(spaces.items()),
        "axes of the search per method",
    )
    return Chapter(
        "Settings and tuning",
        tables=(trials, space),
        facts=tuple(facts),
    )


def _search_row(
    setting: str,
    table: str,
    method: str,
    entry: Mapping[str, Any],
) -> Values:
    _, metric = TABLES[table]
    info = metric_info(metric)
    trials = entry["trials"]
    scores = [trial["scores"][metric] for trial in trials]
    scores = [score for score in scores if score is not None]
    best = MISSING
    if scores:
        score = info.factor * max(scores)
        best = Cell(info.text(score), score)

    chosen = entry["chosen"] or {}
    values = [f"{key}={config_value(value)}" for key, value in chosen.items()]
    edges = []
    for override in parse_overrides(entry["space"]):
        axis = axis_of(override)
        key = axis.key
        end = axis.edge(chosen[key]) if key in chosen else None
        if end:
            edges.append(f"{key} ({end})")

    weights = "its own"
    if entry["weights"]:
        _, _, weights = entry["weights"][0].partition("=")
    return (
        method,
        setting,
        info.label,
        weights,
        len(trials),
        len(trials) - len(scores),
        " ".join(values) or "none",
        " ".join(edges),
        best,
    )

"""The page of a benchmark: finished comparisons of the same methods on several settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmark.comparisons import Comparisons
from benchmark.pictures import cost_figure, front_figure, rank_figure
from benchmark.ranks import RankTest
from benchmark.values import Front, Line, benchmark_lines, front_of, ranked, without_ranks
from fedbench.core.errors import RequestError
from fedbench.core.files import config_value, from_yaml, replace_file
from fedbench.core.metrics import metric_info
from fedbench.report.canvas import draw
from fedbench.report.page import Chapter, Content, page
from fedbench.report.plots import DrawnFigure
from fedbench.report.table import Cell, Table, Values, csv_text, table_of

NOTES = "notes.yaml"
FAIRNESS = ("accuracy_worst10", "accuracy_worst30", "accuracy_std", "angle_degrees")
_RANKED = ("accuracy_mean", "accuracy_worst10")
_SHOWN = ("accuracy_mean", *FAIRNESS)


def read_notes(file: Path) -> dict[str, Any]:
    """Return what people write about a benchmark: title, lead and command, and texts by name: facts and surprised.

    Raises:
        RequestError: If the file cannot be read, has other keys or has no title.
    """
    try:
        tree = from_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RequestError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    known = ("title", "lead", "command", "facts", "surprised")
    if not isinstance(tree, dict) or "title" not in tree or set(tree) - {*known}:
        raise RequestError(f"{file} must be a mapping with title and, optionally, {', '.join(known[1:])}")
    return {
        k: {n: str(t).strip() for n, t in v.items()} if isinstance(v, dict) else str(v).strip() for k, v in tree.items()
    }


def write_benchmark(found: Comparisons, notes: Mapping[str, Any], folder: Path) -> Path:
    """Write the page, its figures and its table as CSV to a directory, and return the page."""
    lines = benchmark_lines(found)
    tests = [(metric_info(m).label, t) for m in _RANKED if (t := ranked(found, m)) is not None]
    surprised, title = notes.get("surprised", {}), notes["title"]
    chapters = []
    if surprised:
        chapters.append(Chapter("What surprised", notes.get("lead", ""), facts=tuple(surprised.items())))
    chapters += [_results(found, lines, folder / "figures"), _fronts(found), *_ranks(found, tests, folder / "figures")]
    chapters.append(_tuning(found, lines, notes))
    notes_of_page = tuple(f"{s}: {text}" for s, t in found.tuning.items() for text in (*t["sources"], *t["unofficial"]))
    view = Content(title, (), (), (), _environment(found), tuple(dict.fromkeys(notes_of_page)), tuple(chapters))
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "index.html", page(view))
    replace_file(folder / "table.csv", csv_text([_csv(line) for line in lines]))
    return folder / "index.html"


def _results(found: Comparisons, lines: Sequence[Line], figures: Path) -> Chapter:
    fronts = [front_of(found, s, "accuracy_mean", "accuracy_worst10") for s in found.settings]
    files = draw(figures / "mean_worst10", front_figure, fronts, "Mean accuracy against the worst 10 % of the clients")
    costs = [(s, _costs(lines, s)) for s in found.settings]
    drawn = draw(figures / "cost", cost_figure, costs, "accuracy_worst10", "Seconds of training against the worst 10 %")
    shown = (
        DrawnFigure(
            "mean_worst10",
            "Mean against worst 10 %",
            "Means over seeds; methods on the Pareto front of a setting are named, solid and joined by a line, with "
            "bars of one sample STD over seeds.",
            _svg(files),
            alt="Mean accuracy across and the mean of the worst 10 % upwards, a panel per setting.",
        ),
        DrawnFigure(
            "cost",
            "Cost against fairness",
            "Median seconds of training of a run, measured on a shared machine: small differences mean "
            "nothing. "
            "The table has the bytes.",
            _svg(drawn),
            alt="Seconds of training across and the mean of the worst 10 % upwards, a panel per setting.",
        ),
    )
    return Chapter("Results", "Test accuracy over clients at the last round", (_table(lines),), shown)


def _table(lines: Sequence[Line]) -> Table:
    axes = [metric_info(m).axis for m in _SHOWN]
    heads = ["method", "setting", "seeds", *axes, "MB per round", "seconds", "missing"]
    best = {(s, m): _best(lines, s, m) for s in {line.setting for line in lines} for m in _SHOWN}
    rows = []
    for line in lines:
        cells = [_cell(line, m, best[line.setting, m]) for m in _SHOWN]
        cells += [_plain(line, "bytes_per_round", 1e-6, 3), _plain(line, "seconds_train", 1.0, 1)]
        rows.append((line.method, line.setting, line.done, *cells, line.reason))
    caption = (
        "mean ± sample STD over the seeds whose runs are done; STD and angle as defined in docs/metrics.md. MB per "
        "round: uploads and messages of the whole cohort, in 10⁶ bytes; seconds: median training time of a run"
    )
    note = "the best mean of each setting is marked; a dash is a missing number, for the reason in the last column"
    return table_of("All methods", heads, rows, caption, [note])


def _best(lines: Sequence[Line], setting: str, metric: str) -> float | None:
    sign = metric_info(metric).sign
    means = [
        li.numbers[metric].mean for li in lines if li.setting == setting and metric in li.numbers and not li.reason
    ]
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
    return Cell("–") if number is None else Cell(f"{factor * number.mean:.{digits}f}", factor * number.mean)


def _fronts(found: Comparisons) -> Chapter:
    grids = []
    for setting in found.settings:
        fronts = [front_of(found, setting, "accuracy_mean", m) for m in FAIRNESS]
        rows = []
        for i, method in enumerate(fronts[0].methods):
            if any(front.share[i] > 0 for front in fronts):
                rows.append((method, *(_share(front, i) for front in fronts)))
        heads = ("method", *(f"mean and {metric_info(m).label}" for m in FAIRNESS))
        caption = "share (%) of bootstrap samples of the seeds in which the method's means are on the front"
        note = (
            "marked: on the front of the means over all seeds; methods that are on no front in any sample are left out"
        )
        grids.append(table_of(f"Fronts of {setting}", heads, rows, caption, [note]))
    lead = "A method is on the front of two metrics if no other is at least as good in both and better in one"
    return Chapter("Pareto fronts", lead, tuple(grids))


def _share(front: Front, i: int) -> Cell:
    share = 100 * float(front.share[i])
    return Cell(f"{share:.0f}", share, bool(front.member[i]))


def _ranks(found: Comparisons, tests: Sequence[tuple[str, RankTest]], figures: Path) -> list[Chapter]:
    if not tests:
        return []
    files = draw(figures / "ranks", rank_figure, tests, "Average ranks over the settings")
    figure = DrawnFigure(
        "ranks",
        "Average ranks",
        "The band reaches one critical difference from the best method: within it, ranks do not differ significantly.",
        _svg(files),
        alt="Average ranks of the methods, a panel per metric, the best on top.",
    )
    facts = [
        (label, f"Friedman χ² {t.test.statistic:.2f}, p {t.test.p:.3g}; Iman–Davenport F {t.f:.2f}, p {t.f_p:.3g}; "
         f"critical difference (Nemenyi, 5 %) {t.test.critical_difference:.2f} for {len(t.methods)} methods and "
         f"{t.blocks} settings; not significantly below the best: {len(t.level_with_best())} methods")
        for label, t in tests
    ]  # fmt: skip
    rows = [_rank_row(m, tests) for m, _ in tests[0][1].ordered]
    heads = ("method", *(f"rank by {label}" for label, _ in tests))
    left = without_ranks(found)
    notes = (f"left out, since they are not in every setting: {', '.join(left)}",) if left else ()
    lead = (
        "Blocks are the settings, each with the means over its seeds (Demšar, 2006): seeds of one setting are no "
        "independent samples of settings. A method with a run that diverged is the last of its setting"
    )
    grid = table_of("Average ranks over the settings", heads, rows, "1 is best; ties share the mean rank", notes)
    return [Chapter("Average ranks", lead, (grid,), (figure,), tuple(facts))]


def _rank_row(method: str, tests: Sequence[tuple[str, RankTest]]) -> Values:
    values = [dict(t.ordered)[method] for _, t in tests]
    return (method, *(Cell(f"{v:.2f}", v) for v in values))


def _tuning(found: Comparisons, lines: Sequence[Line], notes: Mapping[str, Any]) -> Chapter:
    hours = {(line.setting, line.method): line.hours for line in lines}
    facts = [("command", notes["command"])] if "command" in notes else []
    facts += [("about", notes["lead"])] if "lead" in notes and not notes.get("surprised") else []
    facts += notes.get("facts", {}).items()
    facts.append(("hours spent", f"{sum(hours.values()):.1f} of wall-clock time, summed over trials and runs"))
    rows, spaces = [], {}
    for setting, tuning in found.tuning.items():
        protocol = ", ".join(f"{k}={config_value(v)}" for k, v in tuning["protocol"].items())
        size = f"{tuning['clients']} clients, {tuning['parameters']} parameters"
        facts.append((setting, f"{size}: {protocol}"))
        facts += [(f"{setting} without {method}", why) for method, why in tuning["refused"].items()]
        for method, study in tuning["studies"].items():
            spaces[method] = " ".join(study["space"])
            rows.append(_study_row(setting, method, study, hours[setting, method]))
    heads = ("method", "setting", "trials", "ended well", "chosen", "validation", "minutes")
    caption = "every method has the same budget, judged on validation examples"
    trials = table_of("What was tuned", heads, rows, caption)
    space = table_of("Spaces", ("method", "axes"), sorted(spaces.items()), "axes of the search per method")
    return Chapter("Settings and tuning", "", (trials, space), facts=tuple(facts))


def _study_row(setting: str, method: str, study: dict[str, object], hours: float) -> Values:
    info = metric_info(str(study["metric"]))
    trials = study["trials"]
    assert isinstance(trials, list)
    scores = [t["score"] for t in trials if t["score"] is not None]
    best = max(scores, key=lambda v: info.sign * v, default=None)
    chosen = study["chosen"]
    text = " ".join(f"{k}={config_value(v)}" for k, v in chosen.items()) if isinstance(chosen, dict) else "none"
    score = Cell("–") if best is None else Cell(info.text(info.factor * best), info.factor * best)
    return (method, setting, len(trials), len(scores), text, score, Cell(f"{60 * hours:.1f}", 60 * hours))


def _environment(found: Comparisons) -> tuple[tuple[str, str], ...]:
    merged: dict[str, list[str]] = {}
    for tuning in found.tuning.values():
        for name, value in tuning["environment"].items():
            merged.setdefault(name, [])
            merged[name] += [value] if value not in merged[name] else []
    return tuple((name, "; ".join(values)) for name, values in merged.items())


def _costs(lines: Sequence[Line], setting: str) -> list[tuple[str, float, float]]:
    here = [line for line in lines if line.setting == setting and "accuracy_worst10" in line.numbers]
    return [(li.method, li.numbers["seconds_train"].mean, li.numbers["accuracy_worst10"].mean) for li in here]


def _csv(line: Line) -> dict[str, object]:
    numbers: dict[str, object] = {}
    for name, number in line.numbers.items():
        numbers[name] = number.mean
        numbers[f"{name}_std"] = number.std
    named = {"setting": line.setting, "method": line.method, "seeds": line.done, "missing": line.reason}
    return {**named, "hours": line.hours, **numbers}


def _svg(files: Sequence[Path]) -> str:
    return next(f for f in files if f.suffix == ".svg").read_text(encoding="utf-8")

"""``fedbench tune algo=NAME ...``: choose values for a method's keys on validation examples.

``fedbench compare methods=A,B ...`` tunes every method with the same budget, runs the methods with
the chosen values, and tests their differences.
"""

import hashlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fedbench.analysis.compare import compare
from fedbench.analysis.stats import least_blocks
from fedbench.commands.result import CommandResult, print_errors, readable_runs
from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value
from fedbench.core.atomic_files import replace_file
from fedbench.core.config_values import WEIGHTS, leaves, weights_of
from fedbench.core.errors import RequestError
from fedbench.core.metrics import CATALOGUE, over_clients
from fedbench.core.validation import choice
from fedbench.reports.comparison import compared_text
from fedbench.reports.filters import plural
from fedbench.reports.page import PAGE, Chapter, Content
from fedbench.reports.page import page as page_text
from fedbench.reports.text_table import markdown
from fedbench.reports.tuning import tuned_chapter, tuned_json
from fedbench.reports.write import write_report
from fedbench.runs.executors.base import Executor, RunBatch
from fedbench.runs.results import TUNING
from fedbench.runs.run import Run
from fedbench.tuning.chosen import tuned_experiment
from fedbench.tuning.request import TABLE_SEEDS, TuningRequest, read_request
from fedbench.tuning.search import Study, Tuned


def execute(
    command: Literal["tune", "compare"],
    overrides: Sequence[str],
    executor: Executor,
    config_dir: Path | None = None,
    debug: bool = False,
) -> CommandResult:
    """Tune methods, compare them if the command is ``compare``, and write tables and a page.

    Args:
        command: The command.
        overrides: Keys of the command, and overrides of the runs.
        executor: The executor of the runs.
        config_dir: The user's directory with config files and modules.
        debug: Whether to print the traceback of a failed run.

    Returns:
        The result. Its status is 1 if a method has no successful trial, if a run of the search
        failed, or if a run of the comparison is not done.

    Raises:
        RequestError: If the request is invalid.
    """
    request = read_request(command, overrides, executor)
    composer = Composer(config_dir)
    studies = [Study(request, method, composer, debug) for method in request.methods]
    for study in studies:
        study.check()
    if command == "compare":  # before anything is trained
        _check_comparison(request, studies)
    print(f"fedbench: {_outlook(request, studies[0].config.rounds)}", file=sys.stderr, flush=True)

    searches = [study.search() for study in studies]
    own = [] if config_dir is None else ["--config-dir", str(config_dir)]
    typed = shlex.join(["fedbench", command, *own, *overrides])
    text, chapter = _write_search(searches, typed)
    print(f"\n{text}")
    chosen = [tuned for tuned in searches if tuned.best is not None]
    complete = len(chosen) == len(searches) and not any(study.failed for study in studies)
    if command == "tune":
        return CommandResult(0 if complete else 1, _folder(studies) / PAGE)

    if len(chosen) < 2:
        message = "fewer than two methods have a successful trial; there is nothing to compare"
        print(f"fedbench: {message}", file=sys.stderr)
        return CommandResult(1, _folder(studies) / PAGE)
    configs = [composer.config(overrides) for overrides in _table_runs(chosen)]
    batch = RunBatch(configs, config_dir, debug)
    executor.execute(batch)
    print_errors(batch.results, config_dir)
    try:
        text, page = _write_comparison(studies, readable_runs(batch.results), chapter)
    except RequestError as error:  # the request is valid, but too few runs succeeded
        print(f"fedbench: {error}", file=sys.stderr)
        return CommandResult(1, _folder(studies) / PAGE)
    print(f"\n{text}")
    complete = complete and all(result.status == "done" for result in batch.results)
    return CommandResult(0 if complete else 1, page)


def _check_comparison(request: TuningRequest, studies: Sequence[Study]) -> None:
    """Refuse an unknown baseline or metric, and tell whether the clients' weights differ.

    Raises:
        RequestError: If the baseline is not one of the methods, or the metric is not measured.
    """
    if request.baseline is not None:
        choice("baseline", request.baseline, request.methods)
    measured = [name for name, metric in CATALOGUE.items() if metric.formula is None]
    own = {name for study in studies for name in study.config.metrics}
    if all(study.config.evaluate.held_out_clients for study in studies):
        measured += [f"held_out_{name}" for name in measured if over_clients(name)]
    choice("metric", request.metric, [*measured, *sorted(own)])
    methods: dict[str, list[str]] = {}
    for study in studies:
        weights = weights_of(leaves(study.config.tree))
        if weights and not any(axis.key in WEIGHTS for axis in study.space):
            methods.setdefault(weights, []).append(study.method)
    if len(methods) > 1:
        texts = [f"{weights} for {', '.join(names)}" for weights, names in methods.items()]
        print(
            f"fedbench: clients have different weights, {' and '.join(texts)}; weights=uniform or "
            "weights=size makes them equal",
            file=sys.stderr,
        )


def _outlook(request: TuningRequest, rounds: int) -> str:
    """Return a line on the maximum number of runs, and on the differences that seeds can decide.

    Args:
        request: The request.
        rounds: Number of rounds per run.
    """
    methods = len(request.methods)
    plan = (
        f"at most {request.budget * len(request.seeds) * methods} runs of {rounds} rounds to tune"
    )
    seeds = len(request.table_seeds)
    if not seeds:
        return (
            f"{plan}; a score chooses values, and decides nothing between methods, "
            "for which type compare"
        )
    tests = methods * (methods - 1) // 2 if request.baseline is None else methods - 1
    needed = least_blocks(2 * tests, 0.05)
    decide = f"decide {plural(tests, 'difference')} at 5 %"
    if needed is None:
        outlook = f"can never {decide}, nor could more; name a baseline"
    elif needed > seeds:
        outlook = f"can never {decide}, seeds={needed} could"
    else:
        outlook = f"can {decide}"
    return f"{plan} and {seeds * methods} to compare; {seeds} seeds {outlook}"


def _write_search(searches: Sequence[Tuned], command: str) -> tuple[str, Chapter]:
    """Write the tables, the page and the config file for the results of searches.

    Args:
        searches: Results of the searches of one request.
        command: The command as typed.

    Returns:
        The tables with the names of the files, and the chapter of the page.
    """
    study = searches[0].study
    config = study.config
    folder = _folder([tuned.study for tuned in searches])
    chapter = tuned_chapter(study, searches, command)
    text = markdown(chapter.tables, notes=[f"{name}: {fact}" for name, fact in chapter.facts])
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "tuned.md", text)
    replace_file(folder / "tuned.json", tuned_json(study, searches, command))
    replace_file(
        folder / PAGE, page_text(Content(f"Tuning on {config.task_name}", chapters=(chapter,)))
    )
    methods = ",".join(tuned.study.method for tuned in searches if tuned.best is not None)
    if methods:
        conf = config.results_dir / TUNING / "conf"
        file = conf / "experiment" / "tuned" / f"{folder.name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, tuned_experiment(searches, command))
        seeds = ",".join(map(str, range(TABLE_SEEDS)))
        use = f"-m experiment=tuned/{folder.name} algo={methods} seed={seeds}"
        place = shlex.quote(str(conf))
        copy = ""
        own = study.composer.config_dir
        if own is not None and own.resolve() != conf.resolve():
            copy = f"cp -R {place}/. {shlex.quote(str(own))} && "
            place = shlex.quote(str(own))
        text += f"\nto use it: {copy}fedbench --config-dir {place} {use}\n"
    return f"{text}\nwritten: {folder / PAGE}", chapter


def _folder(studies: Sequence[Study]) -> Path:
    """Return the directory of the tables, named after the task and a digest of the searches."""
    config = studies[0].config
    facts = "".join(f"{study.method}{study.folder.name}" for study in studies)
    name = f"{config.task_name.replace('/', '_')}_{hashlib.sha256(facts.encode()).hexdigest()[:6]}"
    return config.results_dir / TUNING / "tables" / name


def _table_runs(chosen: Sequence[Tuned]) -> list[list[str]]:
    """Return the overrides of the table's runs, with the chosen values and all examples."""
    runs = []
    for tuned in chosen:
        request = tuned.study.request
        values = [f"{key}={as_value(value)}" for key, value in tuned.values.items()]
        tuned_on = f"tuned_on={as_value(list(request.seeds))}"
        runs += [
            [*tuned.study.after, *values, tuned_on, f"seed={seed}"] for seed in request.table_seeds
        ]
    return runs


def _write_comparison(
    studies: Sequence[Study], runs: Sequence[Run], tuning: Chapter
) -> tuple[str, Path]:
    """Write the comparison and the page.

    Args:
        studies: The searches.
        runs: The table's runs, which the page compares. The other tables on the page contain all
            runs in the directory.
        tuning: The chapter on the searches.

    Returns:
        The comparison with the names of the files, and the path of the page.
    """
    config = studies[0].config
    request = studies[0].request
    folder = _folder(studies)
    compared = compare(runs, "algo", request.metric, request.baseline)
    text = compared_text(compared)
    replace_file(folder / "compared.md", text + "\n")
    place = config.results_dir / config.task_name
    write_report(place, compare=lambda _: compared, chapters=(tuning,))
    page = place / "report" / PAGE
    return f"{text}\n\nwritten: {folder / PAGE}\nwritten: {page}", page

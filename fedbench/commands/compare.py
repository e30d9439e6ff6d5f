"""``fedbench compare methods=A,B ...``: tune every method with one budget, run them, and test their differences."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence

from fedbench.analysis.compare import compare as compare_runs
from fedbench.commands.tune import name_of, search_all, studies_of, write_results
from fedbench.config.compose import Composer
from fedbench.config.overrides import as_value
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError, choice
from fedbench.core.files import replace_file
from fedbench.core.metrics import CATALOGUE
from fedbench.report.comparison import compared_text
from fedbench.report.page import Chapter
from fedbench.report.write import Extras, write_report
from fedbench.runs.pool import Ended, Runs, announce, carry_out_all, jobs_by_default, shared_gpus
from fedbench.runs.results import TUNING
from fedbench.runs.run import Run, read_run
from fedbench.tuning.request import TuningRequest, read_request
from fedbench.tuning.search import Study
from fedbench.tuning.trials import Tuned


def carry_out(asked: Namespace) -> int:
    """Tune, run and compare methods, write tables and a page, and return the exit status: 1 if a run is not done.

    Raises:
        RequestError: If the request is wrong.
    """
    request = read_request("compare", asked.overrides, asked.jobs)
    with user_code_from(asked.config_dir):
        composer = Composer(asked.config_dir)
        studies = studies_of(request, composer, asked.loud)
        _refuse_unknown(request, studies)
        found = search_all(studies)
        command = shlex.join(["fedbench", "compare", *asked.typed])
        text, tuning = write_results(studies, found, command)
        print("\n" + text)
        chosen = [(s, t) for s, t in zip(studies, found, strict=True) if t.best is not None]
        if len(chosen) < 2:
            raise RequestError("fewer than two methods have a trial that ended well; there is nothing to compare")
        ended = _run_all(request, composer, chosen, asked.loud)
    runs = [read_run(note.path) for note in ended if note.path is not None]
    print("\n" + _write(request, studies, runs, tuning))
    return 0 if len(chosen) == len(studies) and all(note.status == "done" for note in ended) else 1


def _refuse_unknown(request: TuningRequest, studies: Sequence[Study]) -> None:
    """Refuse a baseline or metric that the table will not have, before anything is trained.

    Raises:
        RequestError: If there is one.
    """
    if request.baseline is not None:
        choice("baseline", request.baseline, request.methods)
    own = {name for study in studies for name in study.config.metrics}
    choice("metric", request.metric, [*(k for k, m in CATALOGUE.items() if m.formula is None), *sorted(own)])


def table_runs(request: TuningRequest, chosen: Sequence[tuple[Study, Tuned]]) -> list[list[str]]:
    """Return the overrides of the runs of the table: chosen values, all training examples, the seeds of the table."""
    tuned_on = f"tuned_on={as_value(list(request.seeds))}"
    runs = []
    for study, tuned in chosen:
        assert tuned.best is not None
        values = [f"{key}={as_value(value)}" for key, value in tuned.best.values.items()]
        runs += [[*study.after, *values, tuned_on, f"seed={seed}"] for seed in request.table_seeds]
    return runs


def _run_all(
    request: TuningRequest, composer: Composer, chosen: Sequence[tuple[Study, Tuned]], loud: bool
) -> list[Ended]:
    """Carry out the runs of the table and return what became of them."""
    runs, configs = table_runs(request, chosen), [study.config for study, _ in chosen]
    jobs = min(request.jobs or jobs_by_default(configs, len(runs)), len(runs))
    announce(len(runs), jobs)
    several = Runs(runs, composer.config, composer.own, loud)
    ended = carry_out_all(several, jobs, shared_gpus(configs))
    for e in ended:
        if e.error:
            print(f"fedbench: {e.status}: {' '.join(e.overrides)}: {e.error}", file=sys.stderr)
    return ended


def _write(request: TuningRequest, studies: Sequence[Study], runs: Sequence[Run], tuning: Chapter) -> str:
    """Write the comparison and the page, and return the comparison and where all is.

    Args:
        request: What was asked for.
        studies: The searches.
        runs: The runs of the table, which the page compares; its other tables have all runs of the directory.
        tuning: The chapter on the searches.
    """
    config = studies[0].config
    compared = compare_runs(runs, "algo", request.metric, request.baseline)
    text = compared_text(compared)
    tables = config.results_dir / TUNING / "tables" / name_of(studies)
    replace_file(tables / "compared.md", text + "\n")
    extras = Extras(compare=lambda _: compared, chapters=(tuning,))
    page = write_report(config.results_dir / config.task_name, extras=extras).splitlines()[-1]
    return f"{text}\n\nwritten: {tables}\n{page}"

"""``fedbench tune algo=NAME ...`` chooses values of a method's keys on validation examples."""

from __future__ import annotations

import hashlib
import shlex
from argparse import Namespace
from collections.abc import Sequence

from fedbench.config.compose import Composer
from fedbench.config.user_code import user_code_from
from fedbench.core.files import replace_file
from fedbench.report.page import Chapter, Content, page
from fedbench.report.table import csv_text
from fedbench.report.tuning import TuningFacts, trial_rows, tuned_chapter, tuned_markdown, tuned_rows
from fedbench.runs.results import TUNING
from fedbench.tuning.chosen import tuned_experiment
from fedbench.tuning.request import TuningRequest, read_request
from fedbench.tuning.search import Study
from fedbench.tuning.trials import Tuned


def carry_out(asked: Namespace) -> int:
    """Tune methods, write a config file and tables, and return the exit status: 1 if no trial of a method ended well.

    Raises:
        RequestError: If the request is wrong.
    """
    request = read_request("tune", asked.overrides, asked.jobs)
    with user_code_from(asked.config_dir):
        studies = studies_of(request, Composer(asked.config_dir), asked.loud)
        found = search_all(studies)
        command = shlex.join(["fedbench", "tune", *asked.typed])
        print("\n" + write_results(studies, found, command)[0])
    return 0 if all(t.best is not None for t in found) else 1


def studies_of(request: TuningRequest, composer: Composer, loud: bool) -> list[Study]:
    """Return the searches of a request, each of which can be carried out.

    Raises:
        RequestError: For the first one that cannot.
    """
    studies = [Study(request, method, composer, loud) for method in request.methods]
    for study in studies:
        study.check()
    return studies


def search_all(studies: Sequence[Study]) -> list[Tuned]:
    """Carry out searches one after another."""
    return [study.search() for study in studies]


def write_results(studies: Sequence[Study], found: Sequence[Tuned], command: str) -> tuple[str, Chapter]:
    """Write tables, a page and the config file.

    Returns:
        The table and where all is, and the chapter of the page.

    Args:
        studies: The searches, of one request.
        found: What they have found.
        command: The command as typed.
    """
    facts, name, results = _facts(studies[0], command), name_of(studies), studies[0].config.results_dir
    folder, text = results / TUNING / "tables" / name, tuned_markdown(facts, found)
    chapter = tuned_chapter(facts, found)
    files = {
        "tuned.md": text,
        "tuned.csv": csv_text(tuned_rows(facts, found)),
        "trials.csv": csv_text(trial_rows(found)),
        "index.html": page(Content(f"Tuning on {studies[0].config.task_name}", chapters=(chapter,))),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, content in files.items():
        replace_file(folder / file_name, content)
    tree = results / TUNING / "conf"
    file = tree / "experiment" / "tuned" / f"{name}.yaml"
    if any(t.best is not None for t in found):
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, tuned_experiment(studies, found, command))
        methods = ",".join(t.method for t in found if t.best is not None)
        use = f"fedbench --config-dir {shlex.quote(str(tree))} -m experiment=tuned/{name} algo={methods} seed=0,1,2"
        text += f"\nto use it: {use}\n"
    return f"{text}\nwritten: {folder}", chapter


def name_of(studies: Sequence[Study]) -> str:
    """Return the name of what was tuned: the data set or experiment, and a digest of the searches."""
    facts = "".join(f"{s.method}{s.folder.name}" for s in studies)
    return f"{studies[0].config.task_name.replace('/', '_')}_{hashlib.sha256(facts.encode()).hexdigest()[:6]}"


def _facts(study: Study, command: str) -> TuningFacts:
    request, config = study.request, study.config
    return TuningFacts(
        command,
        study.metric,
        config.rounds,
        request.budget,
        request.seeds,
        request.sampler,
        request.pruning,
        config.data.validation,
    )

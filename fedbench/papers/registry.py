"""The registered papers: one YAML file per paper in this folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedbench.core.config_values import read_yaml
from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.core.metrics import metric_info, weighted_or_not
from fedbench.papers.checks import Check, Curves, Limit, Several
from fedbench.papers.parsing import parse
from fedbench.papers.schema import Paper, Setup, Table


@dataclass(frozen=True, eq=False)
class Home:
    """The place of an experiment in a paper.

    Attributes:
        paper: The paper.
        setup: The setup that the experiment implements.
        table: The table that the experiment is named after, else the first table with the setup;
            None if there is no such table.
    """

    paper: Paper
    setup: Setup
    table: Table | None


def home_of(experiment: str | None) -> Home | None:
    """Return the place of an experiment in the registered papers; None if no paper has it."""
    return None if experiment is None else _homes().get(experiment)


@cache
def _homes() -> dict[str, Home]:
    homes = {}
    for paper in papers().values():
        for setup in paper.setups.values():
            tables = [table for table in paper.tables.values() if setup.id in table.setups]
            # the table that the experiment is named after comes first
            tables.sort(
                key=lambda table: not setup.experiment.startswith(f"{paper.id}/{table.id}_")
            )
            homes[setup.experiment] = Home(paper, setup, tables[0] if tables else None)
    return homes


@cache
def papers() -> dict[str, Paper]:
    """Return the registered papers by id.

    Raises:
        RequestError: If a file is invalid.
    """
    files = sorted(Path(__file__).parent.glob("*.yaml"))
    return {file.stem: read_paper(file) for file in files}


def read_paper(path: Path) -> Paper:
    """Return the paper in a YAML file.

    Raises:
        RequestError: If the file is invalid; the message names the file, the entry and its first
            fault.
    """
    with reading(path.name, "is not valid YAML"):
        content = read_yaml(path)
    paper = parse(Paper, content, path.name, {})
    if paper.id != path.stem:
        raise RequestError(
            f"{path.name}: the id of a paper is the name of its file; got {paper.id!r}"
        )
    return paper


@cache
def written_checks(paper: str) -> dict[str, Any]:
    """Return the checks of a registered paper's claims as they are in its file, by claim."""
    content = read_yaml(Path(__file__).with_name(f"{paper}.yaml"))
    return {claim["id"]: claim["check"] for claim in content["claims"]}


def curve_fields(paper: Paper) -> list[str]:
    """Return the keys that a paper needs in all rounds, for both weightings of the clients."""
    named: set[str] = set()
    for figure in paper.figures.values():
        named.update(figure.fields)
    for claim in paper.claims.values():
        named.update(_fields_of(claim.check))
    for metric in paper.metrics.values():
        if metric.target is not None or metric.rounds is not None:
            named.add(metric.field)

    keys: set[str] = set()
    for name in named:
        for weighted in (True, False):
            field = weighted_or_not(name, weighted)
            if field is not None:
                keys.update(metric_info(field).needs or (field,))
    return sorted(keys)


def _fields_of(check: Check | None) -> Iterable[str]:
    """Return the fields of the curves that a check uses."""
    match check:
        case Several(checks=checks):
            return [field for part in checks for field in _fields_of(part)]
        case Curves(fields=fields):
            return fields
        case Limit(field=field):
            return (field,)
    return ()

"""The papers on record: a YAML file per paper in this folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedbench.core.config_values import from_yaml
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
        setup: The setup that the experiment carries out.
        table: The table that the experiment is named after, else the first one with the setup; None
            without a table.
    """

    paper: Paper
    setup: Setup
    table: Table | None


def home_of(experiment: str | None) -> Home | None:
    """Return the place of an experiment in the papers on record, or None if it belongs to none of them."""
    return None if experiment is None else _homes().get(experiment)


@cache
def _homes() -> dict[str, Home]:
    homes = {}
    for paper in papers().values():
        for setup in paper.setups.values():
            tables = [t for t in paper.tables.values() if setup.id in t.setups]
            named = [t for t in tables if setup.experiment.startswith(f"{paper.id}/{t.id}_")]
            homes[setup.experiment] = Home(paper, setup, next(iter([*named, *tables]), None))
    return homes


@cache
def papers() -> dict[str, Paper]:
    """Return the papers on record, by id.

    Raises:
        RequestError: If a file is invalid.
    """
    return {p.id: p for p in map(read_paper, sorted(Path(__file__).parent.glob("*.yaml")))}


def read_paper(path: Path) -> Paper:
    """Return the paper of a YAML file.

    Raises:
        RequestError: With the file, the entry and its first fault.
    """
    with reading(path.name, "is not valid YAML"):
        content = from_yaml(path.read_text(encoding="utf-8"))
    paper = parse(Paper, content, path.name, {})
    if paper.id != path.stem:
        raise RequestError(
            f"{path.name}: the id of a paper is the name of its file; got {paper.id!r}"
        )
    return paper


def curve_fields(paper: Paper) -> list[str]:
    """Return the keys that a paper reads at all rounds, in both weightings of the clients."""
    named = {name for figure in paper.figures.values() for name in figure.fields}
    named |= {name for claim in paper.claims.values() for name in _fields_of(claim.check)}
    named |= {
        m.field for m in paper.metrics.values() if m.target is not None or m.rounds is not None
    }
    both = {
        twin
        for name in named
        for w in (True, False)
        if (twin := weighted_or_not(name, w)) is not None
    }
    return sorted({key for name in both for key in metric_info(name).needs or (name,)})


def _fields_of(check: Check | None) -> Iterator[str]:
    if isinstance(check, Several):
        for part in check.checks:
            yield from _fields_of(part)
    elif isinstance(check, Curves):
        yield from check.fields
    elif isinstance(check, Limit):
        yield check.field

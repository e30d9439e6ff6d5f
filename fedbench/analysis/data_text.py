"""Descriptions of the data of runs: data set, partition, number of clients and participation."""

from collections.abc import Sequence

from fedbench.config.descriptions import citation
from fedbench.config.identity import setting
from fedbench.core.config_values import Tree, config_value
from fedbench.papers.registry import home_of
from fedbench.runs.bundle import named_files
from fedbench.runs.run import Run


def data_name(run: Run) -> str:
    """Return the printed name of a run's data set, or its config name for a user's data set."""
    source = citation(str(run.flat.get("data.source._target_")))
    return source.name if source and source.name else str(run.meta["data"])


def data_facts(run: Run) -> Tree:
    """Return a run's setting as text by dotted key; ``data`` is the name of the data set.

    User files are identified by name and content. If a run uses all clients, ``data.clients`` is
    their actual number.
    """
    facts = setting(run.config) | named_files(run)
    clients = run.flat.get("data.clients") or run.meta.get("clients")
    facts |= {"data": data_name(run), "data.clients": clients}
    return {key: config_value(value) for key, value in facts.items()}


def data_text(facts: Tree, experiment: str | None = None) -> str:
    """Return a title: the name of a paper's experiment, or a description of the data.

    A description is, for example, 'CIFAR-10, shards (shards_per_client=2), 100 clients,
    10 % per round'. If the experiment belongs to no paper, its name precedes the description.

    Args:
        facts: Some of ``data_facts``; missing ones are not mentioned.
        experiment: Name of the experiment, or None.
    """
    if experiment is not None and home_of(experiment):
        return experiment
    parts = [f"{facts.get('data', 'all data')}{_options(facts, 'data.source.')}"]
    rule = facts.get("data.partition._target_", "null")
    if rule != "null":
        parts.append(f"{rule.rpartition('.')[2]}{_options(facts, 'data.partition.')}")
    clients = facts.get("data.clients", "null")
    if clients != "null":
        parts.append(f"{clients} clients")
    participation = facts.get("participation", "null")
    if participation != "null":
        parts.append(f"{_share(participation)} per round")
    text = ", ".join(parts)
    return f"{experiment}: {text}" if experiment else text


def title_of(runs: Sequence[Run]) -> str:
    """Return a title for runs of one experiment: the common facts of their data and cohorts."""
    facts = [set(data_facts(run).items()) for run in runs]
    common = set.intersection(*facts)
    return data_text(dict(common), runs[0].meta["experiment"])


def content_of(run: Run, experiment: str | None = None) -> str:
    """Return a title for a run, without the number of clients and the participation."""
    return data_text(
        data_facts(run) | {"data.clients": "null", "participation": "null"},
        experiment,
    )


def _share(participation: str) -> str:
    """Return the clients of a round in words: all, a percentage, or a number."""
    value = float(participation)
    if value == 1:
        return "all"
    return f"{100 * value:g} %" if value < 1 else participation


def _options(facts: Tree, section: str) -> str:
    """Return the enabled options of a section, without the number of clients."""
    options = [
        f"{key.removeprefix(section)}={value}"
        for key, value in sorted(facts.items())
        if key.startswith(section)
        if not key.endswith(("_target_", ".clients"))
        if value not in ("null", "false")
    ]
    return f" ({', '.join(options)})" if options else ""

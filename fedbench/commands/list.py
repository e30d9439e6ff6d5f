"""``fedbench list``: the choices in config groups, tables of papers, or the card of a choice."""

import inspect
import re
import shlex
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fedbench.benchmarks.definition import GROUP
from fedbench.commands.arguments import LISTED
from fedbench.commands.result import CommandResult
from fedbench.config.descriptions import about, citation
from fedbench.config.overrides import choice_files, unknown_choice
from fedbench.config.targets import function_of
from fedbench.core.config_values import Tree, from_yaml, leaves
from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.core.metrics import CATALOGUE
from fedbench.reproduce.plan import table_names
from fedbench.tuning.space import search_space

_SECTIONS = re.compile(r"\n\n(?:Args|Returns|Raises|Attributes):\n.*?(?=\n\n(?! )|\Z)", re.S)


def execute(
    group: str | None = None, name: str | None = None, config_dir: Path | None = None
) -> CommandResult:
    """Print the choices in a group, or the card of one choice.

    Args:
        group: One of ``LISTED``. If None, all groups are printed.
        name: The choice whose card is printed.
        config_dir: The user's directory with config files and modules.

    Raises:
        RequestError: If the choice is unknown or has no card.
    """
    if name is None:
        for listed in LISTED if group is None else (group,):
            if group is None:
                print(f"{listed}:")
            rows = _rows(listed, config_dir)
            width = max(len(choice) for choice, _ in rows)
            for choice, about in rows:
                print(f"  {choice:<{width}}  {about}".rstrip())
    elif group in (None, "experiment", "table", "metric"):
        raise RequestError(
            f"unexpected argument {name}; experiments, tables and metrics have no card"
        )
    else:
        print(card(_group(group), name, config_dir))
    return CommandResult()


def _rows(listed: str, config_dir: Path | None) -> list[tuple[str, str]]:
    """Return the choices in a group, each with its description."""
    if listed == "table":
        return table_names()
    if listed == "metric":
        rows = []
        for metric in CATALOGUE.values():
            better = f"; {metric.direction} is better" if metric.direction else ""
            rows.append((metric.name, metric.axis + better))
        return [
            *rows,
            ("client:K", "accuracy of client K (%)"),
            ("val_NAME", "NAME on validation examples, for tuned_by"),
        ]
    files = choice_files(_group(listed), config_dir)
    return [(name, about(path)) for name, path in files.items()]


def _group(listed: str) -> str:
    """Return the config group that is listed under a name."""
    return "data/partition" if listed == "partition" else listed


def card(group: str, name: str, config_dir: Path | None) -> str:
    """Return the card of a choice: its docstring, and its config file with all comments.

    Args:
        group: The config group, such as ``algo`` or ``data/partition``.
        name: The choice.
        config_dir: The user's directory with config files and modules.

    Raises:
        RequestError: If the choice is unknown.
    """
    files = choice_files(group, config_dir)
    if name not in files:
        raise unknown_choice(group, name, [*files])
    file = files[name]
    section = group.replace("/", ".")
    tree, texts = _written(name, files)

    parts = [f"{name}: {about(file)}".removesuffix(": ")]
    if tree.get("_target_"):
        parts.append(_documentation(tree["_target_"], section))
    if texts:
        parts += [f"keys of {section}:", *texts]
    if group == "data":
        source = citation(tree["source._target_"])
        if source is not None:
            parts.append(f"licence  {source.licence}\ncite     {source.reference}")
    with suppress(RequestError):  # not a method, or a method without a search space
        axes = search_space(name, config_dir, ())
        parts.append(f"tune searches {' '.join(axis.text for axis in axes)}")

    use = f"{group} {name}" if group == GROUP else f"{group}={name}"
    own = ""
    if config_dir is not None and file.is_relative_to(config_dir):
        own = f"--config-dir {shlex.quote(str(config_dir))} "
    parts.append(f"use: fedbench {own}{use}")
    return "\n\n".join(parts)


def _documentation(target: str, section: str) -> str:
    """Return a function's docstring without its sections, or the reason it is unavailable."""
    try:
        documentation = inspect.getdoc(function_of(target, section)) or f"{target} has no docstring"
    except RequestError as error:  # such as a tracker whose package is not installed
        return str(error)
    return _SECTIONS.sub("", documentation).strip()


def _written(name: str, files: Mapping[str, Path]) -> tuple[Tree, list[str]]:
    """Return the keys of a config file and of the files it includes, and the text of each file."""
    with reading(files[name]):
        text = files[name].read_text(encoding="utf-8")
        own = from_yaml(text) or {}
    tree: Tree = {}
    texts: list[str] = []
    for included in own.pop("defaults", ()):
        if isinstance(included, str) and included in files:
            inner, inner_texts = _written(included, files)
            tree |= inner
            texts += inner_texts
    if own:
        texts.append(textwrap.indent(text.strip(), "  "))
    return tree | leaves(own), texts

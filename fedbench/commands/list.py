"""``fedbench list``: the choices of the config groups, the tables of the papers and the engine modes."""

from __future__ import annotations

from argparse import Namespace
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from fedbench.commands.list_one import card
from fedbench.config.groups import LISTED as GROUPS_LISTED
from fedbench.config.groups import config_dir, options
from fedbench.config.overrides import unknown_choice
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError, nearest
from fedbench.core.trees import from_yaml, yaml_events
from fedbench.data.citations import citation

_GROUP = {"partition": "data/partition"}  # where a word of the command line is not the name of its group
_ALL = (*GROUPS_LISTED, "partition", "tracker", "table")
CARDS = ("algo", "data", "model", "partition", "tracker")  # groups whose choices have a card
LISTED = (*_ALL, "engine")  # the last may compile code, and is listed only on request


def carry_out(asked: Namespace) -> int:
    """Print the choices of a group, or the card of one.

    Raises:
        RequestError: If the group or the choice is unknown.
    """
    print(list_choices([word for word in (asked.group, asked.name) if word], asked.config_dir))
    return 0


def list_choices(args: Sequence[str], own: Path | None) -> str:
    """Return what ``fedbench list`` prints.

    Args:
        args: One of ``LISTED``, or nothing for all; one of ``CARDS`` may be followed by the name of a choice.
        own: A config tree of the user's own.

    Raises:
        RequestError: If the group or the choice is unknown.
    """
    if len(args) == 2 and args[0] == "data":
        return _data_set(args[1], own)
    if len(args) == 2 and args[0] in CARDS:
        with user_code_from(own):
            return card(_GROUP.get(args[0], args[0]), args[1], own)
    if len(args) > 1 or (args and args[0] not in LISTED):
        hint = nearest(args[0], LISTED) if args[0] not in LISTED else ""
        cards = f"{', '.join(CARDS)} may be followed by a name"
        raise RequestError(f"list takes one of {', '.join(LISTED)}; {cards}; got {' '.join(args)}{hint}")
    lines = []
    for group in args or _ALL:
        if not args:
            lines.append(f"{group}:")
        with user_code_from(own):
            rows = _rows(group, own, costs=bool(args))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            lines.append("  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
    return "\n".join(lines)


def _rows(group: str, own: Path | None, costs: bool) -> list[tuple[str, ...]]:
    """Return a row per choice: its name, for algorithms their costs and probes, and a description."""
    if group == "table":
        from fedbench.reproduce.plan import table_names

        return [*table_names()]
    if group == "engine":
        from fedbench.simulation.compiled.library import kernels

        built = kernels()
        compiled = f"built by {built.source}" if built.library else f"not available here: {built.source}"
        return [
            ("loop", "one client at a time, any model; chosen by auto for convolutions and LSTMs"),
            ("stacked", "a chunk of clients at once, any model"),
            ("compiled", f"linear models and MLPs on a CPU, {compiled}"),
        ]
    roots = [config_dir(), *([own] if own else [])]
    group = _GROUP.get(group, group)
    found = [(name, root / group / f"{name}.yaml") for root in roots for name in options(group, root)]
    if group == "algo" and costs:
        from fedbench.runs.build_method import cost_of  # imports torch

        heads = ("algorithm", "models down/up, and more", "measured first", "")
        return [heads, *(_row(name, path, cost_of) for name, path in found)]
    return [_row(name, path) for name, path in found]


def _row(name: str, path: Path, costs: Callable[[Path], tuple[str, str]] | None = None) -> tuple[str, ...]:
    """Return the row of a config file; one that cannot be read is listed with its fault."""
    nothing = ("", "") if costs else ()
    try:
        about = _about(path)
        return (name, *(costs(path) if costs else ()), about)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        return (name, *nothing, f"cannot be read: {path}: {' '.join(str(error).split())[:300]}")


def _data_set(name: str, own: Path | None) -> str:
    """Return a line per fact about a data set: its defaults, licence and citation."""
    roots = [config_dir(), *([own] if own else [])]
    paths = {n: root / "data" / f"{n}.yaml" for root in roots for n in options("data", root)}
    if name not in paths:
        raise unknown_choice("data", name, [*paths])
    path = paths[name]
    about = _row(name, path)[1]
    defaults, target = ({}, "") if about.startswith("cannot be read") else _composed(path, paths)
    source = citation(target)
    facts = {
        "data": f"{name}: {about}",
        "partition": defaults.get("partition", "natural: as the source records it"),
        "model": defaults.get("model"),
        "source": target,
        "licence": source.licence if source else "not recorded: the source is not one of fedbench's",
        "cite": source.reference if source else "not recorded",
    }
    return "\n".join(f"{k:<9}  {v}" for k, v in facts.items() if v)


def _composed(path: Path, paths: Mapping[str, Path]) -> tuple[dict[str, str], str]:
    """Return the groups that the config file of a data set chooses, and its source; it may start from another file."""
    section = from_yaml(path.read_text(encoding="utf-8")) or {}
    chosen: dict[str, str] = {}
    target = ""
    for entry in section.get("defaults", []):
        if isinstance(entry, dict):
            chosen |= {k.split("@")[0].strip("/"): v for k, v in entry.items()}
        elif entry in paths:
            below, target = _composed(paths[entry], paths)
            chosen = below | chosen
    return chosen, str((section.get("source") or {}).get("_target_", target))


def _about(path: Path) -> str:
    """Return the first comment of a config file that is valid YAML.

    Raises:
        OSError: If it cannot be read.
        UnicodeDecodeError: If it is not text in UTF-8.
        yaml.YAMLError: If it is not YAML.
    """
    text = path.read_text(encoding="utf-8")
    if not path.is_relative_to(config_dir()):
        deque(yaml_events(text), maxlen=0)  # only whether it is YAML
    for line in text.splitlines():
        if line.startswith("# ") and "@package" not in line:
            return line.removeprefix("# ")
    return ""

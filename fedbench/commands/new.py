"""``fedbench new KIND NAME``: create a Python file, its config file and its test."""

import builtins
import importlib.util
import keyword
import re
import shlex
from pathlib import Path
from string import Template

from fedbench.commands.result import CommandResult
from fedbench.config.overrides import options
from fedbench.core.atomic_files import writing
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path

_TEMPLATES = Path(__file__).resolve().parent / "scaffolds"
KINDS = {  # the config group of a kind, and the arguments of a run with the new part
    "algorithm": ("algo", "algo={} data=synthetic_leaf rounds=20"),
    "model": ("model", "model={} data=synthetic_leaf rounds=20"),
    "data": ("data", "data={} rounds=20"),
    "partition": ("data/partition", "data=mnist_iid data/partition={} data.clients=10 rounds=5"),
    "metric": ("metrics", "metrics={} data=synthetic_leaf rounds=20"),
    "attack": ("attack", "attack={} data=synthetic_leaf rounds=20"),
    "defence": ("defence", "defence={} algo.weights=uniform data=synthetic_leaf rounds=20"),
    "compression": ("compression", "compression={} data=synthetic_leaf rounds=20"),
}


def execute(
    kind: str,
    name: str,
    into: str = "own",
    parts: bool = False,
) -> CommandResult:
    """Write the files of a new part and print their names and a command to try next.

    Args:
        kind: One of ``KINDS``.
        name: Name of the part.
        into: Output directory.
        parts: Whether the algorithm has a personal head and a loss of its own.

    Raises:
        RequestError: If the name cannot be used, a file already exists, or another kind of part
            than an algorithm has ``parts``.
    """
    if parts and kind != "algorithm":
        raise RequestError(f"--parts is for an algorithm, got {kind}; remove it")
    template = "parts" if parts else kind
    folder = user_path("--into", into)
    group, run = KINDS[kind]
    is_name = re.fullmatch(r"[a-z][a-z0-9_]*", name) and not keyword.iskeyword(name)
    if (
        not is_name
        or hasattr(builtins, name)
        or name in options(group)
        or importlib.util.find_spec(name) is not None
    ):
        raise RequestError(
            f"{name!r} cannot name a new {kind}: it must be lower-case letters, digits and _, and "
            f"neither a word or module of Python nor a choice of {group} of fedbench; "
            f"use my_{kind}, for example"
        )
    files = {
        f"{template}.py.txt": folder / f"{name}.py",
        f"{template}.yaml.txt": folder / group / f"{name}.yaml",
        f"{template}_test.py.txt": folder / f"test_{name}.py",
    }
    for file in files.values():
        if file.exists():
            raise RequestError(
                f"{file} exists already and is not overwritten; use another name, or --into DIR"
            )

    values = {
        "name": name,
        "title": name.replace("_", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "folder": folder.as_posix(),
    }
    for source, file in files.items():
        text = Template((_TEMPLATES / source).read_text(encoding="utf-8")).substitute(values)
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        print(f"written: {file}")
    if parts:
        run = f"{run} model=mlp"  # has a head and a body
    test, place = shlex.quote(str(file)), shlex.quote(str(folder))
    print(
        f"try next:\n  python -m pytest {test}\n  fedbench --config-dir {place} {run.format(name)}"
    )
    return CommandResult()

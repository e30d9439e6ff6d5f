"""``fedbench new algorithm|model|data|partition|metric NAME``: a Python file, its config file and its test."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import re
from argparse import Namespace
from pathlib import Path
from string import Template

from fedbench.config.overrides import options
from fedbench.core.atomic_files import writing
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path

_TEMPLATES = Path(__file__).resolve().parent / "scaffolds"
KINDS = {  # the config group of a kind, and what a run of the part is typed with
    "algorithm": ("algo", "algo={} data=synthetic_leaf rounds=20"),
    "model": ("model", "model={} data=synthetic_leaf rounds=20"),
    "data": ("data", "data={} rounds=20"),
    "partition": ("data/partition", "data=mnist_iid data/partition={} data.clients=10 rounds=5"),
    "metric": ("metrics", "metrics={} data=synthetic_leaf rounds=20"),
}


def execute(args: Namespace) -> int:
    """Write the files and print their names and what to try next.

    Raises:
        RequestError: If the name cannot be used, or a file exists already.
    """
    kind, name, into = args.kind, args.name, user_path("--into", args.into)
    group, run = KINDS[kind]
    is_name = re.fullmatch(r"[a-z][a-z0-9_]*", name) and not keyword.iskeyword(name)
    if not is_name or hasattr(builtins, name) or name in options(group) or importlib.util.find_spec(name) is not None:
        raise RequestError(
            f"{name!r} cannot name a new {kind}: it must be lower-case letters, digits and _, and neither a word or "
            f"module of Python nor a choice of {group} of fedbench; use my_{kind}, for example"
        )
    files = {
        f"{kind}.py.txt": into / f"{name}.py",
        f"{kind}.yaml.txt": into / group / f"{name}.yaml",
        f"{kind}_test.py.txt": into / f"test_{name}.py",
    }
    if existing := [file for file in files.values() if file.exists()]:
        raise RequestError(f"{existing[0]} exists already and is not overwritten; use another name, or --into DIR")
    words = {
        "name": name,
        "title": name.replace("_", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "folder": into.as_posix(),
    }
    for template, file in files.items():
        text = Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        print(f"written: {file}")
    print(f"try next:\n  python -m pytest {file}\n  fedbench --config-dir {into} {run.format(name)}")
    return 0

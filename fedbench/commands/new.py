"""``fedbench new algorithm|model|data|partition|metric NAME``: a Python file, its config file and its test."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from string import Template

from fedbench.config.groups import options
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path

_TEMPLATES = Path(__file__).resolve().parent / "scaffolds"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class _Kind:
    """A part that can be one's own.

    Attributes:
        group: Its config group, a folder of the directory.
        overrides: What a run of the part is typed with; ``{}`` is its name.
    """

    group: str
    overrides: str


KINDS = {
    "algorithm": _Kind("algo", "algo={} data=synthetic_leaf rounds=20"),
    "model": _Kind("model", "model={} data=synthetic_leaf rounds=20"),
    "data": _Kind("data", "data={} rounds=20"),
    "partition": _Kind("data/partition", "data=mnist_iid data/partition={} data.clients=10 rounds=5"),
    "metric": _Kind("metrics", "+metrics={} data=synthetic_leaf rounds=20"),
}


def carry_out(asked: Namespace) -> int:
    """Write the files and print their names and what to try next.

    Raises:
        RequestError: If the name cannot be used, or a file exists already.
    """
    what, name = asked.kind, asked.name
    into = user_path("--into", asked.into) if asked.into else asked.config_dir or Path("own")
    _refuse_name(what, name)
    files = _files(what, name, into)
    if existing := [file for file in files if file.exists()]:
        raise RequestError(f"{existing[0]} exists already and is not overwritten; use another name, or --into DIR")
    try:
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as f:
                f.write(text)
    except OSError as error:
        raise RequestError(f"{into} cannot be written ({error.strerror or error}); use --into DIR") from error
    *_, test = files
    lines = [f"written: {file}" for file in files]
    run = f"fedbench --config-dir {into} {KINDS[what].overrides.format(name)}"
    print("\n".join([*lines, "try next:", f"  python -m pytest {test}", f"  {run}"]))
    return 0


def _refuse_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or hasattr(builtins, name):
        raise RequestError(
            f"{name!r} cannot name a Python file and a function; use lower-case letters, digits and _, no Python word"
        )
    group = KINDS[what].group
    if name in options(group):
        raise RequestError(f"fedbench has {group}={name}; use another name, such as my_{name}")
    if importlib.util.find_spec(name) is not None:
        raise RequestError(f"there is a Python module {name}, which would hide {name}.py; use my_{name}, for example")


def _files(what: str, name: str, into: Path) -> dict[Path, str]:
    """Return the files and their texts; the test is the last."""
    words = {
        "name": name,
        "title": name.replace("_", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "folder": into.as_posix(),
    }

    def text(template: str) -> str:
        return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)

    return {
        into / f"{name}.py": text(f"{what}.py.txt"),
        into / KINDS[what].group / f"{name}.yaml": text(f"{what}.yaml.txt"),
        into / f"test_{name}.py": text(f"{what}_test.py.txt"),
    }

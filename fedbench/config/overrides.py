"""What users type, before Hydra reads it: slips that its grammar has no words for, and paths that it would not take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fedbench.config.schema import options
from fedbench.core.errors import RequestError, nearest

GROUPS = ("algo", "data", "model", "experiment", "tracker", "debug")
_NONE_IS_NONE = ("experiment", "debug")  # groups of which nothing need be chosen
_PATHS = ("results_dir", "data_dir", "init.path", "data.root", "data.train", "data.test")
_SAFE = re.compile(r"[\w./:@%+-]*", re.ASCII)
# Hydra's flags; those in the second tuple take a value
_FLAGS = (
    ("--multirun", "-m", "--resolve", "--info", "-i", "--hydra-help", "--run", "-r", "--shell-completion", "-sc"),
    ("--cfg", "-c", "--package", "-p", "--config-dir", "-cd"),
)  # fmt: skip


def tidy(args: Sequence[str]) -> list[str]:
    """Return the arguments as Hydra understands them.

    A path with characters that its grammar reserves is quoted, ``experiment=null`` is left out, and flags go to the
    front, since Hydra's parser takes overrides from one place only.

    Raises:
        RequestError: for an unknown flag, and a group without a choice.
    """
    kept: list[str] = []
    flags: list[str] = []
    awaited = ""  # the flag whose value comes next
    for arg in args:
        if awaited:
            flags, awaited = [*flags, arg], ""
            continue
        if arg.startswith("-"):
            awaited = _flag(arg)
            flags.append(arg)
            continue
        key, equals, value = arg.partition("=")
        bare = key.lstrip("+")
        if equals and bare in GROUPS and value in ("null", "None", "", "false", "true"):
            if bare not in _NONE_IS_NONE:
                raise RequestError(f"{bare} must be one of {', '.join(options(bare))}; got {value or 'nothing'}")
            continue
        if equals and bare in _PATHS and value[:1] not in ("'", '"', "$") and not _SAFE.fullmatch(value):
            arg = f"{key}={quoted(value)}"
        elif equals and value.endswith(","):
            raise RequestError(f"{arg!r} ends with a comma; without it it is {key}={value.rstrip(',')}")
        kept.append(arg)
    if awaited:
        raise RequestError(f"{awaited} needs a value")
    return [*flags, *kept]


def quoted(path: str) -> str:
    """Return a path so that Hydra's grammar takes it as it is."""
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def own_directory(args: Sequence[str]) -> Path | None:
    """Return the directory that ``--config-dir`` names, or None.

    Raises:
        RequestError: if there is no such directory.
    """
    for arg, after in pairwise([*args, ""]):
        name, equals, value = arg.partition("=")
        if name in ("--config-dir", "-cd"):
            folder = Path(value if equals else after)
            if not folder.is_dir():
                raise RequestError(f"--config-dir {folder} is not a directory")
            return folder
    return None


def _flag(arg: str) -> str:
    name = arg.split("=", 1)[0]
    alone, valued = _FLAGS
    if name in valued:
        return "" if "=" in arg else name
    if name not in alone:
        raise RequestError(f"unknown flag {name}{nearest(name, [*alone, *valued, '--help', '--version'])}")
    return ""

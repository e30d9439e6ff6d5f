"""Flags of the command line that hold for runs and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config.schema import TOP_KEYS, options
from fedbench.core.errors import RequestError, nearest
from fedbench.core.paths import user_path

_SWITCHES = {"-m": "multirun", "--multirun": "multirun", "-r": "run", "--run": "run", "--resolve": "resolve"}
_SWITCHES |= {"-sc": "completion", "--shell-completion": "completion"}
_VALUED = {"--cfg": "cfg", "-c": "cfg", "--package": "package", "-p": "package", "--info": "info", "-i": "info"}
_VALUED |= {"--jobs": "jobs"}
_TOP_SWITCHES = ("force", "improved_clients")  # keys that are true or false


@dataclass(frozen=True)
class Flags:
    """What the flags ask for.

    Attributes:
        multirun: Run every combination of the values.
        cfg: What ``--cfg`` shows; None without it.
        package: The part of the configuration that ``--package`` selects.
        resolve: Resolve interpolations in what ``--cfg`` shows.
        info: What ``--info`` shows; None without it.
        completion: Install, remove or answer shell completion.
        jobs: Number of runs of a sweep at a time; None without it.
    """

    multirun: bool = False
    cfg: str | None = None
    package: str | None = None
    resolve: bool = False
    info: str | None = None
    completion: bool = False
    jobs: int | None = None


def take_config_dir(args: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Return the directory that ``--config-dir`` names, or None, and the other arguments.

    Raises:
        RequestError: If it is not a directory.
    """
    folder, rest, awaited = None, [], False
    for arg in args:
        name, equals, value = arg.partition("=")
        if awaited or (name in ("--config-dir", "-cd") and equals):
            folder, awaited = user_path("--config-dir", arg if awaited else value), False
            if not folder.is_dir():
                raise RequestError(
                    f"--config-dir {folder} is not a directory; it contains config files, such as algo/NAME.yaml"
                )
        elif name in ("--config-dir", "-cd"):
            awaited = True
        else:
            rest.append(arg)
    if awaited:
        raise RequestError("--config-dir needs a value: a directory with config files, such as algo/NAME.yaml")
    return folder, rest


def read_flags(args: Sequence[str], several: bool = False) -> tuple[Flags, list[str]]:
    """Return the flags and the other arguments, in their order.

    Args:
        args: The arguments.
        several: Whether the command has several runs without -m.

    Raises:
        RequestError: If a flag is unknown, lacks its value, or does not go with another.
    """
    found: dict[str, Any] = {}
    rest, awaited = [], ""
    for arg in args:
        name, equals, value = arg.partition("=")
        if awaited:
            found[_VALUED[awaited]], awaited = arg, ""
        elif not arg.startswith("-"):
            rest.append(arg)
        elif name in _VALUED and equals:
            found[_VALUED[name]] = value
        elif name in _VALUED:
            awaited = name
        elif arg in _SWITCHES:
            found[_SWITCHES[arg]] = True
        else:
            raise RequestError(f"unknown flag {name}{_meant(name.lstrip('-').replace('-', '_'), name, value)}")
    if awaited:
        raise RequestError(f"{awaited} needs a value")
    found.pop("run", None)  # the default
    if "jobs" in found:
        found["jobs"] = _jobs(found["jobs"])
    flags = Flags(**found)
    _refuse_conflicts(flags, several)
    return flags, rest


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise RequestError(f"--jobs must be an integer >= 1, got {text}")
    return int(text)


def _meant(key: str, flag: str, value: str) -> str:
    if key in _TOP_SWITCHES:
        return f"; did you mean {key}=true?"
    if key in TOP_KEYS or "." in key or options(key):
        return f"; keys are typed without dashes: {key}={value or '...'}"
    hint = nearest(flag, [*_SWITCHES, *_VALUED, "--config-dir", "--help", "--version"])
    if hint:
        return hint
    return f"; the flags are {', '.join(f for f in (*_SWITCHES, *_VALUED, '--config-dir') if f.startswith('--'))}"


def _refuse_conflicts(flags: Flags, several: bool) -> None:
    if several and (flags.multirun or flags.cfg or flags.info or flags.completion):
        raise RequestError("tune and compare take no flags but --jobs and --config-dir")
    if flags.jobs is not None and not flags.multirun and not several:
        raise RequestError(f"--jobs {flags.jobs} sets how many runs of a sweep go on at a time; add -m, or remove it")
    if flags.cfg is None:
        for name in ("package", "resolve"):
            if getattr(flags, name):
                raise RequestError(f"--{name} needs --cfg job")
    elif flags.cfg != "job":
        raise RequestError(f"--cfg takes job, got {flags.cfg}; type --cfg job")
    elif flags.multirun:
        raise RequestError("--cfg job shows one configuration and cannot be combined with -m")

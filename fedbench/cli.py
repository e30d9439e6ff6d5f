"""The command line: which file of ``commands/`` carries out a word, and the exit status of what goes wrong."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path

import fedbench
from fedbench.commands.arguments import WORDS, Parser, tree
from fedbench.config.overrides import GROUPS
from fedbench.config.schema import TOP_KEYS
from fedbench.config.targets import user_code_from
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import FailedElsewhere, LostProcess, RequestError, nearest
from fedbench.runs.process import (
    LOCAL_RANK,
    RANK,
    WORLD_SIZE,
    answered_by,
    end_at_once,
    exit_status,
    interruption,
    raise_interrupted,
)
from fedbench.runs.run import DamagedRun

_TYPED_ALONE = ("algo", "data", "model", "experiment", "seed", "rounds")  # keys that are likely typed without a value
_MOST_ARGUMENTS = 10_000  # these take 2 s to parse, 200,000 an hour
_TURN = 10.0  # seconds that the first process has for it at most
_FILES = {"compare": "tune"}  # the module of a word, where it has another name


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    typed = list(sys.argv[1:] if argv is None else argv)
    loud = os.environ.get("HYDRA_FULL_ERROR") == "1" or "debug=true" in typed
    try:
        with _quiet() if RANK else nullcontext(), answered_by(raise_interrupted):
            args = execute([a for a in typed if a != "debug=true"], loud)
            sys.stdout.flush()
            return int(args.status)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more at the end
        return 1
    except (Exception, KeyboardInterrupt) as error:
        return _explained(error, loud, any(a.lower() == "force=true" for a in typed))


def execute(argv: list[str], loud: bool = False) -> Namespace:
    """Carry out a command line and return its arguments, with ``status``, its exit status, and ``page``.

    The page is the file to open of those that it has written, or None.

    Raises:
        RequestError: If it is wrong, or a file cannot be written of a word that runs nothing.
        Exception: Whatever else ended it.
    """
    if argv[:1] == ["--version"]:
        print(f"fedbench {fedbench.__version__}")
        return Namespace(status=0)
    if len(argv) > _MOST_ARGUMENTS:
        raise RequestError(
            f"got {len(argv)} arguments, at most {_MOST_ARGUMENTS} are allowed; put settings into a file "
            "experiment/NAME.yaml in a directory for --config-dir"
        )
    top, parsers = tree()
    if not argv or argv[0] in ("-h", "--help"):
        print(top.format_help(), end="")
        return Namespace(status=0)
    word, rest = _word(argv)
    parser = parsers[word]
    if {"-h", "--help"} & set(rest):
        print(parser.format_help(), end="")
        return Namespace(status=0)
    args, unknown = parser.parse_known_intermixed_args(rest)
    if unknown:
        raise _unknown_argument(parser, unknown[0])
    args.word, args.typed, args.loud, args.page = word, rest, loud, None
    sweeps = word == "run" and args.multirun and not args.cfg
    if WORLD_SIZE > 1 and (word != "run" or sweeps):
        raise RequestError("torchrun is for one run at a time: fedbench KEY=VALUE ...; remove torchrun")
    with answered_by(end_at_once):
        command = import_module(f"fedbench.commands.{'sweep' if sweeps else _FILES.get(word, word)}")
    try:
        with user_code_from(getattr(args, "config_dir", None)):
            args.status = command.execute(args)
    except NotWritten as error:
        if "jobs" in args:  # something has been run
            raise
        raise RequestError(str(error)) from error
    return args


def _word(args: list[str]) -> tuple[str, list[str]]:
    """The word of a command line, ``run`` if none is typed, and the other arguments.

    Raises:
        RequestError: If the first argument is neither a word nor an override.
    """
    before = 2 if args[0] in ("--config-dir", "-cd") else int(args[0].startswith("--config-dir="))
    first = args[before] if len(args) > before else ""
    if first in WORDS:
        return first, [*args[:before], *args[before + 1 :]]
    if re.fullmatch(r"[A-Za-z_.][A-Za-z_.-]*", first):
        hint = nearest(first, [*WORDS, *(f"{k}=..." for k in _TYPED_ALONE)])
        raise RequestError(
            f"{first!r} is neither a word of fedbench ({', '.join(WORDS)}) nor an override (KEY=VALUE)"
            f"{hint or '; to run an experiment, type fedbench KEY=VALUE ...; see `fedbench --help`'}"
        )
    return "run", args


def _unknown_argument(parser: Parser, typed: str) -> RequestError:
    """The error for an argument that a word does not take; a flag may be a key typed with dashes."""
    name, _, value = typed.partition("=")
    key = name.lstrip("-").replace("-", "_")
    if not name.startswith("-"):
        return RequestError(f"unexpected argument {name}; see `{parser.prog} --help`")
    if key in {*TOP_KEYS, *GROUPS} or "." in key:
        return RequestError(f"unknown flag {name}; keys are typed without dashes: {key}={value or '...'}")
    flags = re.findall(r"--[\w-]+", parser.format_help())
    return RequestError(f"unknown flag {name}{nearest(name, flags) or f'; see `{parser.prog} --help`'}")


def _explained(error: BaseException, loud: bool, forced: bool) -> int:
    """Print what ended the command in one line, and return the exit status."""
    if RANK:
        relayed = isinstance(error, LostProcess | FailedElsewhere) or interruption(error) is not None
        if relayed or (LOCAL_RANK and isinstance(error, RequestError)):
            _wait_for_the_first()
            return 1  # the first process says so
        return _fail(f"process {RANK} of {WORLD_SIZE}: {type(error).__name__}: {error}", 1)
    if (end := interruption(error)) is not None:
        again = f"run the same command again to resume{' (force=true starts over)' if forced else ''}"
        return _fail(f"interrupted{getattr(end, 'where', '')}; {again}", exit_status(end))
    if isinstance(error, DamagedRun | NotWritten | LostProcess | FailedElsewhere):
        return _fail(str(error), 1)
    if loud:
        traceback.print_exc()
    if isinstance(error, RequestError):
        return _fail(str(error), 2)
    return _fail(f"{type(error).__name__}: {error}; debug=true shows the traceback", 1)


def _wait_for_the_first() -> None:
    """Wait until the first process has said why: torchrun ends all as soon as one has ended."""
    import psutil

    if LOCAL_RANK:
        with suppress(psutil.Error):  # one of them has ended
            beside = psutil.Process(os.getppid()).children()
            psutil.wait_procs([p for p in beside if p.environ().get("LOCAL_RANK") == "0"], _TURN)
    else:  # it is on another machine
        time.sleep(_TURN)


@contextmanager
def _quiet() -> Iterator[None]:
    """Print nothing inside this block: of the processes that torchrun has started the first speaks for all."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def _fail(message: str, status: int) -> int:
    print(f"fedbench: {message}", file=sys.stderr)
    return status

"""The command line: parses arguments, calls the command and maps errors to exit statuses."""

import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

import fedbench
from fedbench.commands.arguments import COMMANDS, Parser, tree
from fedbench.commands.result import CommandResult
from fedbench.config.overrides import GROUPS
from fedbench.config.schema import TOP_KEYS
from fedbench.config.user_sources import user_code_from
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import FailedElsewhere, LostProcess, RequestError, nearest
from fedbench.core.files import existing_directory
from fedbench.runs.process import (
    LOCAL_RANK,
    RANK,
    WORLD_SIZE,
    end_at_once,
    exit_status,
    interruption,
    on_signal,
    raise_interrupted,
)
from fedbench.runs.run import DamagedRun

# keys that users are likely to type without a value
_TYPED_ALONE = ("algo", "data", "model", "experiment", "seed", "rounds")
_FOR_EXECUTORS = ("jobs", "on", "run_cpus", "run_gpus")
_TURN = 10.0  # seconds that the first process is given to print an error
_MODULES = {"compare": "tune"}  # modules whose name differs from that of the command


def command_line() -> NoReturn:
    """Run the command line and end the process."""
    status = main()
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    if status > 128 and len(threads) > 1:
        # a signal ended the command; Python would wait for the threads of a round
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    typed = list(sys.argv[1:] if argv is None else argv)
    rest = [text for text in typed if text.lower() not in ("debug=true", "debug=1")]
    debug = os.environ.get("HYDRA_FULL_ERROR") == "1" or rest != typed
    try:
        with _quiet() if RANK else nullcontext(), on_signal(raise_interrupted):
            status = _execute(rest, debug)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # Python flushes stdout again at exit
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        forced = any(text.lower() == "force=true" for text in typed)
        return _explained(error, debug, forced)


def _execute(typed: list[str], debug: bool) -> int:
    """Execute a command line and return the exit status.

    Raises:
        RequestError: If the command line is invalid, or a command that trains nothing cannot write
            a file.
        Exception: Any other error that ended the command.
    """
    top, parsers = tree()
    if not typed or typed[0] in ("-h", "--help"):
        print(top.format_help(), end="")
        return 0
    if typed[0] == "--version":
        print(f"fedbench {fedbench.__version__}")
        return 0
    command, rest = _command(typed)
    parser = parsers[command]
    if {"-h", "--help"} & set(rest):
        print(parser.format_help(), end="")
        return 0

    args, unknown = parser.parse_known_intermixed_args(rest)
    if unknown:
        raise _unknown_argument(parser, unknown[0])
    if sum(word.partition("=")[0] in ("--config-dir", "-cd") for word in rest) > 1:
        raise RequestError("--config-dir is given twice; copy the files to one directory")
    several = "multirun" in args or "on" in args
    if several and ("cfg" in args or "resolve" in args):
        raise RequestError("--cfg and --resolve show a single run; remove -m and --on")
    if command == "run" and several:
        command = "sweep"  # a sweep of one run, executed on a cluster
    _refuse_unused(command, rest, vars(args))
    if WORLD_SIZE > 1 and command != "run":
        raise RequestError(
            "torchrun is for one run at a time: fedbench KEY=VALUE ...; remove torchrun"
        )
    return _execute_command(command, vars(args) | {"command": command, "debug": debug})


def _refuse_unused(
    command: str,
    typed: Sequence[str],
    values: Mapping[str, Any],
) -> None:
    """Refuse options for executors where no executor, or a Hydra launcher, executes the runs."""
    flags = [f"--{name.replace('_', '-')}" for name in _FOR_EXECUTORS if name in values]
    if not flags or "cfg" in values:
        return
    if command == "run":
        needed = "-m" if flags[0] == "--jobs" else "--on ray"
        raise RequestError(f"{flags[0]} has no effect on a single run; add {needed}, or remove it")
    for text in typed:
        if text.lstrip("+").startswith(("hydra/", "hydra.")):
            raise RequestError(
                f"{flags[0]} cannot be combined with {text}, whose launcher executes the runs"
            )


def _execute_command(command: str, values: dict[str, Any]) -> int:
    """Call the function of a command with its arguments, and return the exit status."""
    if "config_dir" in values:
        values["config_dir"] = existing_directory("config_dir", values["config_dir"])
    with on_signal(end_at_once):
        execute = import_module(f"fedbench.commands.{_MODULES.get(command, command)}").execute
    trains = command == "run"
    if "executor" in signature(execute).parameters:
        from fedbench.runs.executors.options import make_executor

        values["executor"] = make_executor(**_accepted(make_executor, values))
        trains = True

    try:
        with user_code_from(values.get("config_dir")):
            result: CommandResult = execute(**_accepted(execute, values))
    except NotWritten as error:
        if trains:
            raise
        raise RequestError(str(error)) from error
    return result.status


def _accepted(
    function: Callable[..., Any],
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the values that a function accepts as arguments."""
    return {name: values[name] for name in signature(function).parameters if name in values}


def _command(typed: list[str]) -> tuple[str, list[str]]:
    """Return the command (``run`` if none is given) and the remaining arguments.

    Raises:
        RequestError: If the first argument is neither a command nor an override.
    """
    before = 0  # number of arguments before the command
    if typed[0] in ("--config-dir", "-cd"):
        before = 2
    elif typed[0].startswith("--config-dir="):
        before = 1
    first = typed[before] if len(typed) > before else ""
    if first in COMMANDS:
        return first, [*typed[:before], *typed[before + 1 :]]
    if re.fullmatch(r"[A-Za-z_.][A-Za-z_.-]*", first):
        usage = "; to run an experiment, type fedbench KEY=VALUE ...; see `fedbench --help`"
        hint = nearest(first, [*COMMANDS, *(f"{key}=..." for key in _TYPED_ALONE)])
        raise RequestError(
            f"{first!r} is neither a command of fedbench ({', '.join(COMMANDS)}) "
            f"nor an override (KEY=VALUE){hint or usage}"
        )
    return "run", typed


def _unknown_argument(parser: Parser, typed: str) -> RequestError:
    """Return the error for an unknown argument, such as a key typed with dashes."""
    name, _, value = typed.partition("=")
    key = name.lstrip("-").replace("-", "_")
    if not name.startswith("-"):
        return RequestError(f"unexpected argument {name}; see `{parser.prog} --help`")
    if key in {*TOP_KEYS, *GROUPS} or "." in key:
        return RequestError(
            f"unknown flag {name}; keys are typed without dashes: {key}={value or '...'}"
        )
    flags = re.findall(r"--[\w-]+", parser.format_help())
    return RequestError(
        f"unknown flag {name}{nearest(name, flags) or f'; see `{parser.prog} --help`'}"
    )


def _explained(error: BaseException, debug: bool, forced: bool) -> int:
    """Print a one-line message for the error that ended the command; return the exit status."""
    if RANK:
        return _explained_by_other(error)
    if (end := interruption(error)) is not None:
        over = " (force=true starts over)" if forced else ""
        place = getattr(end, "where", "")
        message = f"interrupted{place}; run the same command again to resume{over}"
        return _fail(message, exit_status(end))
    if isinstance(error, DamagedRun | NotWritten | LostProcess | FailedElsewhere):
        return _fail(str(error), 1)
    if debug:
        traceback.print_exc()
    if isinstance(error, RequestError):
        return _fail(str(error), 2)
    return _fail(f"{type(error).__name__}: {error}; debug=true shows the traceback", 1)


def _explained_by_other(error: BaseException) -> int:
    """Print the error that ended a process other than the first, and return the exit status."""
    is_relayed = isinstance(error, LostProcess | FailedElsewhere) or interruption(error) is not None
    if is_relayed or (LOCAL_RANK and isinstance(error, RequestError)):
        time.sleep(_TURN)  # torchrun ends all processes as soon as one ends
        return 1
    return _fail(f"process {RANK} of {WORLD_SIZE}: {type(error).__name__}: {error}", 1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress output within this block; the first process of torchrun prints for all."""
    with (
        Path(os.devnull).open("w", encoding="utf-8") as null,
        redirect_stdout(null),
        redirect_stderr(null),
    ):
        yield


def _fail(message: str, status: int) -> int:
    print(f"fedbench: {message}", file=sys.stderr)
    return status

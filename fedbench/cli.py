"""The command line: which file of ``commands/`` carries out a word, and the exit status of what goes wrong."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import traceback
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

import fedbench
from fedbench.commands.arguments import WORDS, Parser, tree
from fedbench.config.groups import GROUPS, options
from fedbench.config.schema import TOP_KEYS
from fedbench.core.errors import RequestError, nearest
from fedbench.core.files import NotWritten
from fedbench.runs.interrupts import as_exceptions, at_once, exit_status, interruption
from fedbench.runs.run import DamagedRun

_TYPED_ALONE = ("algo", "data", "model", "experiment", "seed", "rounds")  # keys that are likely typed without a value
_SWITCHES = ("force", "improved_clients")  # keys that are true or false
_EPILOG = """\
`fedbench WORD --help` describes a word. debug=true prints the traceback of an error.

examples:
  fedbench algo=adafedadam data=synthetic_leaf rounds=200
  fedbench -m experiment=adafedadam/table5_synthetic algo=fedavg,adafedadam seed=0,1,2

groups:
{groups}
  (`fedbench list experiment` shows all experiments)
common keys: rounds, seed, participation, eval_every, local.lr, local.epochs, local.batch_size, local.momentum,
data.clients, data.split, algo.KEY, device, engine.mode, data_dir, results_dir; force=true repeats a finished run.
docs/configuration.md explains all keys.

exit status: 0 success; 1 a run failed or diverged; 2 invalid request; 128 + N interrupted by signal N, 130 by Ctrl-C
(run it again to resume).
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    loud = os.environ.get("HYDRA_FULL_ERROR") == "1" or "debug=true" in args
    try:
        with as_exceptions():
            status = _carried_out([a for a in args if a != "debug=true"], loud)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more at the end
        return 1
    except (Exception, KeyboardInterrupt) as error:
        return _explained(error, loud)


def _carried_out(args: list[str], loud: bool) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(_help(), end="")
        return 0
    if args[0] == "--version":
        print(f"fedbench {fedbench.__version__}")
        return 0
    word, rest = _word(args)
    parser = tree()[1][word]
    if {"-h", "--help"} & set(rest):
        print(parser.format_help(), end="")
        return 0
    asked = _parsed(parser, rest)
    asked.loud, asked.typed = loud, rest
    with at_once():
        command = import_module(f"fedbench.commands.{_file(word, asked)}")
    status: int = command.carry_out(asked)
    return status


def _word(args: list[str]) -> tuple[str, list[str]]:
    """Return the word of a command line, ``run`` if none is typed, and the other arguments.

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


def _parsed(parser: Parser, args: list[str]) -> Namespace:
    """Return the arguments of a word.

    Raises:
        RequestError: If one is wrong; an unknown flag may be a key typed with dashes.
    """
    asked, unknown = parser.parse_known_intermixed_args(args)
    if not unknown:
        return asked
    name, _, value = unknown[0].partition("=")
    key = name.lstrip("-").replace("-", "_")
    if not name.startswith("-"):
        raise RequestError(f"unexpected argument {name}; see `{parser.prog} --help`")
    if key in _SWITCHES:
        raise RequestError(f"unknown flag {name}; did you mean {key}=true?")
    if key in TOP_KEYS or "." in key or options(key):
        raise RequestError(f"unknown flag {name}; keys are typed without dashes: {key}={value or '...'}")
    flags = re.findall(r"--[\w-]+", parser.format_help())
    raise RequestError(f"unknown flag {name}{nearest(name, flags) or f'; see `{parser.prog} --help`'}")


def _file(word: str, asked: Namespace) -> str:
    """Return the module of ``commands/`` that carries out a word."""
    if word != "run":
        return word
    return "show_config" if asked.cfg else "sweep" if asked.multirun else "run"


def _help() -> str:
    lines = []
    for group in GROUPS:
        names = options(group)
        if group == "experiment":
            names = [*dict.fromkeys(f"{n.split('/')[0]}/..." if "/" in n else n for n in names)]
        lines += textwrap.wrap(
            ", ".join(names),
            118,
            initial_indent=f"  {group:<11}",
            subsequent_indent=" " * 13,
            break_on_hyphens=False,
        )
    return f"{tree()[0].format_help()}\n{_EPILOG.format(groups=chr(10).join(lines))}"


def _explained(error: BaseException, loud: bool) -> int:
    """Print what ended the command in one line, and return the exit status."""
    if (cause := interruption(error)) is not None:
        return _fail("interrupted; run the same command again to resume", exit_status(cause))
    if isinstance(error, DamagedRun | NotWritten):
        return _fail(str(error), 1)
    if loud:
        traceback.print_exc()
    if isinstance(error, RequestError):
        return _fail(str(error), 2)
    return _fail(f"{type(error).__name__}: {error}; debug=true shows the traceback", 1)


def _fail(message: str, status: int) -> int:
    print(f"fedbench: {message}", file=sys.stderr)
    return status

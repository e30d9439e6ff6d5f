"""The command line: help, version, errors and exit statuses; every command has a file in ``commands/``."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import fedbench
from fedbench.commands.completion import WORDS, completion
from fedbench.commands.flags import read_flags, take_config_dir
from fedbench.commands.list import LISTED, list_choices
from fedbench.config.overrides import GROUPS
from fedbench.config.schema import options
from fedbench.core.errors import RequestError, nearest
from fedbench.core.output import drop, kept_up
from fedbench.core.writing import NotWritten
from fedbench.runs.interrupts import as_exceptions, at_once, exit_status, interruption
from fedbench.runs.records import DamagedRun

_HELP = """\
fedbench {version}: a benchmark harness for federated optimization and fairness across clients

Usage:
  fedbench KEY=VALUE ...         Run one experiment.
  fedbench -m KEY=V1,V2 ...      Run all combinations, for example seed=0,1,2, and print a table.
  fedbench list [GROUP]          List the choices: {groups}.
  fedbench list algo NAME        Print the card of an algorithm: paper, formula, keys with defaults and ranges;
                                 also list model|partition|tracker NAME.
  fedbench list data NAME        Print the defaults, licence and citation of a data set.
  fedbench data prepare NAME     Download and read a data set.
  fedbench data verify NAME      Check its files against the published checksums.
  fedbench data show NAME        Print its sizes and draw examples and labels.
  fedbench data check-links      Try every address of the published files.
  fedbench tune algo=NAME ...    Choose values of a method's keys on validation data: budget=20, seeds=1,
                                 sampler=random or tpe, pruning=none or halving (docs/tuning.md).
  fedbench compare methods=A,B   Tune every method with one budget, run all, test differences, write a page:
                                 budget=20, seeds=5.
  fedbench data export-partition NAME FILE
                                 Write the examples of each client to a .json, .npz or .parquet file.
  fedbench new KIND NAME         Write the files of an algorithm, model, data (set), partition or metric of your own
                                 to start from; --into DIR.
  fedbench report [DIR]          Write tables, figures and a page from the runs in DIR (default: results);
                                 --compare KEY tests differences, for example between algorithms;
                                 --latex and --bundle FILE.zip write what a paper takes.
  fedbench status [DIR]          Show how far the runs in DIR are: running, done, failed, time left; --all lists all.
  fedbench show RUN              Show one run: configuration, curves, numbers, files, how to load it.
  fedbench plot DIR              Draw curves of runs as PDF, PNG or SVG: --x round, --y accuracy_mean, --by algo.
  fedbench completion SHELL      Print a script that completes words, keys and choices by Tab: bash, zsh or fish.
  fedbench reproduce [NAME ...]  Reproduce tables and figures of papers and check their claims;
                                 --plan shows what would run.
  fedbench --cfg job KEY=VALUE   Print the configuration of a run and exit.
  fedbench --help, --version     Print this text or the version.

Options:
  --jobs N                       With -m, tune, compare or reproduce: runs at a time (default: by cores and memory,
                                 or one per GPU).
  --config-dir DIR               Also look for config files and Python modules in DIR (docs/own_method.md).
  --package KEY, --resolve       With --cfg job: print one section only; replace ${{...}} by values.
  debug=true                     Print the traceback of an error.

Examples:
  fedbench algo=adafedadam data=synthetic_leaf rounds=200
  fedbench -m experiment=adafedadam/table5_synthetic algo=fedavg,adafedadam seed=0,1,2

Groups:
{choices}
Common keys: rounds, seed, participation, eval_every, local.lr, local.epochs, local.batch_size, local.momentum,
data.clients, data.split, algo.KEY, device, engine.mode, data_dir, results_dir; force=true repeats a finished run.
docs/configuration.md explains all keys.

Exit status: 0 success; 1 a run failed or diverged; 2 invalid request; 128 + N interrupted
by signal N, 130 by Ctrl-C (run it again to resume).
"""
_OWN_HELP = ("report", "status", "show", "plot", "reproduce")
_TYPED_ALONE = ("algo", "data", "model", "experiment", "seed", "rounds")  # keys that are likely typed without a value


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    loud = os.environ.get("HYDRA_FULL_ERROR") == "1" or "debug=true" in args
    args = [a for a in args if a != "debug=true"]
    with kept_up() as out:
        status = _carried_out(args, loud)
    if out.fault is not None:
        words = out.fault.strerror or str(out.fault)
        lost = f"standard output cannot be written: {words}; the files of runs and reports are not affected"
        return _fail(lost, status or 1)
    return status


def _carried_out(args: list[str], loud: bool) -> int:
    try:
        with as_exceptions():
            status = _dispatch(args, loud)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        drop(sys.stdout)  # its reader is gone
        return 1
    except (Exception, KeyboardInterrupt) as error:
        return _explained(error, loud)


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


def _dispatch(args: list[str], loud: bool) -> int:
    folder, args = take_config_dir(args)
    if not args or ({"--help", "-h"} & set(args) and args[0] not in _OWN_HELP):
        print(_HELP.format(version=fedbench.__version__, groups=", ".join(LISTED), choices=_choices()), end="")
        return 0
    if "--version" in args:
        print(f"fedbench {fedbench.__version__}")
        return 0
    command = args[0]
    if command in ("tune", "compare"):
        return _tuned(command, args[1:], folder, loud)
    if command in WORDS:
        return _COMMAND[command](args[1:], folder)
    if re.fullmatch(r"[A-Za-z_.][A-Za-z_.-]*", command):
        hint = nearest(command, [*WORDS, *(f"{k}=..." for k in _TYPED_ALONE)])
        raise RequestError(
            f"{command!r} is neither a command ({', '.join(WORDS)}) nor an override (KEY=VALUE)"
            f"{hint or '; to run an experiment, type fedbench KEY=VALUE ...; see `fedbench --help`'}"
        )
    return _run(args, folder, loud)


def _choices() -> str:
    """Return the choices of the config groups, wrapped; of the experiments, the papers."""
    lines = []
    for group in GROUPS:
        names = options(group)
        if group == "experiment":
            names = [*dict.fromkeys(f"{n.split('/')[0]}/..." if "/" in n else n for n in names)]
        indent = f"  {group:<11}"
        lines += textwrap.wrap(
            ", ".join(names), 118, initial_indent=indent, subsequent_indent=" " * 13, break_on_hyphens=False
        )
    return "\n".join(lines) + "\n  (`fedbench list experiment` shows all experiments)\n"


def _run(args: list[str], folder: Path | None, loud: bool) -> int:
    flags, overrides = read_flags(args)
    with at_once():
        from fedbench.commands.run import ask_hydra, run, show

    if flags.cfg is not None:
        print(show(overrides, flags, folder), end="")
        return 0
    if flags.info is not None or flags.completion:
        ask_hydra(overrides, flags, folder)
        return 0
    if not flags.multirun:
        return run(overrides, folder)
    with at_once():
        from fedbench.commands.sweep import sweep

    return sweep(overrides, folder, loud, flags.jobs)


def _tuned(command: str, args: list[str], folder: Path | None, loud: bool) -> int:
    flags, rest = read_flags(args, several=True)
    with at_once():
        from fedbench.commands.compare import compare
        from fedbench.commands.tune import tune  # both import torch

    return (tune if command == "tune" else compare)(rest, flags, folder, loud)


def _list(args: list[str], folder: Path | None) -> int:
    print(list_choices(args, folder))
    return 0


def _data(args: list[str], folder: Path | None) -> int:
    from fedbench.commands.data import data

    text, status = data(args, folder)
    print(text)
    return status


def _new(args: list[str], folder: Path | None) -> int:
    from fedbench.commands.new import new

    print(new(args, folder))
    return 0


def _report(args: list[str], folder: Path | None) -> int:
    from fedbench.commands.report import report

    print(report(args, folder))
    return 0


def _status(args: list[str], folder: Path | None) -> int:
    from fedbench.commands.status import status

    print(status(args))
    return 0


def _show(args: list[str], folder: Path | None) -> int:
    from fedbench.commands.show import show_run

    print(show_run(args))
    return 0


def _plot(args: list[str], folder: Path | None) -> int:
    from fedbench.commands.plot import plot

    print(plot(args))
    return 0


def _completion(args: list[str], folder: Path | None) -> int:
    print(completion(args, folder))
    return 0


def _reproduce(args: list[str], folder: Path | None) -> int:
    if folder is not None:
        raise RequestError(
            "reproduce does not take --config-dir, since it runs the experiments of the papers; "
            "to run one of your own, type fedbench --config-dir DIR KEY=VALUE ..."
        )
    with at_once():
        from fedbench.commands.reproduce import reproduce  # imports torch

    return reproduce(args)


_COMMAND: dict[str, Callable[[list[str], Path | None], int]] = {
    "list": _list, "data": _data, "new": _new, "report": _report, "status": _status,
    "show": _show, "plot": _plot, "completion": _completion, "reproduce": _reproduce,
}  # fmt: skip

"""The arguments of every command: one table, from which parsers, help and completion come.

Nothing is imported that takes long, so that help answers at once; ``cli`` imports the module of a
command when it is typed.
"""

import argparse
import re
from functools import partial
from typing import Any, NoReturn, TypeAlias

from fedbench.core.errors import RequestError, nearest

Argument: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]  # as ``add_argument`` takes it

COMMANDS = {
    "run": "Run one experiment, the default command; with -m every combination of values.",
    "list": "List the choices of a group, or print the card of one of them.",
    "data": "Prepare, verify or show a data set.",
    "new": "Write files to start an algorithm, model, data set, partition or metric of your own.",
    "tune": "Choose values of a method's keys on validation data.",
    "compare": "Tune methods with one budget, run all, test their differences and write a page.",
    "report": "Write tables, figures and a page from the runs in a directory.",
    "status": "Show how far the runs in a directory are.",
    "show": "Show one run: its command, its numbers and their curves.",
    "plot": "Draw a metric of the runs in a directory: a line per value, a panel per setting.",
    "reproduce": "Run what tables and figures of papers still need, and check their claims.",
    "completion": "Print a script that completes commands, flags, keys and choices by Tab.",
}
_GENERAL_EPILOG = """\
`fedbench COMMAND --help` describes a command, `fedbench list` shows the choices of algo, data,
model and so on, and docs/configuration.md explains all keys. force=true repeats a finished run;
debug=true prints the traceback of an error.

examples:
  fedbench algo=adafedadam data=synthetic_leaf rounds=200
  fedbench -m experiment=adafedadam/table5_synthetic algo=fedavg,adafedadam seed=0,1,2

exit status: 0 success; 1 a run failed or diverged; 2 invalid request; 128 + N interrupted by signal
N, 130 by Ctrl-C (run it again to resume).
"""
LISTED = (
    "algo", "data", "model", "experiment", "partition", "tracker", "availability", "attack",
    "defence", "privacy", "compression", "table", "metric",
)  # fmt: skip
_SEARCH = """\
keys of the search:
  budget=20         number of trials per method
  sampler=random    or tpe
  pruning=none      or halving, which ends bad trials early
"""
_EPILOGS = {
    "tune": f"""{_SEARCH}\
  seeds=1           number of tuning seeds, or a list such as seeds=[1000,1001]

Keys of the runs follow. A key with several values, such as local.lr=0.01,0.1, replaces its range
(docs/tuning.md).
""",
    "compare": f"""{_SEARCH}\
  methods=A,B       the methods
  seeds=10          number of seeds of the table, or a list
  tuning_seeds=1    number of tuning seeds, or a list
  metric=accuracy_mean, baseline=METHOD
                    what is tested, and the method that all others are compared with
                    (default: all pairs)

Keys of the runs follow (docs/tuning.md).
""",
}


class Parser(argparse.ArgumentParser):
    """A parser that raises ``RequestError`` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise a RequestError, which suggests the nearest of the choices."""
        given = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        hint = nearest(given[1], re.findall(r"'([^']*)'", given[2])) if given else ""
        raise RequestError(f"{message}{hint or f'; see `{self.prog} --help`'}")


def tree() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of the command line, and the parser of each command."""
    shape = argparse.RawDescriptionHelpFormatter
    about = "A benchmark harness for federated optimization and fairness across clients."
    usage = "fedbench KEY=VALUE ... | fedbench COMMAND ..."
    top = Parser("fedbench", usage, about, epilog=_GENERAL_EPILOG, formatter_class=shape)
    top.add_argument("--version", action="store_true", help="print the version")
    below = top.add_subparsers(
        title="commands", metavar="COMMAND", prog="fedbench", parser_class=Parser
    )
    parsers = {}
    for command, about in COMMANDS.items():
        parser = below.add_parser(
            command,
            help=about,
            description=about,
            epilog=_EPILOGS.get(command),
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,  # the defaults are those of the functions
            formatter_class=shape,
        )
        for names, options in _ARGUMENTS[command]:
            parser.add_argument(*names, **options)
        parsers[command] = parser
    return top, parsers


def _argument(*names: str, **options: Any) -> Argument:
    return names, options


_flag = partial(_argument, action="store_true")
_OVERRIDES = _argument(
    "overrides",
    nargs="*",
    default=(),
    metavar="KEY=VALUE",
    help="keys of the run, see docs/configuration.md",
)
_JOBS = _argument(
    "--jobs",
    type=int,
    metavar="N",
    help="number of runs at a time (default: as cores, memory and GPUs allow)",
)
_EXECUTION = (
    _JOBS,
    _argument(
        "--on",
        metavar="ray[://HOST:PORT]",
        help="carry out the runs on a Ray cluster: of this machine, RAY_ADDRESS, or HOST "
        "(docs/cluster.md)",
    ),
    _argument(
        "--run-cpus",
        type=float,
        metavar="N",
        help="with --on: number of cores of a run (default: 1)",
    ),
    _argument(
        "--run-gpus",
        type=float,
        metavar="N",
        help="with --on: number of GPUs of a run, such as 0.25 (default: 1 if there are any)",
    ),
)
_CONFIG_DIR = _argument(
    "--config-dir",
    "-cd",
    metavar="DIR",
    help="also look for config files and Python modules in DIR (docs/own_method.md)",
)
_RESULTS = _argument(
    "folder", nargs="?", metavar="DIR", help="directory of the runs (default: results)"
)
_ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    "run": (
        _OVERRIDES,
        *_EXECUTION,
        _CONFIG_DIR,
        _flag("-m", "--multirun", help="run every combination of the values"),
        _argument(
            "-c", "--cfg", choices=("job",), help="print the configuration of the run and exit"
        ),
        _flag("--resolve", help="print the configuration with values in place of ${...}"),
    ),
    "list": (
        _argument("group", nargs="?", default=None, choices=LISTED, help="default: all"),
        _argument("name", nargs="?", help="print the card of this choice; experiments have none"),
        _CONFIG_DIR,
    ),
    "data": (
        _argument(
            "action", choices=("prepare", "verify", "show", "export-partition"), help="what to do"
        ),
        _argument("name", metavar="NAME", help="the data set"),
        _argument(
            "rest",
            nargs="*",
            default=(),
            metavar="FILE|KEY=VALUE",
            help="file of export-partition, and overrides",
        ),
        _CONFIG_DIR,
    ),
    "new": (
        _argument(
            "kind",
            choices=("algorithm", "model", "data", "partition", "metric"),
            help="what to write",
        ),
        _argument("name", metavar="NAME", help="its name"),
        _argument("--into", metavar="DIR", help="directory to write to (default: own)"),
    ),
    "tune": (_OVERRIDES, *_EXECUTION, _CONFIG_DIR),
    "compare": (_OVERRIDES, *_EXECUTION, _CONFIG_DIR),
    "report": (
        _argument(
            "folder",
            nargs="?",
            metavar="DIR",
            help="directory of runs, a published report, or a directory of these "
            "(default: results)",
        ),
        _argument(
            "--into",
            metavar="OUT",
            help="publish the report in OUT, with what it needs of the runs",
        ),
        _argument("--paper", metavar="ID", help="report the runs of one paper only"),
        _argument(
            "--compare",
            metavar="KEY",
            help="test the differences between algorithms (algo) or values of KEY",
        ),
        _flag(
            "--latex",
            help="write tables, figures and a statement for a manuscript to DIR/paper, or OUT",
        ),
        _argument(
            "--metric",
            help="see `fedbench list metric` (default: accuracy_mean); "
            "with --latex several as A,B; "
            "alone, the columns of a table of the runs, in this order",
        ),
        _argument("--baseline", metavar="VALUE", help="compare with this algorithm or value only"),
        _argument("--alpha", type=float, help="significance level of the tests (default: 0.05)"),
    ),
    "status": (
        _RESULTS,
        _flag("--all", help="list finished runs too, which are only counted otherwise"),
        _flag("--verify", help="compare the files of finished runs with their checksums"),
    ),
    "show": (
        _argument(
            "run", metavar="RUN", help="directory of the run, which it prints as its last line"
        ),
    ),
    "plot": (
        _RESULTS,
        _argument("--x", help="round, bytes (up and down), seconds or a metric (default: round)"),
        _argument("--y", help="see `fedbench list metric` (default: accuracy_mean)"),
        _argument("--by", help="a line per value of this key (default: algo)"),
        _argument(
            "--where",
            action="append",
            metavar="KEY=VALUE",
            help="only runs with this value; may be repeated",
        ),
        _flag("--log", help="logarithmic axis of the metric"),
        _argument(
            "--out",
            metavar="FILE",
            help="file ending in .pdf, .png or .svg (default: DIR/plots/..., .png)",
        ),
    ),
    "reproduce": (
        _argument(
            "names",
            nargs="*",
            default=(),
            metavar="NAME|KEY=VALUE",
            help="paper, paper/table or paper/figure, see `fedbench list table` "
            "(default: everything; known: numbers of public benchmarks); "
            "and results_dir=DIR, data_dir=DIR, "
            "keys of device, engine and so on",
        ),
        _argument(
            "--profile",
            choices=("full", "cpu", "smoke"),
            help="full: the settings of the papers; cpu (default) and smoke: reduced settings",
        ),
        _flag("--readings", help="also run what other readings of the papers need"),
        _flag("--plan", help="show what would run and exit"),
        _argument(
            "--hours",
            type=float,
            metavar="N",
            help="train for N hours, in the order of the plan; the same command resumes it",
        ),
        _argument(
            "--seeds", type=int, metavar="N", help="number of seeds (default: that of the profile)"
        ),
        *_EXECUTION,
        _argument(
            "--experiment",
            metavar="NAME",
            help="only the rows of this experiment, see `fedbench list`",
        ),
    ),
    "completion": (
        _argument(
            "shell",
            choices=("bash", "zsh", "fish", "keys"),
            help='in bash, type eval "$(fedbench completion bash)"; '
            "keys prints the candidates for an override",
        ),
    ),
}

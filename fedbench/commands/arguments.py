"""The arguments of every word of the command line: one tree, from which help and completion come.

Nothing is imported that takes long, so that help answers at once; ``cli`` imports the file of a word when it is typed.
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import NoReturn

from fedbench.core.errors import RequestError, nearest
from fedbench.core.files import user_path

WORDS = {
    "run": "Run one experiment, the default word; with -m every combination of values, for example seed=0,1,2.",
    "list": "List the choices of a group, or print the card of one of them.",
    "data": "Prepare, verify or show a data set.",
    "new": "Write the files of an algorithm, model, data set, partition or metric of your own to start from.",
    "tune": "Choose values of a method's keys on validation data.",
    "compare": "Tune methods with one budget, run all, test their differences and write a page.",
    "report": "Write tables, figures and a page from the runs in a directory.",
    "status": "Show how far the runs in a directory are.",
    "show": "Show one run: configuration, curves, numbers and files.",
    "plot": "Draw a metric of the runs in a directory: a line per value of a key, a panel per setting.",
    "reproduce": "Run what tables and figures of papers still need, write the report and check their claims.",
    "completion": "Print a script that completes words, flags, keys and choices by Tab.",
}
LISTED = ("algo", "data", "model", "experiment", "partition", "tracker", "table")
NEW = ("algorithm", "model", "data", "partition", "metric")
ON_DATA = ("prepare", "verify", "show", "export-partition")
PROFILES = ("full", "cpu", "smoke")
SHELLS = ("bash", "zsh", "fish", "keys")
BANDS = ("t", "range", "none")
_SEARCH = """\
keys of the search:
  budget=20         number of trials per method
  sampler=random    or tpe
  pruning=none      or halving, which ends bad trials early
"""
_TUNE = f"""{_SEARCH}\
  seeds=1           number of tuning seeds, or a list such as seeds=[1000,1001]

Keys of the runs follow. A key with several values, such as local.lr=0.01,0.1, replaces its range (docs/tuning.md).
"""
_COMPARE = f"""{_SEARCH}\
  methods=A,B       the methods
  seeds=5           number of seeds of the table, or a list
  tuning_seeds=1    number of tuning seeds, or a list
  metric=accuracy_mean, baseline=METHOD
                    what is tested, and the method that all others are compared with (default: all pairs)

Keys of the runs follow (docs/tuning.md).
"""


class Parser(argparse.ArgumentParser):
    """A parser that raises ``RequestError`` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise a RequestError, which suggests the nearest of the choices."""
        given = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        hint = nearest(given[1], re.findall(r"'([^']*)'", given[2])) if given else ""
        raise RequestError(f"{message}{hint or f'; see `{self.prog} --help`'}")


def tree() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of the command line, for help and completion, and the parser of each word."""
    top = Parser(
        prog="fedbench",
        usage="fedbench KEY=VALUE ... | fedbench WORD ...",
        description="A benchmark harness for federated optimization and fairness across clients.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version")
    below = top.add_subparsers(title="words", metavar="WORD", prog="fedbench", parser_class=Parser)
    words = {
        name: below.add_parser(
            name,
            help=about,
            description=about,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, about in WORDS.items()
    }
    _run(words["run"])
    _list(words["list"])
    _data(words["data"])
    _new(words["new"])
    _search(words["tune"], _TUNE)
    _search(words["compare"], _COMPARE)
    _report(words["report"])
    _status(words["status"])
    words["show"].add_argument("run", metavar="RUN", help="directory of the run, which it prints as its last line")
    _plot(words["plot"])
    _reproduce(words["reproduce"])
    words["completion"].add_argument(
        "shell",
        choices=SHELLS,
        help='in bash, type eval "$(fedbench completion bash)"; keys prints the candidates for an override',
    )
    return top, words


def _run(p: Parser) -> None:
    _overrides(p)
    _jobs(p)
    _config_dir(p)
    p.add_argument("-m", "--multirun", action="store_true", help="run every combination of the values")
    p.add_argument("-c", "--cfg", choices=("job",), help="print the configuration of the run and exit")
    p.add_argument("--resolve", action="store_true", help="with --cfg job: replace ${...} by values")


def _list(p: Parser) -> None:
    p.add_argument("group", nargs="?", choices=LISTED, help="default: all")
    p.add_argument("name", nargs="?", help="print the card of this algo, data, model, partition or tracker")
    _config_dir(p)


def _data(p: Parser) -> None:
    p.add_argument("action", choices=ON_DATA, help="what to do")
    p.add_argument("name", nargs="?", metavar="NAME", help="the data set")
    p.add_argument("rest", nargs="*", metavar="FILE|KEY=VALUE", help="file of export-partition, and overrides")
    _config_dir(p)


def _new(p: Parser) -> None:
    p.add_argument("kind", choices=NEW, help="what to write")
    p.add_argument("name", metavar="NAME", help="its name")
    p.add_argument("--into", metavar="DIR", help="directory to write to (default: --config-dir, or own)")
    _config_dir(p)


def _search(p: Parser, keys: str) -> None:
    p.epilog = keys
    _overrides(p)
    _jobs(p)
    _config_dir(p)


def _report(p: Parser) -> None:
    p.add_argument(
        "folder",
        nargs="?",
        default="results",
        metavar="DIR",
        help="directory that contains the runs, a report that was published with --into, the zip of --bundle, or a "
        "directory of published reports, which gets a front page (default: results)",
    )
    p.add_argument(
        "--into",
        metavar="OUT",
        help="directory to publish the report in, without links to the runs, and with what it needs of them "
        "(default: DIR/report, without)",
    )
    p.add_argument("--paper", metavar="ID", help="report the runs of one paper only")
    p.add_argument(
        "--compare",
        metavar="KEY",
        help="test the differences between algorithms (algo), or between values of a key: print them, and write them "
        "to the page and, as Markdown, CSV and LaTeX, to the folder compared of the report",
    )
    p.add_argument(
        "--latex",
        action="store_true",
        help="write tables, figures and a statement for a paper to DIR/paper, or OUT (docs/tuning.md)",
    )
    p.add_argument(
        "--bundle",
        metavar="FILE.zip",
        help="write what another machine needs to repeat these tables: configs, partitions, numbers and commands",
    )
    p.add_argument(
        "--best",
        metavar="KEY",
        help="print, for every setting, the value of a key that is best on validation examples (data.validation)",
    )
    p.add_argument(
        "--by", metavar="METRIC", help="with --best: validation (default, val_accuracy_mean) or another val_ metric"
    )
    p.add_argument(
        "--metric",
        help="key of rounds.jsonl to compare or report, at the last round (default: accuracy_mean); with --latex or "
        "--bundle several, separated by commas",
    )
    p.add_argument("--baseline", metavar="VALUE", help="compare with this algorithm or value only")
    p.add_argument("--dated", action="store_true", help="end the page with today's date (UTC)")
    p.add_argument("--alpha", type=float, help="significance level of the tests (default: 0.05)")
    _config_dir(p)


def _status(p: Parser) -> None:
    _results(p)
    p.add_argument("--all", action="store_true", help="list finished runs too, which are only counted otherwise")
    p.add_argument("--verify", action="store_true", help="compare the files of finished runs with their checksums")


def _plot(p: Parser) -> None:
    _results(p)
    p.add_argument("--x", default="round", help="round, bytes, bytes_up, bytes_down or seconds (default: round)")
    p.add_argument("--y", default="accuracy_mean", help="key of rounds.jsonl (default: accuracy_mean)")
    p.add_argument("--by", default="algo", help="a line per value of this key (default: algo)")
    p.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only runs with this value; may be repeated"
    )
    p.add_argument(
        "--interval",
        default="t",
        choices=BANDS,
        help="band around the mean: 95 %% t interval, range, none (default: t)",
    )
    p.add_argument("--log", action="store_true", help="logarithmic axis of the metric")
    p.add_argument("--out", metavar="FILE", help="file ending in .pdf, .png or .svg (default: DIR/plots/..., .png)")


def _reproduce(p: Parser) -> None:
    p.add_argument(
        "words",
        nargs="*",
        metavar="NAME|KEY=VALUE",
        help="paper, paper/table or paper/figure, see `fedbench list table` (default: everything; known: numbers "
        "of public benchmarks); and overrides of directories, device, engine and tracker",
    )
    p.add_argument(
        "--profile",
        choices=PROFILES,
        default="cpu",
        help="full: the settings of the papers; cpu (default) and smoke: reduced settings",
    )
    p.add_argument(
        "--readings",
        action="store_true",
        help="also run what other readings of the papers need: further splits of the data, variants of the settings",
    )
    p.add_argument("--plan", action="store_true", help="show what would run and exit")
    p.add_argument(
        "--hours",
        type=_hours,
        metavar="N",
        help="take rows in the order of the plan until N hours are used; the same command resumes it",
    )
    p.add_argument("--seeds", type=_positive, metavar="N", help="number of seeds (default: that of the profile)")
    _jobs(p)
    p.add_argument("--experiment", metavar="NAME", help="only the rows of this experiment, see `fedbench list`")
    p.add_argument("--launcher", help="Hydra launcher to use instead of --jobs, such as submitit_slurm")


def _overrides(p: Parser) -> None:
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="keys of the run, see docs/configuration.md")


def _jobs(p: Parser) -> None:
    p.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="number of runs at a time (default: as many as cores and memory allow, or one per GPU)",
    )


def _config_dir(p: Parser) -> None:
    p.add_argument(
        "--config-dir",
        "-cd",
        type=_directory,
        metavar="DIR",
        help="also look for config files and Python modules in DIR (docs/own_method.md)",
    )


def _results(p: Parser) -> None:
    p.add_argument(
        "folder",
        nargs="?",
        default="results",
        metavar="DIR",
        help="directory of the runs (default: results)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer >= 1, got {text}")
    return int(text)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (math.isfinite(hours) and hours > 0):
        raise argparse.ArgumentTypeError(f"must be a number above 0, such as 1 or 0.5, got {text}")
    return hours


def _directory(text: str) -> Path:
    folder = user_path("--config-dir", text)
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text} is not a directory; it must contain config files, such as algo/NAME.yaml"
        )
    return folder

"""The command line: ``fedbench <overrides>`` runs, ``fedbench list|data|report`` are its other words."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import fedbench
from fedbench.commands.data import data_word
from fedbench.config.overrides import GROUPS, own_directory, tidy
from fedbench.config.schema import config_dir, options
from fedbench.core.errors import RequestError, nearest
from fedbench.runs.interrupts import at_once
from fedbench.runs.store import DamagedRun

_HELP = """\
fedbench {version}: federated optimisation and fairness, simulated on one machine

usage:
  fedbench KEY=VALUE ...         run one experiment
  fedbench -m KEY=V1,V2 ...      run every combination; seeds are swept as seed=0,1,2
  fedbench list [GROUP]          what there is: {groups}
  fedbench data WORD NAME        WORD is prepare (fetch and read), verify (check the files) or show (numbers, pictures)
  fedbench report [DIR]          tables, figures and a page of the runs below DIR (results); --compare tests differences
  fedbench reproduce [NAME ...]  run what tables of the papers need, and say which numbers and claims hold; --plan first
  fedbench --cfg job KEY=VALUE   show the resolved configuration, train nothing
  fedbench --help | --version    this text | the version; --hydra-help tells of Hydra's own flags

examples:
  fedbench algo=adafedadam data=synthetic_leaf rounds=200
  fedbench -m experiment=adafedadam/table5_synthetic algo=fedavg,adafedadam seed=0,1,2

groups:
{choices}
The most used keys: rounds, seed, participation, eval_every, local.lr, local.epochs, local.batch_size, local.momentum,
data.clients, data.split, algo.<its own>, device, engine.mode, data_dir, results_dir, force=true (train again).
Exit status: 0 done, 1 a run failed or diverged, 2 the request was wrong, 130 interrupted (the same command goes on).
"""
_LISTED = ("algo", "data", "model", "experiment", "table")
_OWN_HELP = ("report", "reproduce")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    loud = os.environ.get("HYDRA_FULL_ERROR") == "1" or "debug=true" in args
    args = [a for a in args if a != "debug=true"]
    try:
        return _dispatch(args, loud)
    except RequestError as error:
        if loud:
            traceback.print_exc()
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted; the same command goes on where it stopped", 130)
    except DamagedRun as error:
        return _fail(str(error), 1)
    except BrokenPipeError:
        # whoever read our output went away; point stdout at nothing so that the interpreter can close it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if loud:
            traceback.print_exc()
        return _fail(f"{type(error).__name__}: {error}; debug=true shows where", 1)


def _fail(message: str, status: int) -> int:
    print(f"fedbench: {message}", file=sys.stderr)
    return status


def _dispatch(args: list[str], loud: bool) -> int:
    if not args or ({"--help", "-h"} & set(args) and args[0] not in _OWN_HELP):
        choices = "".join(f"  {g:<11}{', '.join(options(g))}\n" for g in GROUPS)
        print(_HELP.format(version=fedbench.__version__, groups=", ".join(_LISTED), choices=choices), end="")
        return 0
    if "--version" in args:
        print(f"fedbench {fedbench.__version__}")
        return 0
    word = args[0]
    if "list" in args and not any("=" in a for a in args):
        return _list([a for a in args if a != "list"])
    if re.fullmatch(r"[A-Za-z_.-]+", word) and not word.startswith("-"):
        if word == "report":
            return _report(args[1:])
        if word == "reproduce":
            with at_once():
                from fedbench.commands.reproduce import reproduce  # torch comes in here

            return reproduce(args[1:])
        if word == "data":
            said, status = data_word(args[1:])
            print(said)
            return status
        known = [
            "list",
            "data",
            "report",
            "reproduce",
            *(f"{k}=..." for k in ("algo", "data", "model", "experiment", "seed", "rounds")),
        ]
        raise RequestError(
            f"{word!r} is neither a word (list, data, report, reproduce) nor an override (KEY=VALUE)"
            f"{nearest(word, known)}"
        )
    return _hydra(args, loud)


def _list(args: list[str]) -> int:
    folder = own_directory(args)
    words = [a for a in args if not a.startswith("-") and (folder is None or Path(a) != folder)]
    if len(words) > 1 or (words and words[0] not in _LISTED):
        hint = nearest(words[0], _LISTED)
        raise RequestError(f"fedbench list takes one of {', '.join(_LISTED)}, got {' '.join(words)}{hint}")
    for group in words or _LISTED:
        if not words:
            print(f"{group}:")
        rows = _rows(group, folder, costs=bool(words))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
    return 0


def _rows(group: str, folder: Path | None, costs: bool) -> list[tuple[str, ...]]:
    """Return a row per choice of a group: its name, for algorithms what they cost and need, and what it is."""
    if group == "table":
        from fedbench.papers.plan import table_names

        return list(table_names())
    roots = [config_dir(), *([folder] if folder else [])]
    found = [(name, root / group / f"{name}.yaml") for root in roots for name in options(group, root)]
    if group == "algo" and costs:
        from fedbench.runs.build import cost_of  # torch comes in here

        heads = ("algorithm", "down/up, more", "probes", "")
        return [heads, *((name, *cost_of(path, roots), _about(path)) for name, path in found)]
    return [(name, _about(path)) for name, path in found]


def _about(path: Path) -> str:
    """Return the first comment of a config file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") and "@package" not in line:
            return line.removeprefix("# ")
    return ""


def _report(args: list[str]) -> int:
    from fedbench.commands.report import report

    print(report(args))
    return 0


def _hydra(args: list[str], loud: bool) -> int:
    """Hand the arguments to Hydra, which composes, sweeps and launches jobs."""
    args = tidy(args)
    if (folder := own_directory(args)) is not None:
        sys.path.insert(0, str(folder.resolve()))  # for the _target_ of a method of the user's own
    with at_once():
        import hydra
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        from fedbench.config.compose import Job, check_sweep, explain, show
        from fedbench.runs import sweep_notes as sweep

    if shown := show(args):
        print(shown, end="")
        return 0
    if {"-m", "--multirun"} & set(args):
        check_sweep(args)
    job, begun = Job(loud), len(sweep.started)
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = ["fedbench", *args], "1"  # errors come to us as they are
    try:
        hydra.main(version_base="1.3", config_path=str(config_dir()), config_name="config")(job.run)()
    except (HydraException, OmegaConfBaseException) as error:
        for folder in sweep.started[begun:]:
            sweep.forget(folder)
        raise explain(error) from error
    except KeyboardInterrupt:
        for folder in sweep.started[begun:]:
            _close(folder)
        raise
    finally:
        sys.argv = argv
        os.environ.pop("HYDRA_FULL_ERROR") if full is None else os.environ.update(HYDRA_FULL_ERROR=full)
    if job.error is not None:
        raise job.error
    return max([job.status, *map(_close, sweep.started[begun:])])


def _close(folder: Path) -> int:
    """Print what a sweep has come to and return its exit status."""
    from fedbench.report.present import summary
    from fedbench.runs import sweep_notes as sweep
    from fedbench.runs.store import read_run

    notes = sweep.notes(folder)
    # a directory once, however many jobs led to it
    runs = [read_run(Path(path)) for path in dict.fromkeys(n.path for n in notes) if path is not None]
    wrong = [n for n in notes if n.status in ("refused", "failed")]
    for error in dict.fromkeys(n.error for n in wrong):
        jobs = [n for n in notes if n.error == error]
        print(f"fedbench: {jobs[0].status}: {' '.join(jobs[0].overrides)}: {error}", file=sys.stderr)
        if len(jobs) > 1:
            print(f"fedbench: and {len(jobs) - 1} more for the same reason", file=sys.stderr)
    if not runs:
        sweep.forget(folder)
        return 2
    print("\n" + summary(runs))
    return 0 if all(n.status == "done" for n in notes) else 1

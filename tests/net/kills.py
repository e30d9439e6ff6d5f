"""Harm runs, carry them out again and compare: python kills.py DIR SUITE ... prints what became of
each run as JSON.

``rounds`` ends runs by a signal in each of their rounds, ``operations`` and ``some_operations``
kill one at operations on files, and ``full`` lets no file grow beyond a size. A process of its own,
since it forks: a child has all modules already, and its end is a real one.
"""

import itertools
import json
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import torch

from fedbench.cli import main
from fedbench.runs import training

METHODS, ROUNDS = ("fedadam", "scaffold"), 3
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
OWN = Path(__file__).parent / "killed"


def command(results, method):
    """Carry out the run of a method, with a checkpoint after every round."""
    training._CHECKPOINT_EVERY = 0
    small = ["data=synthetic_leaf", "data.clients=6", f"rounds={ROUNDS}", "participation=3"]
    # threads do not survive a fork
    alone = ["device=cpu", "engine.mode=stacked", "engine.workers=1"]
    typed = ["algo=killed", f"algo.method={method}", *small, *alone, f"results_dir={results}"]
    return main(["--config-dir", str(OWN), *typed])


def in_child(results, method, harm=int):
    """Carry out a run in a forked child, after ``harm``; its exit status, or minus the signal that
    ended it.
    """
    if not (child := os.fork()):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(results.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        harm()
        os._exit(command(results, method))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def left_in(results):
    """The model and the rounds of the only run in a directory, without their times, and the names
    of all files.
    """
    (rounds,) = results.rglob("rounds.jsonl")
    rows = [json.loads(line) for line in rounds.read_text().splitlines()]
    untimed = [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in rows]
    model = rounds.with_name("model.safetensors")
    # a lock stays if the process is killed just before it removes it, which is its last act
    names = sorted(
        path.relative_to(results).as_posix() for path in results.rglob("*") if path.name != ".lock"
    )
    return model.read_bytes() if model.exists() else b"", untimed, names


def carried_out_again(results, method, expected):
    """The status of a second attempt, and whether it leaves what is expected."""
    return {"again": in_child(results, method), "same": left_in(results) == expected}


def in_every_round(folder, method):
    """What becomes of runs that get a signal in each of their rounds."""
    expected = left_in(folder / method)
    for number, at in itertools.product(SIGNALS, range(ROUNDS)):
        results = folder / f"{method}_{number.name}_{at}"
        environment = {"KILL_AT": str(at), "KILL_WITH": str(int(number))}
        first = in_child(
            results, method, lambda environment=environment: os.environ.update(environment)
        )
        rows = left_in(results)[1]
        facts = {
            "signal": number.name,
            "first": first,
            "rounds": len(rows) - 1,
            "saved": any(results.rglob("checkpoint")),
        }
        yield {"method": method, **facts, **carried_out_again(results, method, expected)}


def at_operations(folder, method, every):
    """What becomes of runs that are killed just before one in ``every`` of their operations on
    files.
    """
    expected = left_in(folder / method)
    for at in itertools.count(0, every):
        results = folder / f"{method}_{every}_{at}"
        first = in_child(
            results, method, lambda results=results, at=at: sys.addaudithook(_killing(results, at))
        )
        if first == 0:
            return
        yield {"at": at, "first": first, **carried_out_again(results, method, expected)}


def _killing(results, at):
    """A hook that kills the process at an operation on files below a directory: each that opens or
    changes one.
    """
    operations = itertools.count()

    def hook(event, arguments):
        changes = event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
        if changes and str(arguments[0]).startswith(str(results)) and next(operations) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def on_full_disks(folder, method):
    """Runs whose files cannot grow beyond a size; their message is the last value."""
    expected = left_in(folder / method)
    for size in (1000, 3000, 6000):
        results = folder / f"{method}_{size}"
        limits = (size, resource.RLIM_INFINITY)
        first = in_child(
            results, method, lambda limits=limits: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        )
        done, said = any(results.rglob("DONE")), results.with_suffix(".err").read_text()
        facts = {"size": size, "first": first, "done": done, "said": said}
        yield facts | carried_out_again(results, method, expected)


SUITES = {
    "rounds": in_every_round,
    "operations": partial(at_operations, every=1),
    "some_operations": partial(at_operations, every=13),
    "full": on_full_disks,
}


def outcomes(folder, suites):
    """What became of all runs of each suite.

    The runs that are left alone are this process's own, so that its children find everything
    imported.
    """
    for method in METHODS:
        assert command(folder / method, method) == 0
    return {
        s: [
            row
            for m in METHODS
            if s == "rounds" or m == METHODS[-1]
            for row in SUITES[s](folder, m)
        ]
        for s in suites
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(outcomes(Path(sys.argv[1]), sys.argv[2:])))

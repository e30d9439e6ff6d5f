"""Kill runs in every round, carry them out again and compare: python kills.py DIR prints what became of each as JSON.

A process of its own, since it forks: a child has all modules already, and its end is a real one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch

from fedbench.cli import main
from fedbench.runs import training

METHODS, ROUNDS = ("fedadam", "scaffold"), 3
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
OWN = Path(__file__).parent / "killed"


def command(results: Path, method: str) -> int:
    """Carry out the run of a method, with a checkpoint after every round."""
    training._CHECKPOINT_EVERY = 0
    small = ["data=synthetic_leaf", "data.clients=6", f"rounds={ROUNDS}", "participation=3"]
    alone = ["device=cpu", "engine.mode=stacked", "engine.workers=1"]  # threads do not survive a fork
    typed = ["algo=killed", f"algo.method={method}", *small, *alone, f"results_dir={results}"]
    return main(["--config-dir", str(OWN), *typed])


def in_child(results: Path, method: str, environment: dict[str, str]) -> int:
    """Carry out a run in a forked child and return its exit status, or minus the signal that ended it."""
    if not (child := os.fork()):
        os.environ |= environment
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(command(results, method))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def left_in(results: Path) -> tuple[bytes, list[dict[str, object]]]:
    """The model and the rounds of the only run in a directory, without their times."""
    (rounds,) = results.rglob("rounds.jsonl")
    rows = [json.loads(line) for line in rounds.read_text().splitlines()]
    untimed = [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in rows]
    model = rounds.with_name("model.safetensors")
    return model.read_bytes() if model.exists() else b"", untimed


def killed(folder: Path, method: str) -> list[dict[str, object]]:
    """What became of a method's runs that were killed in each of their rounds.

    The run that is left alone is this process's own, so that its children find everything imported.
    """
    assert command(folder / method, method) == 0
    expected, found = left_in(folder / method), []
    for number in SIGNALS:
        for at in range(ROUNDS):
            results = folder / f"{method}_{number.name}_{at}"
            first = in_child(results, method, {"KILL_AT": str(at), "KILL_WITH": str(int(number))})
            _, rows = left_in(results)
            saved = any(results.rglob("checkpoint"))
            again = in_child(results, method, {})
            facts = {"signal": number.name, "first": first, "rounds": len(rows) - 1, "saved": saved, "again": again}
            found.append({"method": method, **facts, "same": left_in(results) == expected})
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([row for method in METHODS for row in killed(Path(sys.argv[1]), method)]))

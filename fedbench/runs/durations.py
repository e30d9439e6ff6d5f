"""Estimated durations of runs, and an end in time for training.

Estimates are from the finished runs of a results directory, else from a file of fedbench.

``durations.json`` has the mean seconds per round by experiment, with what a profile changes of it, and algorithm, as
measured on one machine; ``scripts/durations.py`` writes it from finished runs.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.process import answered_signals, interruption
from fedbench.runs.progress import duration
from fedbench.runs.run import is_done, last_row

FILE = Path(__file__).parent / "durations.json"
_COSTS = (  # beginnings of the keys on which the time of a round depends
    *("model", "participation", "data.clients", "data.source", "data.partition"),
    *("local.batch_size", "local.epochs", "local.steps"),
)


class Durations:
    """Estimated times of runs: the mean time of a round of the same experiment, reductions and algorithm.

    Args:
        results: Directory of the finished runs.
    """

    def __init__(self, results: Path) -> None:
        self.results = results
        self._stored = json.loads(FILE.read_text(encoding="utf-8"))["seconds_per_round"]
        self._seconds = cache(self._measured)

    def per_round(self, config: RunConfig) -> float | None:
        """Return the mean seconds of a round of a configuration; None if nothing is known."""
        return self._seconds(config.task_name, task_of(config.task_name, config.departures), config.names.algo)

    def of(self, config: RunConfig) -> float | None:
        """Return the seconds that a run takes; None if nothing is known of its kind."""
        per_round = self.per_round(config)
        return None if per_round is None else per_round * config.rounds

    def text(self, configs: Iterable[RunConfig], jobs: int = 1) -> str:
        """Return the time of runs, ``jobs`` at a time, in words; ``+ ?`` if that of some is unknown."""
        times = [self.of(config) for config in configs]
        known = [seconds for seconds in times if seconds is not None]
        if not known:
            return "unknown" if times else "–"
        return duration(sum(known) / jobs) + (" + ?" if len(known) < len(times) else "")

    def _measured(self, folder: str, task: str, algo: str) -> float | None:
        found = []
        for path in filter(is_done, (self.results / folder / algo).glob("*/seed_*")):
            with suppress(OSError, ValueError, KeyError, TypeError):  # damaged: named where it is needed
                if task_of(folder, json.loads((path / "meta.json").read_text(encoding="utf-8"))["departures"]) == task:
                    found.append(per_round(last_row(path / "rounds.jsonl") or {}))
        if known := [seconds for seconds in found if seconds is not None]:
            return mean(known)
        stored: float | None = self._stored.get(task, {}).get(algo)
        return stored


def task_of(name: str, departures: Mapping[str, Sequence[Any]]) -> str:
    """Return an experiment or data set with the values that a run has in its place and that change a round's time."""
    changed = [f"{key}={here}" for key, (_, here) in sorted(departures.items()) if key.startswith(_COSTS)]
    return " ".join([name, *changed])


def per_round(row: Mapping[str, float]) -> float | None:
    """Return the mean seconds of a round, training and evaluation, from the last row of a run; None without a round."""
    return (row["seconds_train"] + row["seconds_eval"]) / row["round"] if row.get("round") else None


@contextmanager
def deadline(seconds: float) -> Iterator[list[bool]]:
    """End this block after some seconds without an error; the list that is given is not empty if the time was up.

    The main thread then receives SIGINT, or where that is ignored, as in the background of a shell script, another
    signal that ends runs: those under way finish their round, write a checkpoint and stop. An interruption by anything
    else stays one.

    Raises:
        RequestError: If no signal could end the block.
    """
    answered, main, over = answered_signals(), threading.get_ident(), []
    if not answered:
        raise RequestError("--hours cannot end runs here, since all signals are ignored; remove it")

    def ring() -> None:
        over.append(True)
        signal.pthread_kill(main, answered[0])

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), ring)
    timer.daemon = True
    timer.start()
    try:
        yield over
        timer.cancel()
        timer.join()  # if the time was up just now, its signal comes here and not after the block
    except BaseException as error:
        if not over or interruption(error) is None:
            raise
    finally:
        timer.cancel()

"""Recompute the weighted worst 30 % of runs with the earlier and the present rule for ties at the tail's edge.

``python scripts/worst_tails.py DIR [REPORT]`` reads the per-client results of the last round of all finished runs in a
directory of runs or a published report. Earlier, clients that are tied at the edge entered the tail by their number;
now they share the places that are left. It prints a Markdown table with a row per setting: mean ± sample STD over
runs, in percent, by both rules; and the range of values that other orders of the clients could have given, over all
runs. With REPORT, a published report, its rows are listed too: how many of the numbers it has are those by the earlier
rule, by the present one, or by both, and the rows whose runs have no per-client results in DIR.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pandas as pd

from fedbench.core.errors import RequestError
from fedbench.papers.registry import home_of
from fedbench.runs.results import Results
from fedbench.runs.run import Run
from fedbench.simulation.evaluation import tail, tail_size

PERCENT = 30
FIELD = "accuracy_worst30_weighted"
Key = tuple[str, str, str]  # experiment, algorithm and hash of the setting


@dataclass(frozen=True)
class Tails:
    """The weighted mean of the lowest accuracies of a run, as a fraction.

    Attributes:
        by_position: With clients tied at the edge by their number, the earlier rule.
        shared: With the places shared among them, the present rule.
        low: The least value over all orders of the clients.
        high: The largest one.
    """

    by_position: float
    shared: float
    low: float
    high: float


def tails(accuracy: np.ndarray, weights: np.ndarray) -> Tails:
    """Return the tails of a run.

    Args:
        accuracy: Accuracies of the clients, fractions, [N].
        weights: Their numbers of test examples, above 0, [N].
    """
    count = tail_size(len(accuracy), PERCENT)
    edge = np.sort(accuracy)[count - 1]
    below, tied = accuracy < edge, np.flatnonzero(accuracy == edge)
    places = count - int(below.sum())

    def with_tied(members: np.ndarray) -> float:
        chosen = np.concatenate([np.flatnonzero(below), members])
        return float((accuracy[chosen] * weights[chosen]).sum() / weights[chosen].sum())

    # the tied are not below the others: the heavier they are, the higher is the mean
    by_weight = tied[np.argsort(weights[tied], kind="stable")]
    return Tails(
        with_tied(tied[:places]),
        tail(accuracy, PERCENT, weights=weights),
        with_tied(by_weight[:places]),
        with_tied(by_weight[len(by_weight) - places :]),
    )


def tails_of(run: Run) -> Tails:
    """Return the tails of the last round of a run."""
    clients = run.clients_at()
    tested = clients[clients["n_test"] > 0].sort_values("client")
    return tails(tested["accuracy"].to_numpy(float), tested["n_test"].to_numpy(float))


def by_setting(runs: Iterable[Run]) -> dict[Key, dict[str, Tails]]:
    """Return the tails of all runs that count, by setting and the run's directory below that of the experiment."""
    found: dict[Key, dict[str, Tails]] = {}
    for run in runs:
        if run.counts and run.has_clients:
            found.setdefault(_key(run.meta), {})[_name(run.path)] = tails_of(run)
    return found


def _key(facts: dict[str, object]) -> Key:
    return str(facts["experiment"] or facts["data"]), str(facts["algo"]), str(facts["hash"])


def _name(path: Path) -> str:
    return "/".join(path.parts[-3:])  # algorithm, setting and seed


def setting_lines(found: dict[Key, dict[str, Tails]]) -> list[str]:
    """Return a Markdown table with a row per setting."""
    lines = [
        "| experiment | method | setting | runs | by position | shared | difference | range by order |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (experiment, algo, digest), runs in sorted(found.items()):
        every = list(runs.values())
        old, new = ([100 * getattr(t, name) for t in every] for name in ("by_position", "shared"))
        low, high = 100 * min(t.low for t in every), 100 * max(t.high for t in every)
        cells = (
            experiment, label(experiment, algo), digest, str(len(every)), spread(old), spread(new),
            f"{mean(new) - mean(old):+.2f}", f"{low:.2f} to {high:.2f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def label(experiment: str, algo: str) -> str:
    """Return the name of a method in its paper."""
    home = home_of(experiment)
    names = [m.label for m in home.paper.methods.values() if m.algo == algo and not m.set] if home else []
    return names[0] if names else algo


def spread(values: Sequence[float]) -> str:
    """Return the mean ± sample STD."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def published_lines(report: Path, found: dict[Key, dict[str, Tails]]) -> list[str]:
    """Return what the numbers of a published report are, and which of its settings cannot be recomputed."""
    rows = pd.read_parquet(report / "runs.parquet")
    counts: Counter[str] = Counter()
    missing: Counter[Key] = Counter()
    for row in rows[rows[FIELD].notna()].to_dict("records"):
        known = found.get(_key(row), {}).get(_name(Path(row["path"])))
        if known is None:
            missing[_key(row)] += 1
        else:
            same = [
                word
                for word, value in (("by position", known.by_position), ("shared", known.shared))
                if isclose(value, row[FIELD], rel_tol=1e-9)
            ]
            counts[" and ".join(same) or "by neither rule"] += 1
    lines = [f"{n} published numbers are those {word}" for word, n in sorted(counts.items())]
    return lines + [
        f"not recomputed, no per-client results: {experiment}, {label(experiment, algo)} ({digest}), {n} runs"
        for (experiment, algo, digest), n in sorted(missing.items())
    ]


def main(argv: list[str]) -> int:
    """Print the tables and return the exit status."""
    if len(argv) not in (1, 2):
        print(str(__doc__).split("\n\n")[1], file=sys.stderr)
        return 2
    try:
        found = by_setting(Results(Path(argv[0])))
    except RequestError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(setting_lines(found)))
    if len(argv) == 2:
        print("\n" + "\n".join(published_lines(Path(argv[1]), found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A benchmark with made-up runs: two settings, six seeds, numbers that can be checked by hand."""

from types import SimpleNamespace

from fedbench.benchmarks.definition import Benchmark, Search, Setting
from fedbench.benchmarks.entries import Entry, Trial

METRICS = ("accuracy_mean", "accuracy_worst10", "bytes_up")
NUMBERS = """
one fedavg 0.5  0.4
one a      0.6  0.3
one b      0.7  0.4
one own    0.9  0.9
two fedavg 0.5  0.4
two own    0.6  0.4
"""


def benchmark(**changes):
    settings = {
        name: Setting(f"made_up/{name}", ("data=other",), ("x", "x"), f"setting {name} in words")
        for name in ("one", "two")
    }
    fields = {
        "name": "made_up",
        "version": 2,
        "title": "Made up",
        "lead": "For tests.",
        "changes": {1: "first version", 2: "second version"},
        "settings": settings,
        "baseline": "fedavg",
        "weights": "uniform",
        "search": Search((0.1, 0.3, 1.0), 2, (1000,), "val_accuracy_mean"),
        "seeds": 6,
        "metrics": METRICS,
        "tolerance": 0.0,
    }
    return Benchmark(**fields | changes)


def run(seed, numbers, outcome="done"):
    meta = {
        "seed": seed,
        "started": "2026-01-01T00:00:00+00:00",
        "ended": "2026-01-01T01:00:00+00:00",
        "versions": {"fedbench": "9.9"},
        "git_commit": "c0ffee",
        "platform": "Linux",
        "device_name": "cpu",
    }
    return SimpleNamespace(
        meta=meta,
        outcome=outcome,
        counts=outcome == "done",
        unofficial=("unofficial data",),
        last_round=lambda: dict(zip(METRICS, numbers, strict=True)),
    )


def runs_of(setting, method, mean, worst, shift=0.0):
    runs = []
    for seed in range(6):
        accuracy = mean + shift
        if (setting, method) in (("one", "fedavg"), ("one", "a")):
            accuracy += 0.01 * seed
        if (setting, method, seed) == ("one", "b", 5):
            accuracy -= 0.4
        diverged = (setting, method, seed) == ("one", "own", 0)
        outcome = "diverged" if diverged else "done"
        runs.append(run(seed, (accuracy, worst, 4e6), outcome))
    return tuple(runs)


def search(*scores, key=None):
    """Trials of the rates 0.1, 0.3 and 1, and then of values 1, 2 ... of a key at the rate 0.3."""
    trials = []
    for number, score in enumerate(scores):
        rate = (0.1, 0.3, 1.0)[number] if number < 3 else 0.3
        values = {"local.lr": rate}
        if key:
            values[key] = 0 if number < 3 else number - 2
        trials.append(Trial(values, score))
    return tuple(trials)


def entries(own="own", reason="b needs all clients"):
    """Entries, also on held-out variants, where all accuracies are .1 lower.

    In setting one, a is ahead of FedAvg by .1 in the mean and behind by .1 in the worst 10 % in
    every seed, b is ahead by .2 but for the last seed, and the method of its own diverges in seed
    0. In setting two, b is refused, and every trial of a diverged.
    """
    made = []
    for line in NUMBERS.strip().splitlines():
        setting, method, mean, worst = line.split()
        numbers = float(mean), float(worst)
        own_key = "algo.mu" if method == "own" else None
        scores = (0.2, 0.4, None, 0.3, 0.6) if own_key else (0.2, 0.4, 0.3)
        space = ("local.lr=0.1,0.3,1", "algo.mu=0,1,2")
        entry = Entry(
            setting,
            own if own_key else method,
            space=space if own_key else space[:1],
            trials=search(*scores, key=own_key),
            chosen={"local.lr": 0.3} | ({own_key: 2} if own_key else {}),
            runs=runs_of(setting, method, *numbers),
            held_out=runs_of(setting, method, *numbers, shift=-0.1),
            published=not own_key,
        )
        made.append(entry)
    made.append(Entry("two", "b", reason=reason))
    every = "every trial diverged"
    made.append(Entry("two", "a", trials=search(None, None, None), reason=every))
    return made

"""A paper with one claim, that the new method is ahead of the old one, and runs for it."""

from example_paper import example_paper
from fake_runs import write_seeds

from fedbench.papers.checks import Compare
from fedbench.papers.readings import Variant
from fedbench.papers.schema import Claim, Figure, Method, PrintedMetric, Row, Setup, Table

SETUPS = ("one", "two")
FIELD = "accuracy_mean_weighted"
NEW, OLD = (Row(algo, "one") for algo in ("new", "old"))
SLOW = Variant("slow", "", "", setups=("one",), set={"local.lr": 0.5})


def claim(*setups):
    """The new method is ahead of the old one."""
    check = Compare("t", setups or ("one",), ("avg",), ("new",), ("old",))
    return Claim("c", "", "", check, "supports")


def paper(readings):
    """Two methods in two setups, in a table and in a figure."""
    rows = (NEW, OLD, Row("new", "two"), Row("old", "two"))
    shown = (Row("new"), Row("old"))
    return example_paper(
        metrics={"avg": PrintedMetric("avg", "average %", "higher", FIELD)},
        methods={m: Method(m, m, m) for m in ("new", "old")},
        setups={s: Setup(s, s.upper(), f"made_up/{s}", 10, 3, 1) for s in SETUPS},
        tables={"t": Table("t", "", SETUPS, ("avg",), rows)},
        figures={"f": Figure("f", "", "curves", SETUPS, runs=shown)},
        claims={"c": claim()},
        readings=readings,
    )


def write_runs(
    root,
    algo,
    ahead=0.0,
    *,
    seeds=range(6),
    split=None,
    setup="one",
    unweighted=None,
    best=None,
    lr=0.1,
    departures=None,
    **facts,
):
    """Runs whose weighted mean accuracy is 0.5 and ``ahead`` at the last round, a little apart from
    seed to seed.

    Args:
        split: Seed of the data; None if every run draws its own.
        unweighted: By how much the accuracy without weights is above 0.5; ``ahead`` if not given.
        best: By how much the accuracies are above 0.5 in an earlier round, if that differs.
        lr: The rate; the experiment has 0.1.
        departures: Further keys that differ from the experiment, as [there, here].
        facts: Further facts of the runs.
    """
    changed = dict(departures or {})
    if lr != 0.1:
        changed["local.lr"] = [0.1, lr]
    if split is not None:
        changed["data.seed"] = [None, split]
    without = ahead if unweighted is None else unweighted
    rounds = {}
    for seed in seeds:
        start = 0.5 + seed / 10000
        last = {FIELD: start + ahead, "accuracy_mean": start + without}
        earlier = last if best is None else dict.fromkeys(last, start + best)
        rounds[seed] = [{"round": 0, **earlier}, {"round": 10, **last}]
    config = {"rounds": 10, "data.seed": split, "local.lr": lr}
    config |= {key: here for key, (_, here) in changed.items()}
    facts |= {"experiment": f"made_up/{setup}", "departures": changed}
    write_seeds(root, algo, config, rounds, **facts)

"""Do methods differ: runs that are alike in everything but one key, paired by seed, and tested.

Runs that are alike in everything but the compared key, the seed and what changes no numbers are a block. Where methods
are compared, what comes with a method (``algo`` and ``local``) makes no blocks; if ``local`` differs, a note says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import copysign, inf, isnan, nan
from statistics import mean, stdev
from typing import Any, TypeAlias

from fedbench.analysis.metrics_catalogue import Measure, read_metric
from fedbench.analysis.notes import listed_notes, p_text, too_few
from fedbench.analysis.stats import Paired, friedman, holm, least_p, paired, win_tie_loss, with_lost
from fedbench.core.errors import RequestError, choice, nearest, number
from fedbench.core.trees import Tree, leaves
from fedbench.report.render import markdown
from fedbench.report.tables import marks
from fedbench.runs.store import Fields, Run

_GROUPS = ("algo", "data", "model")  # keys whose value is the name of a choice
# what changes no numbers, and what is looked at; of the engine the precision alone changes numbers
_ASIDE = ("seed", "device", "data_dir", "results_dir", "force", "tracker", "engine", "data.download")
_WATCHING = ("eval_every", "keep_clients", "improved_clients")
_LISTED = 3  # blocks with nothing to compare that are named
_Facts: TypeAlias = dict[str, str]
_Values: TypeAlias = dict[str, dict[int, float]]  # by method and seed, in the unit that is printed


def compare(runs: Sequence[Run], key: str, metric: str, baseline: str | None = None, alpha: float = 0.05) -> str:
    """Return Markdown text on which values of a key are better than which, and how certain that is.

    Per block: mean ± sample STD, then paired differences with their interval at 1 - alpha, the two-sided p of the
    sign-flip test and the same adjusted over the table (``fedbench.analysis.stats``). Over two blocks or more: how many
    are won, undecided and lost, and for three values or more average ranks as in Demsar (JMLR 2006).

    Args:
        runs: as on disk; those that are not done are counted in the notes and nowhere else. A run that diverged is
            worse than its partner by the widest difference of the other seeds; its numbers are in no mean.
        key: ``algo``, ``data``, ``model`` or a dotted key of the configuration.
        metric: a key of ``rounds.jsonl``; its value at the last round counts.
        baseline: what all others are compared with, as named in the tables or by its value alone; None: all pairs.
        alpha: level of the tests, in (0, 1).

    Raises:
        RequestError: for an unknown key, metric or baseline, a metric that was not measured, a level out of range, or
            if no two values of the key can be compared.
        DamagedRun: if a run cannot be read.
    """
    alpha = number("alpha", alpha, above=0, below=1, remedy="0.05 is usual")
    entries = _entries(runs, key)
    groups = _groups(entries, key)
    _name(groups)
    blocks = [_Block(title, members, key) for title, members in _titled(groups)]
    shown = [b for b in blocks if len(b.methods) > 1]
    if not shown:
        found = "; ".join(f"{b.title}: {b.content}" for b in blocks[:_LISTED])
        found += f"; and {len(blocks) - _LISTED} more" if blocks[_LISTED:] else ""
        raise RequestError(
            f"there are no two values of {key} to compare: that takes done runs with everything else equal; here are "
            f"{found}. Run more, as with `fedbench -m {key}=A,B seed=0,1,2`"
        )
    done = [e for b in shown for e in b.done]
    if not done:
        raise RequestError("all runs that could be compared diverged")
    measure = read_metric(metric, [(e.run.path, e.last) for e in done])
    shown_names = {n for b in shown for n in b.methods}
    names = list(dict.fromkeys(e.name for e in sorted(entries, key=_order) if e.name in shown_names))
    against = None if baseline is None else _baseline(baseline, done, names)
    values = [{n: _read(measure, b, n) for n in names if n in b.methods} for b in shown]
    parts = [_of_block(b, v, measure, against, alpha) for b, v in zip(shown, values, strict=True)]
    if len(shown) > 1:
        parts.append(_over_blocks(values, names, measure, alpha))
    alone = [f"{b.title}: nothing to compare, {b.content}" for b in blocks if len(b.methods) < 2]
    notes = alone[:_LISTED] + ([f"{len(alone) - _LISTED} more with nothing to compare"] if alone[_LISTED:] else [])
    if without := len(runs) - len(entries):
        notes.append(f"left out: {without} without {key}")
    return "\n".join(parts + listed_notes(notes)).rstrip()


@dataclass
class _Entry:
    """A run and its configuration as dotted keys.

    Attributes:
        run: as on disk.
        flat: the configuration without what changes no numbers.
        value: of the compared key.
        base: the value as text.
        name: of its row in the tables: the base, and settings where runs of one value in one block differ in them.
    """

    run: Run
    flat: Tree
    value: Any
    base: str
    name: str = ""

    @property
    def status(self) -> str:
        """One word on what became of the run; done is what counts."""
        status = str(self.run.meta["status"])
        return status if status != "done" or self.run.done else "not finished"

    @cached_property
    def last(self) -> Fields:
        """The last line of ``rounds.jsonl``."""
        return self.run.last_round()


def _entries(runs: Sequence[Run], key: str) -> list[_Entry]:
    entries, known = [], set(_GROUPS)
    for run in sorted(runs, key=lambda r: str(r.path)):
        config = leaves(run.config)
        known |= config.keys()
        if key in _GROUPS or key in config:
            value = run.meta[key] if key in _GROUPS else config[key]
            flat = {k: v for k, v in config.items() if k == "engine.precision" or not _below(k, _ASIDE)}
            entries.append(_Entry(run, flat, value, _show(value) if key in _GROUPS else f"{key}={_show(value)}"))
    if not entries:
        raise RequestError(
            f"none of {len(runs)} runs has the key {key}; it must be algo, data, model or a key of their config.yaml, "
            f"such as local.lr{nearest(key, known)}"
        )
    return entries


def _below(key: str, sections: Iterable[str]) -> bool:
    return any(key == s or key.startswith(f"{s}.") for s in sections)


def _groups(entries: Sequence[_Entry], key: str) -> list[tuple[_Facts, list[_Entry]]]:
    """Return the blocks: what their runs have in common, "" being the experiment or data set, and the runs."""
    apart = {key, *_WATCHING, *(("algo", "local") if key == "algo" else ()), *_copies(entries, key)}
    groups: dict[tuple[tuple[str, str], ...], list[_Entry]] = {}
    for e in entries:
        meta = e.run.meta
        place = meta["experiment"] or ("all data" if key == "data" else meta["data"])
        facts = {"": place, **{g: meta[g] for g in _GROUPS}, **e.flat}
        common = sorted((k, _show(v)) for k, v in facts.items() if not _below(k, apart))
        groups.setdefault(tuple(common), []).append(e)
    return [(dict(facts), members) for facts, members in groups.items()]


def _copies(entries: Sequence[_Entry], key: str) -> set[str]:
    """Return the keys of ``data`` that repeat the compared one: the config tree hands some on to ``data.source``."""
    if not key.startswith("data."):
        return set()
    source = key.startswith("data.source.")
    keys = {k for e in entries for k in e.flat if k.startswith("data.") and k.startswith("data.source.") != source}
    return {k for k in keys if all(e.flat[k] == e.value for e in entries if k in e.flat)}


def _name(groups: Sequence[tuple[_Facts, list[_Entry]]]) -> None:
    """Name the rows.

    A setting in which runs of one value differ inside a block is in the names of this value in all blocks, so that rows
    of different blocks find each other.
    """
    differing: dict[str, set[str]] = {}
    for _, members in groups:
        for base in {e.base for e in members}:
            settings = {e.run.meta["hash"]: _settings(e) for e in members if e.base == base}
            free = {k for s in settings.values() for k in s if k != "hash"}
            keys = {k for k in free if len({s.get(k) for s in settings.values()}) > 1}
            told = {tuple(s.get(k) for k in sorted(keys)) for s in settings.values()}
            differing.setdefault(base, set()).update(keys if len(told) == len(settings) else keys | {"hash"})
    for _, members in groups:
        for e in members:
            mine = _settings(e)
            e.name = " ".join([e.base, *(f"{k}={mine[k]}" for k in sorted(differing[e.base]) if k in mine)])


def _settings(e: _Entry) -> _Facts:
    return {k: _show(v) for k, v in e.flat.items()} | {"hash": str(e.run.meta["hash"])}


def _titled(groups: Sequence[tuple[_Facts, list[_Entry]]]) -> list[tuple[str, list[_Entry]]]:
    """Return the blocks by title: experiment or data set, method, and in what it differs from others of this title."""
    varying = [g for g in ("data", "model") if len({facts.get(g) for facts, _ in groups}) > 1]
    heads = [" ".join(dict.fromkeys(f[k] for k in ("", "algo", *varying) if k in f)) for f, _ in groups]
    titled = []
    for (facts, members), head in zip(groups, heads, strict=True):
        alike = [f for (f, _), other in zip(groups, heads, strict=True) if other == head]
        settings = {k: v for k, v in facts.items() if k and any(f.get(k) != v for f in alike)}
        once = [k for k, v in settings.items() if "source." not in k or settings.get(k.replace("source.", "", 1)) != v]
        titled.append((" ".join([head, *(f"{k}={settings[k]}" for k in once)]), members))
    return sorted(titled, key=lambda t: t[0])


class _Block:
    """Runs that may be compared: by method and seed, and what is left out."""

    def __init__(self, title: str, members: Sequence[_Entry], key: str) -> None:
        self.title = title
        self.methods: dict[str, dict[int, _Entry]] = {}
        self.lost: dict[str, set[int]] = {}
        self._out: Counter[str] = Counter()
        for e in members:
            if e.status == "done":
                seeds = self.methods.setdefault(e.name, {})
                if seeds.setdefault(e.run.meta["seed"], e) is not e:
                    self._out[f"{e.name} of a seed that is there already"] += 1
        for e in members:
            if e.status == "diverged":
                if e.run.meta["seed"] not in self.methods.setdefault(e.name, {}):
                    self.lost.setdefault(e.name, set()).add(e.run.meta["seed"])
            elif e.status != "done":
                self._out[f"{e.name} {e.status}"] += 1
        self.unequal = _unequal(self.done) if key == "algo" else []
        self.reduced = sorted({f"{e.name}: {', '.join(m)}" for e in self.done if (m := marks(e.run, but=key))})

    @property
    def done(self) -> list[_Entry]:
        """The runs that count."""
        return [e for seeds in self.methods.values() for e in seeds.values()]

    @property
    def left_out(self) -> str:
        """How many runs do not count, and why; empty if all do."""
        return ", ".join(f"{count} {why}" for why, count in sorted(self._out.items()))

    @property
    def content(self) -> str:
        """How many runs there are of what."""
        counts = ", ".join(f"{len(seeds)} {name}" for name, seeds in sorted(self.methods.items()))
        return f"{counts or 'none done'}" + (f" (left out: {self.left_out})" if self._out else "")


def _read(measure: Measure, block: _Block, name: str) -> dict[int, float]:
    """Return a method's numbers by seed; NaN where it diverged."""
    numbers = {seed: measure.read(e.last) for seed, e in block.methods[name].items()}
    return dict(sorted({**numbers, **dict.fromkeys(block.lost.get(name, ()), nan)}.items()))


def _finite(by_seed: dict[int, float]) -> list[float]:
    return [v for v in by_seed.values() if not isnan(v)]


def _unequal(done: Sequence[_Entry]) -> list[str]:
    """Return the settings of the local solver in which methods differ and that their names do not tell."""
    keys = dict.fromkeys(k for e in done for k in e.flat if k.startswith("local."))
    by_key = {k: {e.name: _show(e.flat.get(k)) for e in done} for k in keys}
    told = [k for k, of in by_key.items() if len(set(of.values())) == 1 or all(f" {k}=" in name for name in of)]
    return [f"{k} ({', '.join(map(' '.join, of.items()))})" for k, of in by_key.items() if k not in told]


def _order(e: _Entry) -> tuple[bool, float, str]:
    numeric = isinstance(e.value, int | float)
    return not numeric, float(e.value) if numeric else 0.0, e.name


def _show(value: Any) -> str:
    """Return a value as it is typed on the command line; numbers that are equal look the same."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and not value.is_integer():
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(int(value) if isinstance(value, float) else value)


def _baseline(given: str, done: Sequence[_Entry], names: Sequence[str]) -> str:
    try:
        wanted = {given, _show(float(given))}  # 1e-3 is 0.001
    except ValueError:
        wanted = {given}
    fitting = {e.name for e in done if wanted & {e.base, _show(e.value)}}
    if given in names or not fitting:
        return str(choice("baseline", given, names))
    if len(fitting) > 1:
        raise RequestError(f"baseline {given!r} fits several rows; give one of {', '.join(sorted(fitting))}")
    return fitting.pop()


def _of_block(block: _Block, values: _Values, measure: Measure, baseline: str | None, alpha: float) -> str:
    rows = []
    for name, by_seed in values.items():
        numbers = _finite(by_seed)
        spread = f" ± {measure.text(stdev(numbers))}" if len(numbers) > 1 else ""
        rows.append([name, str(len(numbers)), measure.text(mean(numbers) if numbers else None) + spread])
    parts = [
        f"{block.title}: {measure.legend}; mean ± sample STD over seeds\n",
        markdown(["method", "seeds", measure.name], rows),
    ]
    pairs = list(combinations(values, 2))
    if baseline is not None:
        pairs = [(name, baseline) for name in values if name != baseline and baseline in values]
    tested = {pair: d for pair in pairs if (d := _difference(values, *pair, measure, 1 - alpha)) is not None}
    notes = [f"{a} and {b} have no seed in common" for a, b in pairs if (a, b) not in tested]
    if baseline is not None and baseline not in values:
        notes.append(f"{baseline} is not here")
    if tested:
        parts += _differences(tested, measure, alpha)
        counts = [d.n for d in tested.values()]
        best = holm([min(1.0, 2 * least_p(n)) for n in counts])  # no adjusted p can be below these
        notes += too_few([n for n, p in zip(counts, best, strict=True) if p > alpha], len(counts), alpha)
    notes += [f"the local solvers differ in {', '.join(block.unequal)}"] if block.unequal else []
    notes += [f"reduced: {r}" for r in block.reduced]
    lost = [f"{name} with seed {', '.join(map(str, sorted(s)))}" for name, s in sorted(block.lost.items())]
    notes += [f"diverged, so in no mean and worse by the widest difference: {'; '.join(lost)}"] if lost else []
    notes += [f"left out: {block.left_out}"] if block.left_out else []
    return "\n".join(parts + listed_notes(notes))


def _difference(values: _Values, a: str, b: str, measure: Measure, level: float = 0.95) -> Paired | None:
    """Return a minus b over the seeds that both have, or None if there are none.

    A run that diverged is worse than the other (``with_lost``); a seed with which both did says nothing. Where those
    are all that differs the mean is infinite: there is no scale to say it on.
    """
    both = values[a].keys() & values[b].keys()
    lost, won = ({s for s in both if isnan(values[m][s]) and not isnan(values[o][s])} for m, o in ((a, b), (b, a)))
    ahead = {s: measure.sign * d for s in sorted(both) if not isnan(d := values[a][s] - values[b][s])}
    counted = with_lost(ahead, lost, won)
    if not counted:
        return None
    found = paired([measure.sign * d for d in counted.values()], level)
    if (lost or won) and found.mean and not any(ahead.values()):
        return replace(found, mean=copysign(inf, found.mean), low=None, high=None)
    return found


def _differences(tested: dict[tuple[str, str], Paired], measure: Measure, alpha: float) -> list[str]:
    rows = []
    adjusted = holm([d.two_sided for d in tested.values()])
    for ((a, b), d), p in zip(tested.items(), adjusted, strict=True):
        ends = "–" if d.low is None else f"{measure.text(d.low, '+')} to {measure.text(d.high, '+')}"
        verdict = "undecided" if p > alpha else "better" if measure.sign * d.mean > 0 else "worse"
        rows.append([a, b, str(d.n), measure.text(d.mean, "+"), ends, p_text(d.two_sided), p_text(p), verdict])
    heads = ["method", "minus", "seeds", "difference", f"{100 * (1 - alpha):g} % interval", "p", "p (Holm)", "verdict"]
    legend = (
        "mean differences, paired by seed; p: two-sided sign-flip test; p (Holm): adjusted over the table; verdict: "
        f"p (Holm) <= {alpha:g}\n"
    )
    return [legend, markdown(heads, rows)]


def _over_blocks(values: Sequence[_Values], names: Sequence[str], measure: Measure, alpha: float) -> str:
    counts: list[int] = []
    scores: dict[tuple[str, str], tuple[int, int, int]] = {}
    for a, b in combinations(names, 2):
        if gains := _gains(values, a, b, measure):
            win, tie, loss = win_tie_loss(gains, alpha)
            scores[a, b], scores[b, a] = (win, tie, loss), (loss, tie, win)
            counts += [d.n for d in gains]
    rows = [[a, *("/".join(map(str, scores.get((a, b), "–"))) for b in names)] for a in names]
    parts = [
        f"over {len(values)} blocks: won/undecided/lost by the method of the row; decided: two-sided p <= {alpha:g} in "
        "the block, not adjusted\n",
        markdown(["method", *names], rows),
    ]
    notes = too_few([n for n in counts if 2 * least_p(n) > alpha], 1, alpha)
    whole = [v for v in values if len(v) == len(names)]
    if len(names) > 2 and len(whole) > 1:
        f = friedman([_scores(v, names, measure) for v in whole])
        if any(isnan(x) for v in whole for m in v.values() for x in m.values()):
            notes.append("ranks: a method of which a run diverged is last in its block")
        parts += [
            f"average ranks over {len(whole)} blocks with all methods, 1 is best; Friedman's test: chi-square "
            f"{f.statistic:.2f}, p = {p_text(f.p)}; Nemenyi's critical difference at 0.05: "
            f"{f.critical_difference:.2f}\n",
            markdown(["method", "average rank"], [[n, f"{r:.2f}"] for n, r in zip(names, f.ranks, strict=True)]),
        ]
    elif len(names) > 2:
        notes.append(f"no average ranks, which take 2 blocks with all methods: there are {len(whole)}")
    return "\n".join(parts + listed_notes(notes))


def _scores(values: _Values, names: Sequence[str], measure: Measure) -> list[float]:
    """Return a score per method, higher is better; a method of which a run diverged has one below all others."""
    means = {n: measure.sign * mean(v) for n in names if len(v := _finite(values[n])) == len(values[n])}
    last = min(means.values(), default=0.0) - 1
    return [means.get(n, last) for n in names]


def _gains(values: Sequence[_Values], a: str, b: str, measure: Measure) -> list[Paired]:
    """Return by how much a is better than b, for the blocks in which they have a seed in common."""
    first, second = (a, b) if measure.sign > 0 else (b, a)
    found = (_difference(v, first, second, measure) for v in values if a in v and b in v)
    return [d for d in found if d is not None]

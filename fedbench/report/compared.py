"""Comparisons of runs as Markdown text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import isnan
from statistics import mean, stdev

from fedbench.analysis.compare import ComparedBlock, ComparedRuns, Values, difference, finite, gains, scores
from fedbench.analysis.metrics_catalogue import MetricInfo
from fedbench.analysis.stats import Paired, friedman, holm, least_p, win_tie_loss
from fedbench.report.notes import listed_notes, p_text, too_few
from fedbench.report.render import markdown

_LISTED = 3  # number of blocks with nothing to compare that are listed


def compared_text(compared: ComparedRuns) -> str:
    """Return a comparison of the values of a key as Markdown text.

    Each block has the mean ± sample STD of every value, then paired differences with their interval at 1 - alpha, the
    two-sided p of the sign-flip test, and this p adjusted over the table (``fedbench.analysis.stats``). Two blocks or
    more also have the numbers of blocks won, undecided and lost, and, for three values or more, average ranks as in
    Demsar (JMLR 2006). If neither direction of the metric is better, the text uses higher and lower instead of better
    and worse.
    """
    parts = [_of_block(compared, block, values) for block, values in compared.blocks]
    if len(compared.blocks) > 1:
        parts.append(_over_blocks(compared))
    notes = [f"{title}: nothing to compare, {content}" for title, content in compared.alone[:_LISTED]]
    if more := len(compared.alone[_LISTED:]):
        notes.append(f"{more} more block{'s' if more > 1 else ''} with nothing to compare")
    if compared.without:
        notes.append(f"left out: {compared.without} run{'s' if compared.without > 1 else ''} without {compared.key}")
    return "\n".join(parts + listed_notes(notes)).rstrip()


def _legend(metric: MetricInfo) -> str:
    unit = f", {metric.unit}" if metric.unit else ""
    better = f"{metric.direction} is better" if metric.direction else "neither direction is better"
    return f"{metric.name} at the last round{unit}; {better}"


def _of_block(compared: ComparedRuns, block: ComparedBlock, values: Values) -> str:
    metric, alpha, baseline = compared.metric, compared.alpha, compared.baseline
    rows = []
    for name, by_seed in values.items():
        numbers = finite(by_seed)
        spread = f" ± {metric.text(stdev(numbers))}" if len(numbers) > 1 else ""
        rows.append([name, str(len(numbers)), metric.text(mean(numbers) if numbers else None) + spread])
    parts = [
        f"{block.title}: {_legend(metric)}; mean ± sample STD over seeds\n",
        markdown(["method", "seeds", metric.name], rows),
    ]
    pairs = compared.pairs(values)
    tested = {pair: d for pair in pairs if (d := difference(values, *pair, metric, 1 - alpha)) is not None}
    notes = [f"{a} and {b} have no seed in common" for a, b in pairs if (a, b) not in tested]
    if baseline is not None and baseline not in values:
        notes.append(f"{baseline} has no runs in this block")
    if tested:
        parts += _differences(tested, metric, alpha)
        counts = [d.n for d in tested.values()]
        best = holm([min(1.0, 2 * least_p(n)) for n in counts])  # lower bounds of the adjusted p
        notes += too_few([n for n, p in zip(counts, best, strict=True) if p > alpha], len(counts), alpha)
    return "\n".join(parts + listed_notes(notes + _block_notes(block, metric)))


def _block_notes(block: ComparedBlock, metric: MetricInfo) -> list[str]:
    notes = [f"the local solvers differ in {', '.join(block.unequal)}"] if block.unequal else []
    notes += [f"reduced: {r}" for r in block.reduced]
    if lost := [f"{name} with seed {', '.join(map(str, sorted(s)))}" for name, s in sorted(block.lost.items())]:
        counted = "not in any mean" + (", counted as worse by the largest difference" if metric.direction else "")
        notes.append(f"diverged, {counted}: {'; '.join(lost)}")
    return notes + ([f"left out: {block.left_out}"] if block.left_out else [])


def _differences(tested: dict[tuple[str, str], Paired], metric: MetricInfo, alpha: float) -> list[str]:
    rows = []
    ahead, behind = ("better", "worse") if metric.direction else ("higher", "lower")
    adjusted = holm([d.two_sided for d in tested.values()])
    for ((a, b), d), p in zip(tested.items(), adjusted, strict=True):
        ends = "–" if d.low is None else f"{metric.text(d.low, '+')} to {metric.text(d.high, '+')}"
        verdict = "undecided" if p > alpha else ahead if metric.sign * d.mean > 0 else behind
        rows.append([a, b, str(d.n), metric.text(d.mean, "+"), ends, p_text(d.two_sided), p_text(p), verdict])
    heads = ["method", "minus", "seeds", "difference", f"{100 * (1 - alpha):g} % interval", "p", "p (Holm)", "verdict"]
    legend = (
        "mean differences, paired by seed; p: two-sided sign-flip test; p (Holm): adjusted over the table; verdict: "
        f"p (Holm) <= {alpha:g}\n"
    )
    return [legend, markdown(heads, rows)]


def _over_blocks(compared: ComparedRuns) -> str:
    metric, names, alpha = compared.metric, compared.names, compared.alpha
    values = [v for _, v in compared.blocks]
    counts: list[int] = []
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for a, b in combinations(names, 2):
        if gained := gains(values, a, b, metric):
            win, tie, loss = win_tie_loss(gained, alpha)
            found[a, b], found[b, a] = (win, tie, loss), (loss, tie, win)
            counts += [d.n for d in gained]
    rows = [[a, *("/".join(map(str, found.get((a, b), "–"))) for b in names)] for a in names]
    won = "won/undecided/lost" if metric.direction else "higher/undecided/lower"
    parts = [
        f"over {len(values)} blocks: {won} by the method of the row; a block is decided if its two-sided "
        f"p <= {alpha:g}, not adjusted\n",
        markdown(["method", *names], rows),
    ]
    notes = too_few([n for n in counts if 2 * least_p(n) > alpha], 1, alpha)
    if len(names) > 2:
        ranks, more = _ranks(values, names, metric)
        parts += ranks
        notes += more
    return "\n".join(parts + listed_notes(notes))


def _ranks(values: Sequence[Values], names: Sequence[str], metric: MetricInfo) -> tuple[list[str], list[str]]:
    """Return the average ranks of the methods over the blocks that have all of them, and notes."""
    full = [v for v in values if len(v) == len(names)]
    if len(full) < 2:
        return [], [f"no average ranks: they need 2 blocks with all methods, got {len(full)}"]
    f = friedman([scores(v, names, metric) for v in full])
    lost = any(isnan(x) for v in full for m in v.values() for x in m.values())
    text = (
        f"average ranks over {len(full)} blocks with all methods, 1 is {'best' if metric.direction else 'highest'}; "
        f"Friedman's test: chi-square {f.statistic:.2f}, p = {p_text(f.p)}; Nemenyi's critical difference at 0.05: "
        f"{f.critical_difference:.2f}\n"
    )
    table = markdown(["method", "average rank"], [[n, f"{r:.2f}"] for n, r in zip(names, f.ranks, strict=True)])
    return [text, table], ["ranks: a method with a diverged run is last in its block"] if lost else []

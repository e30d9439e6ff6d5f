"""Comparisons of runs as Markdown text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedbench.analysis.compare import ComparedBlock, ComparedRuns, Difference, OverBlocks
from fedbench.analysis.stats import seeds_needed
from fedbench.core.metrics import MetricInfo
from fedbench.report.render import markdown

_LISTED = 3  # number of blocks with nothing to compare that are listed


def compared_text(compared: ComparedRuns) -> str:
    """Return comparisons of the values of a key as Markdown text.

    Each block has the mean ± sample STD of every value, then paired differences with their interval at 1 - alpha, the
    two-sided p of the sign-flip test, and this p adjusted over the table (``fedbench.analysis.stats``). Two blocks or
    more also have the numbers of blocks won, undecided and lost, and, for three values or more, average ranks as in
    Demsar (JMLR 2006). If neither direction of the metric is better, the text uses higher and lower instead of better
    and worse.
    """
    parts = [_of_block(compared, block) for block in compared.blocks]
    if compared.over_blocks is not None:
        parts.append(_over_blocks(compared, compared.over_blocks))
    return "\n".join(parts + _listed(loose_ends(compared))).rstrip()


def loose_ends(compared: ComparedRuns) -> list[str]:
    """Return which runs are compared with nothing."""
    notes = [f"{title}: nothing to compare, {content}" for title, content in compared.alone[:_LISTED]]
    if more := len(compared.alone[_LISTED:]):
        notes.append(f"{more} more block{'s' if more > 1 else ''} with nothing to compare")
    if compared.without:
        notes.append(f"left out: {compared.without} run{'s' if compared.without > 1 else ''} without {compared.key}")
    return notes


def _legend(metric: MetricInfo) -> str:
    unit = f", {metric.unit}" if metric.unit else ""
    better = f"{metric.direction} is better" if metric.direction else "neither direction is better"
    return f"{metric.name} at the last round{unit}; {better}"


def _of_block(compared: ComparedRuns, block: ComparedBlock) -> str:
    metric, alpha = compared.metric, compared.alpha
    rows = []
    for name, cell in block.numbers.items():
        spread = "" if cell.std is None else f" ± {metric.text(cell.std)}"
        rows.append([name, str(cell.n), metric.text(cell.mean) + spread])
    parts = [
        f"{block.title}: {_legend(metric)}; mean ± sample STD over seeds\n",
        markdown(["method", "seeds", metric.name], rows),
    ]
    notes = [f"{a} and {b} have no seed in common" for a, b in block.unpaired]
    if block.without_baseline:
        notes.append(f"{compared.baseline} has no runs in this block")
    if block.differences:
        parts += _differences(block, metric, alpha)
        notes += too_few(block.short, len(block.differences), alpha)
    return "\n".join(parts + _listed(notes + block_notes(block, metric)))


def block_notes(block: ComparedBlock, metric: MetricInfo) -> list[str]:
    """Return what distinguishes the runs of a block besides the compared key, and those that do not count."""
    notes = [f"the local solvers differ in {', '.join(block.unequal)}"] if block.unequal else []
    notes += [f"reduced: {r}" for r in block.reduced]
    if lost := [f"{name} with seed {', '.join(map(str, seeds))}" for name, seeds in block.lost.items()]:
        counted = "not in any mean" + (", counted as worse by the largest difference" if metric.direction else "")
        notes.append(f"diverged, {counted}: {'; '.join(lost)}")
    return notes + ([f"left out: {block.left_out}"] if block.left_out else [])


def _differences(block: ComparedBlock, metric: MetricInfo, alpha: float) -> list[str]:
    rows = []
    for x in block.differences:
        d = x.paired
        ends = "–" if d.low is None else f"{metric.text(d.low, '+')} to {metric.text(d.high, '+')}"
        tests = [p_text(d.two_sided), p_text(x.adjusted), verdict_of(x, metric)]
        rows.append([x.first, x.second, str(d.n), metric.text(d.mean, "+"), ends, *tests])
    heads = ["method", "minus", "seeds", "difference", f"{100 * (1 - alpha):g} % interval", "p", "p (Holm)", "verdict"]
    legend = (
        "mean differences, paired by seed; p: two-sided sign-flip test; p (Holm): adjusted over the table; verdict: "
        f"p (Holm) <= {alpha:g}\n"
    )
    return [legend, markdown(heads, rows)]


def verdict_of(difference: Difference, metric: MetricInfo) -> str:
    """Return what a test says of the first method: better, worse or undecided; higher or lower if neither is better."""
    ahead, behind = ("better", "worse") if metric.direction else ("higher", "lower")
    return "undecided" if difference.ahead is None else ahead if difference.ahead else behind


def _over_blocks(compared: ComparedRuns, over: OverBlocks) -> str:
    names, directed = compared.names, compared.metric.direction is not None
    rows = [[a, *("/".join(map(str, over.counts.get((a, b), "–"))) for b in names)] for a in names]
    won = "won/undecided/lost" if directed else "higher/undecided/lower"
    parts = [
        f"over {len(compared.blocks)} blocks: {won} by the method of the row; a block is decided if its two-sided "
        f"p <= {compared.alpha:g}, not adjusted\n",
        markdown(["method", *names], rows),
    ]
    notes = too_few(over.short, 1, compared.alpha)
    if (f := over.ranks) is not None:
        parts.append(
            f"average ranks over {over.full} blocks with all methods, 1 is {'best' if directed else 'highest'}; "
            f"Friedman's test: chi-square {f.statistic:.2f}, p = {p_text(f.p)}; Nemenyi's critical difference at "
            f"0.05: {f.critical_difference:.2f}\n"
        )
        ranks = zip(names, f.ranks, strict=True)
        parts.append(markdown(["method", "average rank"], [[n, f"{r:.2f}"] for n, r in ranks]))
        if over.diverged:
            notes.append("ranks: a method with a diverged run is last in its block")
    elif len(names) > 2:
        notes.append(f"no average ranks: they need 2 blocks with all methods, got {over.full}")
    return "\n".join(parts + _listed(notes))


def _listed(notes: Sequence[str]) -> list[str]:
    """Return a list with the notes as one Markdown list; an empty list if there are no notes."""
    return ["".join(f"- {n}\n" for n in notes)] if notes else []


def p_text(p: float) -> str:
    """Return a p-value as text, with an exponent below 0.0001."""
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def too_few(short: Iterable[int], tests: int, alpha: float) -> list[str]:
    """Return a note on numbers of pairs that are too small for any verdict, and on the number of seeds needed."""
    if not (counts := sorted(set(short))):
        return []
    enough = seeds_needed(alpha, tests)
    adjusted = f" after Holm's adjustment over {tests} differences" if tests > 1 else ""
    seeds = "seed" if counts == [1] else "seeds"
    return [
        f"always undecided with {' or '.join(map(str, counts))} {seeds} (n seeds give no p below 2^(1-n)): "
        f"p <= {alpha:g}{adjusted} needs " + (f"{enough} seeds" if enough else "more than 16 seeds")
    ]

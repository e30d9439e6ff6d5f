"""Which runs of a plan to take within some hours: those that decide the most claims per hour come first."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from fedbench.commands.planned_claims import PlannedClaim
from fedbench.papers.durations import time_text
from fedbench.papers.plan import PlannedRun

_CAN = {"holds": " can only hold", "fails": " can only be refuted", "": ""}
RunsOfPart: TypeAlias = Mapping[tuple[str, int], frozenset[int]]  # a claim and the number of its part -> runs


@dataclass(frozen=True)
class Step:
    """Runs that are taken together.

    Attributes:
        claims: Names of the claims that are decided when they are done; none for runs that decide no claim.
        runs: Numbers of the runs.
        seconds: Their time; None if that of some is unknown.
        outcomes: For parts of claims, the verdict on each claim that they can lead to; empty text for both verdicts.
    """

    claims: tuple[str, ...]
    runs: tuple[int, ...]
    seconds: float | None
    outcomes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """What is taken.

    Attributes:
        steps: In the order in which they are carried out.
        left: Claims that remain open, with the reason.
    """

    steps: tuple[Step, ...]
    left: tuple[tuple[str, str], ...]

    @property
    def runs(self) -> list[int]:
        """Numbers of the runs, in the order in which they are carried out."""
        return [n for step in self.steps for n in step.runs]


def choose(
    claims: Sequence[PlannedClaim],
    todo: Mapping[int, float | None],
    seconds: float,
    jobs: int = 1,
    decided: Container[str] = (),
) -> Selection:
    """Return which runs to take within a time, by claims decided per hour.

    Again and again, the runs that one claim still lacks are taken if they fit into the time that is left: of all such
    claims, those for which the claims that are then decided, per second of these runs, are most. When none fits, claims
    with runs of unknown time follow, those with the fewest first, as long as time is left. Parts that can decide a
    claim in one direction only come after them, in the same order, and then single runs that decide nothing but still
    fit.

    Args:
        claims: The claims of the plan.
        todo: Runs that are not done, with their seconds; None if these are unknown.
        seconds: The time. A run that takes longer is not taken, however many jobs there are.
        jobs: Number of runs at a time.
        decided: Claims that finished runs decide, which need no further ones.
    """
    todo_in_time = {n: s for n, s in todo.items() if s is None or s <= seconds}
    open_claims = [c for c in claims if c.name not in decided]
    whole = {(c.name, 0): c.runs & todo.keys() for c in open_claims if not c.obstacle}
    steps, left = _steps(whole, todo, todo_in_time, seconds * jobs)
    taken = {n for step in steps for n in step.runs}
    open_claims = [c for c in open_claims if c.obstacle or not c.runs & todo.keys() <= taken]
    parts = {(c.name, n): part.runs & todo.keys() - taken for c in open_claims for n, part in enumerate(c.parts)}
    more, left = _steps(parts, todo, todo_in_time, left)
    steps += _with_outcomes(more, open_claims, parts)
    taken = {n for step in steps for n in step.runs}
    steps += _single({n: s for n, s in todo_in_time.items() if n not in taken}, left)
    taken = {n for step in steps for n in step.runs}
    reasons = ((c.name, "decided by finished runs" if c.name in decided else _left(c, todo, taken)) for c in claims)
    return Selection(tuple(steps), tuple((name, why) for name, why in reasons if why))


def _with_outcomes(steps: Sequence[Step], claims: Sequence[PlannedClaim], lacks: RunsOfPart) -> Iterator[Step]:
    """Return steps with the verdict on each claim that the parts which they complete can lead to; empty for both."""
    parts = {c.name: c.parts for c in claims}
    before: frozenset[int] = frozenset()
    for step in steps:
        after = before.union(step.runs)
        can: dict[str, set[str]] = {name: set() for name in step.claims}
        for (name, number), runs in lacks.items():
            if name in can and runs <= after and not runs <= before:
                can[name].add(parts[name][number].outcome)
        yield replace(step, outcomes=tuple(min(found) if len(found) == 1 else "" for found in can.values()))
        before = after


def _steps(
    lacks: RunsOfPart,
    todo: Mapping[int, float | None],
    todo_in_time: Mapping[int, float | None],
    left: float,
) -> tuple[list[Step], float]:
    """Return the steps for claims that lack some runs, those of known time first, and the time that is left."""
    lacking: RunsOfPart = {part: runs for part, runs in lacks.items() if runs and runs <= todo_in_time.keys()}
    steps: list[Step] = []
    while (best := _best(lacking := _without(lacking, steps), todo, left)) is not None:
        steps.append(best)
        left -= best.seconds or 0.0
    while left > 0 and (unknown := _unknown(lacking := _without(lacking, steps), todo)) is not None:
        steps.append(unknown)
        left -= _known_seconds(unknown.runs, todo)
    return steps, left


def _without(lacking: RunsOfPart, steps: Sequence[Step]) -> RunsOfPart:
    """Return which runs claims lack after the last of some steps; those that lack none are left out."""
    taken = frozenset(steps[-1].runs if steps else ())
    return {part: rest for part, lacks in lacking.items() if (rest := lacks - taken)}


def _best(lacking: RunsOfPart, todo: Mapping[int, float | None], left: float) -> Step | None:
    """Return the runs of the claim whose runs decide the most claims per second, of those that fit."""
    best, most = None, 0.0
    for lacks in lacking.values():
        if any(todo[n] is None for n in lacks):
            continue
        cost = _known_seconds(lacks, todo)
        decided = _decided(lacking, lacks)
        worth = len(decided) / max(cost, 1e-9)
        if cost <= left and worth > most:
            best, most = Step(decided, tuple(sorted(lacks)), cost), worth
    return best


def _unknown(lacking: RunsOfPart, todo: Mapping[int, float | None]) -> Step | None:
    """Return the fewest runs that decide a claim, where the time of some is unknown."""
    found = [lacks for lacks in lacking.values() if any(todo[n] is None for n in lacks)]
    if not found:
        return None
    lacks = min(found, key=len)
    return Step(_decided(lacking, lacks), tuple(sorted(lacks)), None)


def _decided(lacking: RunsOfPart, runs: frozenset[int]) -> tuple[str, ...]:
    """Return the claims that lack nothing but some runs, each once."""
    return tuple(dict.fromkeys(name for (name, _), lacks in lacking.items() if lacks <= runs))


def _known_seconds(runs: Iterable[int], todo: Mapping[int, float | None]) -> float:
    return sum(s for n in runs if (s := todo[n]) is not None)


def _single(todo: Mapping[int, float | None], left: float) -> list[Step]:
    """Return a step of the runs that fit, in the order of the plan."""
    taken: list[int] = []
    spent = 0.0
    for number, seconds in sorted(todo.items()):
        if seconds is not None and spent + seconds <= left:
            taken.append(number)
            spent += seconds
    return [Step((), tuple(taken), spent)] if taken else []


def _left(claim: PlannedClaim, todo: Mapping[int, float | None], taken: set[int]) -> str:
    """Return why a claim remains open; empty if its runs are done or taken."""
    if claim.obstacle:
        return claim.obstacle
    lacks = claim.runs & todo.keys() - taken
    if not lacks:
        return ""
    unknown = sum(todo[n] is None for n in lacks)
    known = [f"{time_text(_known_seconds(lacks, todo))} of one job"] if len(lacks) > unknown else []
    return f"takes {' and '.join([*known, *([f'{unknown} runs of unknown time'] if unknown else [])])}"


def selection_text(selection: Selection, runs: Sequence[PlannedRun], hours: float, jobs: int) -> str:
    """Return what is taken and what is left as text."""
    lines = [f"in {hours:g} h{f' with {jobs} runs at a time' if jobs > 1 else ''}: {_taken_text(selection)}"]
    for step in selection.steps:
        time = "time unknown" if step.seconds is None else time_text(step.seconds / jobs)
        taken = f"{_counted(len(step.runs), 'run'):>9}, {time}"
        lines.append(f"  take {taken}: {_claims_text(step)} ({_parts(step, runs)})")
    in_part = {name for step in selection.steps if step.outcomes for name in step.claims}
    reasons: dict[str, list[str]] = {}
    for name, why in selection.left:
        reasons.setdefault(f"{'only in part: ' if name in in_part else ''}{why}", []).append(name)
    lines += [f"  leave {', '.join(names)}: {why}" for why, names in reasons.items()]
    return "\n".join(lines)


def _claims_text(step: Step) -> str:
    """Return which claims a step decides, in one direction only or in both."""
    if not step.outcomes:
        return ", ".join(step.claims) or "decide no claim"
    only: dict[str, list[str]] = {}
    for claim, outcome in zip(step.claims, step.outcomes, strict=True):
        only.setdefault(outcome, []).append(claim)
    return "; ".join(f"{', '.join(claims)}{_CAN[outcome]}" for outcome, claims in only.items())


def _taken_text(selection: Selection) -> str:
    """Return how many runs are taken, and how many claims they decide."""
    runs, verb = len(selection.runs), "decides" if len(selection.runs) == 1 else "decide"
    sure = {name for step in selection.steps if not step.outcomes for name in step.claims}
    perhaps = {name for step in selection.steps if step.outcomes for name in step.claims}
    if perhaps and not sure:
        return f"{_counted(runs, 'run')}, which may decide {_counted(len(perhaps), 'claim')}"
    more = f" and may decide {len(perhaps)} more" if perhaps else ""
    return f"{_counted(runs, 'run')}, which {verb} {_counted(len(sure), 'claim')}{more}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _parts(step: Step, runs: Sequence[PlannedRun]) -> str:
    """Return the experiments of a step."""
    names = list(dict.fromkeys(runs[n].experiment for n in step.runs))
    return ", ".join(names) if len(names) < 4 else f"{len(names)} experiments"

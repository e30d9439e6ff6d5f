"""Confirmed and exploratory evidence: the runs that a plan asked for, and all other runs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from fedbench.analysis.claims.judge import Readings, code_digest, judge, judge_readings
from fedbench.analysis.departures import unit_of
from fedbench.analysis.matching import ALPHA, Evidence
from fedbench.config.plans import Plan
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.registry import papers, written_checks
from fedbench.papers.schema import Claim, Paper, Row
from fedbench.runs.run import Run


class PlannedEvidence:
    """A paper's runs, divided into those that a plan asked for and exploratory ones.

    A run belongs to a plan if it carries the digest that the plan has now. The runs of a plan are
    not used before all of them have ended; from then on, they replace the exploratory runs of the
    same experiments.

    Args:
        paper: The paper.
        runs: All its runs.
        plans: The plans for its claims.
    """

    def __init__(
        self,
        paper: Paper,
        runs: Iterable[Run],
        plans: Sequence[Plan],
    ) -> None:
        self.paper = paper
        self._plans: dict[str, Plan] = {}
        self._runs: dict[str, list[Run]] = {}
        self._explored: list[Run] = []
        for plan in plans:
            self._plans[plan.id] = plan
            self._runs[plan.id] = []
        for run in runs:
            asking = [plan for plan in plans if _carries(run, plan)]
            for plan in asking:
                self._runs[plan.id].append(run)
            if not asking:
                self._explored.append(run)

    @cached_property
    def complete(self) -> dict[str, Evidence]:
        """The evidence of each plan whose runs have all ended, by id of the plan."""
        complete = {}
        for id, plan in self._plans.items():
            evidence = Evidence(self.paper, self._runs[id], ALPHA / plan.looks)
            if self._runs[id] and not self._missing(plan, evidence):
                complete[id] = evidence
        return complete

    @cached_property
    def explored(self) -> Evidence:
        """The exploratory evidence."""
        return Evidence(self.paper, self._explored)

    @property
    def shown(self) -> list[Run]:
        """The runs behind tables and figures: planned ones where a plan is complete."""
        planned: dict[Path, Run] = {}
        experiments: set[str] = set()
        for id in self.complete:
            planned |= {run.path: run for run in self._runs[id]}
            experiments.update(self._plans[id].experiments)
        others = [run for run in self._explored if run.meta["experiment"] not in experiments]
        return [*planned.values(), *others]

    @property
    def progress(self) -> list[str]:
        """A sentence on each plan whose runs have not all ended."""
        texts = []
        for id, plan in self._plans.items():
            if id in self.complete:
                continue
            ended = sum(run.done for run in self._runs[id])
            evidence = Evidence(self.paper, self._runs[id])
            missing = len(self._missing(plan, evidence))
            texts.append(
                f"plan {id} of {plan.date} ({', '.join(plan.claims)}): {ended} runs have ended, "
                f"{missing} are missing; they are not used before all have ended"
            )
        return texts

    def judge(self, claim: Claim) -> Readings:
        """Return the verdict on a claim under each reading, from planned runs if they decide it.

        If no runs decide it, the comparisons are those of its plan. A confirmed verdict also has
        the word of the exploratory one.
        """
        before = judge(claim, self.explored).word
        partial: Readings = {}
        for id, evidence in self.complete.items():
            plan = self._plans[id]
            if not self._unchanged(claim, plan):
                continue
            readings = {}
            for reading, verdict in judge_readings(claim, evidence, plan.variants).items():
                readings[reading] = replace(verdict, confirmed=id, explored=before)
            if readings[ADOPTED].word != "not run":
                return readings
            partial = partial or readings
        if partial and before == "not run":
            return partial
        return judge_readings(claim, self.explored)

    def _unchanged(self, claim: Claim, plan: Plan) -> bool:
        """Return whether a plan contains a claim with its present check."""
        planned = plan.claims.get(claim.id)
        if planned is None or self.paper.id not in papers():
            return False
        same_check = planned.check == written_checks(self.paper.id)[claim.id]
        return same_check and planned.code == code_digest(claim, self.paper.id)

    def _missing(self, plan: Plan, evidence: Evidence) -> set[tuple[str, int]]:
        """Return the settings, as texts, and the seeds of a plan that lack a run."""
        missing: set[tuple[str, int]] = set()
        for row, variant in self._settings(plan):
            runs = evidence.under(Reading(variant=variant)).find(row)
            seeds = set()
            if not runs.departs:
                ended = {*runs.runs, *runs.diverged}
                seeds = {unit.seed for unit in ended}
            name = f"{row.setup} {runs.name} {variant}"
            for seed in plan.every_seed:
                if seed not in seeds:
                    missing.add((name, seed))
        return missing

    def _settings(self, plan: Plan) -> Iterator[tuple[Row, str | None]]:
        """Yield the rows of a plan's experiments, each also under the variants that change it."""
        paper = self.paper
        for part in (*paper.tables, *paper.figures):
            for row in paper.rows(part):
                if paper.setups[row.setup].experiment not in plan.experiments:
                    continue
                yield row, None
                for name in plan.variants:
                    variant = paper.readings.variant(name, row.setup)
                    if variant is not None and variant.changes(row.algo):
                        yield row, name


def _carries(run: Run, plan: Plan) -> bool:
    """Return whether a run has the digest of a plan, and a split of its own."""
    split, seed = unit_of(run)
    digests = run.meta.get("plans", {})
    return split == seed and bool(digests.get(plan.id) == plan.digest)

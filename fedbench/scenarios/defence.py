"""Defences of the server: robust rules in place of the mean, and norm clipping."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import WrongValue
from fedbench.core.options import Count, Natural, Positive
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import (
    ClientInfo,
    State,
    lengths,
    to_device,
    weighted_sum,
)
from fedbench.core.user_code import is_own
from fedbench.scenarios import rules
from fedbench.scenarios.allowed import Demand
from fedbench.scenarios.layers import Layer, cause, sending
from fedbench.scenarios.population import Population
from fedbench.scenarios.vectors import (
    by_columns,
    shrunk,
    squared_distances,
    vectors,
)
from fedbench.simulation.checks import checked
from fedbench.simulation.scenario import OWN, RoundPlan

_CENTRE = f"{OWN}centre"  # server state: centre of clipping [P]
_LOWERED = f"{OWN}lowered"  # rounds with too few vectors for ``f``
_NONFINITE = f"{OWN}nonfinite"  # vectors that were not finite


@dataclass(frozen=True, kw_only=True)
class Defence(Layer):
    """A rule that combines the vectors of a cohort into one, in place of their mean.

    A subclass may override ``combined``, which then replaces ``rule``.

    Attributes:
        bound: Integers (a, b) of a subclass: it tolerates f attackers among C >= a f + b vectors.
            If None, any number.
        weighted: Whether a subclass uses the weights of the clients.
        population: All clients.
        attackers: Number of attackers among all clients.
        rule: "median" or "trimmed_mean" per coordinate (Yin et al., ICML 2018); "krum" or
            "multi_krum" (Blanchard et al., NeurIPS 2017); "geometric_median" (RFA, Pillutla et al.,
            2022); "centered_clipping" (Karimireddy et al., ICML 2021); "bulyan" (El Mhamdi et al.,
            ICML 2018); "norm_clip": every vector is clipped to ``radius`` before the method's own
            sum; "mean".
        f: Number of attackers that the server expects in a round; "auto" is their mean number,
            rounded up.
        m: Number of vectors that "multi_krum" averages. If None, C - f.
        iterations: Largest number of iterations of "geometric_median".
        nu: Smoothing of "geometric_median", as a share of the largest distance from the mean.
        radius: Radius of "norm_clip" and "centered_clipping", in the unit of the vectors; "median"
            is the median length in the round.
        steps: Number of steps of "centered_clipping" in a round.
        before: Preprocessing of the vectors. "bucketing": means of random groups of ``bucket``
            clients (Karimireddy et al., ICLR 2022, Alg. 1); "nnm": means of the C - f nearest
            vectors (Allouah et al., AISTATS 2023, Alg. 2); "both", in this order.
        bucket: Number of clients in a group of "bucketing".

    Raises:
        RequestError: If a value is out of range.
    """

    bound: ClassVar[rules.Bound | None] = None
    weighted: ClassVar[bool] = False

    population: Population
    attackers: int
    rule: Literal[
        "mean",
        "median",
        "trimmed_mean",
        "krum",
        "multi_krum",
        "geometric_median",
        "centered_clipping",
        "bulyan",
        "norm_clip",
    ] = "mean"
    f: Natural | Literal["auto"] = "auto"
    m: Count | None = None
    iterations: Count = 100
    nu: Positive = 1e-6
    radius: Positive | Literal["median"] = "median"
    steps: Count = 1
    before: Literal["none", "bucketing", "nnm", "both"] = "none"
    bucket: Count = 2

    def __post_init__(self) -> None:
        if self.rule == "norm_clip" and self.before != "none":
            raise WrongValue(
                "before", f"must be none for rule=norm_clip, got {self.before}; choose another rule"
            )
        count = self.population.planned
        if "bucketing" in self.parts:
            count = ceil(count / self.bucket)
        most = self._allowed(count)
        if most < self.assumed:
            vectors_of = f"{' and '.join(self.parts)} of {count} vectors"
            fault = f"must be at most {most} for {vectors_of}, got {self.assumed}; lower it"
            if most < 0:
                fault = f"cannot be chosen: {vectors_of} are too few for any number of attackers"
            raise WrongValue("f", f"{fault}, or use a larger participation")
        if self.m is not None and self.m > count:
            raise WrongValue(
                "m", f"must be at most the number of vectors in a round, {count}, got {self.m}"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the operations on the vectors of a round, in order."""
        before = {"none": (), "both": ("bucketing", "nnm")}.get(self.before, (self.before,))
        rule = type(self).__name__ if is_own(self.combined) else self.rule
        return *before, rule

    @cached_property
    def assumed(self) -> int:
        """Number of attackers that the server assumes in a round.

        The default is their mean number, rounded up.
        """
        if self.f != "auto":
            return self.f
        attackers = self.attackers * self.population.planned
        return ceil(attackers / len(self.population.able))

    def _allowed(self, count: int) -> int:
        """Return the assumed number of attackers, or the largest for ``count`` vectors if lower."""
        bounds = [rules.BOUNDS[part] for part in self.parts if part in rules.BOUNDS]
        if self.bound is not None:
            bounds.append(self.bound)
        return rules.allowed(self.assumed, count, bounds)

    @property
    def needs(self) -> dict[Demand, str]:
        """Demands on the method, each with the configuration key that causes it."""
        key = cause(self, self.combined, "defence.rule", self.rule, unset="mean")
        if self.rule == "norm_clip":
            return {"norm_clip": key}
        if self.before != "none":
            key = key or f"defence.before={self.before}"
        elif not key:
            return {}
        elif self.weighted or self.rule == "geometric_median":
            return {"rule": key}
        return {"rule": key, "uniform": key}

    def wrap(
        self,
        algo: Algorithm,
        plan: RoundPlan,
    ) -> Algorithm:
        """Return the method with the rule in place of its sum, or with clipped vectors."""
        if not self.needs:
            return algo
        deliver = algo.deliver or (lambda server, uploads, states, cohort: (uploads, states))
        whole = replace(algo, deliver=deliver)
        if self.rule == "norm_clip":
            return sending(whole if self.radius == "median" else algo, self._clipped)

        def server_init(w: Tensor, num_clients: int) -> State:
            zero = w.new_zeros((), dtype=torch.int64)
            state = {
                _CENTRE: torch.zeros_like(w),
                _LOWERED: zero,
                _NONFINITE: zero,
            }
            return algo.server_init(w, num_clients) | state

        def rule(
            server: State,
            uploads: State,
            cohort: ClientInfo,
        ) -> State:
            (name,) = algo.averaging.weights
            base = key(plan.seed, Purpose.BUCKETS, plan.round)
            drawn = fold_in(base, plan.ids)
            rows, centre = uploads[name], server[_CENTRE]
            vector, chosen, counts = self.aggregate(rows, cohort.p, drawn, centre)
            vector = vector.to(rows.dtype)
            sums = uploads | {name: vector, _CENTRE: vector}
            for counter, count in counts.items():
                sums[counter] = server[counter] + count
            return sums if chosen is None else sums | {f"{OWN}chosen": chosen}

        return replace(
            whole,
            server_init=server_init,
            update=replace(algo.averaging, rule=rule),
        )

    def _clipped(
        self,
        state: State,
        uploads: State,
        states: State,
        ids: Tensor,
    ) -> tuple[State, State]:
        """Return the uploads with vectors clipped to the radius, and unchanged client states."""
        clipped = dict(uploads)
        for name, v in vectors(uploads, state["w"].shape).items():
            size = lengths(v)
            radius = rules.median(size[:, None]) if self.radius == "median" else self.radius
            scale = shrunk(size, radius)[:, None]
            clipped[name] = v * scale.to(v.dtype)
        return clipped, states

    def aggregate(
        self,
        rows: Tensor,
        p: Tensor,
        drawn: np.ndarray,
        centre: Tensor,
    ) -> tuple[Tensor, Tensor | None, dict[str, int]]:
        """Apply the rule to the vectors of a cohort.

        Args:
            rows: The vectors [C, P], in ascending order of the clients' ids.
            p: The weights of the clients [C].
            drawn: A random number for each client [C], for the buckets.
            centre: The centre of clipping [P].

        Returns:
            The result [P] float64; a mask of the clients chosen for it [C], or None if the rule
            chooses none; and counts: whether there were too few vectors for the assumed number of
            attackers ("lowered"), and the number of vectors left out because they are not finite
            ("nonfinite").
        """
        clients = len(rows)
        finite = rows.isfinite().all(1).nonzero()[:, 0]
        nonfinite = clients - len(finite)
        if nonfinite == clients:
            return torch.full_like(centre, torch.nan), None, {_LOWERED: 0, _NONFINITE: nonfinite}
        if nonfinite:
            rows, p = rows[finite], p[finite]
            drawn = drawn[finite.numpy(force=True)]

        # weights of clients in each row
        members = torch.eye(
            clients,
            dtype=torch.float64,
            device=rows.device,
        )[finite]
        if "bucketing" in self.parts:
            groups = to_device(rules.buckets(drawn, self.bucket), rows.device)
            rows = weighted_sum(groups, rows)
            members = groups @ members
        count = len(rows)
        f = max(0, self._allowed(count))
        if "nnm" in self.parts:
            nearest = rules.nearest_rows(squared_distances(rows), count - f)
            rows = weighted_sum(nearest, rows)
        p = p.double() if self.before == "none" else members.new_ones(count)

        p = p / p.sum()
        vector, chosen = self._ruled(rows, p, f, centre.double())
        counts = {_LOWERED: int(f < self.assumed), _NONFINITE: nonfinite}
        if chosen is not None:
            chosen = members[chosen].any(0)
        return vector, chosen, counts

    def _ruled(
        self,
        rows: Tensor,
        p: Tensor,
        f: int,
        centre: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the rule's result on finite rows [P] float64, and the indices of the chosen rows.

        The indices are None if the rule chooses no rows.
        """
        count = len(rows)
        match self.rule:
            case "median":
                return by_columns(rules.median, rows), None
            case "trimmed_mean":
                return by_columns(lambda block: rules.trimmed_mean(block, f), rows), None
            case "geometric_median":
                shares = rules.geometric_median(
                    squared_distances(rows), p, self.iterations, self.nu
                )
                return weighted_sum(shares, rows), None
            case "centered_clipping" if count > 1:
                return rules.centered_clipping(rows, centre, self.radius, self.steps), None
            case "bulyan":
                chosen = rules.bulyan(squared_distances(rows), f)
                size = count - 4 * f
                mean = by_columns(lambda block: rules.nearest_to_median(block, size), rows[chosen])
                return mean, chosen
            case "krum" | "multi_krum":
                size = 1 if self.rule == "krum" else self.m or count - f
                ordered = rules.krum(squared_distances(rows), f)
                chosen = ordered[:size].sort().values
                return _mean(rows[chosen]), chosen
        return self._checked(rows, p, f, centre), None

    @cached_property
    def _checked(self) -> Any:
        """``combined``, with a check of the first result of a subclass outside fedbench."""
        return checked(self.combined, "defence.combined")

    def combined(
        self,
        rows: Tensor,
        p: Tensor,
        f: int,
        centre: Tensor,
    ) -> Tensor:
        """Return the vector that replaces the mean, [P]; here, the mean itself.

        Args:
            rows: The finite vectors of the cohort [C, P], after ``before``; float64 if they were
                preprocessed.
            p: Their weights [C] float64, which sum to 1.
            f: Number of attackers that is assumed among them.
            centre: Result of the previous round [P] float64; zeros initially.
        """
        return _mean(rows)


def _mean(rows: Tensor) -> Tensor:
    return by_columns(lambda block: block.mean(0), rows)

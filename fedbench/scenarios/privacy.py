"""Central differential privacy at client level.

Updates are clipped, and Gaussian noise is added to their sum. A trusted server releases the
sequence of its models. The guarantee does not cover the measurements of the harness, and sampling
and noise come from a seeded hash: a run shows how much accuracy the mechanism costs, but this
implementation must not be deployed to protect data.

Sources: McMahan et al., ICLR 2018 (DP-FedAvg, fixed denominator); Andrew et al., NeurIPS 2021, Alg.
1 (adaptive clipping); Mironov, Talwar and Zhang 2019, and Canonne, Kamath and Steinke, NeurIPS 2020
(accounting, computed by dp-accounting).
"""

import logging
import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal

import dp_accounting as dp
import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging
from fedbench.core.config_values import Tree
from fedbench.core.errors import RequestError, WrongValue
from fedbench.core.options import NonNegative, OpenUnit, Positive
from fedbench.core.randomness import (
    Purpose,
    Sampler,
    fold_in,
    key,
)
from fedbench.core.types import ClientInfo, State, lengths
from fedbench.core.validation import validate
from fedbench.scenarios.allowed import Demand
from fedbench.scenarios.layers import Layer, sending, shown
from fedbench.scenarios.population import Population, normal, uniform
from fedbench.scenarios.vectors import shrunk
from fedbench.simulation.scenario import OWN, RoundPlan

_BOUND = f"{OWN}bound"  # server state: bound of the next round, [1] so that it is not a column
_SHARE = f"{OWN}unclipped"  # b_k of the clients [C], then b̃
_EPSILON = f"{OWN}epsilon"  # ε spent so far
# δ from which a run's remark warns: a client's data may be revealed with this probability
_LARGE_DELTA = 0.01
_LEAST_NOISE = 0.001
# neighbouring data sets of the guarantee
_RELATION = {"poisson": "client level, add/remove", "fixed": "client level, replace"}
# dp-accounting warns about orders that it skips; ε comes from the others
logging.getLogger("absl").setLevel(logging.ERROR)


@dataclass(frozen=True, kw_only=True)
class Privacy(Layer):
    """A noisy mean D = (Σ_k v_k + z_Δ C ξ) / m̃ of clipped updates, in place of the mean.

    v_k = Δ_k min(1, C/‖Δ_k‖), ξ ~ N(0, I).

    Attributes:
        population: All clients.
        noise: Noise multiplier z, at least 0.001, or 0, which gives no guarantee. If None, the
            multiplier that ``epsilon`` requires, or 1 without ``epsilon``.
        epsilon: Budget ε of the planned rounds, given instead of ``noise``; a budget above 1000
            would need almost no noise.
        delta: δ. If None, 1/N^1.1.
        clip: Bound on the norm of an update, ``adaptive``, or infinity (only without noise).
        sampling: Sampling of clients. ``poisson``: every client takes part with probability q;
            ``fixed``: all cohorts have the same size.
        quantile: Share γ of the updates that an adaptive bound leaves unclipped.
        clip_lr: Learning rate η_C of the logarithm of an adaptive bound.
        clip_start: Initial value of an adaptive bound.
        count_noise: Standard deviation σ_b of the noise on the number of unclipped updates. If
            None, m̃/20.

    Raises:
        RequestError: If values are incompatible.
    """

    population: Population
    noise: Annotated[float, Field(ge=0, le=1e6)] | None = None
    epsilon: Annotated[float, Field(gt=0, le=1000)] | None = None
    delta: OpenUnit | None = None
    clip: Literal["adaptive"] | Annotated[float, Field(gt=0, allow_inf_nan=True)] = 1.0
    sampling: Literal["poisson", "fixed"] = "poisson"
    quantile: OpenUnit = 0.5
    clip_lr: NonNegative = 0.2
    clip_start: Positive = 0.1
    count_noise: NonNegative | None = None

    def __post_init__(self) -> None:
        if self.population.by_size:
            why = "Poisson sampling at one rate is what is accounted for"
            raise RequestError(
                f"privacy does not go with sampling=size: {why}; use sampling=uniform"
            )
        if self.noise and self.noise < _LEAST_NOISE:
            raise WrongValue(
                "noise",
                f"must be 0 or at least {_LEAST_NOISE}, got {self.noise:g}: lower noise "
                "protects nobody",
            )
        if self.noise is not None and self.epsilon is not None:
            raise WrongValue(
                "noise", f"must be null with privacy.epsilon, got {self.noise}; set one of the two"
            )
        validate("delta", self.failure, OpenUnit)
        z, limit = self.multiplier, 2 * self.deviation
        if z and self.clip == "adaptive" and limit <= z:
            fault = f"must be below 2·count_noise = {limit:g}, got {z:g}"
            raise WrongValue("noise", f"{fault}; raise privacy.count_noise or the cohort")
        if z and self.clip == math.inf:
            raise WrongValue(
                "noise", f"needs a finite clip, got {z:g}; set privacy.clip to a number"
            )

    @property
    def clients(self) -> int:
        """Number N of clients with training examples."""
        return len(self.population.able)

    @property
    def rate(self) -> float:
        """Probability q that a client takes part in a round."""
        part = self.population.participation
        return part if isinstance(part, float) else min(1.0, part / self.clients)

    @property
    def size(self) -> float:
        """Expected size m̃ of a cohort."""
        return self.population.planned if self.sampling == "fixed" else self.rate * self.clients

    @property
    def deviation(self) -> float:
        """Standard deviation σ_b of the noise on the count."""
        return self.size / 20 if self.count_noise is None else self.count_noise

    @property
    def failure(self) -> float:
        """Probability δ with which the guarantee may fail."""
        return 1 / self.clients**1.1 if self.delta is None else self.delta

    @cached_property
    def multiplier(self) -> float:
        """Noise multiplier z.

        If ``epsilon`` is set, this is the smallest multiplier, to within 1e-6, at which the planned
        rounds stay within the budget.
        """
        if self.epsilon is None:
            return 1.0 if self.noise is None else self.noise
        planned = partial(self.event, rounds=max(1, self.population.rounds))
        # starting at 0, the accounting of fixed cohorts would divide by 0
        start = dp.LowerEndpointAndGuess(_LEAST_NOISE, 1)
        try:
            return float(
                dp.calibrate_dp_mechanism(
                    self.accountant, planned, self.epsilon, self.failure, start
                )
            )
        except (ValueError, dp.mechanism_calibration.NoBracketIntervalFoundError) as error:
            rounds = self.population.rounds
            fault = f"must be what some noise >= {_LEAST_NOISE} spends in {rounds} rounds"
            given = f"got {self.epsilon:g}; set privacy.noise instead"
            raise WrongValue("epsilon", f"{fault}, {given}") from error

    @property
    def of_sum(self) -> float:
        """Noise multiplier z_Δ of the sum; above z if the bound is adaptive."""
        z = self.multiplier
        if not z or self.clip != "adaptive":
            return z
        of_sum: float = (z**-2 - (2 * self.deviation) ** -2) ** -0.5
        return of_sum

    def accountant(self) -> Any:
        """Return an accountant with nothing spent."""
        relation = "REPLACE_ONE" if self.sampling == "fixed" else "ADD_OR_REMOVE_ONE"
        return dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation[relation])

    def event(
        self,
        z: float,
        rounds: int = 1,
    ) -> Any:
        """Return the accountant's event for ``rounds`` rounds with noise multiplier z."""
        if self.sampling == "fixed":
            # replacing a client moves the sum by 2C; the library expects noise / sensitivity
            event = dp.SampledWithoutReplacementDpEvent(
                self.clients, int(self.size), dp.GaussianDpEvent(z / 2)
            )
        else:
            share = self.size / self.clients
            event = dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(z))
        return dp.SelfComposedDpEvent(event, rounds)

    @cached_property
    def _once(self) -> Any:
        """Accountant after one round.

        Its Rényi divergences take up to 0.3 s to compute and add up over the rounds.
        """
        return self.accountant().compose(self.event(self.multiplier))

    def spent(self, rounds: int) -> float:
        """Return the ε spent in a number of rounds; infinite without noise."""
        if not self.multiplier:
            return math.inf
        once = self._once
        epsilon, _ = dp.rdp.compute_epsilon(once.orders, rounds * once.rdp, self.failure)
        return float(epsilon)

    @property
    def needs(self) -> dict[Demand, str]:
        """Demands on the method, each with the configuration key that causes it."""
        return {"privacy": "privacy"}

    @property
    def facts(self) -> Tree:
        """Facts for ``meta.json``: the guarantee."""
        rounds = self.population.rounds
        guarantee = {
            "noise": self.multiplier,
            "delta": self.failure,
            "relation": _RELATION[self.sampling],
            "clients": self.clients,
            "expected_cohort": self.size,
            "planned_rounds": rounds,
            "planned_epsilon": self.spent(rounds),
        }
        return {"guarantee": guarantee}

    def sampler(self, sampler: Sampler) -> Sampler:
        """Return a sampler that draws every client with the same probability.

        If cohorts have a fixed size, this is the run's sampler.
        """

        def poisson(
            round: int,
            able: np.ndarray,
            seed: int,
        ) -> np.ndarray:
            ids = np.flatnonzero(able)
            base = key(seed, Purpose.POISSON, round)
            drawn = uniform(fold_in(base, ids))
            return ids[drawn < self.rate]

        return poisson if self.sampling == "poisson" else sampler

    def wrap(
        self,
        algo: Algorithm,
        plan: RoundPlan,
    ) -> Algorithm:
        """Return the method with a noisy mean of clipped updates, whose denominator is fixed."""
        (name,) = algo.averaging.weights
        adaptive = self.clip == "adaptive"
        bound: Any = plan.server.get(_BOUND, self.clip)  # a number, or [1]

        def clipped(
            server: State,
            uploads: State,
            states: State,
            ids: Tensor,
        ) -> tuple[State, State]:
            if more := shown(uploads).keys() - {name}:
                also = f"this method also uploads {', '.join(sorted(more))}"
                raise RequestError(f"privacy covers one vector, and {also}")
            v = uploads[name]
            norm = lengths(v)
            scale = shrunk(norm, bound)[:, None].to(v.dtype)
            uploads = uploads | {name: v * scale}
            if adaptive:
                uploads[_SHARE] = (norm <= bound).to(v.dtype)
            return uploads, states

        def step(
            server: State,
            uploads: State,
            cohort: ClientInfo,
        ) -> State:
            uploads = uploads | {name: self._noisy(uploads[name], bound, plan)}
            if adaptive:
                share, next_bound = self._adapted(uploads[_SHARE], bound, plan)
                uploads |= {
                    _SHARE: share,
                    _BOUND: next_bound,
                    f"{OWN}clip": bound[0],
                }
            return algo.averaging.step(server, uploads, cohort)

        def server_init(w: Tensor, num_clients: int) -> State:
            state = algo.server_init(w, num_clients)
            state[_EPSILON] = w.new_zeros((), dtype=torch.float64)
            if adaptive:
                state[_BOUND] = w.new_full((1,), self.clip_start, dtype=torch.float64)
            return state

        def remarks(server: State) -> list[str]:
            epsilon = float(server[_EPSILON])
            relation = _RELATION[self.sampling]
            spent = f"ε = {epsilon:.5g}, δ = {self.failure:.3g} ({relation})"
            share = 1 / self.clients
            if self.failure >= min(share, _LARGE_DELTA):
                spent += (
                    f"; this δ is too large: it should be far below 1/N = {share:.3g}; "
                    f"set privacy.delta, such as {min(1e-5, share / 100):.0e}"
                )
            return [*algo.remarks(server), f"privacy: {spent}"]

        share = 1 / self.size
        weights = {name: lambda server, cohort: torch.full_like(cohort.p, share)}
        return replace(
            sending(algo, clipped),
            update=Averaging(step, weights),
            server_init=server_init,
            remarks=remarks,
        )

    def _noisy(
        self,
        mean: Tensor,
        bound: Any,
        plan: RoundPlan,
    ) -> Tensor:
        """Return the mean update [P] with noise."""
        if not self.multiplier:
            return mean
        entry = torch.arange(len(mean), device=mean.device)
        base = key(plan.seed, Purpose.NOISE, plan.round)
        xi = normal(fold_in(base, entry))
        noisy: Tensor = mean.double() + self.of_sum * bound / self.size * xi
        return noisy.to(mean.dtype)

    def _adapted(
        self,
        unclipped: Tensor,
        bound: Tensor,
        plan: RoundPlan,
    ) -> tuple[Tensor, Tensor]:
        """Return the noisy share b̃ of unclipped updates, and the bound of the next round [1].

        Args:
            unclipped: Whether each update is unclipped, b_k [C].
            bound: Bound of this round [1].
            plan: Plan of the round.
        """
        draw = key(plan.seed, Purpose.COUNT, plan.round) >> 1
        zeta = normal(torch.tensor(draw, device=bound.device))
        total = (unclipped.double() - 0.5).sum()
        share = 0.5 + (total + self.deviation * zeta) / self.size
        factor = torch.exp(-self.clip_lr * (share - self.quantile))
        return share, (bound * factor).clamp(1e-20, 1e20)

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round plan with the ε spent, and a noise-only step if no result arrives."""
        averaging = plan.algorithm.averaging

        def idle(server: State) -> State:
            w = server["w"]
            none = w.new_zeros(0, dtype=torch.int64)
            uploads = dict.fromkeys(averaging.weights, torch.zeros_like(w))
            uploads[_SHARE] = none
            nobody = ClientInfo(
                id=none,
                n=none,
                p=none,
                steps=none,
                lr=none,
                per_epoch=none,
                key=none,
            )
            return averaging.step(server, uploads, nobody)

        notes = plan.notes | {"epsilon": self.spent(plan.round + 1)}
        return replace(plan, notes=notes, idle=idle)


central = Privacy  # its name in configurations

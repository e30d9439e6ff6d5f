"""Central differential privacy at the level of clients: clipped updates, Gaussian noise on their sum, and its cost.

A trusted server releases the sequence of its models. What the harness measures is not covered, and draws come from a
seeded hash: a run shows what the mechanism costs in accuracy and must not be deployed as one.

Sources: McMahan et al., ICLR 2018 (DP-FedAvg, fixed denominator); Andrew et al., NeurIPS 2021, Alg. 1 (adaptive
clipping); Mironov, Talwar and Zhang 2019, and Canonne, Kamath and Steinke, NeurIPS 2020 (accounting, by dp-accounting).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging
from fedbench.core.errors import RequestError, WrongValue, choice, install_hint, number
from fedbench.core.files import Tree
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import ClientInfo, State
from fedbench.scenarios.draws import Population, normal, of_clients, uniform
from fedbench.scenarios.surroundings import At, hidden, sending, shown
from fedbench.simulation.turn import OWN, Turn

_BOUND, _SHARE = f"{OWN}bound", f"{OWN}unclipped"  # C_{t+1} [1], so that it is no column; b_k [C], then b̃


class Cohorts(NamedTuple):
    """How cohorts are drawn, which decides what the noise is worth.

    Attributes:
        clients: Number N of clients with examples.
        size: Expected size m̃ of a cohort.
        fixed: Whether every cohort has this size; otherwise each client takes part with probability m̃/N (Poisson).
    """

    clients: int
    size: float
    fixed: bool

    @property
    def relation(self) -> str:
        """What the guarantee holds for."""
        return f"client level, {'replace' if self.fixed else 'add/remove'}"

    def fresh(self) -> Any:
        """An accountant that has spent nothing."""
        dp, name = _library(), "REPLACE_ONE" if self.fixed else "ADD_OR_REMOVE_ONE"
        return dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation[name])

    def rounds(self, z: float, count: int) -> Any:
        """The event of ``count`` rounds with noise multiplier z."""
        dp = _library()
        if self.fixed:  # a replaced client moves the sum by 2C, and the library wants noise over sensitivity
            one = dp.SampledWithoutReplacementDpEvent(self.clients, int(self.size), dp.GaussianDpEvent(z / 2))
        else:
            one = dp.PoissonSampledDpEvent(self.size / self.clients, dp.GaussianDpEvent(z))
        return dp.SelfComposedDpEvent(one, count)


def spending(z: float, delta: float, cohorts: Cohorts) -> Callable[[int], float]:
    """Return the function from a number of rounds to the ε that they have spent; infinite without noise.

    Raises:
        RequestError: If dp-accounting is not installed.
    """
    if z == 0:
        return lambda rounds: math.inf if rounds else 0.0
    compute_epsilon = _library().rdp.compute_epsilon
    once = cohorts.fresh().compose(cohorts.rounds(z, 1))  # Rényi divergences add up over the rounds
    orders, divergence = once.orders, once.rdp
    return lambda rounds: float(compute_epsilon(orders, rounds * divergence, delta)[0]) if rounds else 0.0


@cache  # it takes seconds
def calibrated(epsilon: float, delta: float, rounds: int, cohorts: Cohorts) -> float:
    """Return the smallest noise multiplier, to 1e-6, with which ``rounds`` rounds spend at most ``epsilon``.

    Raises:
        RequestError: If there is none, or dp-accounting is not installed.
    """
    dp = _library()
    start = dp.LowerEndpointAndGuess(1e-3, 1)  # with 0 the accounting of fixed cohorts divides by it
    try:
        z = dp.calibrate_dp_mechanism(cohorts.fresh, lambda z: cohorts.rounds(z, max(1, rounds)), epsilon, delta, start)
    except (ValueError, dp.mechanism_calibration.NoBracketIntervalFoundError) as error:
        fault = f"must be what some noise >= 0.001 spends in {rounds} rounds, got {epsilon:g}; set privacy.noise"
        raise WrongValue("epsilon", fault) from error
    return float(z)


def _library() -> Any:
    try:
        import dp_accounting  # late: it takes a while, and is an extra
    except ModuleNotFoundError as error:
        raise RequestError(f"privacy needs the package dp-accounting; run: {install_hint('privacy')}") from error
    logging.getLogger("absl").addFilter(_tells)
    return dp_accounting


def _tells(record: logging.LogRecord) -> bool:
    """Whether a message is news: orders at which a series does not converge are left out, and others give ε."""
    return "failed to converge" not in record.getMessage()


class Adaptive(NamedTuple):
    """A clipping bound that follows a quantile of the norms.

    Attributes:
        quantile: The quantile γ.
        lr: Rate η_C.
        noise: Deviation σ_b of the noise on the count of unclipped updates.
    """

    quantile: float
    lr: float
    noise: float


@dataclass(frozen=True)
class Privacy:
    """D = (Σ_k v_k + z_Δ C ξ) / m̃ in the place of the mean update, v_k = Δ_k min(1, C/‖Δ_k‖), ξ ~ N(0, I).

    Attributes:
        seed: Random seed of the run.
        noise: Noise multiplier z_Δ of the sum.
        clip: Clipping bound C, or the first one.
        adaptive: How the bound changes; None if it does not.
        cohorts: How cohorts are drawn.
        draw: Draws them, from (round, training examples [N]); None leaves it to the run's sampler.
        delta: δ.
        spent: ε by the number of rounds.
        facts: What ``meta.json`` records.
    """

    seed: int
    noise: float
    clip: float
    adaptive: Adaptive | None
    cohorts: Cohorts
    draw: Callable[[int, np.ndarray], np.ndarray] | None
    delta: float
    spent: Callable[[int], float]
    facts: Tree

    needs: ClassVar[dict[str, str]] = {"privacy": "privacy"}

    def _bound(self, server: State) -> float | Tensor:
        return server[_BOUND][0] if _BOUND in server else self.clip

    def wrap(self, algo: Algorithm, at: At) -> Algorithm:
        """The method with its mean update clipped, over a fixed number of clients, and with noise."""
        (name,), inner = algo.averaging.weights, algo.averaging.step
        bound, size = self._bound(at.server), self.cohorts.size
        base, adaptive = key(self.seed, Purpose.NOISE, at.round), self.adaptive
        init, remarks = algo.server_init, algo.remarks

        def clipped(server: State, uploads: State, states: State, ids: Tensor) -> tuple[State, State]:
            if more := shown(uploads).keys() - {name}:
                raise RequestError(f"privacy covers one vector, and this method also uploads {', '.join(sorted(more))}")
            v = uploads[name]
            norm = torch.linalg.vector_norm(v, dim=-1, keepdim=True, dtype=torch.float64)
            sent = uploads | {name: v * (bound / norm).clamp_max(1).to(v.dtype)}  # norm 0: the factor is 1
            return sent | ({_SHARE: (norm <= bound)[:, 0].to(v.dtype)} if adaptive else {}), states

        def step(server: State, uploads: State, cohort: ClientInfo) -> State:
            mean = uploads[name].double()
            if self.noise:
                xi = normal(fold_in(base, torch.arange(mean.numel(), device=mean.device)))
                mean = mean + self.noise * bound / size * xi
            after = hidden(server) | inner(server, uploads | {name: mean.to(uploads[name].dtype)}, cohort)
            if adaptive is None:
                return after
            zeta = normal(torch.tensor(key(self.seed, Purpose.COUNT, at.round) >> 1, device=mean.device))
            share = 0.5 + ((uploads[_SHARE].double() - 0.5).sum() + adaptive.noise * zeta) / size
            then = bound * torch.exp(-adaptive.lr * (share - adaptive.quantile))
            return after | {_SHARE: share, _BOUND: then.clamp(1e-20, 1e20).view(1)}

        def server_init(w: Tensor, num_clients: int) -> State:
            own = {f"{OWN}epsilon": w.new_zeros((), dtype=torch.float64)}
            if adaptive:
                own[_BOUND] = torch.full((1,), self.clip, dtype=torch.float64, device=w.device)
            return init(w, num_clients) | own

        update = Averaging(step, {name: lambda server, cohort: torch.full_like(cohort.p, 1 / size)})
        algo = replace(sending(algo, clipped), update=update, server_init=server_init)
        return replace(algo, remarks=lambda server: [*remarks(server), self._said(server)])

    def turn(self, turn: Turn, at: At) -> Turn:
        """The round with what it has spent, and with the noise alone if nothing arrives."""
        algo, notes, kept = turn.algorithm, {**turn.notes, "epsilon": self.spent(at.round + 1)}, turn.kept
        step, names = algo.averaging.step, algo.averaging.weights
        if self.adaptive:
            kept = kept | {f"{OWN}clip": at.server[_BOUND][0]}

        def idle(server: State) -> State:
            w = server["w"]
            none, ids = w.new_zeros(0), torch.zeros(0, dtype=torch.int64, device=w.device)
            nobody = ClientInfo(id=ids, n=none, p=none, steps=none, lr=none, per_epoch=none, key=ids)
            return step(turn.idle(server), {_SHARE: none, **{k: torch.zeros_like(w) for k in names}}, nobody)

        def bytes_up(uploads: State) -> int:  # the server clips and counts
            return turn.bytes_up({k: v for k, v in uploads.items() if k != _SHARE})

        return replace(turn, notes=notes, kept=kept, idle=idle, bytes_up=bytes_up)

    def _said(self, server: State) -> str:
        epsilon, least = float(server[f"{OWN}epsilon"]), 1 / self.cohorts.clients
        high = f"; δ is not below 1/N = {least:.3g}" if self.delta >= least else ""
        return f"privacy: ε = {epsilon:.5g}, δ = {self.delta:.3g} ({self.cohorts.relation}){high}"


def central(
    *,
    noise: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    clip: float | Literal["adaptive"] = 1.0,
    sampling: Literal["poisson", "fixed"] = "poisson",
    quantile: float = 0.5,
    clip_lr: float = 0.2,
    clip_start: float = 0.1,
    count_noise: float | None = None,
    population: Population,
) -> Privacy:
    """Central differential privacy: updates are clipped, and the server adds noise to their sum.

    Args:
        noise: Noise multiplier z >= 0; 0 is no guarantee, None is 1, or what ``epsilon`` needs.
        epsilon: What the planned rounds are to spend, instead of ``noise``.
        delta: δ in (0, 1); None is 1/N^1.1.
        clip: Bound on the norm of an update; ``adaptive``; or infinity, for no noise.
        sampling: ``poisson``: every client takes part with probability q; ``fixed``: cohorts of one size.
        quantile: Share γ of the updates that an adaptive bound leaves as they are, in (0, 1).
        clip_lr: Rate η_C of its logarithm.
        clip_start: The first bound.
        count_noise: Deviation σ_b of the noise on the number of unclipped updates; None is m̃/20.
        population: All clients.
    """
    fixed = choice("sampling", sampling, ("poisson", "fixed")) == "fixed"
    if population.by_size:
        why = "Poisson sampling at one rate is what is accounted for"
        raise RequestError(f"privacy does not go with sampling=size: {why}; use sampling=uniform")
    able, part = population.able, population.participation
    rate = part if isinstance(part, float) else min(1.0, part / len(able))
    cohorts = Cohorts(len(able), population.planned if fixed else rate * len(able), fixed)
    delta = number("delta", 1 / len(able) ** 1.1 if delta is None else delta, above=0, below=1)
    if epsilon is not None:
        if noise is not None:
            raise WrongValue("noise", f"must be null with privacy.epsilon, got {noise}; set one of the two")
        noise = calibrated(number("epsilon", epsilon, above=0), delta, population.rounds, cohorts)
    z = total = number("noise", 1.0 if noise is None else noise, at_least=0, at_most=1e6)
    adaptive = None
    if clip == "adaptive":
        sigma = number("count_noise", cohorts.size / 20 if count_noise is None else count_noise, at_least=0)
        quantile, clip_lr = number("quantile", quantile, above=0, below=1), number("clip_lr", clip_lr, at_least=0)
        adaptive, bound = Adaptive(quantile, clip_lr, sigma), number("clip_start", clip_start, above=0)
        if z > 0 and 2 * sigma <= z:
            fault = f"must be below 2·count_noise = {2 * sigma:g}, got {z:g}; raise privacy.count_noise or the cohort"
            raise WrongValue("noise", fault)
        z = (z**-2 - (2 * sigma) ** -2) ** -0.5 if z else 0.0  # the count takes its share
    else:
        bound = math.inf if clip == math.inf else number("clip", clip, above=0, remedy="or use adaptive")
    if z and bound == math.inf:
        raise WrongValue("noise", f"needs a finite clip, got {z:g}; set privacy.clip to a number")

    def draw(round: int, able: np.ndarray) -> np.ndarray:
        ids = np.flatnonzero(able)
        return ids[uniform(of_clients(population.seed, Purpose.POISSON, ids, round=round)) < rate]

    spent = spending(total, delta, cohorts)
    facts = {"noise": total, "delta": delta, "relation": cohorts.relation, "expected_cohort": cohorts.size}
    facts |= {"clients": len(able), "planned_rounds": population.rounds, "planned_epsilon": spent(population.rounds)}
    chance = None if fixed else draw
    return Privacy(population.seed, z, bound, adaptive, cohorts, chance, delta, spent, {"guarantee": facts})

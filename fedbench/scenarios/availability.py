"""Availability: unreachable clients, lost results and slow clients."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from pydantic import Field

from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import WrongValue
from fedbench.core.options import (
    Count,
    HalfOpenUnit,
    NonNegative,
    Positive,
    PositiveShare,
    UnitInterval,
)
from fedbench.core.randomness import (
    DataPurpose,
    Purpose,
    data_generator,
    fold_in,
    key,
)
from fedbench.core.types import ClientInfo, State, to_device
from fedbench.scenarios.allowed import Demand
from fedbench.scenarios.layers import Layer
from fedbench.scenarios.population import (
    Population,
    normal,
    shuffled,
    traits,
    uniform,
)
from fedbench.simulation.scenario import OWN, REPORTS, RoundPlan

Weights: TypeAlias = Literal["renormalise", "zero", "inverse"]
# mask of late clients [S], steps of every client until the deadline [S], columns of the record
Late: TypeAlias = tuple[np.ndarray, np.ndarray, dict[str, float]]

# entry of the server's state: number of rounds without results
EMPTY_ROUNDS = f"{OWN}empty_rounds"


@dataclass(frozen=True)
class Availability(Layer):
    """Availability of clients and their results; by default, every sampled client reports.

    Attributes:
        lost: Probability that a result is lost.
        weights: Weights of the results that arrive. "renormalise": their p_k sum to 1; "zero": lost
            results count as no change; "inverse": like "zero", but divided by the probability of
            arrival.
        chances: Function from the number of rounds done to the probabilities π_k that clients can
            be reached [N]. If None, all probabilities are 1.
        late: Function from (round, ids [S], planned steps [S]) of the sampled clients to a tuple
            ``Late``. If None, no client is late.
        partial: Whether late clients send partial results instead of nothing.
    """

    lost: float = 0.0
    weights: Weights = "renormalise"
    chances: Callable[[int], np.ndarray] | None = None
    late: Callable[[int, np.ndarray, np.ndarray], Late] | None = None
    partial: bool = False

    @property
    def needs(self) -> dict[Demand, str]:
        """Demands on the method, each with the configuration key that causes it."""
        needs: dict[Demand, str] = {}
        drops_late = self.late is not None and not self.partial
        if self.chances is not None or drops_late:
            needs |= {"away": "availability", "chosen": "availability"}
        if self.lost > 0:
            needs["away"] = "availability"
        if self.partial:
            needs["partial"] = "availability.late=partial"
        if self.weights != "renormalise":
            needs["weights"] = f"availability.weights={self.weights}"
        return needs

    def reachable(
        self,
        seed: int,
        round: int,
        able: np.ndarray,
    ) -> np.ndarray:
        """Return the numbers of training examples [N], with 0 for unreachable clients."""
        if self.chances is None:
            return able
        base = key(seed, Purpose.REACHED, round)
        drawn = uniform(fold_in(base, np.arange(len(able))))
        return able * (drawn < self.chances(round))

    def arrivals(self, plan: RoundPlan) -> RoundPlan:
        """Return the round plan without the clients whose results do not arrive."""
        base = key(plan.seed, Purpose.LOST, plan.round)
        arrived = uniform(fold_in(base, plan.ids)) >= self.lost
        steps = plan.tau
        notes: dict[str, float] = {}
        if self.late is not None:
            late, steps, notes = self.late(plan.round, plan.ids, steps)
            if self.partial:
                steps = np.maximum(steps, 1)
            else:
                arrived &= ~late
        return replace(
            plan,
            ids=plan.ids[arrived],
            tau=steps[arrived],
            steps=int(steps.sum()),
            notes=notes,
        )

    def wrap(
        self,
        algo: Algorithm,
        plan: RoundPlan,
    ) -> Algorithm:
        """Return the method with a server that counts results and weights those that arrive."""

        def server_init(w: torch.Tensor, num_clients: int) -> State:
            zeros = w.new_zeros(num_clients, dtype=torch.int64)
            state = algo.server_init(w, num_clients)
            return state | {REPORTS: zeros, EMPTY_ROUNDS: zeros.sum()}

        counting = replace(algo, server_init=server_init)
        if self.weights == "renormalise" or not len(plan.ids):
            return counting

        weight = plan.able if algo.weights == "size" else np.ones(len(plan.able))
        arrived = weight[plan.ids].sum()
        sampled = weight[plan.receivers].sum()
        factor = float(arrived / sampled)
        if self.weights == "inverse":
            factor /= 1 - self.lost

        def weighting(server: State, cohort: ClientInfo) -> torch.Tensor:
            return cohort.p * factor

        update = algo.averaging
        weights = dict.fromkeys(update.weights, weighting)
        return replace(counting, update=replace(update, weights=weights))

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round plan with the counts of clients and results."""
        reports = plan.server[REPORTS]
        arrivals = np.bincount(plan.ids, minlength=len(plan.able))
        counts = {
            REPORTS: reports + to_device(arrivals, reports.device),
            EMPTY_ROUNDS: plan.server[EMPTY_ROUNDS] + (not len(plan.ids)),
        }
        notes = {
            "sampled": len(plan.receivers),
            "reported": len(plan.ids),
            "reachable": int((plan.able > 0).sum()),
        }
        return replace(
            plan,
            notes=plan.notes | notes,
            kept=plan.kept | counts,
        )


def bernoulli(
    *,
    p: HalfOpenUnit = 0.1,
    weights: Weights = "renormalise",
) -> Availability:
    """Return availability with results that are lost independently with probability p.

    Args:
        p: Probability that a result is lost, in [0, 1).
        weights: Weights of the results that arrive: ``renormalise``, ``zero`` or ``inverse``
            (Horvitz and Thompson: unbiased for the sampled cohort).
    """
    return Availability(p, weights)


def clients(
    *,
    by: Literal["beta", "size", "labels"] = "beta",
    a: Positive = 2.0,
    b: Positive = 2.0,
    power: float = 1.0,
    concentration: Positive = 0.1,
    mean: PositiveShare = 0.5,
    floor: UnitInterval | None = None,
    p: HalfOpenUnit = 0.0,
    weights: Literal["renormalise", "zero"] = "renormalise",
    population: Population,
) -> Availability:
    """Return availability in which each client has its own probability of being reached.

    The probabilities are the same in all rounds.

    Args:
        by: Origin of the probabilities. ``beta``: drawn from Beta(a, b); ``size``: growing with
            n_k^power; ``labels``: derived from the client's labels, where classes are available to
            different degrees (form of FedAU, Wang and Ji, ICLR 2024).
        a: First parameter of the Beta distribution.
        b: Second parameter of the Beta distribution.
        power: Exponent of the size; if positive, large clients are reached more often.
        concentration: Concentration of the Dirichlet distribution from which the degrees of the
            classes are drawn.
        mean: Mean probability over the clients, for ``size`` and ``labels``.
        floor: Lowest probability, in [0, 1]. If None, 0 for ``beta`` and 0.02 otherwise.
        p: Probability that the result of a reached client is lost.
        weights: Weights of the results that arrive: ``renormalise`` or ``zero``.
        population: All clients.
    """
    able, n, seed = population.able, population.n, population.seed
    if by == "beta":
        from scipy.special import betaincinv  # imported here because it takes a while

        quantiles = uniform(traits(seed, np.arange(len(n)), 0))
        chances = np.clip(betaincinv(a, b, quantiles), floor or 0, 1)
        return Availability(p, weights, lambda round: chances)

    if by == "size":
        sizes = n[able]
        log_s = power * np.log(sizes / sizes.mean())
    else:
        counts = population.labels()[able]
        degrees = data_generator(seed, DataPurpose.AVAILABILITY).dirichlet(
            [concentration] * counts.shape[1]
        )
        with np.errstate(divide="ignore"):  # the logarithm of 0
            shares = counts / counts.sum(1, keepdims=True)
            log_s = np.log(shares @ degrees)
    chances = np.ones(len(n))
    lowest = 0.02 if floor is None else floor
    chances[able] = _scaled(log_s, mean, lowest)
    return Availability(p, weights, lambda round: chances)


def _scaled(
    log_s: np.ndarray,
    mean: float,
    floor: float,
) -> np.ndarray:
    """Return clip(c · s, floor, 1), with c chosen so that the mean is ``mean``.

    Args:
        log_s: Logarithms of s.
        mean: Mean of the result.
        floor: Lowest value of the result.

    Raises:
        RequestError: If no such c exists, because ``mean`` is below ``floor`` or too many s are 0.
    """

    def scaled(log_c: float) -> np.ndarray:
        chances = np.exp(np.minimum(log_s + log_c, 0))
        return np.maximum(chances, floor)

    if mean < floor:
        raise WrongValue(
            "mean", f"must be at least availability.floor, got {mean} and {floor}; lower floor"
        )
    known = log_s[np.isfinite(log_s)]
    if not len(known):
        return np.full(len(log_s), mean)
    # at ``low`` no value exceeds the mean; at ``high`` all s except 0 give 1
    low = np.log(mean) - known.max()
    high = -known.min()
    most = scaled(high).mean()
    if most < mean:
        raise WrongValue(
            "mean", f"must be at most {most:.3g} for these labels, got {mean}; lower it"
        )
    for _ in range(100):
        middle = (low + high) / 2
        if scaled(middle).mean() < mean:
            low = middle
        else:
            high = middle
    return scaled(high)


def cyclic(
    *,
    pattern: Literal["groups", "sine"] = "groups",
    groups: Count = 4,
    block: Count = 1,
    assign: Literal["random", "id", "label"] = "random",
    mean: PositiveShare = 0.5,
    amplitude: Annotated[float, Field(ge=0, le=0.5)] = 0.3,
    period: Positive = 20.0,
    spread: UnitInterval = 1.0,
    population: Population,
) -> Availability:
    """Return availability that changes over the rounds.

    Groups of clients are reached in turn (Cho et al., ICML 2023), or availability follows day and
    night.

    Args:
        pattern: Pattern over the rounds: ``groups`` or ``sine``.
        groups: Number of groups; one group is reached at a time.
        block: Number of consecutive rounds in a group's turn.
        assign: Order in which clients are divided into groups: random, by id, or by most frequent
            label.
        mean: Highest probability of being reached within a period of the sine.
        amplitude: Depth of the sine, in [0, 0.5].
        period: Number of rounds in a period, above 0.
        spread: Share of the period over which the clients' nights are spread, in [0, 1]; at 0, all
            clients have the same night.
        population: All clients.
    """
    able, seed = population.able, population.seed
    everybody = np.arange(len(population.n))
    if pattern == "sine":
        phase = spread * period * uniform(traits(seed, everybody, 1))

        def chances(t: int) -> np.ndarray:
            height = np.sin(2 * np.pi * (t + phase) / period)
            return mean * ((1 - amplitude) + amplitude * height)

        return Availability(chances=chances)

    if groups > len(able):
        raise WrongValue(
            "groups", f"must be at most the number of clients, {len(able)}, got {groups}"
        )
    if assign == "random":
        order = shuffled(key(seed, Purpose.TRAITS), able)
    elif assign == "label":
        most_frequent = population.labels()[able].argmax(1)
        order = able[np.argsort(most_frequent, kind="stable")]
    else:
        order = able
    count = len(able)
    cuts = [int(j * count / groups + 0.5) for j in range(1, groups)]
    group = np.full(len(everybody), -1)
    group[order] = np.searchsorted(cuts, np.arange(count), side="right")
    return Availability(chances=lambda t: (group == t // block % groups).astype(np.float64))


def stragglers(
    *,
    kind: Literal["speed", "share"] = "speed",
    sigma: NonNegative = 1.0,
    jitter: NonNegative = 0.0,
    deadline: Positive = 1.0,
    share: UnitInterval = 0.5,
    late: Literal["drop", "partial"] = "drop",
    weights: Literal["renormalise", "zero"] = "renormalise",
    population: Population,
) -> Availability:
    """Return availability with slow clients, which are left out or send partial results.

    Args:
        kind: Model of slow clients. ``speed``: clients have log-normal speeds, and a round has a
            deadline; ``share``: a share of the sampled clients does fewer epochs (Li et al.,
            FedProx, MLSys 2020, Sec. 5.2).
        sigma: Standard deviation of the logarithm of a client's speed.
        jitter: Standard deviation of the term that each round adds to this logarithm.
        deadline: Duration of a round divided by the mean number of planned steps; at speed 1, a
            step takes time 1.
        share: Share of late clients, in [0, 1].
        late: Treatment of late clients. ``drop``: they are left out; ``partial``: they send partial
            results.
        weights: Weights of the clients that are not left out: ``renormalise`` or ``zero``.
        population: All clients.
    """
    seed, work = population.seed, population.work
    n = population.n
    mean_epochs = sum(work.epochs) / 2
    planned = work.steps or mean_epochs * work.per_epoch(n[n > 0])
    limit = deadline * max(1.0, float(np.mean(planned)))

    def by_speed(
        round: int,
        ids: np.ndarray,
        tau: np.ndarray,
    ) -> Late:
        lasting = _normal(traits(seed, ids, 2))
        of_round = _normal(fold_in(key(seed, Purpose.JITTER, round), ids))
        log_speed = sigma * lasting - sigma**2 / 2 + jitter * of_round - jitter**2 / 2
        speed = np.exp(log_speed)
        feasible = np.floor(limit * speed + 1e-9)
        times = np.minimum(tau / speed, limit)
        steps = np.minimum(feasible, tau).astype(np.int64)
        return feasible < tau, steps, {"time": float(times.max(initial=0.0))}

    def by_share(
        round: int,
        ids: np.ndarray,
        tau: np.ndarray,
    ) -> Late:
        count = int(share * len(ids) + 0.5)
        order = shuffled(key(seed, Purpose.STRAGGLERS, round), ids)
        slow = np.isin(ids, order[:count])
        unit = np.ones_like(tau) if work.steps is not None else work.per_epoch(n[ids])
        drawn = fold_in(key(seed, Purpose.JITTER, round), ids)
        done = unit * (1 + drawn % (tau // unit))
        return slow, np.where(slow, done, tau), {}

    return Availability(
        weights=weights,
        late=by_speed if kind == "speed" else by_share,
        partial=late == "partial",
    )


def _normal(h: np.ndarray) -> np.ndarray:
    """Return standard normal numbers computed from 63-bit hashes."""
    return normal(torch.from_numpy(h)).numpy()

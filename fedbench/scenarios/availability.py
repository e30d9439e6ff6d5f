"""Availability: which clients can be reached, whose results are lost, and who is too slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch

from fedbench.core.errors import RequestError, choice, integer, number
from fedbench.core.randomness import DataPurpose, Purpose, data_generator
from fedbench.scenarios.draws import Population, normal, of_clients, traits, uniform

Weights: TypeAlias = Literal["renormalise", "zero", "inverse"]


class Late(NamedTuple):
    """Slow clients of a round, among those sampled [S].

    Attributes:
        late: Whether the client does not finish its work in time.
        done: Local steps that it makes until then.
        time: Duration of the round in steps at speed 1; NaN if speeds are unknown.
    """

    late: np.ndarray
    done: np.ndarray
    time: float


@dataclass(frozen=True)
class Availability:
    """Who takes part in a round and whose results arrive.

    Attributes:
        lost: Probability that a result is lost.
        weights: Weights of the results that arrive: their p_k sum to 1 ("renormalise"), those of lost results count as
            no change ("zero"), or they are divided by the probability of their arrival ("inverse").
        reached: Which clients can be reached after some rounds [N]; None is all.
        late: The slow ones of the sampled clients with their local steps; None is none.
        partial: Whether late clients send what they have instead of nothing.
    """

    lost: float = 0.0
    weights: Weights = "renormalise"
    reached: Callable[[int], np.ndarray] | None = None
    late: Callable[[int, np.ndarray, np.ndarray], Late] | None = None
    partial: bool = False

    @property
    def needs(self) -> dict[str, str]:
        """What it needs of a method (``fedbench.scenarios.allowed``), with the key that asks for it."""
        chosen = self.reached is not None or (self.late is not None and not self.partial)  # not by an even coin
        found = {"away": "availability"} if self.lost > 0 or chosen else {}
        found |= {"chosen": "availability"} if chosen else {}
        found |= {"partial": "availability.late=partial"} if self.partial else {}
        return found | ({"weights": f"availability.weights={self.weights}"} if self.weights != "renormalise" else {})


def bernoulli(*, p: float = 0.1, weights: Weights = "renormalise") -> Availability:
    """Every result is lost with probability p, independently of everything else.

    Args:
        p: Probability, in [0, 1).
        weights: ``renormalise``, ``zero`` or ``inverse`` (Horvitz and Thompson: unbiased for the sampled cohort).
    """
    return Availability(number("p", p, at_least=0, below=1), choice("weights", weights, get_args(Weights)))


def clients(
    *,
    by: Literal["beta", "size", "labels"] = "beta",
    a: float = 2.0,
    b: float = 2.0,
    power: float = 1.0,
    concentration: float = 0.1,
    mean: float = 0.5,
    floor: float | None = None,
    p: float = 0.0,
    weights: Literal["renormalise", "zero"] = "renormalise",
    population: Population,
) -> Availability:
    """Every client has a probability of being reached, the same in all rounds.

    Args:
        by: ``beta``: drawn from Beta(a, b); ``size``: grows with n_k^power; ``labels``: by the client's labels, classes
            being available to different degrees (form of FedAU, Wang and Ji, ICLR 2024).
        a: First parameter of the distribution.
        b: Second parameter.
        power: Exponent of the size; above 0 large clients are reached more often.
        concentration: Of the Dirichlet distribution from which the degrees of the classes are drawn.
        mean: Mean probability over the clients, for size and labels.
        floor: Lowest probability, in [0, 1]; None is 0 for beta and 0.02 otherwise.
        p: Probability that a result is lost on top of it.
        weights: ``renormalise`` or ``zero``, of the results that arrive.
        population: All clients.
    """
    choice("by", by, ("beta", "size", "labels"))
    a, b = number("a", a, above=0), number("b", b, above=0)
    concentration = number("concentration", concentration, above=0)
    mean, p = number("mean", mean, above=0, at_most=1), number("p", p, at_least=0, below=1)
    floor = (0.0 if by == "beta" else 0.02) if floor is None else number("floor", floor, at_least=0, at_most=1)
    power, weights = number("power", power), choice("weights", weights, ("renormalise", "zero"))
    if by != "beta" and mean < floor:
        raise RequestError(
            f"availability.mean must be at least availability.floor, got {mean} and {floor}; lower floor"
        )
    able, seed = population.able, population.seed
    share = np.ones(len(population.n))
    if by == "beta":
        from scipy.special import betaincinv  # late: it takes a while

        drawn = betaincinv(a, b, uniform(traits(seed, np.arange(len(share)), 0)))
        share = np.clip(drawn, floor, 1)
    elif by == "size":
        share[able] = _scaled(power * np.log(population.n[able] / population.n[able].mean()), mean, floor)
    else:
        if population.labels is None:
            raise RequestError("availability.by=labels needs examples with a class each; use by=size or by=beta")
        counts = population.labels()[able]
        degrees = data_generator(seed, DataPurpose.AVAILABILITY).dirichlet([concentration] * counts.shape[1])
        with np.errstate(divide="ignore"):  # the logarithm of 0
            share[able] = _scaled(np.log((counts / counts.sum(1, keepdims=True)) @ degrees), mean, floor)

    def reached(round: int) -> np.ndarray:
        found: np.ndarray = uniform(of_clients(seed, Purpose.REACHED, np.arange(len(share)), round=round)) < share
        return found

    return Availability(p, weights, reached)


def _scaled(log_s: np.ndarray, mean: float, floor: float) -> np.ndarray:
    """Return clip(c · s, floor, 1) with the c whose mean is ``mean``, from the logarithms of s.

    Raises:
        RequestError: If there is none, since too many s are 0.
    """

    def scaled(log_c: float) -> np.ndarray:
        return np.maximum(np.exp(np.minimum(log_s + log_c, 0)), floor)

    known = log_s[np.isfinite(log_s)]
    if not len(known):
        return np.full(len(log_s), mean)
    low, high = np.log(mean) - known.max(), -known.min()  # no value is above the mean; all that can be are 1
    if (most := scaled(high).mean()) < mean:
        raise RequestError(f"availability.mean must be at most {most:.3g} for these labels, got {mean}; lower it")
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if scaled(middle).mean() < mean else (low, middle)
    return scaled(high)


def cyclic(
    *,
    pattern: Literal["groups", "sine"] = "groups",
    groups: int = 4,
    block: int = 1,
    assign: Literal["random", "id", "label"] = "random",
    mean: float = 0.5,
    amplitude: float = 0.3,
    period: float = 20.0,
    spread: float = 1.0,
    population: Population,
) -> Availability:
    """Availability changes over the rounds: groups in turn (Cho et al., ICML 2023), or day and night.

    Args:
        pattern: ``groups`` or ``sine``.
        groups: Number of groups, of which one is reached at a time.
        block: Rounds until the next group's turn.
        assign: How clients are cut into groups: in random order, by id, or by their most frequent label.
        mean: Highest probability of being reached over a period of the sine.
        amplitude: Depth of the sine, in [0, 0.5].
        period: Rounds of a period, above 0.
        spread: Share of the period over which the clients' nights are spread, in [0, 1]; 0 is one night for all.
        population: All clients.
    """
    choice("pattern", pattern, ("groups", "sine"))
    choice("assign", assign, ("random", "id", "label"))
    groups, block = integer("groups", groups, at_least=1), integer("block", block, at_least=1)
    mean, amplitude = number("mean", mean, above=0, at_most=1), number("amplitude", amplitude, at_least=0, at_most=0.5)
    period, spread = number("period", period, above=0), number("spread", spread, at_least=0, at_most=1)
    able, seed, count = population.able, population.seed, len(population.n)
    if pattern == "sine":
        phase = spread * period * uniform(traits(seed, np.arange(count), 1))

        def at(round: int) -> np.ndarray:
            share = mean * ((1 - amplitude) + amplitude * np.sin(2 * np.pi * (round + phase) / period))
            found: np.ndarray = uniform(of_clients(seed, Purpose.REACHED, np.arange(count), round=round)) < share
            return found

        return Availability(reached=at)
    if groups > len(able):
        raise RequestError(f"availability.groups must be at most the number of clients, {len(able)}, got {groups}")
    order = able
    if assign == "random":
        order = able[np.argsort(of_clients(seed, Purpose.TRAITS, able), kind="stable")]
    elif assign == "label":
        if population.labels is None:
            raise RequestError("availability.assign=label needs examples with a class each; use random or id")
        order = able[np.argsort(population.labels()[able].argmax(1), kind="stable")]
    cuts = [int(j * len(order) / groups + 0.5) for j in range(groups + 1)]
    group = np.full(count, -1)
    for j in range(groups):
        group[order[cuts[j] : cuts[j + 1]]] = j
    return Availability(reached=lambda round: group == round // block % groups)


def stragglers(
    *,
    kind: Literal["speed", "share"] = "speed",
    sigma: float = 1.0,
    jitter: float = 0.0,
    deadline: float = 1.0,
    share: float = 0.5,
    late: Literal["drop", "partial"] = "drop",
    weights: Literal["renormalise", "zero"] = "renormalise",
    population: Population,
) -> Availability:
    """Slow clients, which are left out or send what they have.

    Args:
        kind: ``speed``: clients have log-normal speeds, and a round has a deadline; ``share``: a share of the sampled
            clients does fewer epochs (Li et al., FedProx, MLSys 2020, Sec. 5.2).
        sigma: Deviation of the logarithm of a client's speed.
        jitter: Deviation of that of a round, on top of it.
        deadline: Time of a round over the mean number of planned steps, where a step takes 1 at speed 1.
        share: Share of late clients, in [0, 1].
        late: ``drop``: late clients are left out; ``partial``: they send what they have.
        weights: ``renormalise`` or ``zero``, of the clients that are not left out.
        population: All clients.
    """
    choice("kind", kind, ("speed", "share"))
    choice("late", late, ("drop", "partial"))
    choice("weights", weights, ("renormalise", "zero"))
    sigma, jitter = number("sigma", sigma, at_least=0), number("jitter", jitter, at_least=0)
    deadline, share = number("deadline", deadline, above=0), number("share", share, at_least=0, at_most=1)
    seed, able = population.seed, population.able
    limit = deadline * max(1.0, float(population.steps[able].mean()))

    def by_speed(round: int, ids: np.ndarray, tau: np.ndarray) -> Late:
        own = normal(torch.from_numpy(traits(seed, ids, 2))).numpy()
        now = normal(torch.from_numpy(of_clients(seed, Purpose.JITTER, ids, round=round))).numpy()
        speed = np.exp(sigma * own - sigma**2 / 2 + jitter * now - jitter**2 / 2)
        feasible = np.floor(limit * speed + 1e-9)
        time = np.minimum(tau / speed, limit).max(initial=0.0)
        return Late(feasible < tau, np.minimum(feasible, tau).astype(np.int64), float(time))

    def by_share(round: int, ids: np.ndarray, tau: np.ndarray) -> Late:
        order = np.argsort(of_clients(seed, Purpose.STRAGGLERS, ids, round=round), kind="stable")
        slow = np.zeros(len(ids), dtype=bool)
        slow[order[: int(share * len(ids) + 0.5)]] = True
        unit = np.ones_like(tau) if population.fixed_steps else population.per_epoch[ids]
        done = unit * (1 + of_clients(seed, Purpose.JITTER, ids, round=round) % (tau // unit))
        return Late(slow, np.where(slow, done, tau), float("nan"))

    found = by_speed if kind == "speed" else by_share
    return Availability(weights=weights, late=found, partial=late == "partial")

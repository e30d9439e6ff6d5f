"""Defences of the server: a robust rule in the place of the mean, what comes before it, and clipping by norm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging
from fedbench.core.errors import WrongValue, choice, integer, number
from fedbench.core.randomness import Purpose
from fedbench.core.types import ClientInfo, State, upload
from fedbench.scenarios.draws import Population, of_clients
from fedbench.scenarios.rules import (
    BOUNDS,
    bulyan_choice,
    centered_clipping,
    geometric_median,
    krum,
    median,
    per_column,
)
from fedbench.scenarios.surroundings import At, Layer, sending
from fedbench.scenarios.vectors import lengths, mixed, shrunk, squared_distances, vectors
from fedbench.simulation.turn import OWN

Rule: TypeAlias = Literal[
    "mean", "median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "centered_clipping", "bulyan",
    "norm_clip",
]  # fmt: skip
Before: TypeAlias = Literal["none", "bucketing", "nnm", "both"]


class Aggregate(NamedTuple):
    """What a rule makes of the vectors of a cohort.

    Attributes:
        vector: The result [P] float64.
        chosen: Which clients belong to it [C]; None for rules that choose none.
        lowered: Whether there were too few vectors for the number of attackers that was assumed.
        nonfinite: Number of vectors that were left out since they are not finite.
    """

    vector: Tensor
    chosen: Tensor | None
    lowered: bool
    nonfinite: int


@dataclass(frozen=True, kw_only=True)
class Defence(Layer):
    """A rule that forms one vector of those of the cohort, in the place of their mean.

    Attributes:
        population: All clients.
        attackers: Number of attackers among them.
        rule: "median" or "trimmed_mean" per coordinate (Yin et al., ICML 2018); "krum" or "multi_krum" (Blanchard et
            al., NeurIPS 2017); "geometric_median" (RFA, Pillutla et al., 2022); "centered_clipping" (Karimireddy et
            al., ICML 2021); "bulyan" (El Mhamdi et al., ICML 2018); "norm_clip": every vector is clipped to ``radius``
            before the method's own sum; "mean".
        f: Attackers in a round that the server expects; "auto" is their mean number, rounded up.
        m: Number of vectors that "multi_krum" averages; None is C - f.
        iterations: Most iterations of "geometric_median".
        nu: Its smoothing, as a share of the largest distance from the mean.
        radius: Of the two kinds of clipping, in the unit of the vectors; "median" is that of the lengths in the round.
        steps: Steps of "centered_clipping" in a round.
        before: "bucketing": means of random groups of ``bucket`` clients (Karimireddy et al., ICLR 2022, Alg. 1);
            "nnm": means of the C - f nearest vectors (Allouah et al., AISTATS 2023, Alg. 2); "both", in this order.
        bucket: Clients of a group.

    Raises:
        RequestError: If a value is out of range.
    """

    population: Population
    attackers: int
    rule: Rule = "mean"
    f: int | Literal["auto"] = "auto"
    m: int | None = None
    iterations: int = 100
    nu: float = 1e-6
    radius: float | Literal["median"] = "median"
    steps: int = 1
    before: Before = "none"
    bucket: int = 2

    def __post_init__(self) -> None:
        choice("rule", self.rule, get_args(Rule))
        choice("before", self.before, get_args(Before))
        for name in ("iterations", "steps", "bucket", "m"):
            if name != "m" or self.m is not None:
                integer(name, getattr(self, name), at_least=1)
        number("nu", self.nu, above=0)
        if self.radius != "median":
            number("radius", self.radius, above=0, remedy="or median")
        if self.rule == "norm_clip" and self.before != "none":
            raise WrongValue("before", f"must be none for rule=norm_clip, got {self.before}; choose another rule")
        count = self.population.planned
        count = -(-count // self.bucket) if self.before in ("bucketing", "both") else count
        for part in self._bounded:
            if self.assumed > BOUNDS[part][0](count):
                fault = f"must have {BOUNDS[part][1]} for {part}, got f = {self.assumed} and C = {count}"
                raise WrongValue("f", f"{fault}; lower it, or use a larger participation")
        if self.rule == "multi_krum" and (self.m or 1) > count:
            raise WrongValue("m", f"must be at most the number of vectors in a round, {count}, got {self.m}")

    @cached_property
    def assumed(self) -> int:
        """The number of attackers in a round that the server assumes."""
        if self.f != "auto":
            return integer("f", self.f, instead="auto")
        return -(-self.attackers * self.population.planned // len(self.population.able))  # rounded up

    @property
    def _bounded(self) -> list[str]:
        """Its parts that bound the number of attackers."""
        return [part for part in (self.rule, "nnm" if self.before in ("nnm", "both") else "") if part in BOUNDS]

    @property
    def needs(self) -> dict[str, str]:
        """What it needs of a method, with the key that asks for it."""
        if self.rule in ("mean", "norm_clip") and self.before == "none":
            return {"norm_clip": "defence.rule=norm_clip"} if self.rule == "norm_clip" else {}
        weighted = self.rule == "geometric_median" and self.before == "none"
        key = f"defence.before={self.before}" if self.rule == "mean" else f"defence.rule={self.rule}"
        return {"rule": key} if weighted else {"rule": key, "uniform": key}

    def wrap(self, algo: Algorithm, at: At) -> Algorithm:
        """The method with the rule in the place of its sum, or with clipped vectors."""
        whole = algo if algo.deliver is not None else replace(algo, deliver=_untouched)
        if self.rule == "norm_clip":
            return sending(whole if self.radius == "median" else algo, self._clipped)
        if not self.needs:
            return algo

        def server_init(w: Tensor, num_clients: int) -> State:
            zero = torch.zeros((), dtype=torch.int64, device=w.device)
            own = {"lowered": zero, "nonfinite": zero}
            own |= {"centre": torch.zeros_like(w)} if self.rule == "centered_clipping" else {}
            return algo.server_init(w, num_clients) | {OWN + k: v for k, v in own.items()}

        ruled = Ruled(algo.averaging.step, algo.averaging.weights, defence=self, at=at)
        return replace(whole, server_init=server_init, update=ruled)

    def _clipped(self, state: State, uploads: State, states: State, ids: Tensor) -> tuple[State, State]:
        """The uploads with vectors of at most the radius, and the clients' states."""
        found = dict(uploads)
        for name, v in vectors(uploads, state["w"].shape).items():
            size = lengths(v)
            radius = median(size[:, None])[0] if self.radius == "median" else self.radius
            found[name] = v * shrunk(size, radius)[:, None].to(v.dtype)
        return found, states

    def aggregate(self, rows: Tensor, p: Tensor, order: np.ndarray, centre: Tensor | None = None) -> Aggregate:
        """Apply the rule to the vectors of a cohort.

        Args:
            rows: The vectors [C, P], in ascending order of the clients' ids.
            p: The weights of the clients [C].
            order: Order of the clients before they are put into buckets [C].
            centre: The centre of clipping [P].
        """
        clients, kept = len(rows), rows.isfinite().all(1).nonzero()[:, 0]
        nonfinite = clients - len(kept)
        if not len(kept):
            return Aggregate(rows.new_full(rows.shape[1:], torch.nan, dtype=torch.float64), None, False, nonfinite)
        rows, p = (rows[kept], p[kept].double()) if nonfinite else (rows, p.double())
        of = torch.eye(clients, dtype=torch.float64, device=rows.device)[kept]  # share of clients in rows
        if self.before in ("bucketing", "both"):
            order = order[np.isin(order, kept.numpy(force=True))]
            buckets = [order[start : start + self.bucket] for start in range(0, len(order), self.bucket)]
            buckets.sort(key=min)
            of = torch.stack([of.new_zeros(clients).index_fill(0, upload(b, of.device), 1 / len(b)) for b in buckets])
            rows = mixed(of[:, kept], rows)
        count = len(rows)
        f = max(0, min([self.assumed, *(BOUNDS[part][0](count) for part in self._bounded)]))
        if self.before in ("nnm", "both") and count > 1:
            nearest = squared_distances(rows).sort(dim=1, stable=True).indices[:, : count - f]
            rows = mixed(of.new_zeros(count, count).scatter(1, nearest, 1 / (count - f)), rows)
        p = p / p.sum() if self.before == "none" else p.new_full((count,), 1 / count)
        chosen = None
        if self.rule in ("krum", "multi_krum", "bulyan"):
            picked = self._picked(squared_distances(rows), f) if count > 1 else slice(None)
            rows, chosen = rows[picked], of[picked].any(0)
        return Aggregate(self._ruled(rows, p, f, centre), chosen, f < self.assumed, nonfinite)

    def _picked(self, squared: Tensor, f: int) -> Tensor:
        """The rows that Krum, multi-Krum or Bulyan chooses."""
        if self.rule == "bulyan":
            return bulyan_choice(squared, f)
        return krum(squared, f)[: 1 if self.rule == "krum" else self.m or len(squared) - f].sort().values

    def _ruled(self, rows: Tensor, p: Tensor, f: int, centre: Tensor | None) -> Tensor:
        """The result of the rule on the chosen rows [P] float64."""
        if len(rows) == 1:
            return rows[0].double()
        if self.rule == "geometric_median":
            return geometric_median(rows, p, self.iterations, self.nu)
        if self.rule == "centered_clipping" and centre is not None:
            return centered_clipping(
                rows, centre.double(), None if self.radius == "median" else self.radius, self.steps
            )
        return per_column(self.rule, rows, f)


def _untouched(server: State, uploads: State, states: State, cohort: ClientInfo) -> tuple[State, State]:
    return uploads, states


@dataclass(frozen=True, kw_only=True)
class Ruled(Averaging):
    """A rule in the place of the sum of one vector.

    Attributes:
        defence: The rule.
        at: The round.
    """

    defence: Defence
    at: At

    def summed(self, server: State, uploads: State, cohort: ClientInfo) -> State:
        """Return the uploads with the result in the place of the vectors, and what the rule leaves for the server."""
        (name,) = self.weights
        rows, centre = uploads[name], server.get(f"{OWN}centre")
        drawn = of_clients(self.at.seed, Purpose.BUCKETS, self.at.ids, round=self.at.round)
        found = self.defence.aggregate(rows, cohort.p, np.argsort(drawn, kind="stable"), centre)
        own = {k: server[OWN + k] + getattr(found, k) for k in ("lowered", "nonfinite")}
        own |= {} if centre is None else {"centre": found.vector.to(rows.dtype)}
        own |= {} if found.chosen is None else {"chosen": found.chosen}
        return uploads | {name: found.vector.to(rows.dtype)} | {OWN + k: v for k, v in own.items()}

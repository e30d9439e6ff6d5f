"""Attacks: clients with false labels, messages or losses, and the metrics reported about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging
from fedbench.core.config_values import Tree
from fedbench.core.errors import WrongValue, typed
from fedbench.core.options import Natural, NonNegative, Positive
from fedbench.core.randomness import (
    Purpose,
    fold_in,
    integers,
    key,
)
from fedbench.core.types import (
    ClientInfo,
    State,
    Update,
    lengths,
    to_device,
    weighted_sum,
)
from fedbench.data.dataset import FederatedDataset
from fedbench.scenarios.allowed import Demand
from fedbench.scenarios.layers import Layer, cause
from fedbench.scenarios.population import Population, normal, shuffled
from fedbench.scenarios.vectors import blocks, by_columns, vectors
from fedbench.simulation.checks import checked
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.scenario import (
    OWN,
    Attackers,
    Models,
    RoundPlan,
)

_MAJORITY = 3.0  # ζ of ALIE if the attackers need no supporters


@dataclass(frozen=True, kw_only=True)
class Attack(Layer, Attackers):
    """Attackers, fixed for the run, with changed labels, replaced messages, or both.

    A subclass may override ``forged``, the vectors that the attackers send; ``message`` is then
    "none".

    Attributes:
        population: All clients.
        clients: Number of attackers, or their fraction in [0, 0.5) of the clients with training
            examples, rounded down. The attackers are drawn once.
        ids: Ids of the attackers. If None, the attackers are drawn.
        data: Change of the labels of the attackers' training examples: y -> K-1-y ("flip"; Fang et
            al., USENIX Security 2020), the next class ("next"), ``source`` -> ``target`` ("pair"),
            or a random class ("random").
        message: Replacement for each vector v of an attacker. "sign_flip": -scale · v; "gaussian":
            noise of length scale · ‖v‖; "alie": μ - ζ s (Baruch et al., NeurIPS 2019); "ipm":
            -scale · μ (Xie et al., UAI 2020); "scale": scale · v (Bagdasaryan et al., AISTATS 2020,
            Eq. 3). μ and s are the mean and the standard deviation of the honest vectors.
        scale: Factor; "auto" is 0.5 for "ipm", 1 divided by the attackers' weight in the round for
            "scale", and 1 otherwise.
        add: Whether the noise of "gaussian" is added to the attacker's own vector.
        zeta: ζ of "alie"; "auto" is the largest value at which enough honest vectors are further
            from μ than the attackers' vectors.
        source: Class whose labels "pair" changes. If ``source`` and ``target`` are set,
            ``attack_success`` is measured for every value of ``data``.
        target: Class that replaces ``source``.
        loss_scale: Factor on every loss that an attacker reports.

    Raises:
        RequestError: If a value is out of range.
    """

    population: Population
    clients: Annotated[float, Field(ge=0, lt=0.5)] | Annotated[int, Field(ge=0)] = 0.1
    ids: Sequence[Natural] | None = None
    data: Literal["none", "flip", "next", "pair", "random"] = "none"
    message: Literal["none", "sign_flip", "gaussian", "alie", "ipm", "scale"] = "none"
    scale: NonNegative | Literal["auto"] = "auto"
    add: bool = False
    zeta: float | Literal["auto"] = "auto"
    source: Natural | None = None
    target: Natural | None = None
    loss_scale: Positive = 1.0

    def __post_init__(self) -> None:
        limit = len(self.population.able)
        if self.message == "alie" and self.zeta == "auto":  # the attackers need a majority
            limit = ceil(limit / 2)
        if len(self.who) >= limit:
            fault = f"must make fewer than {limit} clients attackers for message={self.message}"
            raise WrongValue("clients" if self.ids is None else "ids", fault)

        classes = self.population.data.classes
        pair = {self.source, self.target} - {None}
        two_classes = len(pair) == 2 and pair <= set(range(classes))
        if (self.data == "pair" or pair) and not two_classes:
            given = f"{typed(self.source)} and {typed(self.target)}"
            fault = f"must be two of {classes} classes, got {given}"
            raise WrongValue("source and target", fault)

    @cached_property
    def who(self) -> np.ndarray:
        """Ids of the attackers, ascending."""
        able = self.population.able
        if self.ids is None:
            count = self.clients
            if isinstance(count, float):
                # 0.29 * 100 is a little less than 29 in floating point
                count = int(count * len(able) + 1e-9)
            base = key(self.population.seed, Purpose.ATTACKERS)
            order = shuffled(base, able)
            return np.sort(order[:count])

        chosen = np.unique(np.array(self.ids, dtype=np.int64))
        unknown = np.setdiff1d(chosen, able)
        if len(unknown):
            fault = f"must be clients with training examples, got {unknown[0]}; remove it"
            raise WrongValue("ids", fault)
        return chosen

    @property
    def needs(self) -> dict[Demand, str]:
        """Demands on the method, each with the configuration key that causes it."""
        key = cause(self, self.forged, "attack.message", self.message)
        return {"message": key} if key else {}

    @property
    def facts(self) -> Tree:
        """Facts for ``meta.json``: the attackers."""
        return {"attackers": self.who.tolist()}

    def changed(self, data: FederatedDataset) -> FederatedDataset:
        """Return the data set with the attackers' training labels changed.

        Test and validation examples stay unchanged.

        Raises:
            RequestError: If the labels of this data set cannot be changed.
        """
        if self.data == "none" or not len(self.who):
            return data
        last = data.classes - 1
        if data.y.dim() > 1 or data.shares_examples or last == 0:
            unfit = "labels per token, a single class or examples of several clients"
            fault = (
                f"must be none for data with {unfit}, got {self.data}; set attack.message instead"
            )
            raise WrongValue("attack.data", fault)

        rows = data.train.of_clients(self.who)
        old = data.y[rows]
        match self.data:
            case "flip":
                new = last - old
            case "next":
                new = (old + 1) % data.classes
            case "pair":
                new = old.masked_fill(old.eq(self.source or 0), self.target or 0)
            case _:
                base = key(self.population.seed, Purpose.ATTACKERS)
                drawn = integers(base, rows.numpy(force=True), 0, last)
                new = to_device(drawn, rows.device)
        return data.relabelled(data.y.index_copy(0, rows, new))

    def measured(
        self,
        models: Models,
        measurements: Measurements,
        data: FederatedDataset,
        judged: np.ndarray,
    ) -> dict[str, float]:
        """Return the mean accuracy of the attackers, and the success of a targeted attack.

        The success is the fraction of test examples of class ``source`` that the models of honest
        clients classify as ``target``.
        """
        if not len(self.who):
            return {}
        # a separate object, because its plans for a few clients are not needed elsewhere
        own = Measurements(measurements.task, measurements.engine)
        data = replace(data, validation=None)

        attackers = evaluate(
            own,
            data,
            models(self.who),
            train=False,
            ids=self.who,
        )
        columns = {"attackers_accuracy": attackers.summary()["accuracy_mean"]}
        if self.source is None or self.target is None or data.y.dim() > 1:
            return columns

        is_source = (data.y == self.source).numpy(force=True)
        of_source = data.test.where(is_source)
        as_target = replace(
            data,
            y=torch.full_like(data.y, self.target),
            test=of_source,
        )
        taken = evaluate(
            own,
            as_target,
            models(judged),
            train=False,
            ids=judged,
        ).test
        examples = taken.n.sum()
        columns["attack_success"] = taken.correct.sum() / examples if examples else np.nan
        return columns

    def wrap(
        self,
        algo: Algorithm,
        plan: RoundPlan,
    ) -> Algorithm:
        """Return the method with the attackers' vectors replaced."""
        if not len(self.who):
            chosen = f"clients={self.clients}" if self.ids is None else f"ids={list(self.ids)}"
            remark = f"attack.{chosen} of {len(self.population.able)} clients are no attackers"
            return replace(algo, remarks=lambda server: [*algo.remarks(server), remark])
        if not self.needs:
            return algo
        attacks = np.isin(plan.ids, self.who)
        draw = key(plan.seed, Purpose.FORGED, plan.round)

        def deliver(
            server: State,
            uploads: State,
            states: State,
            cohort: ClientInfo,
        ) -> tuple[State, State]:
            if attacks.all() or not attacks.any():
                return uploads, states
            rows = to_device(np.flatnonzero(attacks), cohort.id.device)
            honest = to_device(np.flatnonzero(~attacks), cohort.id.device)
            attackers = cohort.take(rows)
            sent = vectors(uploads, server["w"].shape)
            for place, (name, v) in enumerate(sent.items()):
                forged = self._checked(v[rows], v[honest], attackers, draw, place)
                sent[name] = v.index_copy(0, rows, forged)
            return uploads | sent, states

        return replace(algo, deliver=deliver)

    @cached_property
    def _checked(self) -> Any:
        """``forged``, with a check of the first result of a subclass outside fedbench."""
        return checked(self.forged, "attack.forged")

    def forged(
        self,
        own: Tensor,
        honest: Tensor,
        attackers: ClientInfo,
        draw: int,
        place: int,
    ) -> Tensor:
        """Return the vectors that the attackers send instead of their own, [a, P].

        It is called for each of the method's vectors, in rounds with attackers and honest clients.

        Args:
            own: The attackers' own vectors [a, P].
            honest: The vectors of the honest clients of the cohort [h, P].
            attackers: Facts of the attackers, each [a]; the weights ``p`` are those in the cohort.
            draw: Key of the round's random draws, for ``fedbench.core.randomness.fold_in``.
            place: Position of the vector's name among all vector names of the method.
        """
        scale: float | Tensor
        if self.scale != "auto":
            scale = self.scale
        elif self.message == "scale":  # the attackers replace the mean
            scale = 1 / attackers.p.double().sum()
        else:
            scale = 0.5 if self.message == "ipm" else 1.0

        if self.message == "scale":
            return own * scale
        if self.message == "sign_flip":
            return own * -scale
        if self.message == "gaussian":
            size = own.shape[1]
            coordinate = torch.arange(size, device=own.device) + place * size
            ids = attackers.id[:, None]
            radii = scale * lengths(own) / size**0.5
            noise = [
                (radii[:, None] * normal(fold_in(draw, ids, block))).to(own.dtype)
                for block in blocks(coordinate.expand_as(own))
            ]
            return torch.cat(noise, 1) + own * self.add

        zeta = self.zeta
        if zeta == "auto":
            zeta = supported(len(own) + len(honest), len(own))

        def vector(block: Tensor) -> Tensor:
            mean = block.mean(0)
            if self.message == "ipm":
                return -scale * mean
            return mean - zeta * block.std(0, correction=0)

        return by_columns(vector, honest).to(own.dtype).expand_as(own)

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round plan with the number of attackers and the losses that they report.

        If the server holds all vectors, the effect of the attackers is measured.
        """
        attacks = np.isin(plan.ids, self.who)
        algo = plan.algorithm
        notes = {"attackers": float(attacks.sum())}
        if not len(plan.ids):  # otherwise the values of an earlier round would stay
            columns = ("deviation", "chosen_attackers")
            notes |= {k: np.nan for k in columns if OWN + k in plan.server}
        if algo.deliver is not None:
            rule = _observed(algo.averaging, attacks)
            algo = replace(algo, update=replace(algo.averaging, rule=rule))
        return replace(
            plan,
            algorithm=algo,
            notes=plan.notes | notes,
            reported=self.reported,
        )

    def reported(
        self,
        ids: np.ndarray,
        probe: State,
    ) -> State:
        """Return measurements at clients, with the attackers' losses scaled by ``loss_scale``."""
        attacks = np.isin(ids, self.who)
        scale = np.where(attacks, self.loss_scale, 1.0)
        reported = dict(probe)
        for name, v in probe.items():
            if name.startswith("loss"):
                factor = to_device(scale, v.device, v.dtype)
                reported[name] = torch.einsum("c,c...->c...", factor, v)
        return reported


def supported(n: int, m: int) -> float:
    """Return ζ of ALIE for n clients, m of them attackers (Baruch et al., NeurIPS 2019, Alg. 3).

    The attackers need s = ⌊n/2 + 1⌋ - m honest supporters: ζ = Φ⁻¹((n - m - s) / (n - m)), or 0 if
    that share is not positive.
    """
    supporters = n // 2 + 1 - m
    if supporters <= 0:
        return _MAJORITY
    share = (n - m - supporters) / (n - m)
    return NormalDist().inv_cdf(share) if share > 0 else 0.0


def _observed(averaging: Averaging, attacks: np.ndarray) -> Update:
    """Return a rule that forms the same sums and measures the effect of the attackers on them.

    The effect is the distance ‖sum - μ‖/‖μ‖ from the mean μ of the honest clients (the largest
    distance, if there are several vectors), and the share of attackers among the clients that a
    rule chose.
    """

    def observed(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        sums = averaging.summed(server, uploads, cohort)
        mask = to_device(attacks, cohort.p.device)
        honest = (~mask).double()
        honest = honest / honest.sum()
        deviations = []
        for name in averaging.weights:
            mean = weighted_sum(honest, uploads[name])
            distance = (sums[name].double() - mean).norm()
            deviations.append(distance / mean.norm())
        if deviations:
            sums[f"{OWN}deviation"] = torch.stack(deviations).max()
        if (chosen := sums.get(f"{OWN}chosen")) is not None:
            attackers = (chosen & mask).sum().double()
            sums[f"{OWN}chosen_attackers"] = attackers / chosen.sum()
        return sums

    return observed

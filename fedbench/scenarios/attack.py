"""Attacks: clients with false labels, false messages or false losses, and what a run reports of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging
from fedbench.core.config_values import Tree
from fedbench.core.errors import WrongValue, typed
from fedbench.core.options import Natural, NonNegative, Positive
from fedbench.core.randomness import Purpose, fold_in, integers, key
from fedbench.core.types import ClientInfo, State, Update, upload, weighted_sum
from fedbench.core.validation import integer, number, several
from fedbench.data.dataset import FederatedDataset
from fedbench.scenarios.population import Population, normal, shuffled
from fedbench.scenarios.vectors import by_columns, columns, lengths, vectors
from fedbench.simulation.evaluation import Evaluation, evaluate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.scenario import OWN, Attackers, Models, RoundPlan

T = TypeVar("T")
_MAJORITY = 3.0  # ζ of ALIE in a round in which the attackers need no supporters


@dataclass(frozen=True, kw_only=True)
class Attack(Attackers):
    """Attackers, the same clients in all rounds, with changed labels, replaced messages, or both.

    Attributes:
        population: All clients.
        clients: Attackers among the clients with training examples, drawn once: a fraction in [0, 0.5), rounded down,
            or a number of clients.
        ids: The attackers, instead of drawing them.
        data: Labels of their training examples: y -> K-1-y ("flip"; Fang et al., USENIX Security 2020), the next class
            ("next"), ``source`` -> ``target`` ("pair"), or drawn ("random").
        message: What replaces each of their vectors. "sign_flip": -scale times it; "gaussian": noise of scale times its
            length; "alie": μ - ζ s (Baruch et al., NeurIPS 2019); "ipm": -scale · μ (Xie et al., UAI 2020); "scale":
            scale times it (Bagdasaryan et al., AISTATS 2020, Eq. 3). μ and s are the mean and the standard deviation of
            the honest vectors.
        scale: Factor; "auto" is 1, of "ipm" 0.5, of "scale" 1 over the attackers' weight in the round.
        add: Whether the noise of "gaussian" is added to the attacker's own vector.
        zeta: ζ; "auto" is the largest value at which enough honest clients are further away from μ.
        source: Class that "pair" changes; with ``target``, ``attack_success`` is measured, whatever ``data`` is.
        target: Class that it is changed into.
        loss_scale: Factor of every loss that an attacker reports.

    Raises:
        RequestError: If a value is out of range.
    """

    population: Population
    clients: float | int = 0.1
    ids: Sequence[int] | None = None
    data: Literal["none", "flip", "next", "pair", "random"] = "none"
    message: Literal["none", "sign_flip", "gaussian", "alie", "ipm", "scale"] = "none"
    scale: NonNegative | Literal["auto"] = "auto"
    add: bool = False
    zeta: float | Literal["auto"] = "auto"
    source: Natural | None = None
    target: Natural | None = None
    loss_scale: Positive = 1.0

    def __post_init__(self) -> None:
        pair = {k for k in (self.source, self.target) if k is not None}
        if (self.data == "pair" or pair) and (len(pair) < 2 or max(pair) >= self.population.data.classes):
            got = f"got {typed(self.source)} and {typed(self.target)}"
            raise WrongValue("source and target", f"must be two of {self.population.data.classes} classes, {got}")
        most, what = len(self.population.able), "the number of clients"
        if self.message == "alie" and self.zeta == "auto":
            most, what = -(-most // 2), "half of the clients for alie with zeta=auto"
        if len(self.who) >= most:
            name = "clients" if self.ids is None else "ids"
            got = f"{self.clients if self.ids is None else len(self.who)}; type at most {most - 1}"
            raise WrongValue(name, f"must be below {what}, {most}, got {got}")

    @cached_property
    def who(self) -> np.ndarray:
        """The attackers, ascending."""
        able, size = self.population.able, self.clients
        if self.ids is not None:
            chosen = np.unique(np.array(several("ids", self.ids, what="a list of clients"), dtype=np.int64))
            if len(unknown := np.setdiff1d(chosen, able)):
                raise WrongValue("ids", f"must be clients with training examples, got {unknown[0]}; remove it")
            return chosen
        remedy = "it is a fraction in [0, 0.5) or a number of clients"
        if isinstance(size, float):
            size = int(number("clients", size, at_least=0, below=0.5, remedy=remedy) * len(able) + 1e-9)
        order = shuffled(self.population.seed, Purpose.ATTACKERS, able)
        return np.sort(order[: integer("clients", size, remedy=remedy)])

    @property
    def needs(self) -> dict[str, str]:
        """What it needs of a method, with the key that asks for it."""
        return {} if self.message == "none" else {"message": f"attack.message={self.message}"}

    @property
    def facts(self) -> Tree:
        """What ``meta.json`` records: the attackers."""
        return {"attackers": self.who.tolist()}

    def changed(self, data: FederatedDataset) -> FederatedDataset:
        """The data set with the attackers' training labels; test and validation examples stay.

        Raises:
            RequestError: If the labels cannot be changed so.
        """
        last, kind = data.classes - 1, self.data
        if kind == "none" or not len(self.who):
            return data
        why = "examples of several clients" if data.shares_examples else "" if last else "a single class"
        if why := "labels per token" if data.y.dim() > 1 else why:
            raise WrongValue("attack.data", f"must be none for data with {why}, got {kind}; set attack.message instead")
        rows = data.train.of_clients(self.who)
        old = data.y[rows]
        if kind == "random":
            drawn = integers(key(self.population.seed, Purpose.ATTACKERS), rows.numpy(force=True), 0, last)
            new = upload(drawn, rows.device)
        elif kind == "pair":
            new = old.masked_fill(old.eq(self.source or 0), self.target or 0)
        else:
            new = last - old if kind == "flip" else (old + 1) % data.classes
        return data.relabelled(data.y.index_copy(0, rows, new))

    def measured(
        self, models: Models, measurements: Measurements, data: FederatedDataset, judged: np.ndarray
    ) -> dict[str, float]:
        """The mean accuracy of the attackers, and how often the models of honest clients take source for target."""
        plans = Measurements(measurements.task, measurements.engine)  # of a few clients, which nothing else asks for

        def tested(data: FederatedDataset, ids: np.ndarray) -> Evaluation:
            w = models(ids)  # one model has the same accuracy for all clients of a central test set
            return evaluate(plans, data, w, train=False, ids=ids[:1] if data.central and w.dim() == 1 else ids)

        if not len(self.who):
            return {}
        data = replace(data, validation=None)
        found = {"attackers_accuracy": tested(data, self.who).summary()["accuracy_mean"]}
        if self.source is not None and self.target is not None and data.y.dim() == 1:
            rows = data.test.where((data.y == self.source).numpy(force=True))
            taken = tested(replace(data, y=torch.full_like(data.y, self.target), test=rows), judged)
            examples = taken.n_test.sum()
            found["attack_success"] = float(taken.correct.sum() / examples) if examples else float("nan")
        return found

    def wrap(self, algo: Algorithm, plan: RoundPlan) -> Algorithm:
        """The method whose attackers report other losses and send other vectors."""
        bad = np.isin(plan.ids, self.who)
        if self.loss_scale != 1:
            algo = _reporting(algo, torch.from_numpy(self.who), self.loss_scale)
        if not len(self.who):
            none = f"attack.clients={self.clients} of {len(self.population.able)} clients are no attackers"
            return replace(algo, remarks=lambda server: [*algo.remarks(server), none])
        if self.message == "none":
            return algo

        def deliver(server: State, uploads: State, states: State, cohort: ClientInfo) -> tuple[State, State]:
            if bad.all() or not bad.any():
                return uploads, states
            rows = upload(np.flatnonzero(bad), cohort.id.device)
            sent = {
                name: v.index_copy(0, rows, self._forged(v, rows, cohort, place, plan))
                for place, (name, v) in enumerate(vectors(uploads, server["w"].shape).items())
            }
            return uploads | sent, states

        return replace(algo, deliver=deliver)

    def _forged(self, rows: Tensor, bad: Tensor, cohort: ClientInfo, place: int, plan: RoundPlan) -> Tensor:
        """What the attackers send instead of their vectors, [a, P].

        Args:
            rows: The vectors of the cohort [C, P].
            bad: The positions of the attackers [a].
            cohort: The cohort.
            place: Place of the vector's name among all of the method.
            plan: The round.
        """
        own, size = rows[bad], rows.shape[1]
        usual: dict[str, float | Tensor] = {"ipm": 0.5, "scale": 1 / cohort.p[bad].double().sum()}
        scale = usual.get(self.message, 1.0) if self.scale == "auto" else self.scale
        if self.message in ("scale", "sign_flip"):
            return own * (scale if self.message == "scale" else -scale)
        if self.message == "gaussian":
            base, ids = key(plan.seed, Purpose.FORGED, plan.round), cohort.id[bad][:, None]
            coordinate, radii = torch.arange(size, device=rows.device) + place * size, scale * lengths(own) / size**0.5
            drawn = [radii[:, None] * normal(fold_in(base, ids, coordinate[block])) for block in columns(own)]
            return torch.cat([z.to(rows.dtype) for z in drawn], 1) + own * self.add
        honest = rows[torch.isin(torch.arange(len(rows), device=bad.device), bad, invert=True)]
        zeta = supported(len(rows), len(own)) if self.zeta == "auto" else self.zeta

        def shared(block: Tensor) -> Tensor:
            mean = block.mean(0)
            return -scale * mean if self.message == "ipm" else mean - zeta * block.std(0, correction=0)

        return by_columns(shared, honest).to(rows.dtype).expand_as(own)

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """The round with the number of its attackers and, where all vectors are held, what came of them."""
        bad, algo = np.isin(plan.ids, self.who), plan.algorithm
        notes = {"attackers": float(bad.sum())}
        if not len(plan.ids):  # the last ones would stay
            notes |= {k: float("nan") for k in ("deviation", "chosen_attackers") if OWN + k in plan.server}
        if algo.deliver is not None:
            algo = replace(algo, update=replace(algo.averaging, rule=_seen(algo.averaging, bad)))
        return replace(plan, notes={**plan.notes, **notes}, algorithm=algo)


def supported(n: int, m: int) -> float:
    """Return ζ of ALIE for n clients of whom m attack (Baruch et al., NeurIPS 2019, Alg. 3).

    The attackers need s = ⌊n/2 + 1⌋ - m honest supporters: ζ = Φ⁻¹((n - m - s) / (n - m)), 0 if that share is <= 0.
    """
    supporters = n // 2 + 1 - m
    share = (n - m - supporters) / (n - m)
    return _MAJORITY if supporters <= 0 else NormalDist().inv_cdf(share) if share > 0 else 0.0


def _seen(sums: Averaging, bad: np.ndarray) -> Update:
    """The sums of the uploads with how far they are from the mean of the clients that are not ``bad`` [C].

    That is ‖sum - μ‖/‖μ‖, of several vectors the largest, and the share of bad clients among those that a rule chose.
    """

    def seen(server: State, uploads: State, cohort: ClientInfo) -> State:
        found, mask = sums.summed(server, uploads, cohort), upload(bad, cohort.p.device)
        means = {k: weighted_sum((~mask).double() / (~mask).sum(), uploads[k]) for k in sums.weights}
        if apart := [(found[k].double() - mean).norm() / mean.norm() for k, mean in means.items()]:
            found[f"{OWN}deviation"] = torch.stack(apart).max()
        if (chosen := found.get(f"{OWN}chosen")) is not None:
            found[f"{OWN}chosen_attackers"] = (chosen & mask).sum().double() / chosen.sum()
        return found

    return seen


def _reporting(algo: Algorithm, who: Tensor, scale: float) -> Algorithm:
    """The method whose server sees the losses of the clients ``who`` times ``scale``."""

    def louder(cohort: ClientInfo) -> ClientInfo:
        probe = dict(cohort.probe)
        for name, v in cohort.probe.items():
            if name.startswith("loss"):
                ids = probe.get("trial_id", cohort.id) if name == "loss_trials" else cohort.id
                factor = torch.where(torch.isin(ids, who.to(ids.device)), scale, 1.0).to(v.dtype)
                probe[name] = torch.einsum("c,c...->c...", factor, v)
        return replace(cohort, probe=probe)

    def told(f: Callable[..., T]) -> Callable[..., T]:
        return lambda *args: f(*args[:-1], louder(args[-1]))

    update = algo.averaging
    return replace(
        algo,
        instruct=algo.instruct and told(algo.instruct),
        trials=algo.trials and replace(algo.trials, propose=told(algo.trials.propose)),
        update=replace(update, step=told(update.step), weights={k: told(f) for k, f in update.weights.items()}),
    )

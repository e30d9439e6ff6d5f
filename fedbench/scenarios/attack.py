"""Attacks: clients with false labels, false messages or false losses, and what a run reports of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging, weighted_sum
from fedbench.core.errors import WrongValue, boolean, choice, integer, number
from fedbench.core.files import Tree
from fedbench.core.randomness import Purpose, fold_in, integers, key
from fedbench.core.types import ClientInfo, State, upload
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.scenarios.draws import Population, normal, of_clients
from fedbench.scenarios.surroundings import At, averaging
from fedbench.scenarios.vectors import by_columns, columns, lengths, vectors
from fedbench.simulation.measurements import ExamplePlan, Measurements
from fedbench.simulation.turn import OWN, Attackers, Models, Turn

T = TypeVar("T")
Data: TypeAlias = Literal["none", "flip", "next", "pair", "random"]
Message: TypeAlias = Literal["none", "sign_flip", "gaussian", "alie", "ipm", "scale"]
Auto: TypeAlias = Literal["auto"]
_SCALES = {"ipm": 0.5}  # adopted values that are not 1
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
    data: Data = "none"
    message: Message = "none"
    scale: float | Auto = "auto"
    add: bool = False
    zeta: float | Auto = "auto"
    source: int | None = None
    target: int | None = None
    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        choice("data", self.data, get_args(Data))
        choice("message", self.message, get_args(Message))
        boolean("add", self.add)
        number("loss_scale", self.loss_scale, above=0)
        if self.scale != "auto":
            number("scale", self.scale, at_least=0, remedy="or auto")
        if self.zeta != "auto":
            number("zeta", self.zeta, remedy="or auto")
        pair = [integer(k, v) for k, v in (("source", self.source), ("target", self.target)) if v is not None]
        if (self.data == "pair" or pair) and len(set(pair)) < 2:
            raise WrongValue("source and target", f"must be two classes, got {self.source} and {self.target}")
        found, most = len(self.who), len(self.population.able)
        if found >= most:
            got = self.clients if self.ids is None else found
            raise WrongValue("clients", f"must be below the number of clients, {most}, got {got}")
        if self.message == "alie" and self.zeta == "auto" and 2 * found >= most:
            raise WrongValue("clients", f"must be below half of the {most} clients for alie, got {found}; or set zeta")

    @cached_property
    def who(self) -> np.ndarray:
        """The attackers, ascending."""
        able, size = self.population.able, self.clients
        if self.ids is not None:
            chosen = np.unique([integer("ids", k) for k in self.ids]).astype(np.int64)
            if len(unknown := np.setdiff1d(chosen, able)):
                raise WrongValue("ids", f"must be clients with training examples, got {unknown[0]}; remove it")
            return chosen
        remedy = "it is a fraction in [0, 0.5) or a number of clients"
        if isinstance(size, float):
            size = int(number("clients", size, at_least=0, below=0.5, remedy=remedy) * len(able) + 1e-9)
        drawn = of_clients(self.population.seed, Purpose.ATTACKERS, able)
        return np.sort(able[np.argsort(drawn, kind="stable")[: integer("clients", size, remedy=remedy)]])

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
        if max(self.source or 0, self.target or 0) > last:
            fault = f"must be classes from 0 to {last}, got {self.source} and {self.target}"
            raise WrongValue("attack.source and attack.target", fault)
        if kind == "none" or not len(self.who):
            return data
        why = "labels per token" if data.y.dim() > 1 else "" if last else "a single class"
        if why := why or ("examples of several clients" if data.shares_examples else ""):
            raise WrongValue("attack.data", f"must be none for data with {why}, got {kind}; set attack.message instead")
        rows = data.train.of_clients(self.who)
        old, y = data.y[rows], data.y.clone()
        if kind == "random":
            drawn = integers(key(self.population.seed, Purpose.ATTACKERS), rows.numpy(force=True), 0, last)
            y[rows] = upload(drawn, y.device)
        elif kind == "pair":
            y[rows] = old.masked_fill(old.eq(self.source or 0), self.target or 0)
        else:
            y[rows] = last - old if kind == "flip" else (old + 1) % data.classes
        return data.relabelled(y)

    def measured(
        self, models: Models, measurements: Measurements, data: FederatedDataset, judged: np.ndarray
    ) -> dict[str, float]:
        """The mean accuracy of the attackers, and how often the models of honest clients take source for target."""

        def hits(data: FederatedDataset, rows: Rows, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            w = models(ids)
            ids = ids[:1] if data.central and w.dim() == 1 else ids  # all clients have the same test examples
            found = ExamplePlan(measurements.task, data, rows, ids, measurements.engine).sums(w, hits=True)[1]
            return found.numpy(force=True)[rows.counts[ids] > 0], rows.counts[ids][rows.counts[ids] > 0]

        if not len(self.who):
            return {}
        right, n = hits(data, data.test, self.who)
        found = {"attackers_accuracy": float((right / n).mean()) if len(n) else float("nan")}
        if self.source is not None and self.target is not None and data.y.dim() == 1:
            of_source, index = data.y == self.source, data.test.index
            if data.central:
                rows = Rows.shared(index[of_source[index]].numpy(force=True), data.num_clients)
            else:
                rows = data.test.where(of_source.numpy(force=True))
            false = data.relabelled(torch.full_like(data.y, self.target))
            taken, n = hits(false, rows.to(data.y.device), judged)
            found["attack_success"] = float(taken.sum() / n.sum()) if len(n) else float("nan")
        return found

    def wrap(self, algo: Algorithm, at: At) -> Algorithm:
        """The method whose attackers report other losses and send other vectors."""
        bad = np.isin(at.ids, self.who)
        if self.loss_scale != 1 and bad.any():
            algo = _reporting(algo, torch.from_numpy(self.who), self.loss_scale)
        if self.message == "none" or not len(self.who):
            return algo

        def deliver(server: State, uploads: State, states: State, cohort: ClientInfo) -> tuple[State, State]:
            if bad.all() or not bad.any():
                return uploads, states
            rows = upload(np.flatnonzero(bad), cohort.id.device)
            sent = {
                k: uploads[k].index_copy(0, rows, self._forged(uploads[k], rows, cohort, place, at))
                for place, k in enumerate(vectors(uploads, server["w"].shape))
            }
            return uploads | sent, states

        return replace(algo, deliver=deliver)

    def _forged(self, rows: Tensor, bad: Tensor, cohort: ClientInfo, place: int, at: At) -> Tensor:
        """What the attackers send instead of their vectors, [a, P].

        Args:
            rows: The vectors of the cohort [C, P].
            bad: The positions of the attackers [a].
            cohort: The cohort.
            place: Place of the vector's name among all of the method.
            at: The round.
        """
        own, size = rows[bad], rows.shape[1]
        scale = _SCALES.get(self.message, 1.0) if self.scale == "auto" else self.scale
        if self.message == "scale":
            return own * (1 / cohort.p[bad].double().sum() if self.scale == "auto" else scale)
        if self.message == "sign_flip":
            return own * -scale
        if self.message == "gaussian":
            base, ids = key(at.seed, Purpose.FORGED, at.round), cohort.id[bad][:, None]
            coordinate, radii = torch.arange(size, device=rows.device) + place * size, scale * lengths(own) / size**0.5
            drawn = [radii[:, None] * normal(fold_in(base, ids, coordinate[block])) for block in columns(own)]
            return torch.cat([z.to(rows.dtype) for z in drawn], 1) + own * self.add
        honest = rows[torch.isin(torch.arange(len(rows), device=bad.device), bad, invert=True)]
        zeta = supported(len(rows), len(own)) if self.zeta == "auto" else self.zeta

        def shared(block: Tensor) -> Tensor:
            mean = block.mean(0)
            return -scale * mean if self.message == "ipm" else mean - zeta * block.std(0, correction=0)

        return by_columns(shared, honest).to(rows.dtype).expand_as(own)

    def turn(self, turn: Turn, at: At) -> Turn:
        """The round with the number of its attackers and, where all vectors are held, what came of them."""
        bad, algo = np.isin(at.ids, self.who), turn.algorithm
        notes = {**turn.notes, "attackers": float(bad.sum())}
        if not len(at.ids):  # the last ones would stay
            notes |= {k: float("nan") for k in ("deviation", "chosen_attackers") if OWN + k in at.server}
        if algo.deliver is not None:
            update = averaging(algo)
            algo = replace(algo, update=Seen(update.step, update.weights, inner=update, bad=bad))
        return replace(turn, notes=notes, algorithm=algo)


def supported(n: int, m: int) -> float:
    """Return ζ of ALIE for n clients of whom m attack (Baruch et al., NeurIPS 2019, Alg. 3).

    The attackers need s = ⌊n/2 + 1⌋ - m honest supporters: ζ = Φ⁻¹((n - m - s) / (n - m)), 0 if that share is <= 0.
    """
    supporters = n // 2 + 1 - m
    share = (n - m - supporters) / (n - m)
    return _MAJORITY if supporters <= 0 else NormalDist().inv_cdf(share) if share > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Seen(Averaging):
    """The sums of the uploads, and how far they are from the mean of the honest clients.

    Attributes:
        inner: Forms the sums, or applies a rule in their place.
        bad: Which clients of the cohort attack [C].
    """

    inner: Averaging
    bad: np.ndarray

    def summed(self, server: State, uploads: State, cohort: ClientInfo) -> State:
        """Return the sums with ‖sum - μ‖/‖μ‖, of several vectors the largest, and the share of attackers chosen."""
        found, bad = self.inner.summed(server, uploads, cohort), upload(self.bad, cohort.p.device)
        means = {k: weighted_sum((~bad).double() / (~bad).sum(), uploads[k]) for k in self.weights}
        if apart := [(found[k].double() - mean).norm() / mean.norm() for k, mean in means.items()]:
            found[f"{OWN}deviation"] = torch.stack(apart).max()
        if (chosen := found.pop(f"{OWN}chosen", None)) is not None:
            found[f"{OWN}chosen_attackers"] = (chosen & bad).sum() / chosen.sum()
        return found


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

    update = averaging(algo)
    return replace(
        algo,
        instruct=algo.instruct and told(algo.instruct),
        trials=algo.trials and replace(algo.trials, propose=told(algo.trials.propose)),
        update=replace(update, step=told(update.step), weights={k: told(f) for k, f in update.weights.items()}),
    )

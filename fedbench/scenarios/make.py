"""From the configuration of the scenarios to what surrounds the method of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedbench.config.targets import Component, call, within_fedbench
from fedbench.core.algorithm import Stage
from fedbench.core.errors import RequestError
from fedbench.data.dataset import FederatedDataset
from fedbench.scenarios.allowed import class_of, refuse
from fedbench.scenarios.draws import Population
from fedbench.scenarios.surroundings import Surroundings
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.turn import Attackers

_LAYERS = ("attack", "compression", "privacy", "defence")  # the order in which a message passes them


def surround(
    asked: Mapping[str, Component], algo: Component, stages: Sequence[Stage], population: Population
) -> Surroundings:
    """Return what surrounds a method.

    Args:
        asked: The scenarios that were chosen, by group.
        algo: The configuration of the method.
        stages: The stages of the method.
        population: All clients.

    Raises:
        RequestError: If a value is wrong, or a scenario does not go with the method or with another one.
    """
    parts: dict[str, Any] = {}
    for group, one in asked.items():  # attack is before defence
        attackers = len(parts["attack"].who) if "attack" in parts else 0
        parts[group] = call(one, group, population=population, attackers=attackers)
    name = str(algo.target).rpartition(".")[2]
    needs = {need: key for part in parts.values() for need, key in part.needs.items()}
    own = not within_fedbench(str(algo.target))
    for stage in stages:
        visits = stage.sampler is not None and "away" in needs
        kind = "visits" if visits else class_of(name, algo.options, stage.algorithm, own)
        refuse(name, kind, stage.algorithm, needs)
    if "rule" in needs and "weights" in needs:
        raise RequestError(f"{needs['weights']} does not go with {needs['rule']}: a rule knows no weights; remove one")
    if "privacy" in needs:
        _refuse_beside_privacy(name, stages, needs)
    layers = [parts[group] for group in _LAYERS if group in parts]
    draw = getattr(parts.get("privacy"), "draw", None)
    return Surroundings(population, parts.get("availability"), draw, layers, parts.get("attack", Attackers()))


def _refuse_beside_privacy(name: str, stages: Sequence[Stage], needs: Mapping[str, str]) -> None:
    chosen = "who can be sampled depends on more than a coin of known rate"
    why = {
        "chosen": chosen,
        "rule": "its sensitivity is not C/m̃",
        "norm_clip": "its sensitivity is not C/m̃",
        "weights": "its weights are the same for all, and known before",
    }
    if clash := why.keys() & needs.keys():
        raise RequestError(f"{needs[min(clash)]} does not go with {needs['privacy']}: {why[min(clash)]}; remove one")
    if any(stage.sampler or stage.eligible for stage in stages):
        raise RequestError(f"{needs['privacy']} does not go with algo={name}: {chosen}; remove it")


def population_of(
    data: FederatedDataset,
    work: LocalWork,
    seed: int,
    planned: int,
    rounds: int = 0,
    participation: float | int = 1.0,
    by_size: bool = False,
    shapes: Sequence[tuple[int, ...]] = (),
) -> Population:
    """Return the facts of all clients of a run.

    Args:
        data: The data set.
        work: The local work of the run.
        seed: Random seed of the run.
        planned: Number of clients of a cohort.
        rounds: Planned rounds, over all stages.
        participation: Fraction of the clients in a cohort, or their number.
        by_size: Whether cohorts are drawn by size.
        shapes: Shapes of the model's tensors.
    """
    n = data.train.counts
    per_epoch = work.per_epoch(n)
    steps = np.full(len(n), work.steps) if work.steps is not None else sum(work.epochs) / 2 * per_epoch

    def labels() -> np.ndarray:
        clients = torch.from_numpy(np.repeat(np.arange(len(n)), n)).to(data.y.device)
        found = torch.zeros(len(n) * data.classes, dtype=torch.int64, device=data.y.device)
        found.index_add_(0, clients * data.classes + data.y[data.train.index], torch.ones_like(clients))
        return found.view(len(n), data.classes).cpu().numpy()

    of = labels if data.y.dim() == 1 else None
    steps = np.where(n > 0, steps, 0)
    drawn = (planned, rounds, participation, by_size)
    return Population(seed, n, per_epoch, steps, work.steps is not None, of, *drawn, tuple(shapes))

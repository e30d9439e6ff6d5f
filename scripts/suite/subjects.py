"""Prepared runs of configurations on random data, in a form and a precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from bench import owned
from torch import Tensor

from fedbench.config.compose import Composer
from fedbench.config.schema import EngineConfig, RunConfig
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.build import build
from fedbench.runs.candidates import candidates, on_more_streams
from fedbench.runs.cores import available_cores
from fedbench.runs.train import PreparedRun
from fedbench.simulation.forms import Form
from fedbench.simulation.loop import Snapshot, simulate

PRECISIONS = ("float64", "float32", "tf32", "bf16")
_LARGE = 2**20  # parameters from which one operation on a CPU is worth all cores; the suite has one thread otherwise
_COMPOSER = Composer()


@cache
def composed(*overrides: str) -> RunConfig:
    """Return the configuration that overrides make."""
    return _COMPOSER.config(list(overrides))


def pictures(shape: Sequence[int], sizes: Sequence[int], classes: int = 5) -> FederatedDataset:
    """Return clients with these numbers of training examples: random ones of one shape, labelled by a linear model."""
    rng = np.random.default_rng(0)
    n = _with_tests(sizes)
    x = rng.normal(size=(n.sum(), *shape)).astype(np.float32)
    flat = x.reshape(len(x), -1)
    y = (flat @ rng.normal(size=(flat.shape[1], classes))).argmax(1)
    return owned(x, y, classes, n)


def texts(length: int, tokens: int, sizes: Sequence[int], classes: int = 5, every: bool = False) -> FederatedDataset:
    """Return clients with these numbers of training examples: random tokens, with a label per text or per token."""
    rng = np.random.default_rng(0)
    n = _with_tests(sizes)
    x = rng.integers(0, tokens, (n.sum(), length))
    data = owned(x, rng.integers(0, classes, x.shape if every else len(x)), classes, n)
    return replace(data, tokens=tokens)


def _with_tests(sizes: Sequence[int]) -> np.ndarray:
    return np.array([-(-size * 5 // 4) for size in sizes])  # of which four fifths are for training


def prepared(
    config: RunConfig, data: FederatedDataset, device: torch.device, form: Form, precision: str
) -> PreparedRun:
    """Return a run on given data in one form; matrix products of this process are rounded as the precision says."""
    run = _built(config, data, device, form, precision)
    if run.choice is not None:  # of one form: what is left to choose is the number of clients at once
        run.choice.settle(None)
    return run


def _built(config: RunConfig, data: FederatedDataset, device: torch.device, form: Form, precision: str) -> PreparedRun:
    engine = replace(
        config.engine,
        mode=form.mode,
        graphs=form.graphs,
        channels_last=form.channels_last,
        workers=form.workers,
        precision=precision,
    )
    return build(replace(config, device=str(device), engine=engine), lambda _: data)


def rounds_of(run: PreparedRun) -> Iterator[Snapshot]:
    """Yield the snapshots of a run: one before the first round, and one after each."""
    return simulate(run.stages, run.task, run.data, run.work, run.engine, run.w, run.seed, run.sampler)


def last_model(run: PreparedRun) -> Tensor:
    """Return the model [P] after the last round, in float64 on the CPU."""
    return models_after(run, [run.rounds])[0]


def models_after(run: PreparedRun, rounds: Sequence[int]) -> list[Tensor]:
    """Return the models [P] after these numbers of rounds, ascending, in float64 on the CPU; later rounds are left."""
    before, found = torch.get_num_threads(), []
    if run.task.device.type == "cpu" and run.task.size >= _LARGE:
        torch.set_num_threads(available_cores())
    snapshots = rounds_of(run)
    try:
        for number, snapshot in zip(range(rounds[-1] + 1), snapshots, strict=False):
            if number in rounds:
                w: Tensor = snapshot.server["w"]
                found.append(w.detach().to("cpu", torch.float64, copy=True))
    finally:
        snapshots.close()
        torch.set_num_threads(before)
        run.engine.close()
    return found


def forms(config: RunConfig, data: FederatedDataset, device: torch.device, precision: str) -> list[Form]:
    """Return the forms in which a run can be carried out on a device, the plainest first."""
    plain = _built(config, data, device, Form("stacked"), precision)
    plain.engine.close()
    free: EngineConfig = replace(config.engine, precision=precision)
    found = [f for f in candidates(plain.task, plain.data, free) if device.type == "cuda" or not f.graphs]
    return found + [more for f in found if device.type == "cuda" for more in on_more_streams(f, free)]

"""From a checked request to the objects of a run. Targets are named in the config tree."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbench import config as settings
from fedbench.algorithm import Algorithm
from fedbench.batches import LocalWork
from fedbench.config import Request
from fedbench.data.assemble import assemble
from fedbench.data.federated import FederatedDataset
from fedbench.engine import Engine
from fedbench.errors import RequestError, nearest
from fedbench.models.dense import MLP, Linear
from fedbench.optim import Optimizer, sgd
from fedbench.oracles import make_oracle
from fedbench.randomness import Purpose, generator
from fedbench.runner import Experiment
from fedbench.simulate import Stage, sample_cohort
from fedbench.task import Task
from fedbench.trackers import NoTracker, Tracker
from fedbench.trees import Tree

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_CACHE_BYTES = 6 * 2**20  # parameters that are worked on at once on a CPU: what a core keeps close
_DEVICE_SHARE = 0.05  # of the free memory of a GPU for one copy of a chunk's parameters; a step holds about ten
_SMALL = 2**16  # parameters up to which threads over chunks only wait for each other
_LARGE_DENSE = 2**20  # parameters from which a dense model is better trained client by client on a CPU


def build(request: Request) -> Experiment:
    """Make everything a run needs, and refuse what cannot be run before anything is written.

    Raises:
        RequestError: for values that do not fit an algorithm, a data set or a model, and for missing data.
    """
    c = request.config
    local = settings.local(c)
    solver = sgd(local.momentum, local.nesterov, local.weight_decay, local.clip_norm)
    algorithm = _algorithm(c["algo"], solver)
    if c["sampling"] == "size" and algorithm.weights == "size":
        raise RequestError(
            "sampling=size with weights by size counts large clients twice; set algo.weights=uniform, or "
            "sampling=uniform"
        )
    device, dtype = _device(c["device"]), _DTYPES[c["engine"]["precision"]]
    data = _data(c, request.names).to(device, dtype)
    task = Task(_model(c["model"], data), device, dtype)
    w = _initial(task, c)
    engine = make_engine(task, data.num_clients, c["engine"])
    sampler = sample_cohort(settings.participation(c), by_size=c["sampling"] == "size")
    return Experiment(
        title=f"{request.names['algo']} seed {c['seed']} {request.setting}",
        seed=c["seed"],
        stages=[Stage(algorithm, c["rounds"], sampler)],
        task=task,
        data=data,
        work=LocalWork(local.lr, local.batch_size, local.epochs, local.steps),
        engine=engine,
        w=w,
        eval_every=c["eval_every"],
        keep_clients=c["keep_clients"],
        improved_clients=c["improved_clients"],
        tracker=_tracker(c["tracker"]),
        facts={
            "seed": c["seed"],
            "hash": request.digest,
            **request.names,
            "departures": request.departures,
            "overrides": list(request.overrides),
            "sources": list(data.sources),
            "clients": data.num_clients,
            "parameters": task.size,
            "engine": {
                "mode": engine.mode,
                "cohort_size": engine.cohort_size,
                "workers": engine.workers,
                "precision": c["engine"]["precision"],
            },
        },
    )


def call(section: Tree, what: str, **given: Any) -> Any:
    """Call ``section._target_`` with the section's other keys and those of ``given`` that it takes.

    Raises:
        RequestError: if there is no such function, or keys are unknown or missing.
    """
    target = section.get("_target_")
    if not isinstance(target, str) or "." not in target:
        raise RequestError(f"{what}._target_ must name a function as package.module.function, got {target!r}")
    module, name = target.rsplit(".", 1)
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name and target.startswith(error.name):
            raise RequestError(f"{what}._target_={target}: there is no module {error.name}") from error
        extra = f"; run: pip install fedbench[{error.name}]" if error.name in {"tensorboard", "mlflow"} else ""
        raise RequestError(f"{what} needs the package {error.name}, which is not installed{extra}") from error
    except AttributeError as error:
        raise RequestError(f"{what}._target_={target}: {module} has no {name}") from error
    takes = {k: p for k, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD}
    anything = len(takes) < len(inspect.signature(function).parameters)
    options = {k: v for k, v in section.items() if k != "_target_"}
    known = [k for k in takes if k not in given]
    for key in options:
        if key not in known and not anything:
            allowed = ", ".join(known) or "none"
            raise RequestError(f"unknown key {what}.{key}; {name} has the keys {allowed}{nearest(key, known)}")
    missing = [k for k in known if takes[k].default is inspect.Parameter.empty and k not in options]
    if missing:
        raise RequestError(f"{what}.{missing[0]} is not set and {name} needs it")
    return function(**{k: v for k, v in given.items() if k in takes}, **options)


def _algorithm(section: Tree, solver: Optimizer) -> Algorithm:
    made = call(section, "algo", local=solver)
    if not isinstance(made, Algorithm):
        raise RequestError(f"algo._target_={section['_target_']} must return an Algorithm, got {type(made).__name__}")
    return made


def _data(c: Tree, names: dict[str, str | None]) -> FederatedDataset:
    data = c["data"]
    if "source" not in data:
        raise RequestError(f"data={names['data']} names no source")
    rule = data.get("partition")
    folder = Path(c["data_dir"]).expanduser()
    examples = call(data["source"], "data.source", data_dir=folder, seed=data["seed"])
    return assemble(
        examples,
        partition=rule and (lambda y, clients, rng: call(rule, "data.partition", y=y, clients=clients, rng=rng)),
        clients=data.get("clients"),
        split=data["split"],
        local_test=data["local_test"],
        seed=data["seed"],
    )


def _model(section: Tree, data: FederatedDataset) -> torch.nn.Module:
    with torch.device("meta"):  # only shapes matter: parameters are functions of w, and no global generator is used
        model: torch.nn.Module = call(section, "model", input_shape=data.shape, classes=data.classes)
    return model


def _initial(task: Task, c: Tree) -> Tensor:
    path = c["init"]["path"]
    if path is None:
        return task.init(generator(c["seed"], Purpose.INIT))
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        named = load_file(Path(path).expanduser())
    except (OSError, SafetensorError) as error:
        raise RequestError(f"init.path={path} cannot be read as a .safetensors file: {error}") from error
    return task.layout.flatten(named).to(task.device, task.dtype)


def _device(name: str) -> torch.device:
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise RequestError(f"device must be auto, cpu, cuda or cuda:<i>, got {name}")
    if device.type == "cuda" and (not cuda or (device.index or 0) >= torch.cuda.device_count()):
        raise RequestError(f"device={name}, but torch sees {torch.cuda.device_count()} CUDA devices; use device=auto")
    return device


def make_engine(task: Task, clients: int, section: Tree) -> Engine:
    """Choose how to simulate; docs/performance.md has the measurements behind the rules."""
    dense, gpu = isinstance(task.model, Linear | MLP), task.device.type == "cuda"
    mode, size, workers = section["mode"], section["cohort_size"], section["workers"]
    if mode == "auto":
        mode = "stacked" if gpu or (dense and task.size < _LARGE_DENSE) else "loop"
    if size == "auto":
        size = 1 if mode == "loop" else min(clients, _stack(task, gpu))
    if workers == "auto":
        workers = 1 if gpu or (mode == "stacked" and task.size < _SMALL) else _cores()
    return Engine(make_oracle(task, mode), mode, size, workers)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _stack(task: Task, gpu: bool) -> int:
    bytes_each = task.size * task.dtype.itemsize
    if not gpu:
        return max(8, _CACHE_BYTES // bytes_each)
    free, _ = torch.cuda.mem_get_info(task.device)
    return max(1, int(free * _DEVICE_SHARE) // bytes_each)


def _tracker(section: Tree) -> Tracker:
    if section.get("_target_") is None:
        return NoTracker()
    tracker: Tracker = call(section, "tracker")
    return tracker

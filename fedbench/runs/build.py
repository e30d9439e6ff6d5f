"""From a configuration to the objects of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import torch
from torch import Tensor

from fedbench.config.schema import LocalConfig, RunConfig
from fedbench.config.targets import Component, call, function_of
from fedbench.core.algorithm import Stage
from fedbench.core.errors import RequestError
from fedbench.core.files import Tree
from fedbench.core.randomness import Purpose, generator, sample_cohort
from fedbench.data.augment import Augmentation
from fedbench.data.dataset import FederatedDataset
from fedbench.models.base import traits_of
from fedbench.runs.build_data import federated
from fedbench.runs.build_engine import kernel_used, make_engine
from fedbench.runs.build_method import stages_of
from fedbench.runs.custom_components import check_logits, checked_module
from fedbench.runs.tensors import read_tensors
from fedbench.runs.trackers import Guarded, Tracker
from fedbench.runs.training import PreparedRun
from fedbench.simulation.checks import is_own
from fedbench.simulation.diagnostics import DIAGNOSTICS, CustomMetric
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.task import Task


def build(
    config: RunConfig, load: Callable[[RunConfig], FederatedDataset] = federated, cores: int | None = None
) -> PreparedRun:
    """Make everything a run needs, and refuse what cannot be run before anything is written.

    Args:
        config: The configuration.
        load: Returns the data set of a configuration, on the host.
        cores: Number of cores that the run may use; None is all of this process.

    Raises:
        RequestError: If values do not fit the algorithm, the data set or the model, or data are missing.
    """
    local, precision = config.local, config.engine.precision
    device = _device(config.device)
    dtype = torch.float64 if precision == "float64" else torch.float32  # of the parameters
    _round_products(device, precision)
    data = load(config).to(device, dtype)
    _refuse_too_many(config, data)
    task = Task(_model(config, data), device, dtype, bf16=precision == "bf16")
    stages = stages_of(config, data, task)
    data = _suited(data, task)
    _refuse_sequences(config, stages, data)
    w = _initial(task, config)
    if is_own(type(task.model).forward):
        check_logits(task, data, w, config.engine.mode)
    # a trace shows the calling thread alone
    engine_config = replace(config.engine, workers=1) if config.engine.profile else config.engine
    work = LocalWork(
        local.lr,
        local.batch_size,
        local.epochs,
        local.steps,
        random=task.traits.random,
        augment=_augmentation(local, data),
        schedule=local.schedule,
    )
    engine = make_engine(task, data, work, engine_config, cores)
    sampler = sample_cohort(config.participation, by_size=config.sampling == "size")
    return PreparedRun(
        config=config,
        stages=stages,
        task=task,
        data=data,
        work=work,
        engine=engine,
        w=w,
        sampler=sampler,
        tracker=_tracker(config.tracker),
        metrics=_metrics(config),
        diagnostics=tuple(name for name, d in DIAGNOSTICS.items() if not d.optional or getattr(config, name)),
        facts=_facts(config, data, task, engine, stages),
    )


def _facts(config: RunConfig, data: FederatedDataset, task: Task, engine: Engine, stages: Sequence[Stage]) -> Tree:
    """Return what ``meta.json`` records about a run before it starts."""
    augmented = bool(config.local.crop or config.local.flip)
    return {
        "seed": config.seed,
        "hash": config.digest,
        **config.identity.facts,
        **asdict(config.names),
        "departures": dict(config.departures),
        "overrides": list(config.overrides),
        "sources": list(data.sources),
        "unofficial": list(data.unofficial),
        "clients": data.num_clients,
        "parameters": task.size,
        "engine": {
            "mode": engine.mode,
            "cohort_size": engine.cohort_size,
            "workers": engine.workers,
            "precision": config.engine.precision,
            "kernel": kernel_used(engine, stages, data, augmented),
        },
    }


def _round_products(device: torch.device, precision: str) -> None:
    """Let a GPU's matrix products round their factors to 19 bits, or not: for the whole process.

    Its convolutions repeat the same bits: their kernels are not chosen by a stopwatch, nor add up in any order.
    """
    if precision in ("tf32", "bf16") and device.type != "cuda":  # bf16: torch's gradients of convolutions over images
        # of one pixel hold what was in memory before, on a CPU and in version 2.13
        raise RequestError(f"engine.precision={precision} needs a CUDA device; use float32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if device.type == "cuda":
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False


def _augmentation(local: LocalConfig, data: FederatedDataset) -> Augmentation | None:
    if not (local.crop or local.flip):
        return None
    if len(data.shape) != 3:
        raise RequestError(f"local.crop and local.flip are for images, got examples of shape {list(data.shape)}")
    if local.crop and data.mean is None:
        raise RequestError("local.crop pads images stored as bytes; these are stored as other numbers")
    if local.crop > min(data.shape[1:]):
        raise RequestError(f"local.crop must be at most the images' side, {min(data.shape[1:])}, got {local.crop}")
    return Augmentation(local.crop, local.flip)


def _refuse_too_many(config: RunConfig, data: FederatedDataset) -> None:
    if isinstance(config.participation, int) and config.participation > data.num_clients:
        raise RequestError(
            f"participation={config.participation} exceeds the number of clients, {data.num_clients}; use "
            "participation=1.0 for all of them"
        )


def _refuse_sequences(config: RunConfig, stages: Sequence[Stage], data: FederatedDataset) -> None:
    """Refuse methods that need examples of numbers, or one label or one owner per example."""
    blends = any(stage.algorithm.blends_examples for stage in stages)
    if blends and data.tokens is not None and data.table is None:
        raise RequestError(
            "mixup blends examples, and these are tokens; set algo.mixup=false or model.embedding=frozen"
        )
    relabels = any(stage.after for stage in stages)
    if relabels and data.shares_examples:
        raise RequestError(
            f"{config.names.algo} relabels examples by their losses, and some belong to several clients; set "
            "data.partition.as_published=false"
        )
    if data.y.dim() > 1 and relabels:
        raise RequestError(
            f"{config.names.algo} relabels examples by their losses, but data={config.names.data} has a label per token"
        )


def _model(config: RunConfig, data: FederatedDataset) -> torch.nn.Module:
    """Return the model, on the meta device, if it reads the data's examples and answers in the form of its labels."""
    given = {"input_shape": data.shape, "classes": data.classes, "tokens": data.tokens}
    maker = function_of(config.model.target, "model")
    takes = inspect.signature(maker).parameters
    if data.tokens is not None and "tokens" not in takes:
        raise RequestError(
            f"data={config.names.data} consists of tokens, which model={config.names.model} cannot read; "
            "use a model of tokens, such as lstm_char"
        )
    vectors = None if data.vectors is None else torch.from_numpy(data.vectors())
    with torch.device("meta"):  # only shapes matter: parameters are functions of w, and no global generator is used
        model = checked_module(call(config.model, "model", **given, vectors=vectors), maker)
    per_token = traits_of(model).per_token
    if per_token is not None and per_token != (data.y.dim() > 1):
        per = "every token" if data.y.dim() > 1 else "every example"
        raise RequestError(
            f"data={config.names.data} has a label for {per}; set model.every={str(data.y.dim() > 1).lower()}"
        )
    return model


def _suited(data: FederatedDataset, task: Task) -> FederatedDataset:
    """Return the data in the form in which the model reads them."""
    table = task.take_table()
    if table is not None:
        data = replace(data, table=table.to(task.device, task.dtype))
    return replace(data, work_values=task.traits.work_values)


def _initial(task: Task, config: RunConfig) -> Tensor:
    path = config.init_path
    if path is None:
        return task.init(generator(config.seed, Purpose.INIT))
    named = read_tensors(path, "init.path")
    return task.layout.flatten(named).to(task.device, task.dtype)


def _device(name: str) -> torch.device:
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (not cuda or (device.index or 0) >= torch.cuda.device_count()):
        found = torch.cuda.device_count() if cuda else 0
        tail = "s" if found > 1 else ""
        raise RequestError(
            f"device={name}, but PyTorch finds {found or 'no'} CUDA device{tail}; use device=auto or device=cpu"
        )
    return device


def _metrics(config: RunConfig) -> tuple[CustomMetric, ...]:
    return tuple(
        CustomMetric(name, function_of(component.target, f"metrics.{name}"), component.options)
        for name, component in config.metrics.items()
    )


def _tracker(component: Component) -> Tracker:
    if component.target is None:
        return Tracker()
    return Guarded(call(component, "tracker"))

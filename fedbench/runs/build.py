"""From a configuration to the objects of a run."""

import inspect
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import fedbench
from fedbench.config.schema import LocalConfig, RunConfig
from fedbench.config.targets import Component, call, function_of
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.config_values import Tree
from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.core.optim import sgd
from fedbench.core.randomness import (
    Purpose,
    cohort_size,
    generator,
    sample_cohort,
    without_replacement,
)
from fedbench.core.randomness import key as key_of
from fedbench.core.user_code import is_own, place_of
from fedbench.data.augmentation import Augmentation
from fedbench.data.dataset import FederatedDataset
from fedbench.models.base import traits_of
from fedbench.runs.build_data import shared_data
from fedbench.runs.build_engine import make_engine
from fedbench.runs.process import LOCAL_RANK, LOCAL_WORLD_SIZE, WORLD_SIZE
from fedbench.runs.trackers import Guarded
from fedbench.runs.training import PreparedRun
from fedbench.scenarios.population import Population
from fedbench.scenarios.scenario_stack import build_scenarios
from fedbench.simulation.checks import FirstCall, checked, kind
from fedbench.simulation.diagnostics import CustomMetric
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.ranks import Ranks
from fedbench.simulation.scenario import Scenario
from fedbench.simulation.task import Task

_FEW = 2  # examples that a model of the user's own is tried on


def build(config: RunConfig, cores: int | None = None) -> PreparedRun:
    """Make everything a run needs, and refuse what cannot be run before anything is written.

    Args:
        config: The configuration.
        cores: Number of cores that the run may use; None is all of this process.

    Raises:
        RequestError: If values do not fit the algorithm, the data set or the model, or data are
            missing.
    """
    local, precision = config.local, config.engine.precision
    device = device_of(config.device, precision)
    ranks = Ranks(device if WORLD_SIZE > 1 else None)
    request = config.identity.digest, config.seed, fedbench.__version__, torch.__version__
    if len(set(ranks.all_gather(request))) > 1:
        raise RequestError(
            "the processes that torchrun has started ask for different runs, or in other versions"
        )
    if ranks.rank:  # the first process alone follows and traces the run
        config = replace(
            config, tracker=Component(None, {}), engine=replace(config.engine, profile=False)
        )

    dtype = torch.float64 if precision == "float64" else torch.float32  # of the parameters
    data = shared_data(config).to(device, dtype)
    task = Task(_model(config, data), device, dtype, bf16=precision == "bf16")
    stages = _stages(config, data, task)
    table = task.take_table()
    if table is not None:
        data = replace(data, table=table.to(device, dtype))
    w = (
        task.init(generator(config.seed, Purpose.INIT))
        if config.init.path is None
        else _read(config.init.path, task)
    )
    work = LocalWork(
        local.lr,
        local.batch_size,
        local.epochs,
        local.steps,
        random=task.traits.random,
        augment=_augmentation(local, data),
        schedule=local.schedule,
    )
    if is_own(type(task.model).forward):
        _check_logits(task, data, w, config.engine.mode)

    scenario = Scenario()
    if config.scenarios:
        population = Population(
            config.seed,
            data,
            work,
            config.participation,
            sum(stage.rounds for stage in stages),
            config.sampling == "size",
            task.layout.shapes,
        )
        scenario = build_scenarios(config.scenarios, config.algo, stages, population)
        data = scenario.attackers.changed(data)
    # a trace shows the calling thread alone
    engine_config = replace(config.engine, workers=1) if config.engine.profile else config.engine
    cohort = cohort_size(config.participation, data.num_clients)
    engine = make_engine(task, data, work, engine_config, cohort, cores, ranks)
    return PreparedRun(
        config=config,
        stages=stages,
        task=task,
        data=data,
        work=work,
        engine=engine,
        w=w,
        sampler=sample_cohort(config.participation, by_size=config.sampling == "size"),
        sample=_evaluated(config, data.num_clients, scenario.attackers.who),
        scenario=scenario,
        tracker=Guarded(call(config.tracker, "tracker") if config.tracker.target else None),
        metrics=tuple(
            CustomMetric(name, function_of(component.target, f"metrics.{name}"), component.options)
            for name, component in config.metrics.items()
        ),
        facts=_facts(config, data, task, engine) | scenario.facts,
    )


def _augmentation(local: LocalConfig, data: FederatedDataset) -> Augmentation | None:
    """Return the augmentation of training images, if there is one."""
    if not (local.crop or local.flip):
        return None
    if len(data.shape) != 3:
        raise RequestError(
            f"local.crop and local.flip are for images, got examples of shape {list(data.shape)}"
        )
    sides = list(data.shape[1:])
    if local.crop and (data.mean is None or local.crop > min(sides)):
        raise RequestError(
            f"local.crop={local.crop} needs images of at least that side, stored as bytes, got {sides}"
        )
    return Augmentation(local.crop, local.flip)


def _evaluated(config: RunConfig, clients: int, attackers: np.ndarray) -> np.ndarray | None:
    """Return the clients that are evaluated, ascending; None is all."""
    size = config.evaluate.clients
    if size is None and not len(attackers):
        return None
    # by the seed, so that the STD over seeds has in it what a sample is off the population
    key = key_of(config.seed, Purpose.EVALUATION)
    sample = (
        np.arange(clients) if size is None else without_replacement(key, size, np.ones(clients))
    )
    honest = np.setdiff1d(sample, attackers)
    if not len(honest):
        raise RequestError(
            f"evaluate.clients={size} draws attackers alone; use evaluate.clients=all"
        )
    return honest


def _stages(config: RunConfig, data: FederatedDataset, task: Task) -> list[Stage]:
    """Return the stages of the method, with the user's own functions checked in their first call.

    Raises:
        RequestError: If the sampling of clients or the data do not fit the method.
    """
    participation, count = config.participation, data.num_clients
    for number, key, everyone in (
        (participation, "participation", 1.0),
        (config.evaluate.clients, "evaluate.clients", "all"),
    ):
        if isinstance(number, int) and number > count:
            fault = f"exceeds the number of clients, {count}; use {key}={everyone} for all of them"
            raise RequestError(f"{key}={number} {fault}")

    able = int((data.train.counts > 0).sum())
    stages = _method(
        config, clients=able, examples=data.train.counts.tolist(), tensors=task.layout.sizes
    )
    partial = cohort_size(participation, count) < able
    for stage in stages:
        if fault := _misfit(config, data, task, stage, partial):
            raise RequestError(f"{config.names.algo} {fault}")
    if config.identity.facts["code"]:  # the user's own
        stages = [stage._replace(algorithm=checked(stage.algorithm)) for stage in stages]
    return stages


def _misfit(
    config: RunConfig, data: FederatedDataset, task: Task, stage: Stage, partial: bool
) -> str:
    """Return why the sampling of clients or the data do not fit a stage; empty if they do.

    Args:
        config: The configuration.
        data: The data set.
        task: The model.
        stage: The stage.
        partial: Whether some clients with training examples are not in every cohort.
    """
    algorithm, by_size = stage.algorithm, config.sampling == "size"
    if by_size and algorithm.weights == "size":
        # the option that sets them
        key = next((k for k, v in config.algo.options.items() if v == "size"), None)
        remedy = f"algo.{key}=uniform or " if key else ""
        return f"counts large clients twice, by its weights and by sampling=size; set {remedy}sampling=uniform"
    if by_size and algorithm.uniform and partial:
        return f"needs cohorts that are drawn uniformly: {algorithm.uniform}; use sampling=uniform"
    if algorithm.everyone and (stage.sampler or stage.eligible or partial):
        participation = f"participation=1.0, got {config.participation}"
        return f"needs all clients in every round, and in every stage, {participation}: {algorithm.everyone}"
    if algorithm.blends_examples and data.tokens is not None and task.traits.table is None:
        return "blends examples by mixup, and these are tokens; set algo.mixup=false or model.embedding=frozen"
    if stage.after and data.shares_examples:
        shared = "some belong to several clients; set data.partition.as_published=false"
        return f"relabels examples by their losses, and {shared}"
    if stage.after and data.y.dim() > 1:
        return (
            f"relabels examples by their losses, and data={config.names.data} has a label per token"
        )
    return ""


def _method(config: RunConfig, **facts: object) -> list[Stage]:
    """Return the stages of the method.

    Args:
        config: The configuration.
        facts: The number of clients with training examples, the training examples of every client,
            and the sizes of the model's tensors (ADR 0002).

    Raises:
        RequestError: If values do not fit the method.
    """
    local = sgd(**asdict(config.local.solver))
    method: object = call(config.algo, "algo", local=local, rounds=config.rounds, **facts)
    if isinstance(method, Algorithm):
        return [Stage(method, config.rounds)]
    if isinstance(method, list) and all(isinstance(stage, Stage) for stage in method):
        return method
    raise RequestError(
        f"algo._target_={config.algo.target} must return an Algorithm or a list of Stages, got {type(method).__name__}"
    )


def _facts(config: RunConfig, data: FederatedDataset, task: Task, engine: Engine) -> Tree:
    """Return what ``meta.json`` records about a run before it starts."""
    names = asdict(config.names)
    facts = {
        "seed": config.seed,
        "hash": config.identity.digest,
        **config.identity.facts,
        **names.pop("scenarios"),
        **names,
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
            **engine.ranks.facts(),
        },
    }
    if config.evaluate.clients:
        facts["evaluated_clients"] = config.evaluate.clients
    return facts


def device_of(name: str, precision: str) -> torch.device:
    """Return the device, and let a GPU's matrix products round their factors to 19 bits, or not: for all runs.

    Its convolutions repeat the same bits: their kernels are not chosen by a stopwatch, nor add up
    in any order.

    Raises:
        RequestError: If PyTorch does not find the device, or the precision needs another one.
    """
    count = torch.cuda.device_count()
    place = name
    if name == "auto":
        place = "cuda" if count else "cpu"
    if LOCAL_WORLD_SIZE > 1 and place.startswith("cuda"):
        if place != "cuda" or count < LOCAL_WORLD_SIZE:
            raise RequestError(
                f"device={name} for {LOCAL_WORLD_SIZE} processes of this machine, where PyTorch finds {count} CUDA "
                "devices; each takes one of them: use device=cuda and as many processes, or device=cpu"
            )
        place = f"cuda:{LOCAL_RANK}"
    device = torch.device(place)
    index = device.index or 0
    on_gpu = device.type == "cuda"
    if on_gpu and index >= count:
        raise RequestError(
            f"device={name}, but PyTorch finds {count or 'no'} CUDA devices; use device=auto"
        )
    # bf16: torch's gradients of convolutions over images of one
    if precision in ("tf32", "bf16") and not on_gpu:
        # pixel hold what was in memory before, on a CPU and in version 2.13
        raise RequestError(f"engine.precision={precision} needs a CUDA device; use float32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if on_gpu:
        torch.cuda.set_device(index)  # where streams are made
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return device


def _model(config: RunConfig, data: FederatedDataset) -> nn.Module:
    """Return the model, on the meta device, if it reads the data's examples and answers in the form of its labels."""
    function = function_of(config.model.target, "model")
    if data.tokens is not None and "tokens" not in inspect.signature(function).parameters:
        raise RequestError(
            f"data={config.names.data} consists of tokens, which model={config.names.model} cannot read; "
            "use a model of tokens, such as lstm_char"
        )
    vectors = None if data.vectors is None else torch.from_numpy(data.vectors())
    # only shapes matter: parameters are functions of w, and no global generator is used
    with torch.device("meta"):
        model: object = call(
            config.model,
            "model",
            input_shape=data.shape,
            classes=data.classes,
            tokens=data.tokens,
            vectors=vectors,
        )
    if not isinstance(model, nn.Module):
        raise RequestError(
            f"model: {place_of(function)} made {type(model).__name__}; expected a torch.nn.Module"
        )
    per_token = data.y.dim() > 1
    if traits_of(model).per_token not in (None, per_token):
        unit = "every token" if per_token else "every example"
        raise RequestError(
            f"data={config.names.data} has a label for {unit}; set model.every={str(per_token).lower()}"
        )
    return model


@torch.no_grad()
def _check_logits(task: Task, data: FederatedDataset, w: Tensor, mode: str) -> None:
    """Try a model of the user's own on two examples, in one piece and, where the engine will, vectorised over clients.

    Raises:
        RequestError: If the model raises an error, or returns anything but finite logits.
    """
    rows = torch.arange(min(_FEW, len(data.y)), device=data.x.device)
    x, y = data.features(rows), data.labels(rows)
    expected = [*y.shape, data.classes]

    def fault(args: tuple[object, ...], logits: object) -> str | None:
        if isinstance(logits, Tensor) and list(logits.shape) == expected:
            return None
        unit = "example" if y.dim() == 1 else "token"
        return f"returned {kind(logits)} for examples {list(x.shape)}; expected logits {expected}, a row per {unit}"

    forward = type(task.model).forward
    FirstCall(task.predict, "model", fault, forward)(w, x)
    if mode == "stacked":
        role = "model, vectorised over clients (engine.mode=loop takes one client after another)"
        views = task.layout.views(w.expand(_FEW, -1).contiguous())
        FirstCall(task.apply_each, role, lambda *_: None, forward)(views, torch.stack([x] * _FEW))


def _read(path: Path, task: Task) -> Tensor:
    """Return the initial model [P] in a file.

    Raises:
        RequestError: If the file does not exist, is not in the safetensors format, or is of another
            model.
    """
    with reading(path, "of init.path cannot be read as a .safetensors file"):
        named = load_file(path)
    return task.layout.flatten(named).to(task.device, task.dtype)

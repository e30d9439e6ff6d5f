"""From a configuration to the objects of a run."""

from __future__ import annotations

import inspect
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import fedbench
from fedbench.config.schema import RunConfig
from fedbench.config.targets import Component, call, function_of
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.config_values import Tree
from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.core.optim import sgd
from fedbench.core.randomness import Purpose, cohort_size, generator, sample_cohort, without_replacement
from fedbench.core.randomness import key as key_of
from fedbench.core.user_code import is_own, place_of, raised
from fedbench.data.augmentation import Augmentation
from fedbench.data.dataset import FederatedDataset
from fedbench.models.base import traits_of
from fedbench.runs.build_data import shared_data
from fedbench.runs.build_engine import make_engine
from fedbench.runs.method_options import method_parts
from fedbench.runs.process import LOCAL_RANK, LOCAL_WORLD_SIZE, WORLD_SIZE
from fedbench.runs.trackers import Guarded
from fedbench.runs.training import PreparedRun
from fedbench.scenarios.population import Population
from fedbench.scenarios.scenario_stack import build_scenarios
from fedbench.simulation.checks import checked, kind
from fedbench.simulation.diagnostics import CustomMetric
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.memory import allocation_failed
from fedbench.simulation.ranks import ALONE, Ranks
from fedbench.simulation.scenario import Scenario
from fedbench.simulation.task import Task

_FEW = 2  # examples that a model of the user's own is tried on


def build(config: RunConfig, cores: int | None = None) -> PreparedRun:
    """Make everything a run needs, and refuse what cannot be run before anything is written.

    Args:
        config: The configuration.
        cores: Number of cores that the run may use; None is all of this process.

    Raises:
        RequestError: If values do not fit the algorithm, the data set or the model, or data are missing.
    """
    local, precision = config.local, config.engine.precision
    device = device_of(config.device, precision)
    ranks = Ranks(device) if WORLD_SIZE > 1 else ALONE
    asked = config.identity.digest, config.seed, fedbench.__version__, torch.__version__
    if len(set(ranks.all_gather(asked))) > 1:
        raise RequestError("the processes that torchrun has started ask for different runs, or in other versions")
    if ranks.rank:  # the first process alone follows and traces the run
        config = replace(config, tracker=Component(None, {}), engine=replace(config.engine, profile=False))
    dtype = torch.float64 if precision == "float64" else torch.float32  # of the parameters
    data = shared_data(config).to(device, dtype)
    task = Task(_model(config, data), device, dtype, bf16=precision == "bf16")
    stages = _stages(config, data, task)
    if (table := task.take_table()) is not None:
        data = replace(data, table=table.to(device, dtype))
    w = task.init(generator(config.seed, Purpose.INIT)) if config.init_path is None else _read(config.init_path, task)
    if (local.crop or local.flip) and len(data.shape) != 3:
        raise RequestError(f"local.crop and local.flip are for images, got examples of shape {list(data.shape)}")
    if local.crop > (0 if data.mean is None else min(data.shape[1:])):
        side = "stored as bytes" if data.mean is None else f"of at least that side, got {list(data.shape[1:])}"
        raise RequestError(f"local.crop={local.crop} needs images {side}")
    if is_own(type(task.model).forward):
        _check_logits(task, data, w, config.engine.mode)
    # a trace shows the calling thread alone
    engine_config = replace(config.engine, workers=1) if config.engine.profile else config.engine
    work = LocalWork(
        local.lr,
        local.batch_size,
        local.epochs,
        local.steps,
        random=task.traits.random,
        augment=Augmentation(local.crop, local.flip) if local.crop or local.flip else None,
        schedule=local.schedule,
    )
    cohort = cohort_size(config.participation, data.num_clients)
    scenario = Scenario()
    if config.scenarios:
        drawn = config.participation, sum(s.rounds for s in stages), config.sampling == "size"
        everybody = Population(config.seed, data, work, *drawn, task.layout.shapes)
        scenario = build_scenarios(config.scenarios, config.algo, stages, everybody)
        data = scenario.attackers.changed(data)
    engine = make_engine(task, data, work, engine_config, cohort, cores, ranks)
    sample, size = None, config.evaluate_clients
    if size is not None:  # by the seed, so that the STD over seeds has in it what a sample is off the population
        sample = without_replacement(key_of(config.seed, Purpose.EVALUATION), size, np.ones(data.num_clients))
    if len(who := scenario.attackers.who):
        sample = np.setdiff1d(np.arange(data.num_clients) if sample is None else sample, who)
        if not len(sample):
            raise RequestError(f"evaluate.clients={size} draws attackers alone; use evaluate.clients=all")
    return PreparedRun(
        config=config,
        stages=stages,
        task=task,
        data=data,
        work=work,
        engine=engine,
        w=w,
        sampler=sample_cohort(config.participation, by_size=config.sampling == "size"),
        sample=sample,
        scenario=scenario,
        tracker=Guarded(call(config.tracker, "tracker") if config.tracker.target else None),
        metrics=tuple(
            CustomMetric(name, function_of(component.target, f"metrics.{name}"), component.options)
            for name, component in config.metrics.items()
        ),
        facts=_facts(config, data, task, engine) | scenario.facts,
    )


def _stages(config: RunConfig, data: FederatedDataset, task: Task) -> list[Stage]:
    """Return the stages of the method, with the user's own functions checked in their first call.

    Raises:
        RequestError: If the sampling of clients or the data do not fit the method.
    """
    name, participation = config.names.algo, config.participation
    if isinstance(participation, int) and participation > data.num_clients:
        raise RequestError(
            f"participation={participation} exceeds the number of clients, {data.num_clients}; use participation=1.0 "
            "for all of them"
        )
    if (config.evaluate_clients or 0) > data.num_clients:
        raise RequestError(
            f"evaluate.clients={config.evaluate_clients} exceeds the number of clients, {data.num_clients}; use "
            "evaluate.clients=all for all of them"
        )
    able = int((data.train.counts > 0).sum())
    stages = _method(config, clients=able, examples=data.train.counts.tolist(), tensors=task.layout.sizes)
    part, by_size = cohort_size(participation, data.num_clients) < able, config.sampling == "size"
    for stage in stages:
        algorithm = stage.algorithm
        if by_size and algorithm.weights == "size":
            key = next((k for k, v in config.algo.options.items() if v == "size"), None)  # the option that sets them
            remedy = f"set algo.{key}=uniform, or " if key else "use "
            raise RequestError(
                f"sampling=size with weights by size counts large clients twice; {remedy}sampling=uniform"
            )
        if by_size and algorithm.uniform and part:
            raise RequestError(
                f"{name} needs cohorts that are drawn uniformly: {algorithm.uniform}; use sampling=uniform"
            )
        if algorithm.everyone and (stage.sampler or stage.eligible or part):
            where = "and in every stage" if len(stages) > 1 else f"participation=1.0, got {participation}"
            raise RequestError(f"{name} needs all clients in every round, {where}: {algorithm.everyone}")
        if algorithm.blends_examples and data.tokens is not None and task.traits.table is None:
            raise RequestError(
                "mixup blends examples, and these are tokens; set algo.mixup=false or model.embedding=frozen"
            )
        if stage.after and (data.shares_examples or data.y.dim() > 1):
            shared = "some belong to several clients; set data.partition.as_published=false"
            why = shared if data.shares_examples else f"data={config.names.data} has a label per token"
            raise RequestError(f"{name} relabels examples by their losses, and {why}")
    if config.identity.facts["code"]:  # the user's own
        stages = [stage._replace(algorithm=checked(stage.algorithm)) for stage in stages]
    return stages


def _method(config: RunConfig, **facts: object) -> list[Stage]:
    """Return the stages of the method.

    Args:
        config: The configuration.
        facts: The number of clients with training examples, the training examples of every client, and the sizes of
            the model's tensors (ADR 0002).

    Raises:
        RequestError: If values do not fit the method.
    """
    arguments = {"local": sgd(**asdict(config.local.solver)), "rounds": config.rounds, **facts}
    parts = method_parts(config)
    outer = parts.pop("algo")
    options = dict(outer.options)
    for key, part in parts.items():
        inner: object = call(part, key, **arguments)
        if not isinstance(inner, Algorithm):
            raise RequestError(f"{key} must be a method of one stage, got {part.target}")
        options[key.removeprefix("algo.")] = inner

    method: object = call(replace(outer, options=options), "algo", **arguments)
    if isinstance(method, Algorithm):
        return [Stage(method, config.rounds)]
    if isinstance(method, list) and all(isinstance(stage, Stage) for stage in method):
        return method
    raise RequestError(
        f"algo._target_={outer.target} must return an Algorithm or a list of Stages, got {type(method).__name__}"
    )


def _facts(config: RunConfig, data: FederatedDataset, task: Task, engine: Engine) -> Tree:
    """Return what ``meta.json`` records about a run before it starts."""
    return {
        "seed": config.seed,
        "hash": config.identity.digest,
        **config.identity.facts,
        **{k: v for k, v in asdict(config.names).items() if k != "scenarios"},
        **config.names.scenarios,
        "departures": dict(config.departures),
        "overrides": list(config.overrides),
        "sources": list(data.sources),
        "unofficial": list(data.unofficial),
        "clients": data.num_clients,
        **({"evaluated_clients": config.evaluate_clients} if config.evaluate_clients else {}),
        "parameters": task.size,
        "engine": {
            "mode": engine.mode,
            "cohort_size": engine.cohort_size,
            "workers": engine.workers,
            "precision": config.engine.precision,
            **engine.ranks.facts(),
        },
    }


def device_of(name: str, precision: str) -> torch.device:
    """Return the device, and let a GPU's matrix products round their factors to 19 bits, or not: for all runs.

    Its convolutions repeat the same bits: their kernels are not chosen by a stopwatch, nor add up in any order.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind = name if name != "auto" else "cuda" if count else "cpu"
    if LOCAL_WORLD_SIZE > 1 and kind.startswith("cuda"):
        if kind != "cuda" or count < LOCAL_WORLD_SIZE:
            raise RequestError(
                f"device={name} for {LOCAL_WORLD_SIZE} processes of this machine, where PyTorch finds {count} CUDA "
                "devices; each takes one of them: use device=cuda and as many processes, or device=cpu"
            )
        kind = f"cuda:{LOCAL_RANK}"
    device = torch.device(kind)
    if device.type == "cuda" and (device.index or 0) >= count:
        found = f"{count} CUDA device{'s' if count > 1 else ''}" if count else "no CUDA device"
        raise RequestError(f"device={name}, but PyTorch finds {found}; use device=auto or device=cpu")
    if precision in ("tf32", "bf16") and device.type != "cuda":  # bf16: torch's gradients of convolutions over images
        # of one pixel hold what was in memory before, on a CPU and in version 2.13
        raise RequestError(f"engine.precision={precision} needs a CUDA device; use float32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # where streams are made
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return device


def _model(config: RunConfig, data: FederatedDataset) -> nn.Module:
    """Return the model, on the meta device, if it reads the data's examples and answers in the form of its labels."""
    maker = function_of(config.model.target, "model")
    if data.tokens is not None and "tokens" not in inspect.signature(maker).parameters:
        raise RequestError(
            f"data={config.names.data} consists of tokens, which model={config.names.model} cannot read; "
            "use a model of tokens, such as lstm_char"
        )
    given = {"input_shape": data.shape, "classes": data.classes, "tokens": data.tokens}
    vectors = None if data.vectors is None else torch.from_numpy(data.vectors())
    with torch.device("meta"):  # only shapes matter: parameters are functions of w, and no global generator is used
        model: object = call(config.model, "model", **given, vectors=vectors)
    if not isinstance(model, nn.Module):
        raise RequestError(f"model: {place_of(maker)} made {type(model).__name__}; expected a torch.nn.Module")
    per_token = traits_of(model).per_token
    if per_token is not None and per_token != (data.y.dim() > 1):
        per = "every token" if data.y.dim() > 1 else "every example"
        raise RequestError(
            f"data={config.names.data} has a label for {per}; set model.every={str(data.y.dim() > 1).lower()}"
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
    where, wanted = f"model: {place_of(type(task.model).forward)}", f"{[*y.shape, data.classes]}"
    how = f"examples {list(x.shape)}"
    try:
        logits: object = task.predict(w, x)
        if mode == "stacked":
            how = "vectorised over clients; engine.mode=loop takes one client after another"
            task.apply_each(task.layout.views(w.expand(_FEW, -1).contiguous()), torch.stack([x] * _FEW))
    except Exception as error:
        if isinstance(error, RequestError) or allocation_failed(error):
            raise
        raise RequestError(f"{where} {raised(error)} ({how})") from error
    if not isinstance(logits, Tensor) or f"{list(logits.shape)}" != wanted:
        per = "example" if y.dim() == 1 else "token"
        raise RequestError(f"{where} returned {kind(logits)} for {how}; expected logits {wanted}, a row per {per}")
    if not bool(torch.isfinite(logits).all()):
        raise RequestError(f"{where} returned logits {wanted} of the initial model that are not finite")


def _read(path: Path, task: Task) -> Tensor:
    """Return the initial model [P] in a file.

    Raises:
        RequestError: If the file does not exist, is not in the safetensors format, or is of another model.
    """
    with reading(path, "of init.path cannot be read as a .safetensors file"):
        named = load_file(path)
    return task.layout.flatten(named).to(task.device, task.dtype)

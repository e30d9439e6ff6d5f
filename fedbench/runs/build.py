"""Construction of a run's objects from its configuration."""

import inspect
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import fedbench
from fedbench.config.schema import BY_LOSSES, LocalConfig, RunConfig
from fedbench.config.targets import Component, call, function_of
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.config_values import Tree
from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.core.objective import Objective
from fedbench.core.optim import sgd
from fedbench.core.options import SgdOptions
from fedbench.core.randomness import (
    Purpose,
    Sampler,
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
from fedbench.models.parts import places_of, tensors_of
from fedbench.runs.build_data import shared_data
from fedbench.runs.build_engine import make_engine
from fedbench.runs.build_parts import features_of, parts_of, with_parts
from fedbench.runs.process import LOCAL_RANK, LOCAL_WORLD_SIZE, WORLD_SIZE
from fedbench.runs.run import Fields
from fedbench.runs.trackers import Guarded
from fedbench.scenarios.population import Population
from fedbench.scenarios.scenario_stack import build_scenarios
from fedbench.simulation.checks import FirstCall, checked, kind
from fedbench.simulation.diagnostics import CustomMetric
from fedbench.simulation.engine import Engine
from fedbench.simulation.finetuning import FineTuning, moved_values, tuned_task
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.objectives import refusal as fixed_loss
from fedbench.simulation.objectives import with_objective
from fedbench.simulation.ranks import Ranks
from fedbench.simulation.scenario import Scenario
from fedbench.simulation.selection import LossSelection
from fedbench.simulation.task import Inputs, Task, check_head

_FEW = 2  # number of examples on which a user's model is tried


@dataclass(frozen=True)
class HeldOut:
    """Clients that never train, and are evaluated apart.

    Attributes:
        ids: Ids of the clients, ascending.
        data: The data set with their training examples.
    """

    ids: np.ndarray
    data: FederatedDataset


@dataclass(frozen=True)
class PreparedRun:
    """A configuration and the objects built from it.

    Attributes:
        config: The configuration.
        stages: The stages of the method.
        task: The model and its loss.
        data: The federated data set, on the device.
        work: The local work of a client in one round.
        engine: The engine that trains the clients.
        w: The initial model [P].
        sampler: Function that draws the cohorts.
        selection: Selection of the cohorts by losses, in the place of ``sampler``, or None.
        evaluated: Ids of the evaluated clients, ascending. If None, all clients.
        tracker: The tracker that follows the run.
        scenario: The scenario around the method.
        metrics: The user's metrics, one column each.
        finetuning: Fine-tuning of the clients' models before an evaluation; None if there is none.
        held_out: Clients that never train; None if there are none.
        facts: Facts for ``meta.json``.
    """

    config: RunConfig
    stages: list[Stage]
    task: Task
    data: FederatedDataset
    work: LocalWork
    engine: Engine
    w: Tensor
    sampler: Sampler
    evaluated: np.ndarray | None
    tracker: Guarded = field(default_factory=Guarded)
    scenario: Scenario = field(default_factory=Scenario)
    metrics: tuple[CustomMetric, ...] = ()
    finetuning: FineTuning | None = None
    held_out: HeldOut | None = None
    facts: Fields = field(default_factory=dict)
    selection: LossSelection | None = None

    @property
    def shared_w(self) -> Tensor:
        """The shared part of the initial model [S]."""
        return self.w[: self.task.shared.size]


def build(config: RunConfig, cores: int | None = None) -> PreparedRun:
    """Build all objects of a run, and refuse an invalid run before anything is written.

    Args:
        config: The configuration.
        cores: Number of cores that the run may use. If None, all cores available to this process.

    Raises:
        RequestError: If values do not fit the algorithm, the data set or the model, or if data are
            missing.
    """
    precision = config.engine.precision
    device = device_of(config.device, precision)
    ranks = Ranks(device if WORLD_SIZE > 1 else None)
    request = config.identity.digest, config.seed, fedbench.__version__, torch.__version__
    if len(set(ranks.all_gather(request))) > 1:
        raise RequestError(
            "the processes that torchrun has started ask for different runs, or in other versions"
        )
    config = _for_process(config, ranks.rank)

    dtype = torch.float64 if precision == "float64" else torch.float32  # dtype of the parameters
    data = shared_data(config).to(device, dtype)
    whole = data.train
    held_out = _held_out(config, whole.counts)
    if len(held_out):
        data = replace(data, train=whole.without(held_out))
    model = _model(config, data)
    names = tuple(name for name, _ in model.named_parameters())
    stages = _method(config, data, model, names)
    parts = parts_of(config, stages[0].algorithm, model)
    task = Task(
        model,
        device,
        dtype,
        bf16=precision == "bf16",
        frozen=parts.frozen,
        personal=parts.personal,
    )
    if task.shared.names != names:  # only now, the shared tensors are known
        stages = _method(config, data, model, task.shared.names)
    stages = _checked_stages(config, data, task, stages)
    table = task.take_table()
    if table is not None:
        data = replace(data, table=table.to(device, dtype))
    w = _initial_model(config, task)
    if task.shared.size < task.size:
        stages = [with_parts(config, stages, task, data, w, parts.moving)]
    stages = [with_objective(stage, task.size) for stage in stages]
    if is_own(type(task.model).forward):
        _check_logits(task, data, w, config.engine.mode)
    work = _local_work(config.local, data, task)

    selection = _selection(config, data)
    scenario = Scenario()
    if config.scenarios:
        population = Population(
            seed=config.seed,
            data=data,
            work=work,
            participation=config.participation,
            rounds=sum(stage.rounds for stage in stages),
            by_size=config.sampling == "size",
            selection=f"sampling={config.sampling}" if selection else "",
            shapes=task.shared.shapes,
        )
        scenario = build_scenarios(config.scenarios, config.algo, stages, population)
        data = scenario.attackers.changed(data)

    if task.trains_head_alone and _same_features(config, stages, work, data):
        data = features_of(task, data, w)
        task = task.on_features()
    cohort = cohort_size(config.participation, data.num_clients)
    engine = make_engine(
        task,
        data,
        work,
        config.engine,
        cohort,
        cores,
        ranks,
    )
    tuning = _fine_tuning(config, stages, task, data, work, engine, cores)
    if tuning is not None:
        tuning = replace(tuning, moving=parts.moving)
    return PreparedRun(
        config=config,
        stages=stages,
        task=task,
        data=data,
        work=work,
        engine=engine,
        w=w,
        sampler=sample_cohort(config.participation, by_size=config.sampling == "size"),
        evaluated=_evaluated(config, data.num_clients, held_out, scenario.attackers.who),
        scenario=scenario,
        tracker=Guarded(call(config.tracker, "tracker") if config.tracker.target else None),
        metrics=tuple(
            CustomMetric(name, function_of(metric.target, f"metrics.{name}"), metric.options)
            for name, metric in config.metrics.items()
        ),
        finetuning=tuning,
        held_out=HeldOut(held_out, replace(data, train=whole)) if len(held_out) else None,
        facts=_facts(config, data, task, engine, held_out) | scenario.facts,
        selection=selection,
    )


def _same_features(
    config: RunConfig,
    stages: Sequence[Stage],
    work: LocalWork,
    data: FederatedDataset,
) -> bool:
    """Return whether the inputs of the head are the same in all rounds, if the body is frozen."""
    algorithms = [stage.algorithm for stage in stages]
    fine_tuned = config.finetune.epochs
    if fine_tuned is None:
        fine_tuned = max(algorithm.finetune_epochs for algorithm in algorithms)
    drawn = work.augment is not None or work.random
    blended = any(algorithm.blends_examples for algorithm in algorithms)
    return data.y.dim() == 1 and not (fine_tuned or drawn or blended)


def _for_process(config: RunConfig, rank: int) -> RunConfig:
    """Return the configuration for a process of a run; only the first has a tracker and a trace."""
    engine = config.engine
    if engine.profile:  # a trace shows only the calling thread
        engine = replace(engine, workers=1, profile=not rank)
    tracker = Component(None, {}) if rank else config.tracker
    return replace(config, engine=engine, tracker=tracker)


def _initial_model(config: RunConfig, task: Task) -> Tensor:
    """Return the initial model [P], drawn at random or read from a file.

    Raises:
        RequestError: If the file does not exist, is not in the safetensors format, or belongs to
            another model.
    """
    path = config.init.path
    if path is None:
        return task.init(generator(config.seed, Purpose.INIT))
    with reading(path, "of init.path cannot be read as a .safetensors file"):
        named = load_file(path)
    try:
        return task.begin(named)
    except RequestError as error:
        raise RequestError(f"init.path={path}: {error}") from error


def _local_work(local: LocalConfig, data: FederatedDataset, task: Task) -> LocalWork:
    """Return the local work of a client in one round."""
    return LocalWork(
        local.lr,
        local.batch_size,
        local.epochs,
        local.steps,
        random=task.traits.random,
        augment=_augmentation(local, data),
        schedule=local.schedule,
    )


def _augmentation(local: LocalConfig, data: FederatedDataset) -> Augmentation | None:
    """Return the augmentation of training images, or None."""
    if not local.crop and (local.crop_mode != "black" or local.crop_share != 1):
        raise RequestError(
            "local.crop_mode and local.crop_share change nothing without local.crop, such as 4"
        )
    if not (local.crop or local.flip):
        return None
    if len(data.shape) != 3:
        raise RequestError(
            f"local.crop and local.flip are for images, got examples of shape {list(data.shape)}"
        )
    sides = list(data.shape[1:])
    least = local.crop + (local.crop_mode == "reflect")  # the edge is not repeated
    if local.crop and (data.mean is None or least > min(sides)):
        raise RequestError(
            f"local.crop={local.crop} with local.crop_mode={local.crop_mode} needs images of at "
            f"least {least} pixels per side, stored as bytes, got {sides}"
        )
    return Augmentation(
        local.crop,
        local.flip,
        local.crop_mode,
        local.crop_share,
    )


def _held_out(config: RunConfig, counts: np.ndarray) -> np.ndarray:
    """Return the ids of the clients that never train, ascending; mostly none.

    Args:
        config: The configuration.
        counts: Number of training examples of each client [N].

    Raises:
        RequestError: If no client is left to train.
    """
    wanted = config.evaluate.held_out_clients
    if wanted is None:
        return np.arange(0)
    able = int(np.count_nonzero(counts))
    size = cohort_size(wanted, able)
    if size >= able:
        raise RequestError(
            f"evaluate.held_out_clients={wanted} leaves none of the {able} clients with training "
            "examples to train; use a lower number"
        )
    return without_replacement(key_of(config.seed, Purpose.HELD_OUT), size, counts)


def _evaluated(
    config: RunConfig,
    clients: int,
    held_out: np.ndarray,
    attackers: np.ndarray,
) -> np.ndarray | None:
    """Return the ids of the evaluated clients in ascending order, or None for all clients."""
    size = config.evaluate.clients
    if size is None and not len(attackers) and not len(held_out):
        return None
    # drawn from the run's seed, so that the STD over seeds includes the sampling error
    key = key_of(config.seed, Purpose.EVALUATION)
    eligible = np.ones(clients)
    eligible[held_out] = 0
    sample = np.flatnonzero(eligible)
    if size is not None and size > len(sample):
        raise RequestError(
            f"evaluate.clients={size} exceeds the {len(sample)} clients that are not held out; use "
            "evaluate.clients=all for all of them"
        )
    if size is not None:
        sample = without_replacement(key, size, eligible)
    honest = np.setdiff1d(sample, attackers)
    if not len(honest):
        raise RequestError(
            f"evaluate.clients={size} draws attackers alone; use evaluate.clients=all"
        )
    return honest


def _checked_stages(
    config: RunConfig,
    data: FederatedDataset,
    task: Task,
    stages: list[Stage],
) -> list[Stage]:
    """Return the stages with the run's loss; a user's functions are checked on their first call.

    Raises:
        RequestError: If there are fewer clients than asked for, or the client sampling or the data
            do not fit the method.
    """
    count = data.num_clients
    for key, number, everyone in (
        ("participation", config.participation, "1.0"),
        ("sampling_candidates", config.sampling_candidates, "null"),
        ("evaluate.clients", config.evaluate.clients, "all"),
    ):
        if isinstance(number, int) and number > count:
            raise RequestError(
                f"{key}={number} exceeds the number of clients, {count}; use {key}={everyone} for "
                "all of them"
            )
    if config.evaluate.class_metrics and data.y.dim() > 1:
        raise RequestError(
            f"evaluate.class_metrics=true needs examples with one label each, and "
            f"data={config.names.data} has a label per token; use evaluate.class_metrics=false"
        )

    able = int((data.train.counts > 0).sum())
    partial = cohort_size(config.participation, count) < able
    for stage in stages:
        least = stage.algorithm.whole_epochs
        fault = _too_few_epochs(config.local, least) or _misfit(config, data, task, stage, partial)
        if fault:
            raise RequestError(f"{config.names.algo} {fault}")
    if config.objective.target is not None:
        stages = [_with_loss(config, stage) for stage in stages]
    for stage in stages:
        _check_objective(config, data, task, stage.algorithm)
    if config.identity.facts["code"]:  # the user's code
        stages = [stage._replace(algorithm=checked(stage.algorithm)) for stage in stages]
    return stages


def _with_loss(config: RunConfig, stage: Stage) -> Stage:
    """Return a stage with the loss that the section ``objective`` names.

    Raises:
        RequestError: If the section is wrong, or the loss of the method is fixed.
    """
    name = config.names.additions["objective"]
    if fault := fixed_loss(stage.algorithm):
        raise RequestError(f"{config.names.algo} {fault}; set objective=none, got objective={name}")
    objective: object = call(config.objective, "objective")
    if not isinstance(objective, Objective):
        raise RequestError(
            f"objective._target_={config.objective.target} must return an Objective, "
            f"got {type(objective).__name__}"
        )
    return stage._replace(algorithm=replace(stage.algorithm, objective=objective))


def _check_objective(
    config: RunConfig,
    data: FederatedDataset,
    task: Task,
    algorithm: Algorithm,
) -> None:
    """Refuse a loss that does not fit the data or the model.

    Raises:
        RequestError: If it does not fit.
    """
    objective = algorithm.objective
    if objective is None and not algorithm.class_counts:
        return
    request = f"algo={config.names.algo}"
    if (target := config.objective.target) is not None:
        request = f"objective._target_={target}"
    if data.y.dim() > 1:
        raise RequestError(
            f"{request} uses the class of an example, and data={config.names.data} has a label "
            "per token"
        )
    if task.head is None:
        raise RequestError(
            f"{request} needs a declared head, whose inputs are the features, and "
            f"{type(task.model).__name__} declares none; set traits = ModelTraits(head=NAME), the "
            "name of its last linear layer"
        )
    outputs = task.model.get_submodule(task.head).out_features
    if algorithm.own_head and outputs != data.classes:
        raise RequestError(
            f"{request} adds the logits of a second head, and that of model={config.names.model} "
            f"has {outputs} output for {data.classes} classes; use model=linear"
        )
    inside = f"{task.head}." if task.head else ""
    head_alone = all(key.startswith(inside) for key in task.layout.names)
    if objective is not None and objective.features and head_alone:
        raise RequestError(
            f"{request} acts through the features, and those of model={config.names.model} do not "
            "depend on its trained parameters; use another model"
        )


def _selection(config: RunConfig, data: FederatedDataset) -> LossSelection | None:
    """Return the selection of cohorts by losses; None if there is none, or all clients take part.

    Raises:
        RequestError: If there are fewer candidates than clients in a cohort.
    """
    if config.sampling == "uniform" or config.sampling == "size":
        return None
    count = data.num_clients
    candidates = 1.0
    if config.sampling_candidates is not None:
        candidates = config.sampling_candidates
    size = cohort_size(config.participation, count)
    asked = cohort_size(candidates, count)
    if asked < size:
        raise RequestError(
            f"sampling_candidates={candidates} asks {asked} clients, fewer than the {size} of "
            f"participation={config.participation}; raise it, or use null for all clients"
        )
    if size >= (data.train.counts > 0).sum():
        return None
    return LossSelection(config.sampling, config.participation, candidates)


def _misfit_of_sampling(config: RunConfig, stage: Stage, partial: bool) -> str:
    """Return the reason why the sampling does not fit a stage; empty if it fits.

    Args:
        config: The configuration.
        stage: The stage.
        partial: Whether a cohort leaves out some clients with training examples.
    """
    algorithm = stage.algorithm
    sampling = config.sampling
    if sampling in ("size", "power_of_choice") and algorithm.weights == "size":
        keys = [key for key, value in config.algo.options.items() if value == "size"]
        remedy = " or ".join([*(f"algo.{key}=uniform" for key in keys), "sampling=uniform"])
        return (
            f"counts large clients twice, by its weights and by sampling={sampling}; set {remedy}"
        )
    if sampling != "uniform" and algorithm.uniform and partial:
        reason = algorithm.uniform
        return f"needs cohorts that are drawn uniformly: {reason}; use sampling=uniform"
    if sampling in BY_LOSSES and (stage.sampler or stage.eligible or stage.after):
        return f"has stages with cohorts of their own, got sampling={sampling}; use uniform"
    return ""


def _misfit(
    config: RunConfig,
    data: FederatedDataset,
    task: Task,
    stage: Stage,
    partial: bool,
) -> str:
    """Return the reason why the client sampling or the data do not fit a stage; empty if they fit.

    Args:
        config: The configuration.
        data: The data set.
        task: The model.
        stage: The stage.
        partial: Whether a cohort leaves out some clients with training examples.
    """
    algorithm = stage.algorithm
    if fault := _misfit_of_sampling(config, stage, partial):
        return fault
    if algorithm.everyone and (stage.sampler or stage.eligible or partial):
        return (
            "needs all clients in every round, and in every stage, participation=1.0, "
            f"got {config.participation}: {algorithm.everyone}"
        )
    if algorithm.blends_examples and data.tokens is not None and task.traits.table is None:
        remedy = "set algo.mixup=false or model.embedding=frozen"
        return f"blends examples by mixup, and these are tokens; {remedy}"
    if stage.after:
        relabels = "relabels examples by their losses, and"
        if data.shares_examples:
            remedy = "set data.partition.as_published=false"
            return f"{relabels} some belong to several clients; {remedy}"
        if data.y.dim() > 1:
            return f"{relabels} data={config.names.data} has a label per token"
    return ""


def _too_few_epochs(local: LocalConfig, least: int | None) -> str:
    """Return the reason why the local work does not consist of enough whole epochs, or ""."""
    low, high = local.epochs
    if least is None or (local.steps is None and low == high >= least):
        return ""
    number = max(least, 1)
    return f"needs local.epochs to be one number, at least {number}, and local.steps=null"


def _fine_tuning(
    config: RunConfig,
    stages: Sequence[Stage],
    task: Task,
    data: FederatedDataset,
    work: LocalWork,
    engine: Engine,
    cores: int | None,
) -> FineTuning | None:
    """Return the fine-tuning of the clients' models before an evaluation, or None.

    Raises:
        RequestError: If the method relabels examples, keys change nothing, or names do not fit the
            model.
    """
    keys = config.finetune
    epochs = keys.epochs
    if epochs is None:
        epochs = max(stage.algorithm.finetune_epochs for stage in stages)
    if not epochs:
        if keys.lr is not None or keys.parts is not None:
            raise RequestError(
                "finetune.lr and finetune.parts change nothing without finetune.epochs, such as 1"
            )
        return None
    if any(stage.after is not None for stage in stages):
        raise RequestError(
            f"{config.names.algo} relabels the examples on which clients would be fine-tuned; "
            "set finetune.epochs=0"
        )

    names: Set[str] = frozenset(name for name, _ in task.model.named_parameters())
    if keys.parts is not None:
        names = tensors_of(task.model, keys.parts, "finetune.parts")
    own_work = replace(work, epochs=(epochs, epochs), steps=None)
    tuned = tuned_task(task, names)
    if tuned is not task:
        engine = make_engine(
            tuned,
            data,
            own_work,
            config.engine,
            data.num_clients,
            cores,
            engine.ranks,
        )
    return FineTuning(
        run=task,
        task=tuned,
        moved=moved_values(tuned, names),
        engine=engine,
        work=own_work,
        lr=keys.lr,
        solver=sgd(**asdict(config.local.solver)),
        seed=config.seed,
    )


def _method(
    config: RunConfig,
    data: FederatedDataset,
    model: nn.Module,
    names: Sequence[str],
) -> list[Stage]:
    """Return the stages of the method.

    Args:
        config: The configuration.
        data: The data set, whose numbers of clients and examples the method may ask for.
        model: The model.
        names: Names of the model's shared tensors, which the method may ask for (ADR 0002).

    Raises:
        RequestError: If values do not fit the method.
    """
    _refuse_ignored_solver(config)
    local = sgd(**asdict(config.local.solver))
    examples = data.train.counts
    places = places_of(model, names)
    method: object = call(
        config.algo,
        "algo",
        local=local,
        rounds=config.rounds,
        clients=int((examples > 0).sum()),
        examples=examples.tolist(),
        tensors=[places[name].stop - places[name].start for name in names],
        layout=places,
        epochs=max(config.local.epochs),
    )
    if isinstance(method, Algorithm):
        return [Stage(method, config.rounds)]
    if isinstance(method, list) and all(isinstance(stage, Stage) for stage in method):
        total = sum(stage.rounds for stage in method)
        if total != config.rounds:
            raise RequestError(
                f"algo._target_={config.algo.target} must return stages of rounds={config.rounds} "
                f"rounds in all, got {total}"
            )
        return method
    given = type(method).__name__
    raise RequestError(
        f"algo._target_={config.algo.target} must return an Algorithm or a list of Stages, "
        f"got {given}"
    )


def _refuse_ignored_solver(config: RunConfig) -> None:
    """Raise a RequestError if a user's method takes no local solver, and the run has one."""
    function = function_of(config.algo.target, "algo")
    solver = asdict(config.local.solver)
    plain = asdict(SgdOptions())
    chosen = {key: value for key, value in solver.items() if value != plain[key]}
    if chosen and is_own(function) and "local" not in inspect.signature(function).parameters:
        keys = ", ".join(f"local.{key}={value}" for key, value in chosen.items())
        raise RequestError(
            f"{keys} has no effect, because {place_of(function)} takes no argument local; pass "
            "it on with descent(local), or leave the key out"
        )


def _facts(
    config: RunConfig,
    data: FederatedDataset,
    task: Task,
    engine: Engine,
    held_out: np.ndarray,
) -> Tree:
    """Return the facts that ``meta.json`` records about a run before it starts."""
    names = asdict(config.names)
    facts = {
        "seed": config.seed,
        "hash": config.identity.digest,
        **config.identity.facts,
        **names.pop("additions"),
        **names,
        "departures": dict(config.departures),
        "overrides": list(config.overrides),
        "sources": list(data.sources),
        "unofficial": list(data.unofficial),
        "clients": data.num_clients,
        "parameters": task.shared.size + task.personal.size,
        "engine": {
            "mode": engine.mode,
            "cohort_size": engine.cohort_size,
            "workers": engine.workers,
            "precision": config.engine.precision,
            **engine.ranks.facts(),
        },
    }
    personal = (*task.personal.names, *task.local.names)
    if frozen := [name for name in task.constants if name not in personal]:
        facts["frozen"] = frozen
    if personal:
        facts["personal"] = list(personal)
    if task.averaged.names:
        facts["averaged_statistics"] = list(task.averaged.names)
    if len(held_out):
        facts["held_out_clients"] = held_out.tolist()
    if config.evaluate.clients:
        facts["evaluated_clients"] = config.evaluate.clients
    if config.plans:
        facts["plans"] = dict(config.plans)
    return facts


def device_of(name: str, precision: str) -> torch.device:
    """Return the device, and configure PyTorch's arithmetic on it for all runs.

    With the precision ``tf32``, a GPU's matrix products round their factors to 19 bits.
    Convolutions on a GPU are bit-reproducible: their kernels are not selected by timing, and they
    sum in a fixed order.

    Raises:
        RequestError: If PyTorch does not find the device, or the precision needs another device.
    """
    count = torch.cuda.device_count()
    place = name
    if name == "auto":
        place = "cuda" if count else "cpu"
    if LOCAL_WORLD_SIZE > 1 and place.startswith("cuda"):
        if place != "cuda" or count < LOCAL_WORLD_SIZE:
            raise RequestError(
                f"device={name} for {LOCAL_WORLD_SIZE} processes of this machine, where PyTorch "
                f"finds {count} CUDA devices; each takes one of them: use device=cuda and as many "
                "processes, or device=cpu"
            )
        place = f"cuda:{LOCAL_RANK}"
    device = torch.device(place)
    index = device.index or 0
    on_gpu = device.type == "cuda"
    if on_gpu and index >= count:
        raise RequestError(
            f"device={name}, but PyTorch finds {count or 'no'} CUDA devices; use device=auto"
        )
    # bf16 on a CPU: in torch 2.13, gradients of convolutions over images of one pixel contain
    # uninitialised memory
    if precision in ("tf32", "bf16") and not on_gpu:
        raise RequestError(f"engine.precision={precision} needs a CUDA device; use float32")
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    if on_gpu:
        torch.cuda.set_device(index)  # the device on which streams are created
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    return device


def model_from(config: RunConfig, file: Path) -> nn.Module:
    """Return the model of a configuration with the values of a .safetensors file, on the CPU.

    Raises:
        RequestError: If the file cannot be read, or belongs to another model.
    """
    model = _model(config, shared_data(config))
    names = {parameter: name for name, parameter in model.named_parameters()}
    with reading(file, "cannot be read as the model of this run"):
        values = load_file(file)
        for name, parameter in model.named_parameters(remove_duplicate=False):
            values[name] = values[names[parameter]]  # tied parameters are stored once
        model.load_state_dict(values, assign=True)  # in the precision of the run
    return model.eval()


def _model(config: RunConfig, data: FederatedDataset) -> nn.Module:
    """Return the model, on the meta device.

    Raises:
        RequestError: If the model cannot read the examples of the data, or its outputs do not match
            the form of their labels.
    """
    function = function_of(config.model.target, "model")
    if data.tokens is not None and "tokens" not in inspect.signature(function).parameters:
        raise RequestError(
            f"data={config.names.data} consists of tokens, which model={config.names.model} "
            "cannot read; use a model of tokens, such as lstm_char"
        )
    vectors = None if data.vectors is None else torch.from_numpy(data.vectors())
    # only shapes matter: parameters come from w, and no global generator is used
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
        unit, every = ("token", "true") if per_token else ("example", "false")
        raise RequestError(
            f"data={config.names.data} has a label for every {unit}; set model.every={every}"
        )
    return model


@torch.no_grad()
def _check_logits(
    task: Task,
    data: FederatedDataset,
    w: Tensor,
    mode: str,
) -> None:
    """Try a user's model on two examples.

    If the engine will vectorise the model over clients, the vectorised form is tried as well.

    Raises:
        RequestError: If the model raises an error or returns anything other than finite logits.
    """
    rows = torch.arange(min(_FEW, len(data.y)), device=data.x.device)
    x = data.features(rows)
    y = data.labels(rows)
    expected = [*y.shape, data.classes]

    def fault(args: tuple[object, ...], logits: object) -> str | None:
        if isinstance(logits, Tensor) and list(logits.shape) == expected:
            return None
        unit = "example" if y.dim() == 1 else "token"
        returned = f"returned {kind(logits)} for examples {list(x.shape)}"
        return f"{returned}; expected logits {expected}, a row per {unit}"

    forward = type(task.model).forward
    FirstCall(task.predict, "model", fault, forward)(w, x)
    if task.parameters < len(task.layout.names):  # a model with running statistics
        weight = torch.zeros(len(rows), dtype=w.dtype, device=w.device)
        weight[0] = 1  # the others are padding

        def train(w: Tensor, x: Tensor) -> Tensor:
            tensors = [v.clone() for v in task.layout.views(w)]
            return task.apply(Inputs(tensors, x, real=weight))

        role = "model, in a training step with padding (BatchNorm needs a row per example)"
        FirstCall(train, role, fault, forward)(w, task.images(x))
    if mode == "stacked":
        role = "model, vectorised over clients (engine.mode=loop takes one client after another)"
        stacked = FirstCall(
            lambda views, x: task.apply(Inputs(views, x), each=True),
            role,
            lambda *_: None,
            forward,
        )
        views = task.layout.views(w.expand(_FEW, -1).contiguous())
        stacked(views, torch.stack([x] * _FEW))
    if task.head is not None:
        check_head(task, w, x)

"""From a checked request to the objects of a run. Targets are named in the config tree."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import yaml
from torch import Tensor

from fedbench.config import schema as settings
from fedbench.config.schema import Request
from fedbench.config.targets import call, function_of
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD, Optimizer, sgd
from fedbench.core.randomness import Purpose, generator
from fedbench.core.samplers import cohort_size, sample_cohort
from fedbench.core.trees import Tree
from fedbench.data.augment import Augmentation
from fedbench.data.dataset import FederatedDataset
from fedbench.models.dense import MLP, Linear
from fedbench.runs.build_data import federated
from fedbench.runs.trackers import NoTracker, Tracker
from fedbench.runs.train import PreparedRun
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.cost import cost
from fedbench.simulation.engine import Engine, keep_memory
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.task import Task

_CACHE_BYTES = 6 * 2**20  # parameters that are worked on at once on a CPU: what a core keeps close
_DEVICE_SHARE = 0.05  # of the free memory of a GPU for one copy of a chunk's parameters; a step holds about ten
_SMALL = 2**16  # parameters up to which threads over chunks only wait for each other
_LARGE_DENSE = 2**20  # parameters from which a dense model is better trained client by client on a CPU


def build(request: Request) -> PreparedRun:
    """Make everything a run needs, and refuse what cannot be run before anything is written.

    Raises:
        RequestError: for values that do not fit an algorithm, a data set or a model, and for missing data.
    """
    c = request.config
    local = settings.local(c)
    solver = sgd(local.momentum, local.nesterov, local.weight_decay, local.clip_norm)
    device, precision = _device(c["device"]), c["engine"]["precision"]
    dtype = torch.float64 if precision == "float64" else torch.float32  # of the parameters
    _round_products(device, precision)
    data = federated(c, str(request.names["data"])).to(device, dtype)
    asked = settings.participation(c)
    _refuse(request, data, asked)
    stages = _stages(c, solver, data)
    task = Task(_model(c["model"], data, str(request.names["model"])), device, dtype, bf16=precision == "bf16")
    data = _suited(data, task)
    _refuse_sequences(c, stages, data)
    w = _initial(task, c)
    only = {"workers": 1} if c["engine"]["profile"] else {}  # a trace shows the calling thread alone
    engine = make_engine(task, data.num_clients, {**c["engine"], **only})
    sampler = sample_cohort(asked, by_size=c["sampling"] == "size")
    return PreparedRun(
        title=f"{request.names['algo']} seed {c['seed']} {request.setting}",
        seed=c["seed"],
        stages=stages,
        task=task,
        data=data,
        work=LocalWork(
            local.lr,
            local.batch_size,
            local.epochs,
            local.steps,
            random=getattr(task.model, "random", False),
            augment=_augmentation(local, data),
        ),
        engine=engine,
        w=w,
        sampler=sampler,
        client_state=c["engine"]["client_state"],
        eval_every=c["eval_every"],
        keep_clients=c["keep_clients"],
        improved_clients=c["improved_clients"],
        tracker=_tracker(c["tracker"]),
        profile=c["engine"]["profile"],
        facts=_facts(request, data, task, engine),
    )


def _facts(request: Request, data: FederatedDataset, task: Task, engine: Engine) -> Tree:
    """Return what the record of the run says of it."""
    c = request.config
    return {
        "seed": c["seed"],
        "hash": request.digest,
        **request.names,
        "departures": request.departures,
        "overrides": list(request.overrides),
        "sources": list(data.sources),
        "unofficial": list(data.unofficial),
        "clients": data.num_clients,
        "parameters": task.size,
        "engine": {
            "mode": engine.mode,
            "cohort_size": engine.cohort_size,
            "workers": engine.workers,
            "precision": c["engine"]["precision"],
        },
    }


def _round_products(device: torch.device, precision: str) -> None:
    """Let a GPU's matrix products round their factors to 19 bits, or not: for the whole process."""
    if precision in ("tf32", "bf16") and device.type != "cuda":  # bf16: torch's gradients of convolutions over images
        # of one pixel hold what was in memory before, on a CPU and in version 2.13
        raise RequestError(f"engine.precision={precision} needs a CUDA device; use float32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def _augmentation(local: settings.Local, data: FederatedDataset) -> Augmentation | None:
    if not (local.crop or local.flip):
        return None
    if len(data.shape) != 3:
        raise RequestError(f"local.crop and local.flip are for images, got examples of shape {list(data.shape)}")
    if local.crop and data.mean is None:
        raise RequestError("local.crop puts black around images of bytes; these are stored as other numbers")
    if local.crop > min(data.shape[1:]):
        raise RequestError(f"local.crop must be at most the images' side, {min(data.shape[1:])}, got {local.crop}")
    return Augmentation(local.crop, local.flip)


def _refuse(request: Request, data: FederatedDataset, participation: int | float) -> None:
    """Refuse what does not fit the data."""
    if isinstance(participation, int) and participation > data.num_clients:
        raise RequestError(
            f"participation={participation}, but there are {data.num_clients} clients; 1.0 is all of them"
        )


def _refuse_sequences(c: Tree, stages: Sequence[Stage], data: FederatedDataset) -> None:
    """Refuse methods that need examples of numbers, or a label per example."""
    if c["algo"].get("mixup") and data.tokens is not None and data.table is None:
        raise RequestError(
            "mixup blends examples, and these are tokens; set algo.mixup=false or model.embedding=frozen"
        )
    if data.y.dim() > 1 and any(stage.after for stage in stages):
        raise RequestError("this method relabels examples by their losses, and here every token has a label")


def _stages(c: Tree, solver: Optimizer, data: FederatedDataset) -> list[Stage]:
    """Return the stages of the method: one, or what a factory of several returns."""
    section, rounds, able = c["algo"], c["rounds"], int((data.train.counts > 0).sum())
    given = {"local": solver, "rounds": rounds, "clients": able}
    made = _made(section, given)
    stages = [Stage(made, rounds)] if isinstance(made, Algorithm) else made
    for stage in stages:
        algorithm = stage.algorithm
        if c["sampling"] == "size" and algorithm.weights == "size":
            key = next((k for k in ("weights", "prior") if k in section), None)
            remedy = f"set algo.{key}=uniform, or " if key else "use "
            raise RequestError(
                f"sampling=size with weights by size counts large clients twice; {remedy}sampling=uniform"
            )
        some = stage.sampler or stage.eligible or cohort_size(settings.participation(c), data.num_clients) < able
        if algorithm.everyone and some:
            where = "in every stage" if len(stages) > 1 else f"participation=1.0, got {c['participation']}"
            raise RequestError(f"this method needs all clients, {where}: {algorithm.everyone}")
    return stages


def _made(section: Tree, given: Mapping[str, object]) -> Algorithm | list[Stage]:
    """Return the method of a section ``algo``, whose keys may name methods themselves."""
    inner = {k: _method(v, f"algo.{k}", given) for k, v in section.items() if isinstance(v, dict) and "_target_" in v}
    for key, made in inner.items():
        if not isinstance(made, Algorithm):
            raise RequestError(f"algo.{key} must be a method of one stage, got {section[key]['_target_']}")
    return _method({**section, **inner}, "algo", given)


def _method(section: Tree, what: str, given: Mapping[str, object]) -> Algorithm | list[Stage]:
    made: object = call(section, what, **given)
    if isinstance(made, Algorithm) or (isinstance(made, list) and all(isinstance(s, Stage) for s in made)):
        return made
    raise RequestError(
        f"{what}._target_={section['_target_']} must return an Algorithm or a list of Stages, got {type(made).__name__}"
    )


def cost_of(path: Path, roots: Sequence[Path]) -> tuple[str, str]:
    """Return what the method of a config file costs and which probes it needs, at its defaults.

    Args:
        path: of the file; it may name another file of its group to start from.
        roots: config trees; those after the first may hold Python files.
    """
    sys.path[:0] = [str(r.resolve()) for r in roots[1:] if str(r.resolve()) not in sys.path]
    section: Tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    for base in section.pop("defaults", []):
        if base != "_self_":
            section = yaml.safe_load((path.parent / f"{base}.yaml").read_text(encoding="utf-8")) | section
    found = cost(_made(section, {"local": SGD, "rounds": 9, "clients": 3}))
    return found.text(), " ".join(found.needs)


def _model(section: Tree, data: FederatedDataset, name: str) -> torch.nn.Module:
    """Return the model, on the meta device, if it reads the data's examples and answers in the form of its labels."""
    given = {"input_shape": data.shape, "classes": data.classes, "tokens": data.tokens}
    if data.tokens is not None and "tokens" not in inspect.signature(function_of(section, "model")).parameters:
        raise RequestError(f"this data set holds tokens (whole numbers), which model={name} does not read")
    vectors = None if data.vectors is None else torch.from_numpy(data.vectors())
    with torch.device("meta"):  # only shapes matter: parameters are functions of w, and no global generator is used
        model: torch.nn.Module = call(section, "model", **given, vectors=vectors)
    if hasattr(model, "every") and model.every != (data.y.dim() > 1):
        per = "every token" if data.y.dim() > 1 else "every example"
        raise RequestError(f"this data set has a label for {per}; set model.every={str(data.y.dim() > 1).lower()}")
    return model


def _suited(data: FederatedDataset, task: Task) -> FederatedDataset:
    """Return the data in the form in which the model reads them."""
    table = getattr(task.model, "table", None)
    if table is not None:
        data = replace(data, table=table.to(task.device, task.dtype))
        task.model.table = None  # type: ignore[assignment]  # every worker thread has a copy of the model
    return replace(data, work_values=getattr(task.model, "work_values", 0))


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
    if not gpu:
        keep_memory()
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

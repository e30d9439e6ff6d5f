"""What the tests share: small federations, and a way to run them without configuration."""

from __future__ import annotations

import importlib
import inspect
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD, sgd
from fedbench.core.randomness import sample_cohort
from fedbench.core.validation import checked as checked_options
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.models.dense import Linear
from fedbench.papers.readings import Readings
from fedbench.scenarios.attack import Attack
from fedbench.scenarios.defence import Defence
from fedbench.scenarios.population import Population
from fedbench.scenarios.scenario_stack import ScenarioStack
from fedbench.simulation.captured import CapturedOracle
from fedbench.simulation.checks import checked
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.compiled.library import kernels
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Simulation, simulate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.objectives import with_objective
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.scenario import RoundPlan
from fedbench.simulation.task import Task

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
ALGORITHMS = sorted(
    p.stem for p in (CONF / "algo").glob("*.yaml") if p.stem not in ("_none", "fedcorr_adafed")
)
VARIANTS = yaml.safe_load((ROOT / "tests" / "variants.yaml").read_text())
# training examples; with batch 10 these take 1, 3, 1, 1, 4, 1, 1 steps an epoch
UNEQUAL = (1, 23, 4, 9, 40, 10, 2)


def factory(name):
    """The function that makes a method."""
    target = yaml.safe_load((CONF / "algo" / f"{name}.yaml").read_text())["_target_"]
    module, _, function = target.rpartition(".")
    made = getattr(importlib.import_module(module), function)
    return made


def key_of(target):
    """The key of a configuration that may name a function; ``algo`` for one outside of fedbench."""
    keys = {
        "sources": "data.source",
        "partition": "data.partition",
        "models": "model",
        "trackers": "tracker",
    }
    return next((key for part, key in keys.items() if f".{part}" in target), "algo")


def variants(name):
    """The settings under which a method is put through the contract: defaults, and each switch."""
    # the first stage of FedCorr has tests of its own
    plain = {"iterations": 0} if name == "fedcorr" else {}
    return [plain, *VARIANTS.get(name, [])]


# local solvers that a method refuses, by the names of ``SOLVERS``
SOLVERS = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.5, "nesterov": True},
    "decay and clipping": {"weight_decay": 0.01, "clip_norm": 0.3},
}
PLAIN_STEPS = "scaffold fedsps feddyn fedcm mimelite mofedsam fedspeed pfedme apfl fedamp".split()
OWN_MOMENTUM = "fedfa naive_adaptive local_adam fedcada fafed stem".split()


def refuses(case, solver):
    """Whether a method, with these options, cannot be combined with a local solver."""
    name, options = case
    if name in OWN_MOMENTUM:
        return "momentum" in SOLVERS[solver]
    plain = name in PLAIN_STEPS and options.get("option") != 1
    return solver != "sgd" and (plain or options.get("source") == "gradient")


CASES = [(name, options) for name in ALGORITHMS for options in variants(name)]


# methods that are FedAvg on a model without parts
LIKE_FEDAVG = {"fedper", "lgfedavg", "fedbn", "silobn", "fixbn", "fedavg_ft", "fedbabu"}


def is_first(case):
    """Whether a case is tested with ``make test``: a method of its own at its defaults."""
    return case[1] == variants(case[0])[0] and case[0] not in LIKE_FEDAVG


def cases_of(cases):
    """Parameters: the first case of every method always runs, the others with make test-all."""
    return [
        pytest.param(c, marks=[] if is_first(c) else [pytest.mark.slow], id=case_id(c))
        for c in cases
    ]


def any_solver(case):
    """SGD with momentum, or plain where that is refused."""
    return sgd(**({} if refuses(case, "momentum") else SOLVERS["momentum"]))


def everyone(case):
    """Whether the method needs all clients."""
    return any(
        s.algorithm.everyone
        for s in stages_of(
            make(case[0], **case[1]),
            1,
            len(UNEQUAL),
        )
    )


def share(case):
    """The participation that a method is tested with: of a part of the clients, where it does not
    need all.
    """
    return 1.0 if everyone(case) else 0.6


def case_id(case):
    """A name for a case."""
    return "-".join([case[0], *(f"{k}={v}" for k, v in case[1].items())])


def make(name, local=SGD, **options):
    """A method with a local solver; one of several stages still asks for rounds and clients.

    Raises:
        RequestError: If an option is not what its annotation declares.
    """
    build = factory(name)
    options = checked_options(build, options)
    if "rounds" in inspect.signature(build).parameters:
        return partial(build, local=local, **options)
    return build(local=local, **options)


def stages_of(algo, rounds, clients):
    """The stages of a method, checked as in a run."""
    if not isinstance(algo, Algorithm | list):
        asked = inspect.signature(algo).parameters
        given = {"rounds": rounds, "clients": clients}
        algo = algo(**{name: given[name] for name in given if name in asked})
    stages = [Stage(algo, rounds)] if isinstance(algo, Algorithm) else algo
    return [stage._replace(algorithm=checked(stage.algorithm)) for stage in stages]


def deployed(algo, last):
    """What the clients are judged on after a run."""
    stage = stages_of(algo, last.round, last.data.num_clients)[last.stage]
    return stage.algorithm.deploy(last.server, last.clients)


def federation(
    sizes=UNEQUAL,
    tests=None,
    features=6,
    classes=3,
    seed=0,
    dtype=torch.float64,
    shape=None,
):
    """Clients with Gaussian inputs around their own centers and their own linear labels."""
    rng = np.random.default_rng(seed)
    tests = [3] * len(sizes) if tests is None else tests
    xs = []
    ys = []
    for count in np.add(sizes, tests):
        x = rng.normal(rng.normal(0, 0.5, features), 1.0, (count, features))
        xs.append(x)
        ys.append((x @ rng.normal(0, 1, (features, classes))).argmax(1))
    x = np.concatenate(xs)
    # each client's training examples are followed by its test examples
    ends = np.cumsum(np.column_stack([sizes, tests]))
    parts = np.split(np.arange(len(x)), ends[:-1])
    data = FederatedDataset(
        x=torch.from_numpy(x if shape is None else x.reshape(-1, *shape)),
        y=torch.from_numpy(np.concatenate(ys)),
        train=Rows.of(parts[::2]),
        test=Rows.of(parts[1::2]),
        names=tuple(f"c{k}" for k in range(len(sizes))),
        classes=classes,
    )
    return data.to(torch.device("cpu"), dtype)


def task_for(data, model=Linear, **options):
    """A task with a model of the data's shape."""
    with torch.device("meta"):
        net = model(data.shape, data.classes, **options)
    return Task(net, data.x.device, data.dtype)


def simulated(
    stages,
    task,
    data,
    work,
    engine,
    w,
    seed,
    sampler,
    allocator=None,
    resume=None,
    measurements=None,
    **options,
):
    """Simulate with client states on the device and measurements of the engine's own, if nothing
    else is given.
    """
    measurements = measurements or Measurements(task, engine)
    allocator = allocator or StateAllocator(w.device, "device")
    return simulate(
        Simulation(
            stages,
            data,
            work,
            measurements,
            w,
            seed,
            sampler,
            allocator,
            **options,
        ),
        resume,
    )


def snapshots(
    algo,
    data,
    *,
    task=None,
    rounds=3,
    mode="stacked",
    cohort_size=1000,
    workers=1,
    work=None,
    participation=1.0,
    sampler=None,
    seed=0,
    w=None,
    allocator=None,
    resume=None,
    observers=(),
    scenario=None,
    selection=None,
):
    """Run a method and return all snapshots, from the initial model on."""
    task = task or task_for(data)
    engine = engine_of(task, mode, cohort_size, workers)
    work = work or LocalWork(lr=0.1, batch_size=10)
    w = task.init(torch.Generator().manual_seed(seed)) if w is None else w
    stages = [
        with_objective(stage, task.size) for stage in stages_of(algo, rounds, data.num_clients)
    ]
    try:
        draw = sampler or sample_cohort(participation)
        options = {"observers": observers, "selection": selection}
        if scenario is not None:
            options["scenario"] = scenario
        run = simulated(
            stages, task, data, work, engine, w, seed, draw, allocator, resume, **options
        )
        # theirs is one memory
        return [s._replace(clients={k: v.clone() for k, v in s.clients.items()}) for s in run]
    finally:
        engine.close()


def engine_of(task, mode, cohort_size=1000, workers=1):
    """An engine in one of the modes; "compiled" skips the test where there is no compiler."""
    if mode != "compiled":
        oracle = make_oracle(task, mode)
        return Engine(
            CapturedOracle(oracle) if task.device.type == "cuda" else oracle,
            mode,
            cohort_size,
            workers,
        )
    library = kernels().library
    if library is None:
        pytest.skip(kernels().source)
    kernel = DenseKernel(library, task)
    kernel.threads = lambda examples, workers: workers
    return Engine(kernel, mode, cohort_size, workers, kernel)


def population_of(data, seed=0, **more):
    """The clients of a data set, or clients with these numbers of training examples."""
    data = data if isinstance(data, FederatedDataset) else federation(data)
    return Population(
        **{
            "seed": seed,
            "data": data,
            "work": LocalWork(0.1, 10),
        }
        | more
    )


def scenario_of(data, planned=None, seed=0, **groups):
    """What surrounds a method; ``planned`` clients take part in a round, by default all."""
    everybody = population_of(data, seed, participation=planned or data.num_clients)
    layers = []
    attackers = 0
    if "attack" in groups:
        attack = Attack(population=everybody, **groups["attack"])
        layers.append(attack)
        attackers = len(attack.who)
    if "defence" in groups:
        layers.append(Defence(population=everybody, attackers=attackers, **groups["defence"]))
    return ScenarioStack(everybody, layers)


def round_plan(ids, algo=None, **given):
    """A round in which these clients take one step each, and all results arrive."""
    ids = np.array(ids, dtype=np.int64)
    plan = RoundPlan(
        algorithm=algo or Algorithm(),
        seed=0,
        round=0,
        server={},
        able=np.ones(len(ids), dtype=np.int64),
        ids=ids,
        receivers=ids,
        tau=np.ones_like(ids),
        steps=len(ids),
    )
    return replace(plan, **given)


def final(algo, data, **options):
    """The final model [P] of a run."""
    return snapshots(algo, data, **options)[-1].server["w"]


def close(a, b, relative):
    """Whether two vectors differ by at most ``relative`` times the length of the second."""
    return bool(torch.linalg.vector_norm(a - b) <= relative * torch.linalg.vector_norm(b))


def rejected(message):
    """Expect a ``RequestError`` whose message matches a regular expression."""
    return pytest.raises(RequestError, match=message)


def composed(*overrides):
    """The resolved configuration that overrides make, with its presets, and the choices of its
    groups.
    """
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", list(overrides), return_hydra_config=True)
    names = {g: cfg.hydra.runtime.choices.get(g) for g in ("algo", "data", "model", "experiment")}
    OmegaConf.set_struct(cfg, False)
    del cfg["hydra"]
    return OmegaConf.to_container(cfg, resolve=True), names


@contextmanager
def two_readings():
    """Judge claims under the first two readings of their paper alone."""
    every = Readings.every
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Readings, "every", lambda self: every(self)[:2])
        yield

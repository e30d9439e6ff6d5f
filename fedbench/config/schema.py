"""The configuration of one run: a resolved mapping, parsed once into frozen dataclasses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from fedbench.config.identity import Identity, identify
from fedbench.config.places import config_dir
from fedbench.config.targets import Component
from fedbench.core.errors import (
    RequestError,
    WrongValue,
    arguments_of,
    boolean,
    choice,
    integer,
    nearest,
    number,
    typed,
)  # fmt: skip
from fedbench.core.mirrors import Mirror, mirrors_of
from fedbench.core.options import LabelNoise, Schedule, SgdOptions
from fedbench.core.paths import user_path
from fedbench.core.trees import Tree, config_value

Sampling = Literal["uniform", "size"]
LocalTest = Literal["auto", "split", "official", "central", "others"]
Mode = Literal["auto", "loop", "stacked", "compiled"]
Precision = Literal["float32", "float64", "tf32", "bf16"]
ClientStatePlace = Literal["auto", "device", "host", "file"]

TOP_KEYS = {
    "rounds", "participation", "sampling", "seed", "eval_every", "eval_train_every", "keep_clients", "improved_clients",
    "local", "data", "device", "engine", "init", "data_dir", "results_dir", "force", "model", "algo", "tracker",
    "keep_state", "objective", "tuned_on", "metrics",
}  # fmt: skip
_SECTIONS = ("local", "engine", "init", "data", "data.source", "data.noise", "model", "algo", "tracker")
# integers that may be typed as 1e3
_INTEGERS = {
    "rounds", "eval_every", "eval_train_every", "seed", "participation",
    "local.batch_size", "local.steps", "local.epochs", "data.seed",
    "data.clients", "engine.cohort_size", "engine.workers",
}  # fmt: skip
_PARTICIPATION = "a fraction of the clients in (0, 1], where 1.0 is all, or a number of clients above 1"
_SEVERAL_SEEDS = re.compile(r"(\d+)(?:\.\.\.?|-|:)(\d+)")


def options(group: str, where: Path | None = None) -> list[str]:
    """Return the choices of a config group as typed on the command line.

    Args:
        group: The group, such as ``algo`` or ``data/partition``.
        where: A config tree to look in instead of fedbench's own.
    """
    root = (where or config_dir()) / group
    files = root.rglob("*.yaml") if group == "experiment" else root.glob("*.yaml")
    named = (f for f in files if not f.name.startswith("_"))  # files with an underscore are included by others
    return sorted(f.relative_to(root).as_posix().removesuffix(".yaml") for f in named)


@dataclass(frozen=True)
class Choices:
    """The choices of the config groups; ``experiment`` is None where none was chosen."""

    algo: str
    data: str
    model: str
    experiment: str | None


@dataclass(frozen=True)
class LocalConfig:
    """The section ``local``: the local solver and the work of a client in one round.

    Attributes:
        solver: Momentum, weight decay and clipping.
        schedule: How the learning rate changes from round to round.
        batch_size: Examples per batch, or None for a full batch.
        epochs: Bounds of the number of local epochs, drawn per client and round.
    """

    lr: float
    solver: SgdOptions
    schedule: Schedule
    batch_size: int | None
    epochs: tuple[int, int]
    steps: int | None
    crop: int
    flip: bool


@dataclass(frozen=True)
class DataConfig:
    """The section ``data``: a source, a partition and label noise.

    Attributes:
        source: Reads the examples.
        partition: Assigns examples to clients, or None where the source does.
        seed: Random seed of the partition and the split; the run's seed where ``data.seed`` is null.
        mirrors: Servers that are asked for missing files before the published addresses.
    """

    source: Component
    partition: Component | None
    noise: LabelNoise
    clients: int | None
    test_clients: int | None
    split: float
    local_test: LocalTest
    seed: int
    download: bool
    validation: float
    mirrors: tuple[Mirror, ...] = ()


@dataclass(frozen=True)
class EngineConfig:
    """The section ``engine``: how a run is simulated; None is the choice by model and device."""

    mode: Mode
    cohort_size: int | None
    workers: int | None
    precision: Precision
    client_state: ClientStatePlace
    profile: bool


@dataclass(frozen=True)
class RunConfig:
    """The configuration of one run. Fields that are not listed are keys, which conf/config.yaml describes.

    Attributes:
        names: Choices of the config groups.
        participation: Fraction of the clients as a float in (0, 1], or a number of clients as an int.
        init_path: File with the initial model, or None for a random one.
        model: Makes the model.
        algo: Makes the method.
        tracker: Makes the tracker; its target is None for no tracker.
        metrics: Metrics of the user's own, by name.
        tree: The resolved configuration as nested dictionaries: what ``config.yaml`` contains.
        identity: Identity of the setting, the same for all seeds.
        overrides: The overrides as typed.
        departures: The keys that differ from the chosen experiment, each with [value there, value here].
        stored_tree: ``tree`` as files and trackers get it, with text from environment variables unresolved.
    """

    names: Choices
    rounds: int
    participation: float | int
    sampling: Sampling
    seed: int
    eval_every: int
    eval_train_every: int
    keep_clients: Literal["last", "all"] | tuple[int, ...]
    improved_clients: bool
    local: LocalConfig
    data: DataConfig
    device: str
    engine: EngineConfig
    init_path: Path | None
    model: Component
    algo: Component
    tracker: Component
    metrics: Mapping[str, Component]
    data_dir: Path
    results_dir: Path
    force: bool
    keep_state: bool
    objective: str
    tuned_on: tuple[int, ...]
    tree: Tree
    identity: Identity
    overrides: tuple[str, ...]
    departures: Mapping[str, list[Any]]
    stored_tree: Tree

    @property
    def digest(self) -> str:
        """Digest of the setting, which names the run's directory."""
        return self.identity.digest

    @property
    def task_name(self) -> str:
        """The experiment, or the data set where no experiment was chosen."""
        return self.names.experiment or self.names.data

    @property
    def path(self) -> Path:
        """The directory of the run."""
        return self.results_dir / self.task_name / self.names.algo / self.digest / f"seed_{self.seed}"


def parse(
    tree: Tree,
    names: Choices,
    overrides: Sequence[str] = (),
    departures: Mapping[str, list[Any]] | None = None,
) -> RunConfig:
    """Return the typed configuration that a resolved mapping stands for; every value is checked here, once.

    Args:
        tree: The resolved configuration, presets merged in.
        names: Choices of the config groups.
        overrides: The overrides that led to it, as typed.
        departures: The keys that differ from the chosen experiment.

    Raises:
        RequestError: If a key is unknown or a value is out of range.
    """
    _refuse_missing_sections(tree)
    # a run without metrics of one's own has the configuration and the identity that it had before there were any
    _check_keys("", tree, TOP_KEYS)
    tree = {k: v for k, v in with_integers(tree).items() if k != "metrics" or v}
    _check_keys("init.", tree["init"], {"path"})
    rounds = integer("rounds", tree["rounds"])
    every = integer("eval_every", tree["eval_every"], at_least=1)
    seed = _seed(tree["seed"])
    path = tree["init"]["path"]
    return RunConfig(
        names=names,
        rounds=rounds,
        participation=_participation(tree["participation"]),
        sampling=choice("sampling", tree["sampling"], get_args(Sampling)),
        seed=seed,
        eval_every=every,
        eval_train_every=integer("eval_train_every", tree["eval_train_every"], at_least=1),
        keep_clients=_keep_clients(tree["keep_clients"], rounds, every),
        improved_clients=boolean("improved_clients", tree["improved_clients"]),
        local=_local(tree["local"], rounds),
        data=_data(tree["data"], seed),
        device=_device(tree["device"]),
        engine=_engine(tree["engine"]),
        init_path=None if path is None else user_path("init.path", _text("init.path", path, "a file or null")),
        model=Component.of(tree["model"]),
        algo=Component.of(tree["algo"]),
        tracker=Component.of(tree["tracker"]),
        metrics=_metrics(tree.get("metrics", {})),
        data_dir=user_path("data_dir", _text("data_dir", tree["data_dir"], "a directory")),
        results_dir=user_path("results_dir", _text("results_dir", tree["results_dir"], "a directory")),
        force=boolean("force", tree["force"]),
        keep_state=boolean("keep_state", tree["keep_state"]),
        objective=_text("objective", tree["objective"], "auto or a column of rounds.jsonl, such as accuracy_mean"),
        tuned_on=_tuned_on(tree["tuned_on"], seed),
        tree=tree,
        identity=identify(tree),
        overrides=tuple(overrides),
        departures=departures or {},
        stored_tree=tree,
    )


def with_integers(tree: Tree, prefix: str = "") -> Tree:
    """Return the configuration with 1000 instead of 1e3 where a key is an integer."""

    def value(key: str, v: Any) -> Any:
        if isinstance(v, dict):
            return with_integers(v, f"{key}.")
        if key not in _INTEGERS or (key == "participation" and v == 1):  # 1.0 is a fraction: all clients
            return v
        return int(v) if isinstance(v, float) and v.is_integer() else v

    return {k: value(prefix + str(k), v) for k, v in tree.items()}


def _metrics(section: object) -> dict[str, Component]:
    if not isinstance(section, dict) or not all(isinstance(v, dict) and "_target_" in v for v in section.values()):
        raise RequestError(
            f"metrics must hold functions by name, got {typed(section)}; type +metrics.NAME._target_=FILE.FUNCTION"
        )
    return {str(name): Component.of(v) for name, v in section.items()}


def _seed(value: object) -> int:
    remedy = ""
    if isinstance(value, str) and (found := _SEVERAL_SEEDS.fullmatch(value)):
        low, high = int(found[1]), int(found[2])
        few = ",".join(str(s) for s in range(low, high + 1)) if high - low < 10 else f"range({low},{high + 1})"
        remedy = f"for several seeds type -m seed={few}" if low <= high else ""
    return integer("seed", value, remedy=remedy)


def _tuned_on(value: object, seed: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise RequestError(f"tuned_on must be a list of seeds, got {typed(value)}")
    seeds = tuple(integer("tuned_on", s) for s in value)
    if seed in seeds:
        raise RequestError(
            f"seed={seed} is one of the seeds that this configuration was tuned on (tuned_on={config_value(seeds)}); "
            "results need other seeds"
        )
    return seeds


def _participation(value: object) -> float | int:
    x = number("participation", value, above=0, remedy=f"it is {_PARTICIPATION}")
    if x > 1 and not x.is_integer():
        raise RequestError(f"participation must be {_PARTICIPATION}, got {value!r}")
    return x if x <= 1 else integer("participation", value)


def _keep_clients(value: object, rounds: int, every: int) -> Literal["last", "all"] | tuple[int, ...]:
    if value == "last" or value == "all":
        return value
    if not isinstance(value, list):
        raise RequestError(f"keep_clients must be last, all or a list of rounds, got {typed(value)}")
    kept = tuple(integer("keep_clients", t) for t in value)
    for t in kept:
        if t > rounds or (t % every and t != rounds):
            raise RequestError(
                f"keep_clients names round {t}, which is not evaluated with eval_every={every} and rounds={rounds}"
            )
    return kept


def _local(c: Tree, rounds: int) -> LocalConfig:
    scheduling = _names(Schedule) - {"rounds"}
    _check_keys("local.", c, ({"optimizer"} | _names(LocalConfig) | _names(SgdOptions) | scheduling) - {"solver"})
    size, steps = c["batch_size"], c["steps"]
    with arguments_of("local"):
        choice("optimizer", c["optimizer"], ("sgd",))
        lr = number("lr", c["lr"], above=0)
        return LocalConfig(
            lr=lr,
            solver=SgdOptions(**{k: c[k] for k in _names(SgdOptions)}),
            schedule=_schedule({k: c[k] for k in scheduling if k in c}, lr, rounds),
            batch_size=None if size == "full" else integer("batch_size", size, at_least=1, instead="full"),
            epochs=_epochs(c["epochs"]),
            steps=None if steps is None else integer("steps", steps, at_least=1, remedy="use null for local.epochs"),
            crop=integer("crop", c["crop"]),
            flip=boolean("flip", c["flip"]),
        )


def _schedule(c: Tree, lr: float, rounds: int) -> Schedule:
    at = c.get("decay_at")
    schedule = Schedule(**{**c, "decay_at": tuple(at) if isinstance(at, list) else at}, rounds=rounds)
    schedule.require_rates(lr)
    return schedule


def _epochs(value: object) -> tuple[int, int]:
    bounds = value if isinstance(value, list) else [value, value]
    if len(bounds) != 2:
        raise WrongValue("epochs", f"must be an integer >= 1 or [lo,hi], got {value!r}")
    low, high = (integer("epochs", v, at_least=1, instead="[lo,hi]") for v in bounds)
    if low > high:
        raise RequestError(f"local.epochs=[lo,hi] needs lo <= hi, got {value!r}")
    return low, high


def _data(c: Tree, seed: int) -> DataConfig:
    rule, own, clients, others = (c.get(k) for k in ("partition", "seed", "clients", "test_clients"))
    if rule is not None and not isinstance(rule, dict):
        raise RequestError(
            f"data.partition must be a section with keys or null, got {rule!r}; choose one with data/partition={rule}"
        )
    _check_keys("data.noise.", c["noise"], _names(LabelNoise))
    with arguments_of("data.noise"):
        noise = LabelNoise(**c["noise"])
    with arguments_of("data"):
        local_test: LocalTest = choice("local_test", c.get("local_test"), get_args(LocalTest))
        others = None if others is None else integer("test_clients", others, at_least=1)
        return DataConfig(
            source=_source(c["source"], others if local_test == "others" else None),
            partition=Component.of(rule) if rule else None,
            noise=noise,
            clients=None if clients is None else integer("clients", clients, at_least=1),
            test_clients=others,
            split=number("split", c.get("split"), above=0, at_most=1),
            local_test=local_test,
            seed=seed if own is None else integer("seed", own, remedy="use null for the seed of the run"),
            download=boolean("download", c.get("download")),
            mirrors=mirrors_of("data.mirrors", c.get("mirrors")),
            validation=number("validation", c.get("validation"), at_least=0, below=1),
        )


def _source(section: Tree, test_clients: int | None) -> Component:
    """Return the source; for ``test_clients`` it reads those clients too, and splits the examples of none."""
    source = Component.of(section)
    if not test_clients:
        return source
    changed: Tree = {}
    if isinstance(clients := source.options.get("clients"), int):
        changed["clients"] = clients + test_clients
    if isinstance(source.options.get("split"), float):
        changed["split"] = 1.0
    return replace(source, options=source.options | changed)


def _engine(c: Tree) -> EngineConfig:
    _check_keys("engine.", c, _names(EngineConfig))
    with arguments_of("engine"):
        return EngineConfig(
            mode=choice("mode", c["mode"], get_args(Mode)),
            cohort_size=_automatic("cohort_size", c["cohort_size"]),
            workers=_automatic("workers", c["workers"]),
            precision=choice("precision", c["precision"], get_args(Precision)),
            client_state=choice("client_state", c["client_state"], get_args(ClientStatePlace)),
            profile=boolean("profile", c["profile"]),
        )


def _automatic(name: str, value: object) -> int | None:
    return None if value == "auto" else integer(name, value, at_least=1, instead="auto")


def _device(value: object) -> str:
    """Check the form alone: whether a GPU exists matters only when something is trained."""
    if not isinstance(value, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
        raise RequestError(f"device must be auto, cpu, cuda or cuda:INDEX, got {typed(value)}")
    return value


def _text(name: str, value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise RequestError(f"{name} must be {what}, got {typed(value)}")
    return value


def _names(record: Any) -> set[str]:
    return {f.name for f in fields(record)}


def _check_keys(prefix: str, section: Tree, names: set[str]) -> None:
    for key in section:
        if key not in names:
            allowed = ", ".join(sorted(prefix + n for n in names))
            hint = nearest(prefix + key, [prefix + n for n in names])
            raise RequestError(f"unknown key {prefix}{key}{hint or f'; the keys are {allowed}'}")
    if missing := sorted(names - section.keys()):
        raise RequestError(f"{prefix}{missing[0]} is missing; `fedbench --cfg job` shows every key with its value")


def _refuse_missing_sections(tree: Tree) -> None:
    for name in _SECTIONS:
        section: Any = tree
        for part in name.split("."):
            section = section.get(part) if isinstance(section, dict) else None
        if not isinstance(section, dict):
            raise RequestError(f"{name} must be a section with keys, got {typed(section)}; see `fedbench --cfg job`")

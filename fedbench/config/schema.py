"""The configuration of one run: a resolved mapping, parsed once into frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

from fedbench.config.identity import Identity, identify
from fedbench.config.overrides import SCENARIOS
from fedbench.config.targets import Component
from fedbench.core.config_values import Tree, config_value
from fedbench.core.errors import RequestError, WrongValue, arguments_of, nearest
from fedbench.core.files import user_path
from fedbench.core.options import (
    Count,
    HalfOpenUnit,
    LabelNoise,
    Natural,
    Positive,
    PositiveShare,
    Schedule,
    SgdOptions,
)
from fedbench.core.validation import Check, declared, integer, number, several, text

Sampling = Literal["uniform", "size"]
LocalTest = Literal["auto", "split", "official", "central", "others"]
Mode = Literal["auto", "loop", "stacked", "compiled"]
Precision = Literal["float32", "float64", "tf32", "bf16"]
ClientStatePlace = Literal["auto", "device", "host", "file"]


def _or(key: str, value: Any, *, words: Mapping[Any, Any], check: Callable[[str, Any], Any]) -> Any:
    """The value that a word stands for, or what a check returns for any other value."""
    if isinstance(value, str | None) and value in words:
        return words[value]
    return check(key, value)


def _component(key: str, value: object) -> Component | None:
    return Component.of(key, value) if value else None


def _participation(key: str, value: object) -> float | int:
    allowed = "a fraction of the clients in (0, 1], where 1.0 is all, or a number of clients above 1"
    x = number(key, value, above=0, remedy=f"it is {allowed}")
    if x > 1 and not x.is_integer():
        raise WrongValue(key, f"must be {allowed}, got {value!r}")
    return x if x <= 1 else integer(key, value)


def _epochs(key: str, value: object) -> tuple[int, int]:
    bounds = value if isinstance(value, list) else [value, value]
    if len(bounds) != 2:
        raise WrongValue(key, f"must be an integer >= 1 or [lo,hi], got {value!r}")
    low, high = (integer(key, v, at_least=1, instead="[lo,hi]") for v in bounds)
    if low > high:
        raise WrongValue(f"{key}=[lo,hi]", f"needs lo <= hi, got {value!r}")
    return low, high


def _count_or(key: str, value: object, *, word: str) -> int | None:
    return None if value == word else integer(key, value, at_least=1, instead=word)


# Types of keys; a function in one returns the value of a key, where no other annotation can say what it must be.
_ADDRESSES = "a list of addresses that begin with http:// or https://"
_ADDRESS = partial(text, what=_ADDRESSES, pattern="https?://.+")
_ROUNDS = partial(several, what="last, all or a list of rounds")
Section: TypeAlias = Annotated[Component, Check(Component.of)]
OptionalSection: TypeAlias = Annotated[Component | None, Check(_component)]
Directory: TypeAlias = Annotated[Path, Check(text, what="a directory", made=user_path)]
AutoCount: TypeAlias = Annotated[int | None, Check(_count_or, word="auto")]


@dataclass(frozen=True)
class Choices:
    """The choices of the config groups; None where none was chosen, and those of scenarios by group."""

    algo: str
    data: str
    model: str
    experiment: str | None
    scenarios: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalConfig:
    """The section ``local``: the local solver and the work of a client in one round.

    Attributes:
        batch_size: Examples per batch, or None for a full batch.
        epochs: Bounds of the number of local epochs, drawn per client and round.
    """

    lr: Positive
    solver: SgdOptions
    schedule: Schedule
    batch_size: Annotated[int | None, Check(_count_or, word="full")]
    epochs: Annotated[tuple[int, int], Check(_epochs)]
    steps: Count | None
    crop: Natural
    flip: bool


@dataclass(frozen=True)
class DataConfig:
    """The section ``data``: a source, a partition and label noise.

    Attributes:
        partition: None where the source assigns examples to clients.
        seed: Random seed of the partition and the split; the run's seed where ``data.seed`` is null.
        mirrors: Servers that are asked for missing files before the published addresses.
    """

    source: Section
    partition: OptionalSection
    noise: LabelNoise
    clients: Count | None
    test_clients: Count | None
    split: PositiveShare
    local_test: LocalTest
    seed: Annotated[int, Check(_or, words={None: None}, check=partial(integer, remedy="use null for the run's seed"))]
    download: bool
    validation: HalfOpenUnit
    mirrors: Annotated[
        tuple[str, ...],
        Check(_or, words={None: ()}, check=partial(several, what=_ADDRESSES, check=_ADDRESS)),
    ] = ()


@dataclass(frozen=True)
class EngineConfig:
    """The section ``engine``: how a run is simulated; None is the choice by model and device."""

    mode: Mode
    cohort_size: AutoCount
    workers: AutoCount
    precision: Precision
    client_state: ClientStatePlace
    profile: bool


@dataclass(frozen=True)
class TopKeys:
    """The keys of a run that are in no section, and its components; conf/config.yaml describes them.

    Attributes:
        participation: Fraction of the clients as a float in (0, 1], or a number of clients as an int.
        tracker: Its target is None for no tracker.
    """

    rounds: Natural
    participation: Annotated[float | int, Check(_participation)]
    sampling: Sampling
    seed: Annotated[int, Check(integer, remedy="for several seeds type -m seed=0,1,2")]
    eval_every: Count
    eval_train_every: Count
    keep_clients: Annotated[
        Literal["last", "all"] | tuple[int, ...],
        Check(_or, words={"last": "last", "all": "all"}, check=_ROUNDS),
    ]
    improved_clients: bool
    device: Annotated[
        str,
        Check(text, what="auto, cpu, cuda or cuda:INDEX", pattern=r"auto|cpu|cuda(:\d+)?"),
    ]
    model: Section
    algo: Section
    tracker: Section
    data_dir: Directory
    results_dir: Directory
    force: bool
    keep_state: bool
    objective: Annotated[str, Check(text, what="auto or a column of rounds.jsonl, such as accuracy_mean")]
    tuned_on: Annotated[tuple[int, ...], Check(several, what="a list of seeds")]


@dataclass(frozen=True)
class RunConfig(TopKeys):
    """The configuration of one run.

    Attributes:
        evaluate_clients: Number of clients in the sample that is evaluated, or None for all clients.
        init_path: File with the initial model, or None for a random one.
        scenarios: What surrounds the method, by group.
        tree: The resolved configuration as nested dictionaries: what ``config.yaml`` contains.
        identity: Identity of the setting, the same for all seeds.
        overrides: The overrides as typed.
        departures: The keys that differ from the chosen experiment, each with [value there, value here].
        stored_tree: ``tree`` as files and trackers get it, with text from environment variables unresolved.
    """

    names: Choices
    evaluate_clients: int | None
    local: LocalConfig
    data: DataConfig
    engine: EngineConfig
    init_path: Path | None
    metrics: Mapping[str, Component]
    scenarios: Mapping[str, Component]
    tree: Tree
    identity: Identity
    overrides: tuple[str, ...]
    departures: Mapping[str, list[Any]] = field(default_factory=dict)
    stored_tree: Tree = field(default_factory=dict)

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
        return self.results_dir / self.task_name / self.names.algo / self.identity.digest / f"seed_{self.seed}"


def _keys(section: type, *others: str) -> Tree:
    """Return the types of the keys of a section; its other fields are made of several keys."""
    return {name: hint for name, hint in get_type_hints(section, include_extras=True).items() if name not in others}


_TOP = _keys(TopKeys) | dict.fromkeys(SCENARIOS, OptionalSection) | {"metrics": Section}
_LOCAL = _keys(LocalConfig, "solver", "schedule") | {"optimizer": Literal["sgd"]}
_DATA = _keys(DataConfig, "noise")
_ENGINE = _keys(EngineConfig)
_ONE_KEY: dict[str, Tree] = {  # sections
    "init": {
        "path": Annotated[
            Path | None,
            Check(_or, words={None: None}, check=partial(text, what="a file or null", made=user_path)),
        ]
    },
    "evaluate": {"clients": Annotated[int | None, Check(_count_or, word="all")]},
}
TOP_KEYS = {*_TOP, *_ONE_KEY, "local", "engine", "data"}
_SOLVER = {f.name for f in fields(SgdOptions)}
_SCHEDULE = {f.name for f in fields(Schedule)} - {"rounds"}


def parse(tree: Tree, choices: Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """The typed configuration that a resolved mapping stands for; every value is checked here, once.

    Args:
        tree: The resolved configuration, presets merged in.
        choices: The choice of each config group.
        overrides: The overrides that led to it, as typed.

    Raises:
        RequestError: If a key is unknown or a value is out of range.
    """
    top, tree = _checked("", tree, _TOP, TOP_KEYS)
    local, tree["local"] = _checked("local", tree["local"], _LOCAL, {*_LOCAL, *_SOLVER, *_SCHEDULE})
    engine, tree["engine"] = _checked("engine", tree["engine"], _ENGINE, {*_ENGINE})
    data, tree["data"] = _checked("data", tree["data"], _DATA)
    init, evaluate = (_checked(name, tree[name], kinds, {*kinds})[0] for name, kinds in _ONE_KEY.items())
    _, noise = _checked("data.noise", tree["data"].get("noise"), {}, {f.name for f in fields(LabelNoise)})
    top["metrics"] = {k: Component.of(f"metrics.{k}", v) for k, v in tree["metrics"].items()}
    for key in ("metrics", *SCENARIOS):  # without them, configuration and identity are those from before there were any
        if not tree.get(key):
            tree.pop(key, None)
    del local["optimizer"]
    with arguments_of("local"):
        solver = SgdOptions(**{key: tree["local"][key] for key in _SOLVER})
        options = {key: tree["local"][key] for key in _SCHEDULE}
        at = options.pop("decay_at")
        schedule = Schedule(**options, decay_at=tuple(at) if isinstance(at, list) else at, rounds=top["rounds"])
    with arguments_of("data.noise"):
        data["noise"] = LabelNoise(**noise)
    _refuse_contradictions(top, local["lr"] * schedule.factor(max(0, top["rounds"] - 1)))
    data["seed"] = top["seed"] if data["seed"] is None else data["seed"]
    if data["local_test"] == "others":
        data["source"] = _with_test_clients(data["source"], data["test_clients"])
    scenarios = {name: found for name in SCENARIOS if (found := top.pop(name)) is not None}
    around = {group: str(choices.get(group)) for group in scenarios}
    return RunConfig(
        **top,
        scenarios=scenarios,
        names=Choices(choices["algo"], choices["data"], choices["model"], choices.get("experiment"), around),
        local=LocalConfig(**local, solver=solver, schedule=schedule),
        data=DataConfig(**data),
        engine=EngineConfig(**engine),
        evaluate_clients=evaluate["clients"],
        init_path=init["path"],
        tree=tree,
        identity=identify(tree),
        overrides=tuple(overrides),
    )


def _checked(name: str, section: Any, kinds: Tree, known: Set[str] = frozenset()) -> tuple[Tree, Tree]:
    """The typed values of a section, and the section with 1000 instead of 1e3 where a value is an integer.

    Args:
        name: Dotted key of the section; empty for the whole configuration.
        section: The section.
        kinds: The types of keys; keys that are missing are null.
        known: All keys that the section may have; empty for any.
    """
    Component.of(name, section)  # it is a section
    where = f"{name}." if name else ""
    for key in (k for k in section if known and k not in known):
        hint = nearest(f"{where}{key}", [f"{where}{other}" for other in known])
        raise RequestError(f"unknown key {where}{key}{hint or '; `fedbench --cfg job` shows the keys'}")
    values = {key: declared(f"{where}{key}", section.get(key), kind) for key, kind in kinds.items()}
    integers = {k: v for k, v in values.items() if type(v) is int and isinstance(section.get(k), float)}
    return values, section | integers


def _refuse_contradictions(top: Tree, last_rate: float) -> None:
    rounds, every, kept, tuned_on = (top[key] for key in ("rounds", "eval_every", "keep_clients", "tuned_on"))
    for t in kept if isinstance(kept, tuple) else ():
        if t > rounds or (t % every and t != rounds):
            settings = f"eval_every={every} and rounds={rounds}"
            raise RequestError(f"keep_clients names round {t}, which is not evaluated with {settings}")
    if (seed := top["seed"]) in tuned_on:
        used = f"tuned_on={config_value(tuned_on)}"
        raise RequestError(f"seed={seed} is one of the seeds that values were tuned on ({used}); results need others")
    if last_rate < 1e-30:  # whose reciprocal still fits into float32
        fault = f"makes the learning rate {last_rate:.3g} in round {rounds}, below 1e-30"
        raise WrongValue("local.schedule", f"{fault}; use a decay_factor nearer to 1, or a larger decay_every")


def _with_test_clients(source: Component, test_clients: int | None) -> Component:
    """A source that reads the test clients too, and splits the examples of none."""
    options = dict(source.options)
    if isinstance(options.get("clients"), int):
        options["clients"] += test_clients or 0
    if isinstance(options.get("split"), float):
        options["split"] = 1.0
    return replace(source, options=options)

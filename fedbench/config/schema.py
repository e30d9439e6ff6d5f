"""The configuration of one run: dataclasses into which pydantic parses the resolved mapping."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    PlainValidator,
    StrictBool,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from fedbench.config.identity import Identity, identify
from fedbench.config.overrides import ADDITIONS, SCENARIOS
from fedbench.config.targets import Component
from fedbench.core.config_values import Tree, config_value, leaves
from fedbench.core.errors import RequestError, WrongValue, nearest, typed
from fedbench.core.files import user_path
from fedbench.core.options import (
    Count,
    CropMode,
    HalfOpenUnit,
    Integer,
    LabelNoise,
    Natural,
    Number,
    OpenUnit,
    Positive,
    PositiveShare,
    Schedule,
    Seed,
    SgdOptions,
    Statistics,
    UnitInterval,
)
from fedbench.core.validation import checked, fault

Sampling = Literal["uniform", "size", "power_of_choice", "loss"]
BY_LOSSES = ("power_of_choice", "loss")  # samplings that measure losses
# the source's own, none, or means and standard deviations per channel
Normalise: TypeAlias = Literal["source", "none"] | tuple[tuple[Number, ...], tuple[Positive, ...]]
LocalTest = Literal["auto", "split", "official", "central", "others"]
Mode = Literal["auto", "loop", "stacked", "compiled"]
Precision = Literal["float32", "float64", "tf32", "bf16"]
ClientStatePlace = Literal["auto", "device", "host", "file"]

# ---- types of keys


def _ordered(bounds: tuple[int, int]) -> tuple[int, int]:
    low, high = bounds
    if low > high:
        raise ValueError(f"must be an integer or [lo,hi] with lo <= hi, got {typed([low, high])}")
    return bounds


def _count_or(word: str) -> GetPydanticSchema:
    """Return the annotation of a key that is a positive integer, or a word that means None."""

    def schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = core_schema.union_schema([core_schema.literal_schema([word]), handler(Count)])
        return core_schema.no_info_after_validator_function(
            lambda value: None if value == word else value, choices
        )

    return GetPydanticSchema(schema)


def _not_empty(words: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if words == ():
        raise ValueError("must be all, or a list of at least one word or pattern, got []")
    return words


def _user_path(value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a path, got {typed(value)}")
    return user_path("path", value)


Section: TypeAlias = Annotated[Component, PlainValidator(partial(Component.of, "section"))]
UserPath: TypeAlias = Annotated[Path, PlainValidator(_user_path)]
Participation: TypeAlias = Annotated[
    Annotated[Integer, Field(gt=1)] | PositiveShare, Field(union_mode="left_to_right")
]
AutoCount: TypeAlias = Annotated[int | None, _count_or("auto")]
Address: TypeAlias = Annotated[str, Field(pattern="^https?://.+")]

# ---- sections


@dataclass(frozen=True)
class Choices:
    """The choices in the config groups.

    ``additions`` maps the groups of scenarios and objectives in use to their choices.
    """

    algo: str
    data: str
    model: str
    experiment: str | None
    additions: Mapping[str, str] = field(default_factory=dict)


class _Keys:
    """A section of the configuration, which rejects keys other than its fields."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class LocalConfig(_Keys):
    """The section ``local``: the local solver and a client's work in one round.

    Attributes:
        batch_size: Examples per batch, or None for a full batch.
        epochs: Bounds for the number of local epochs, which is drawn per client and round.
    """

    lr: Positive
    optimizer: Literal["sgd"]
    solver: SgdOptions
    schedule: Schedule
    batch_size: Annotated[int | None, _count_or("full")]
    epochs: Annotated[
        tuple[Count, Count],
        AfterValidator(_ordered),
        BeforeValidator(lambda value: value if isinstance(value, list) else [value, value]),
    ]
    steps: Count | None
    crop: Natural
    crop_mode: CropMode
    crop_share: UnitInterval
    flip: StrictBool

    @model_validator(mode="before")
    @classmethod
    def _of_keys(cls, section: Tree) -> Tree:
        """Replace the keys of the solver and the schedule with the objects that they describe."""
        if not isinstance(section, dict):
            raise WrongValue("local", f"must be a section with keys such as lr, got {section}")
        solver = SgdOptions(**{key: section[key] for key in _SOLVER})
        schedule_keys = {key: section[key] for key in _SCHEDULE}
        schedule = Schedule(**checked(Schedule, schedule_keys))
        others = {key: value for key, value in section.items() if key not in _SOLVER | _SCHEDULE}
        return others | {"solver": solver, "schedule": schedule}


_SOLVER = {field.name for field in fields(SgdOptions)}
_SCHEDULE = {field.name for field in fields(Schedule)} - {"rounds"}


@dataclass(frozen=True)
class DataConfig(_Keys):
    """The section ``data``: a source, a partition, label noise, and keys of the source.

    Attributes:
        partition: The partition, or None if the source assigns examples to clients.
        seed: Random seed of the partition and the split; the run's seed if ``data.seed`` is null.
        normalise: Normalisation of images; means and deviations are in units of the full range.
        mirrors: Servers to try for missing files before the published addresses.
    """

    __pydantic_config__ = ConfigDict(extra="ignore", allow_inf_nan=False)

    source: Section
    noise: LabelNoise
    split: PositiveShare
    local_test: LocalTest
    seed: Seed
    download: StrictBool
    validation: HalfOpenUnit
    normalise: Normalise
    partition: Section | None = None
    clients: Count | None = None
    test_clients: Count | None = None
    mirrors: Annotated[tuple[Address, ...], BeforeValidator(lambda value: value or ())] = ()


@dataclass(frozen=True)
class EngineConfig(_Keys):
    """The section ``engine``: how a run is simulated.

    The value of a key that is None is chosen according to the model and the device.
    """

    mode: Mode
    cohort_size: AutoCount
    workers: AutoCount
    precision: Precision
    lanes: Count
    client_state: ClientStatePlace
    profile: StrictBool


@dataclass(frozen=True)
class InitConfig(_Keys):
    """The section ``init``: a file with the initial model, or None for a random one."""

    path: UserPath | None


@dataclass(frozen=True)
class PartsConfig(_Keys):
    """The section ``parts``: sets of a model's tensors, as words or patterns of names.

    ``statistics`` is the policy for running statistics, and ``fix_after`` the share of the rounds
    after which they are constants. A value of None is the method's own.
    """

    personal: tuple[str, ...] | None
    frozen: tuple[str, ...] | None
    statistics: Statistics | None
    fix_after: UnitInterval | None


@dataclass(frozen=True)
class FinetuneConfig(_Keys):
    """The section ``finetune``: training of a client's model before it is evaluated.

    Attributes:
        epochs: Number of epochs. If None, that of the method.
        lr: Learning rate. If None, that of the last finished round.
        parts: Words or patterns of the parameters that are moved. If None, all parameters.
    """

    epochs: Natural | None
    lr: Positive | None
    parts: Annotated[
        tuple[str, ...] | None,
        AfterValidator(_not_empty),
        BeforeValidator(lambda value: None if value == "all" else value),
    ]


@dataclass(frozen=True)
class EvaluateConfig(_Keys):
    """The section ``evaluate``: the clients that are evaluated.

    Attributes:
        clients: Number of clients to evaluate, or None for all.
        held_out_clients: Number of clients that never train, or their share of the clients with
            training examples. If None, there are none.
        class_metrics: Whether to measure balanced accuracy and macro-F1.
    """

    clients: Annotated[int | None, _count_or("all")]
    held_out_clients: Annotated[Count | OpenUnit, Field(union_mode="left_to_right")] | None
    class_metrics: StrictBool


@dataclass(frozen=True)
class Keys(_Keys):
    """The keys of a configuration; conf/config.yaml describes them.

    Attributes:
        participation: Fraction of the clients as a float in (0, 1], or a number of clients as an
            int.
        objective: The loss of the local steps; without one, its target is None.
        sampling_candidates: Clients whose losses are measured, as for ``participation``; None for
            all.
        tracker: The tracker; without a tracker, its target is None.
    """

    rounds: Natural
    participation: Participation
    sampling: Sampling
    sampling_candidates: Participation | None
    seed: Seed
    eval_every: Count
    eval_train_every: Count
    keep_clients: Literal["last", "all"] | tuple[Natural, ...]
    improved_clients: StrictBool
    evaluate: EvaluateConfig
    local: LocalConfig
    data: DataConfig
    device: Literal["auto", "cpu", "cuda"] | Annotated[str, Field(pattern=r"^cuda:\d+$")]
    engine: EngineConfig
    init: InitConfig
    parts: PartsConfig
    finetune: FinetuneConfig
    model: Section
    algo: Section
    tracker: Section
    metrics: dict[str, Section]
    data_dir: UserPath
    results_dir: UserPath
    force: StrictBool
    keep_state: StrictBool
    objective: Section
    tuned_by: Annotated[str, Field(min_length=1)]
    tuned_on: tuple[Natural, ...]

    def evaluates(self, round: int, ends: bool) -> bool:
        """Return whether the model is evaluated after a round; ``ends``: it is the last one."""
        return ends or round % self.eval_every == 0

    def keeps_clients(self, round: int, ends: bool) -> bool:
        """Return whether the per-client table of an evaluated round is kept."""
        if isinstance(self.keep_clients, tuple):
            return round in self.keep_clients
        return ends or self.keep_clients == "all"

    def evaluates_training(self, round: int, ends: bool) -> bool:
        """Return whether an evaluation includes the training examples."""
        due = ends or round % self.eval_train_every == 0
        return due or self.keeps_clients(round, ends)


@dataclass(frozen=True)
class RunConfig(Keys):
    """The configuration of one run.

    Attributes:
        names: The choices in the config groups.
        scenarios: Components of the scenarios, by group.
        tree: The resolved configuration as nested dictionaries.
        identity: Identity of the setting, the same for all seeds.
        overrides: The overrides as typed.
        departures: The keys that differ from the chosen experiment, each with [the experiment's
            value, the run's value].
        plans: Digests of the plans that ask for the run, by id (``fedbench.config.plans``).
        stored_tree: The form of ``tree`` for files (``config.yaml``) and trackers, in which text
            from environment variables is unresolved.
    """

    names: Choices
    scenarios: Mapping[str, Component]
    tree: Tree
    identity: Identity
    overrides: tuple[str, ...]
    departures: Mapping[str, list[Any]] = field(default_factory=dict)
    plans: Mapping[str, str] = field(default_factory=dict)
    stored_tree: Tree = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Digest of the setting, part of the run's path."""
        return self.identity.digest

    @property
    def task_name(self) -> str:
        """The experiment, or the data set if no experiment is chosen."""
        return self.names.experiment or self.names.data

    @property
    def path(self) -> Path:
        """The directory of the run."""
        return (
            self.results_dir
            / self.task_name
            / self.names.algo
            / self.identity.digest
            / f"seed_{self.seed}"
        )


_KEYS = TypeAdapter(Keys)
_REMEDIES = {
    "participation": "1.0 is all clients, a lower number is a share of them, "
    "and a number above 1 is a count",
    "seed": "for several seeds type -m seed=0,1,2 or -m 'seed=range(0,100)'",
    "data.normalise": "a list has means and positive deviations, such as [[0.5],[0.25]]",
    "data.seed": "use null for the run's seed",
}
TOP_KEYS = {*SCENARIOS, *(field.name for field in fields(Keys))}


def parse(
    tree: Tree,
    choices: Mapping[str, Any],
    overrides: Sequence[str] = (),
) -> RunConfig:
    """Check every value of a resolved mapping and return the typed configuration.

    Args:
        tree: The resolved configuration with presets merged in.
        choices: The choice in each config group.
        overrides: The overrides that define the configuration, as typed.

    Raises:
        RequestError: If a key is unknown or a value is out of range.
    """
    scenarios = {}
    for group in SCENARIOS:
        if tree.get(group):
            scenarios[group] = Component.of(group, tree[group])
    others: Tree = {"objective": {}}
    others |= {key: value for key, value in tree.items() if key not in SCENARIOS}
    data = tree["data"]
    if isinstance(data, dict) and data["seed"] is None:
        others["data"] = data | {"seed": tree["seed"]}
    try:
        keys = _KEYS.validate_python(others)
    except ValidationError as error:
        raise _request_error(error, tree) from error
    schedule = replace(keys.local.schedule, rounds=keys.rounds)
    keys = replace(keys, local=replace(keys.local, schedule=schedule))
    _refuse_contradictions(keys)

    if keys.data.local_test == "others":
        source = _with_test_clients(keys.data.source, keys.data.test_clients)
        keys = replace(keys, data=replace(keys.data, source=source))

    # without unused sections, configuration and identity are as before these sections existed
    unused = [key for key in ("metrics", *ADDITIONS) if not tree.get(key)]
    tree = {key: value for key, value in tree.items() if key not in unused}
    return RunConfig(
        **vars(keys),
        names=Choices(
            algo=choices["algo"],
            data=choices["data"],
            model=choices["model"],
            experiment=choices.get("experiment"),
            additions={group: str(choices.get(group)) for group in ADDITIONS if group in tree},
        ),
        scenarios=scenarios,
        tree=tree,
        identity=identify(tree),
        overrides=tuple(overrides),
    )


def _request_error(error: ValidationError, tree: Tree) -> RequestError:
    """Return pydantic's first error for a configuration as an error that names the key."""
    first = error.errors(include_url=False)[0]
    section: Any = tree
    parts: list[str] = []
    for part in first["loc"]:
        # other parts are pydantic's type names
        if isinstance(section, dict) and part in section:
            section = section[part]
            parts.append(str(part))
    key = ".".join(parts)
    if first["type"] == "unexpected_keyword_argument":
        others = [known for known in leaves(tree) if known != key]
        return RequestError(
            f"unknown key {key}{nearest(key, others) or '; `fedbench --cfg job` shows the keys'}"
        )
    if first["type"] == "missing":
        return RequestError(f"{key}{'.' if key else ''}{first['loc'][-1]} is missing")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, WrongValue) and isinstance(section, dict):  # a rule for a section
        key = f"{key}.{cause.name}"
    return WrongValue(key, fault(error, _REMEDIES.get(key, "")))


def _refuse_contradictions(keys: Keys) -> None:
    """Raise a RequestError for values that contradict each other."""
    rounds, every = keys.rounds, keys.eval_every
    for t in keys.keep_clients if isinstance(keys.keep_clients, tuple) else ():
        if t > rounds or (t % every and t != rounds):
            settings = f"eval_every={every} and rounds={rounds}"
            raise RequestError(
                f"keep_clients names round {t}, which is not evaluated with {settings}"
            )
    if keys.sampling_candidates is not None and keys.sampling not in BY_LOSSES:
        raise WrongValue(
            "sampling_candidates",
            f"must be null with sampling={keys.sampling}, got {keys.sampling_candidates}; it is "
            f"for sampling={' or sampling='.join(BY_LOSSES)}",
        )
    if keys.seed in keys.tuned_on:
        used = f"tuned_on={config_value(keys.tuned_on)}"
        raise RequestError(
            f"seed={keys.seed} is one of the seeds that values were tuned on ({used}); "
            "results need others"
        )
    last_factor = keys.local.schedule.factor(max(0, rounds - 1))
    last_rate = keys.local.lr * last_factor
    if last_rate < 1e-30:  # the reciprocal of 1e-30 still fits into float32
        message = f"makes the learning rate {last_rate:.3g} in round {rounds}, below 1e-30"
        if last_factor == 1:
            raise WrongValue("local.lr", f"{message}; use a larger one")
        raise WrongValue(
            "local.schedule", f"{message}; use a decay_factor nearer to 1, or fewer decays"
        )


def _with_test_clients(source: Component, test_clients: int | None) -> Component:
    """Return a source that also reads the test clients, and does not split clients' examples."""
    options = dict(source.options)
    if isinstance(options.get("clients"), int):
        options["clients"] += test_clients or 0
    if isinstance(options.get("split"), float):
        options["split"] = 1.0
    return replace(source, options=options)

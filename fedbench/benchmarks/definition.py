"""The definition of a benchmark: ``conf/benchmark/<name>.yaml``, or a file in the user's tree.

A benchmark is data. Results of different versions are never in one table, so each setting has the
digest of its configuration: if an experiment changes, the benchmark is refused until its version
is raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PositiveInt, TypeAdapter, ValidationError

from fedbench.config.overrides import CONFIG_DIR, choice_files
from fedbench.core.config_values import read_yaml
from fedbench.core.errors import RequestError, nearest
from fedbench.core.files import reading
from fedbench.core.metrics import CATALOGUE, validation_metrics
from fedbench.core.options import Count, NonNegative, Positive
from fedbench.core.validation import place_and_fault

GROUP = "benchmark"  # directory of the definitions in a config tree
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Setting:
    """A setting of a benchmark.

    Attributes:
        experiment: The experiment.
        held_out: Overrides of the held-out variant, which no search has seen. Final numbers are
            judged on both.
        digests: Digests of the baseline's configuration in the setting and in its variant.
        about: The setting in words.
    """

    __pydantic_config__ = _STRICT

    experiment: str
    held_out: tuple[str, ...]
    digests: tuple[str, str]
    about: str


@dataclass(frozen=True)
class Search:
    """The search for a method's values, the same for every method.

    First the client's learning rates are tried with the method's own keys at their defaults, then
    random values of its own keys (``conf/tune/<method>.yaml``) at the best rate.

    Attributes:
        rates: Values of ``local.lr``.
        budget: Number of values of the own keys.
        seeds: The tuning seeds, apart from those of the table.
        metric: Metric on validation examples.
    """

    __pydantic_config__ = _STRICT

    rates: Annotated[tuple[Positive, ...], Field(min_length=1)]
    budget: Count
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    metric: str


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Attributes:
        name: Name of the file.
        version: The version, raised by every change that can change a number.
        title: Title of the page.
        lead: What the settings are for.
        changes: What each version changed, by version.
        settings: The settings by name, in the order of the page.
        methods: The methods, or "all".
        baseline: The method that all others are compared with.
        weights: Weights of the clients, for methods with a choice.
        search: The search.
        seeds: Number S of seeds of the tables: 0 to S - 1.
        metrics: Metrics of the last round. Verdicts are about the first two.
        tolerance: Largest difference of a repeated run's metrics on another kind of machine,
            relative for metrics above 1.
    """

    __pydantic_config__ = _STRICT

    name: str
    version: PositiveInt
    title: str
    lead: str
    changes: Mapping[int, str]
    settings: Annotated[Mapping[str, Setting], Field(min_length=1)]
    baseline: str
    weights: Literal["uniform", "size"]
    search: Search
    seeds: Count
    metrics: Annotated[tuple[str, ...], Field(min_length=2)]
    tolerance: NonNegative
    methods: tuple[str, ...] | Literal["all"] = "all"

    @property
    def label(self) -> str:
        """Name and version, such as ``fair@2``."""
        return f"{self.name}@{self.version}"


def read_benchmark(name: str, config_dir: Path | None = None) -> Benchmark:
    """Return a benchmark of fedbench's or the user's config tree.

    Args:
        name: Name of the file.
        config_dir: The user's directory with config files and modules.

    Raises:
        RequestError: If there is no such file, its content is invalid, or the user's file has the
            name of one of fedbench's, with another content.
    """
    files = choice_files(GROUP, config_dir)
    if name not in files:
        raise RequestError(
            f"benchmark {name} is unknown{nearest(name, files)}; the benchmarks are "
            f"{', '.join(files)}; one of your own is {GROUP}/{name}.yaml in --config-dir DIR"
        )
    file = files[name]
    published = CONFIG_DIR / GROUP / file.name
    if published.is_file() and published.read_bytes() != file.read_bytes():
        raise RequestError(
            f"{file} has the name of fedbench's own benchmark, with another content; rename it"
        )
    with reading(file, "cannot be read as YAML"):
        tree = read_yaml(file)
    if not isinstance(tree, dict):
        raise RequestError(f"{file} must be a mapping of keys to values, such as version: 1")
    try:
        benchmark = TypeAdapter(Benchmark).validate_python({**tree, "name": name})
    except ValidationError as error:
        raise RequestError(place_and_fault(error, str(file))) from error
    if message := _contradiction(benchmark):
        raise RequestError(f"{file}: {message}")
    return benchmark


def _contradiction(benchmark: Benchmark) -> str:
    """Return a message about values that contradict one another, or an empty string."""
    if benchmark.version not in benchmark.changes:
        return f"changes lacks version {benchmark.version}; state what it changed"
    for seed in benchmark.search.seeds:
        if 0 <= seed < benchmark.seeds:
            return f"search: seed {seed} is one of the table; tuning seeds must be apart"
    metric = benchmark.search.metric
    known = validation_metrics()
    if metric not in known:
        return f"search: metric {metric} is none of {', '.join(known)}{nearest(metric, known)}"
    for metric in benchmark.metrics:
        if metric not in CATALOGUE or CATALOGUE[metric].formula is not None:
            return f"metrics: {metric} is not measured; see `fedbench list metric`"
    return ""

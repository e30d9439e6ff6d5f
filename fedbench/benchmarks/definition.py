"""The definition of a benchmark: ``conf/benchmark/<name>.yaml``, or a file in the user's tree.

A benchmark is data. Results of different versions are never in one table, so each setting has the
digest of its configuration: if an experiment changes, the benchmark is refused until its version
is raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PositiveInt

from fedbench.core.options import Count

_STRICT = ConfigDict(extra="forbid")


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

    rates: tuple[float, ...]
    budget: Count
    seeds: tuple[int, ...]
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
        tolerance: Largest difference of a repeated run's metrics on another kind of machine.
    """

    __pydantic_config__ = _STRICT

    name: str
    version: PositiveInt
    title: str
    lead: str
    changes: Mapping[int, str]
    settings: Mapping[str, Setting]
    baseline: str
    weights: Literal["uniform", "size"]
    search: Search
    seeds: Count
    metrics: Annotated[tuple[str, ...], Field(min_length=2)]
    tolerance: float
    methods: tuple[str, ...] | Literal["all"] = "all"

    @property
    def label(self) -> str:
        """Name and version, such as ``fair@2``."""
        return f"{self.name}@{self.version}"

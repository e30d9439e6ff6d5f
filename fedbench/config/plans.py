"""Plans: which seeds will decide which claims of a paper, written down before their runs.

``<results_dir>/plans/<paper>.yaml`` contains a list of plans. A run of a planned experiment with a
planned seed records the digest of the plan. A verdict is confirmed only if all runs behind it carry
the digest that the plan still has (docs/reproduction.md).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from fedbench.core.config_values import from_yaml
from fedbench.core.files import reading

FOLDER = "plans"
_STRICT = ConfigDict(extra="forbid")


def _ascending(seeds: tuple[int, int]) -> tuple[int, int]:
    if seeds[0] > seeds[1]:
        raise ValueError(f"must be the first and the last seed; got {list(seeds)}")
    return seeds


@dataclass(frozen=True)
class PlannedClaim:
    """The planned test of a claim.

    Attributes:
        check: The check, as in the paper's file.
        margin: Source of each margin in the check; empty if the check has no margin.
        code: Digest of the function that carries out the check; empty if there is no function.
    """

    __pydantic_config__ = _STRICT

    check: Mapping[str, Any]
    margin: str = ""
    code: str = ""


@dataclass(frozen=True)
class Amendment:
    """A change of a plan, with the words of the affected verdicts before and after it."""

    __pydantic_config__ = _STRICT

    date: str
    reason: str
    before: str
    after: str


@dataclass(frozen=True)
class Plan:
    """A plan for some claims of a paper. Every run draws its own split of the data.

    Attributes:
        id: Name of the plan, unique in the paper's file.
        date: Date of the plan.
        experiments: Experiments whose rows are run at the paper's settings.
        seeds: First and last seed.
        claims: The claims by id.
        adopted: Adopted readings of open points, each with the reason.
        search: Values that were searched, with range, budget and seeds, or a statement that there
            are none.
        variants: Ids of the variants of the settings that are run as well.
        looks: Number of times at which the claims are tested, including extensions; each test uses
            the level 0.05 / looks.
        amendments: Later changes of the plan.
        digest: Digest of all the above.
    """

    __pydantic_config__ = _STRICT

    id: str
    date: str
    experiments: tuple[str, ...]
    seeds: Annotated[tuple[int, int], AfterValidator(_ascending)]
    claims: Mapping[str, PlannedClaim]
    adopted: Mapping[str, str]
    search: str
    variants: tuple[str, ...] = ()
    looks: Annotated[int, Field(ge=1)] = 1
    amendments: tuple[Amendment, ...] = ()
    digest: str = ""

    @property
    def every_seed(self) -> range:
        """The planned seeds."""
        first, last = self.seeds
        return range(first, last + 1)


_PLANS = TypeAdapter(tuple[Plan, ...])


def plans_of(folder: Path, paper: str) -> tuple[Plan, ...]:
    """Return the plans for a paper in a results directory, or above a published report.

    Raises:
        RequestError: If the file of the plans is invalid.
    """
    for place in (folder, *folder.absolute().parents[:2]):
        file = place / FOLDER / f"{paper}.yaml"
        if file.is_file():
            return _read(file, file.stat().st_mtime_ns)
    return ()


def digests_of(
    folder: Path,
    experiment: str,
    seed: int,
) -> dict[str, str]:
    """Return the digests of the plans that ask for a run, by id of the plan."""
    digests = {}
    for plan in plans_of(folder, experiment.partition("/")[0]):
        if experiment in plan.experiments and seed in plan.every_seed:
            digests[plan.id] = plan.digest
    return digests


def plans_in(text: str) -> tuple[Plan, ...]:
    """Return the plans in the text of a file.

    Raises:
        ValueError: If the text is not a list of plans with different ids.
    """
    content = from_yaml(text) or []
    plans = _PLANS.validate_python(content)
    names = [plan.id for plan in plans]
    if len(set(names)) < len(names):
        raise ValueError(f"two plans have the same id: {', '.join(names)}")
    digested = []
    for plan, entry in zip(plans, content, strict=True):
        node = json.dumps(entry, sort_keys=True, default=str)
        digest = hashlib.sha256(node.encode()).hexdigest()
        digested.append(replace(plan, digest=digest[:16]))
    return tuple(digested)


@cache
def _read(file: Path, changed: int) -> tuple[Plan, ...]:
    """Return the plans in a file, which was last changed at the given time."""
    with reading(file, "is not a valid list of plans"):
        return plans_in(file.read_text(encoding="utf-8"))

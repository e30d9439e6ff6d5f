"""Entries of a benchmark: the search and the runs of a method in a setting."""

from dataclasses import dataclass

from fedbench.runs.run import Run
from fedbench.tuning.space import Values


@dataclass(frozen=True)
class Trial:
    """A trial of a search.

    Attributes:
        values: The values by key: the rate, and the method's own keys.
        score: The metric on validation examples; None if the run diverged.
    """

    values: Values
    score: float | None


@dataclass(frozen=True)
class Entry:
    """A method in a setting.

    Attributes:
        setting: Name of the setting.
        method: The method.
        space: The axes of the search as typed on the command line, the rates first.
        trials: The trials, in the order of the search.
        chosen: The values of the best trial; None if every trial diverged or the method is refused.
        reason: Why the method has no runs, such as the message of a refusal; empty if it has.
        runs: Runs with the chosen values, in the order of the seeds.
        held_out: Runs with the same values in the held-out variant, likewise.
        published: Whether the entry was read from a bundle rather than run here.
    """

    setting: str
    method: str
    space: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    chosen: Values | None = None
    reason: str = ""
    runs: tuple[Run, ...] = ()
    held_out: tuple[Run, ...] = ()
    published: bool = False

"""The best value of a key in each setting, chosen on validation examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from fedbench.analysis.compare import measured_metric
from fedbench.analysis.settings import SeedBlock, blocks_of, rank
from fedbench.analysis.table_model import Cell
from fedbench.core.errors import RequestError
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.runs.run import Run


@dataclass(frozen=True)
class BestValue:
    """The best value of a key in one setting.

    Attributes:
        title: The setting: what its runs have in common.
        value: The best value, as typed.
        tried: All values with runs, as typed, in ascending order of numbers.
        judged: What the value reaches in the metric that it was chosen by.
        shown: What it reaches in the metric of the table.
        left_out: Values that were not considered, since one of their runs diverged or is not done.
        edge: Whether the value is the least or the greatest of several numbers that were tried.
    """

    title: str
    value: str
    tried: tuple[str, ...]
    judged: Cell
    shown: Cell
    left_out: tuple[str, ...]
    edge: bool


@dataclass(frozen=True)
class BestValues:
    """The best values of a key.

    Attributes:
        key: The key.
        by: The metric that they were chosen by.
        metric: The metric of the table.
        settings: One entry per setting.
        unjudged: Directories of runs that have not measured the metric to choose by, such as those
            without validation examples; they are in no setting.
    """

    key: str
    by: MetricInfo
    metric: MetricInfo
    settings: tuple[BestValue, ...]
    unjudged: tuple[str, ...] = ()


def best_values(runs: Sequence[Run], key: str, metric: str, by: str = "validation") -> BestValues:
    """Return the value of a key with the best mean on validation examples, for each setting.

    A setting contains the runs that are equal in everything but the key and the seed.

    Args:
        runs: Runs on disk.
        key: A dotted key of the configuration.
        metric: The metric that is reported of the chosen value.
        by: ``validation``, which is val_accuracy_mean, or another metric on validation examples.

    Raises:
        RequestError: If no run has the key, or the metric is not one on validation examples, or no
            run has measured it.
        DamagedRun: If a run cannot be read.
    """
    judge = metric_info("val_accuracy_mean" if by == "validation" else by)
    if not judge.name.startswith("val_") or judge.direction is None:
        raise RequestError(
            f"--by must be validation or a metric on validation examples, such as val_loss, got {by}; values that are "
            "chosen on test examples say nothing about new ones"
        )
    unjudged = [run for run in runs if run.counts and run.last_round().get(judge.name) is None]
    judged = [run for run in runs if run not in unjudged]
    counted = [run for run in judged if run.counts]
    if not counted:
        raise RequestError(
            f"no finished run has {judge.name}; repeat the runs with data.validation=0.2"
        )
    shown = measured_metric(metric, counted)
    candidates = [_best(block, judge, shown) for block in blocks_of(judged, key)]
    settings = tuple(best for best in candidates if best is not None)
    if not settings:
        raise RequestError(
            f"no value of {key} has runs that are all done; finish them, or choose another key"
        )
    return BestValues(key, judge, shown, settings, tuple(str(run.path) for run in unjudged))


def _best(block: SeedBlock, judge: MetricInfo, shown: MetricInfo) -> BestValue | None:
    """Return the best value of one setting; None if no value has runs that are all done."""
    settings = sorted(block.settings, key=lambda s: rank(s.value))
    names = {s.name: s.name.removeprefix(f"{block.key}=") for s in settings}
    whole = [s for s in settings if all(run.counts for run in s.runs)]
    if not whole:
        return None
    judged = {s.name: Cell(tuple(s.numbers(judge).values())) for s in whole}
    # of equal ones, the first
    best = max(whole, key=lambda s: judge.sign * mean(judged[s.name].values))
    values = [s.value for s in settings]
    ordered = len(set(values)) > 2 and all(isinstance(value, int | float) for value in values)
    return BestValue(
        title=block.title,
        value=names[best.name],
        tried=tuple(names.values()),
        judged=judged[best.name],
        shown=Cell(tuple(best.numbers(shown).values())),
        left_out=tuple(name for full, name in names.items() if full not in judged),
        edge=ordered and best.value in (min(values), max(values)),
    )

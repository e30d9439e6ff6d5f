"""Estimate of a run's duration before its first round, from a local step and a block of examples.

The rehearsal uses its own client states and a data set of one client. The engine's oracle has no
state on a CPU, and batches and random draws are functions of keys, so the results of the run stay
the same.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from timeit import timeit

import numpy as np

from fedbench.core.errors import reason_of
from fedbench.core.randomness import sample_cohort
from fedbench.data.dataset import Rows
from fedbench.runs.build import PreparedRun
from fedbench.runs.progress import Estimate, duration
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.evaluation import examples_of
from fedbench.simulation.loop import Simulation, run_round, simulate
from fedbench.simulation.measurements import Measurements

_EXAMPLES = 32  # maximum size of the one batch; a large model takes seconds for it
_LEAST = 100 * _EXAMPLES  # with fewer examples, the rehearsal would take over 1 % of the run
_ENOUGH = 0.5  # seconds of an average
_SHORT = 60.0  # seconds; shorter runs are not announced
_LONG = 86400.0  # seconds; longer runs are announced with advice


def estimate(prepared: PreparedRun, rounds: int) -> Estimate | None:
    """Return the estimated duration of a run that has not begun.

    The result is None if the run is short, if the user's code might notice the rehearsal, or if the
    rehearsal fails, which is printed. On a GPU, and in compiled or stacked code, rounds are so
    short that their own times are known sooner.

    Args:
        prepared: The run.
        rounds: Number of rounds over all stages.
    """
    engine = prepared.engine
    config = prepared.config
    trained = _trained_examples(prepared)
    if (
        engine.mode != "loop"
        or engine.ranks.world_size > 1
        or prepared.task.device.type != "cpu"
        or config.identity.facts["code"]
        or trained * rounds < _LEAST
    ):
        return None
    try:
        step, block = _rehearse(prepared, trained * rounds / _EXAMPLES) / engine.workers
    except Exception as error:  # an estimate ends no run: a method may refuse a single client
        print(f"fedbench: no estimate of the time: {reason_of(error)}", file=sys.stderr)
        return None

    first, later = _evaluated_examples(prepared, rounds, step / block)
    first *= block
    train = step * trained
    evaluation = block * later / rounds
    seconds = first + rounds * (train + evaluation)
    if seconds < _SHORT:
        return None
    text = (
        f"about {duration(seconds)} on this CPU ({rounds} rounds, {duration(train)} of training "
        f"and {duration(evaluation)} of evaluation each; first evaluation {duration(first)})"
    )
    if seconds > _LONG:
        text += (
            "; fewer rounds or epochs, a larger eval_every, a smaller model or a GPU take less, "
            "see docs/performance.md"
        )
    return seconds, text


def _evaluated_examples(
    prepared: PreparedRun,
    rounds: int,
    training: float,
) -> tuple[float, float]:
    """Return the numbers of examples evaluated before the first round and after all rounds.

    Args:
        prepared: The run.
        rounds: Number of rounds over all stages.
        training: Number of evaluated examples that take as long as one example of fine-tuning.
    """
    data = prepared.data
    config = prepared.config
    ids = prepared.evaluated
    if ids is None:
        ids = np.arange(data.num_clients)
    tested = ids[:1] if data.central else ids
    tuned = 0.0
    if prepared.finetuning is not None:
        epochs = prepared.finetuning.work.epochs[0]
        tuned = training * epochs * data.train.counts[ids].sum()

    def examples(round: int) -> float:
        ends = round == rounds
        if not config.evaluates(round, ends):
            return 0
        train = config.evaluates_training(round, ends)
        return tuned + examples_of(data, train, ids, tested)

    return examples(0), sum(map(examples, range(1, rounds + 1)))


def _trained_examples(prepared: PreparedRun) -> int:
    """Return the number of examples that the first cohort trains on in a round."""
    seed = prepared.config.seed
    counts = prepared.data.train.counts
    cohort = prepared.sampler(0, counts, seed)
    n = counts[cohort]
    steps = prepared.work.tau(
        cohort,
        n,
        seed,
        0,
    )
    return int(steps @ prepared.work.widths(n))


def _rehearse(prepared: PreparedRun, count: float) -> np.ndarray:
    """Return the seconds of training on an example, and of evaluating one.

    Args:
        prepared: The run.
        count: Number of local steps in the run.
    """
    train = prepared.data.train
    width: int = min(_EXAMPLES, prepared.work.widths(train.counts).max())
    data = replace(
        prepared.data,
        train=Rows.of([train.index[:width].numpy()]),
        names=("",),
    )
    measurements = Measurements(prepared.task, prepared.engine)
    simulation = Simulation(
        stages=prepared.stages,
        data=data,
        work=replace(
            prepared.work,
            epochs=(1, 1),
            steps=None,
        ),
        measurements=measurements,
        w=prepared.shared_w,
        seed=prepared.config.seed,
        sampler=sample_cohort(),
        allocator=StateAllocator(prepared.task.device),
    )
    initial = next(simulate(simulation))

    def step() -> object:
        return run_round(
            simulation,
            0,
            prepared.stages[0],
            initial,
        )

    def evaluate() -> object:
        return measurements.new_plan(data, np.arange(1)).sums(prepared.w)

    seconds = _seconds(step, count), _seconds(evaluate, count)
    return np.array(seconds) / width


def _seconds(work: Callable[[], object], count: float) -> float:
    """Return the seconds of a call: of one long call, or the average of several short ones.

    Args:
        work: Function to call.
        count: Number of such calls in the run, of which the average takes at most half a percent.
    """
    seconds = timeit(work, number=1)
    calls = int(min(_ENOUGH / seconds, count / 200))
    if calls:
        seconds = timeit(work, number=calls) / calls
    return seconds

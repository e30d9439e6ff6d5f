"""The estimate before the first round: its text, the runs that have one, and what it leaves."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from command_line import FAST, model_of

from fedbench.config.compose import compose_run
from fedbench.runs import estimate as estimates
from fedbench.runs.build import build
from fedbench.runs.estimate import estimate
from fedbench.simulation.loop import simulate

SMALL = ["data.clients=8", "engine.mode=loop", "engine.workers=2", "device=cpu"]


def prepared(*overrides):
    return build(compose_run([*SMALL, *overrides]))


@pytest.fixture
def clock(monkeypatch):
    """A clock by which ten examples take 6 s to train on and 1 s to evaluate."""
    calls = []

    def timeit(work, number):
        work()
        calls.append(number)
        return (6.0 if work.__name__ == "step" else 1.0) * number

    monkeypatch.setattr(estimates, "timeit", timeit)
    monkeypatch.setattr(estimates, "_EXAMPLES", 10)
    return calls


def test_it_counts_the_examples_of_a_round_and_of_every_evaluation(clock):
    """Two threads: 0.3 s per trained example and 0.05 s per evaluated one."""
    run = prepared("local.batch_size=full", "eval_every=5", "rounds=20")
    train = run.data.train.counts.sum()
    test = run.data.test.counts.sum()
    seconds, text = estimate(run, 20)
    # the training examples are evaluated at the beginning and in rounds 10 and 20
    evaluated = 5 * test + 3 * train
    assert seconds == pytest.approx(20 * 0.3 * train + 0.05 * evaluated, rel=1e-12)
    first = 0.05 * (test + train)
    later = (0.05 * evaluated - first) / 20
    assert text == (
        f"about {estimates.duration(seconds)} on this CPU (20 rounds, "
        f"{estimates.duration(0.3 * train)} of training and {estimates.duration(later)} of "
        f"evaluation each; first evaluation {estimates.duration(first)})"
    )


def test_it_counts_the_steps_before_every_evaluation(clock):
    """Fine-tuning for three epochs, at the beginning and after rounds 10 and 20."""
    keys = ["local.batch_size=full", "eval_every=10", "rounds=20"]
    plain, _ = estimate(prepared(*keys), 20)
    run = prepared(*keys, "finetune.epochs=3")
    seconds, _ = estimate(run, 20)
    steps = 3 * 3 * 0.3 * run.data.train.counts.sum()
    assert seconds == pytest.approx(plain + steps, rel=1e-12)


@pytest.mark.parametrize(
    ("rounds", "keys", "tests", "trains"),
    [
        # evaluations, and those of them that include the training examples, counted by hand
        (20, ("keep_clients=all",), 21, 21),
        (20, ("keep_clients=[5,7]",), 21, 5),
        (9, ("eval_every=10",), 2, 2),
        (19, ("eval_every=3",), 8, 2),
        (40, ("eval_every=4",), 11, 3),
        (20, ("data.validation=0.25",), 21, 3),
    ],
)
def test_it_counts_the_evaluations_of_a_run(clock, rounds, keys, tests, trains):
    run = prepared("local.batch_size=full", f"rounds={rounds}", *keys)
    train = run.data.train.counts.sum()
    test = run.data.test.counts.sum()
    if run.data.validation is not None:
        test += run.data.validation.counts.sum()
    seconds, _ = estimate(run, rounds)
    evaluated = tests * test + trains * train
    assert seconds == pytest.approx(rounds * 0.3 * train + 0.05 * evaluated, rel=1e-12)


def test_a_central_test_set_is_evaluated_once_and_a_sample_instead_of_all(clock):
    run = prepared("local.batch_size=full", "rounds=20", "eval_every=20")
    counts = run.data.train.counts
    trained = 20 * 0.3 * counts.sum()
    central = replace(run, data=replace(run.data, central=True))
    evaluated = 2 * (run.data.test.counts[0] + counts.sum())
    assert estimate(central, 20)[0] == pytest.approx(trained + 0.05 * evaluated, rel=1e-12)
    sample = np.array([1, 4])
    evaluated = 2 * (run.data.test.counts[sample].sum() + counts[sample].sum())
    sampled = estimate(replace(run, evaluated=sample), 20)
    assert sampled[0] == pytest.approx(trained + 0.05 * evaluated, rel=1e-12)


def test_short_fast_and_foreign_runs_are_not_rehearsed(clock, capsys):
    run = prepared("rounds=20")
    several = SimpleNamespace(world_size=2)
    engine = SimpleNamespace(mode="loop", ranks=run.engine.ranks, workers=2)
    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    own = SimpleNamespace(**vars(run.config))
    own.identity = SimpleNamespace(facts={"code": {"own.py": "digest"}})
    for other in (
        replace(run, engine=SimpleNamespace(mode="compiled", ranks=engine.ranks)),
        replace(run, engine=SimpleNamespace(mode="stacked", ranks=engine.ranks)),
        replace(run, engine=SimpleNamespace(mode="loop", ranks=several)),
        replace(run, task=on_gpu),
        replace(run, config=own),
    ):
        assert estimate(other, 20) is None
    assert estimate(run, 1) is None  # too few examples
    assert clock == []
    assert capsys.readouterr().err == ""  # no error was taken for a reason


def test_a_run_that_takes_less_than_a_minute_is_not_announced(clock, monkeypatch):
    run = prepared("rounds=20")
    seconds, _ = estimate(run, 20)
    monkeypatch.setattr(estimates, "_SHORT", seconds * 1.01)
    assert estimate(run, 20) is None


def test_an_error_of_the_rehearsal_ends_no_run(clock, monkeypatch, capsys):
    def refuse(*_):
        raise ZeroDivisionError("no clients")

    monkeypatch.setattr(estimates, "run_round", refuse)
    assert estimate(prepared("rounds=20"), 20) is None
    assert capsys.readouterr().err == "fedbench: no estimate of the time: no clients\n"


METHODS = ["scaffold", "afl", "ditto", "fafed", "fedmdfg", "pfedme", "drfa", "adafedadam"]


@pytest.mark.parametrize("algo", METHODS)
def test_methods_are_rehearsed_with_one_client_and_leave_no_trace(algo, monkeypatch):
    """States, set-up exchanges, trials and personal models; the initial model stays the same."""
    run = prepared(f"algo={algo}")
    w = run.w.clone()
    limits = run.engine.limits
    rounds = []
    real = estimates.run_round

    def run_round(*arguments):
        rounds.append(real(*arguments).client_steps)

    monkeypatch.setattr(estimates, "run_round", run_round)
    assert estimates._rehearse(run, 0).shape == (2,)
    assert rounds == [rounds[0]] and rounds[0] > 0
    assert torch.equal(run.w, w)
    assert run.engine.limits == limits
    assert run.engine._pool is None


def test_the_rehearsal_reads_a_few_examples_of_one_client(monkeypatch):
    seen = []

    def only_begun(simulation):
        seen.append(simulation)
        return simulate(simulation)

    monkeypatch.setattr(estimates, "simulate", only_begun)
    estimates._rehearse(prepared("local.steps=50", "local.batch_size=4"), 0)
    (simulation,) = seen
    assert simulation.data.num_clients == 1
    assert simulation.data.train.counts.tolist() == [4]  # one batch
    assert simulation.work.tau(np.arange(1), np.array([4]), 0, 0).tolist() == [1]  # not 50


@pytest.mark.parametrize(
    ("first", "count", "calls"),
    [
        (1.0, 1e6, [1]),  # long enough
        (0.01, 1e6, [1, 50]),  # half a second
        (0.01, 2000, [1, 10]),  # half a percent of the run
        (0.01, 100, [1]),
    ],
)
def test_short_calls_are_averaged_within_limits(monkeypatch, first, count, calls):
    numbers = []

    def timeit(work, number):
        numbers.append(number)
        return first if number == 1 else 0.5 * first * number

    monkeypatch.setattr(estimates, "timeit", timeit)
    seconds = estimates._seconds(int, count)
    assert numbers == calls
    assert seconds == (first if len(calls) == 1 else 0.5 * first)


@pytest.mark.parametrize("algo", ["fedadam", "scaffold"])
def test_a_run_is_the_same_with_and_without_it(train, tmp_path, monkeypatch, algo):
    run = [*FAST, f"algo={algo}", "engine.mode=loop", "engine.workers=2"]
    plain = train(*run, "results_dir=plain")
    announced = []
    monkeypatch.setattr(estimates, "_LEAST", 0)
    monkeypatch.setattr(estimates, "_SHORT", 0.0)
    real = estimates._rehearse
    monkeypatch.setattr(
        estimates, "_rehearse", lambda *of: announced.append(real(*of)) or announced[-1]
    )
    rehearsed = train(*run, "results_dir=rehearsed")
    assert len(announced) == 1
    assert model_of(rehearsed) == model_of(plain)
    names = [sorted(path.name for path in run.iterdir()) for run in (plain, rehearsed)]
    assert names[0] == names[1]

"""Methods for heterogeneous clients: reductions to one another, and the means of their states."""

import pytest
from tools import (
    close,
    factory,
    federation,
    final,
    make,
    snapshots,
)
from toy_problems import (
    DRAWN,
    FEDAVG,
    FULL,
    REDUCTIONS,
    UNIFORM,
    apart,
    with_idle_clients,
)

from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD, Optimizer
from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("one", "other"), REDUCTIONS["pairs"])
def test_reduces_to_another_method(one, other, participation):
    how = {"rounds": 5, "work": DRAWN, "participation": participation}
    assert apart(one, other, **how) < 1e-10
    assert apart(one, FEDAVG, **how) > 1e-3


@pytest.mark.parametrize("method", REDUCTIONS["fedavgm_of_one_step"])
def test_one_step_per_round_makes_it_fedavgm(method):
    momentum = ("fedavgm", {"beta": 0.7, "server_lr": 0.3, **UNIFORM})
    how = {"rounds": 6, "participation": 0.6}
    one = LocalWork(0.1, None, steps=1)
    three = LocalWork(0.1, None, steps=3)
    assert apart(method, momentum, work=one, **how) < 1e-10
    assert apart(method, momentum, work=three, **how) > 1e-4


@pytest.mark.parametrize(("name", "options", "state"), REDUCTIONS["means_of_states"])
def test_the_server_keeps_the_mean_of_a_state(name, options, state):
    """Also of clients that are absent."""
    algo = make(name, **options)
    for s in snapshots(
        algo,
        federation(),
        rounds=6,
        work=DRAWN,
        participation=0.6,
    ):
        assert close(s.server[state], s.clients[state].mean(0), 1e-12)


@pytest.mark.parametrize(("name", "options"), REDUCTIONS["without_idle_clients"])
def test_clients_without_training_examples_do_not_count(name, options):
    """Two of five have only test examples: the others train as if they were alone."""
    alone = federation(sizes=(4, 9, 6))
    with_others = with_idle_clients(alone, 5, 0, 2, 3)
    ends = []
    for data in (alone, with_others):
        algo = factory(name)(SGD, **options, examples=data.train.counts.tolist())
        ends.append(final(algo, data, rounds=4, work=FULL))
    assert close(*ends, 1e-12)


def test_rules_that_are_stated_for_plain_steps_take_no_adaptive_ones():
    adaptive = Optimizer(lambda w: {}, lambda g, s: (g, {}), parts=("adaptive steps",))
    message = "^feddyn cannot be combined with local adaptive.*: .*; use "
    with pytest.raises(RequestError, match=message):
        make("feddyn", adaptive)

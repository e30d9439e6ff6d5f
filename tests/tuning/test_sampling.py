"""Where trials come from: even, repeatable, and the same client learning rates for all methods."""

import sys

import numpy as np
import pytest

from fedbench.config.groups import options
from fedbench.core.errors import RequestError
from fedbench.tuning.sampling import STARTUP, drawn
from fedbench.tuning.space import Axis, search_space

LR = Axis("local.lr", low=1e-4, high=1.0, log=True)
MU = Axis("algo.mu", low=0.0, high=1.0)
GRID = Axis("algo.q", grid=(0, 1, 2))


def shares(axis, values):
    return np.array([(np.log10(v[axis.key]) + 4) / 4 if axis.log else v[axis.key] for v in values])


@pytest.mark.parametrize("budget", [4, 8, 20, 50])
def test_random_trials_leave_no_large_gaps(budget):
    """The Kronecker sequence of the golden ratio has gaps of at most φ²/n, 2.62 times those of an even grid."""
    places = np.sort(shares(LR, drawn("random", [LR, MU], [], 0, budget)))
    gaps = np.diff([*places, 1 + places[0]])
    assert gaps.max() <= 2.65 / budget + 0.01  # values have three digits


def test_axes_do_not_follow_each_other():
    values = drawn("random", [LR, MU], [], 0, 200)
    assert abs(np.corrcoef(shares(LR, values), shares(MU, values))[0, 1]) < 0.1


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_trial_does_not_depend_on_how_many_follow(sampler):
    first = drawn(sampler, [LR, GRID], [], 0, 5)
    assert drawn(sampler, [LR, GRID], [], 0, STARTUP)[:5] == first
    assert drawn(sampler, [LR, GRID], [], 3, 2) == first[3:]


def test_all_methods_have_the_same_client_learning_rates():
    found = {
        tuple(v["local.lr"] for v in drawn("random", search_space(algo, None, []), [], 0, 6))
        for algo in options("algo")
        if algo not in ("fedsps", "fedcorr", "fedcorr_adafed")
    }
    assert len(found) == 1


def test_the_points_of_a_grid_come_once_each():
    space = [GRID, Axis("algo.mu", grid=("a", "b"))]
    values = drawn("random", space, [], 0, 20)
    assert len(values) == 6
    assert {(v["algo.q"], v["algo.mu"]) for v in values} == {(q, m) for q in (0, 1, 2) for m in "ab"}
    assert drawn("random", space, [], 4, 20) == values[4:]
    assert drawn("random", space, [], 6, 20) == []


def test_the_estimator_goes_where_scores_are_high():
    """Of the score -(log10 lr + 2)², the best rate is 0.01: suggestions are nearer to it than random trials are."""
    pytest.importorskip("optuna")
    values = drawn("random", [LR, GRID], [], 0, 24)
    history = [(v, -((np.log10(v["local.lr"]) + 2) ** 2)) for v in values]
    asked = drawn("tpe", [LR, GRID], history, 24, 12)
    assert asked == drawn("tpe", [LR, GRID], history, 24, 12)  # typed again, the same
    distance = [np.median(np.abs([np.log10(v["local.lr"]) + 2 for v in of])) for of in (asked, values)]
    assert distance[0] < 0.6 * distance[1]
    assert all(v["algo.q"] in GRID.grid and LR.low <= v["local.lr"] <= LR.high for v in asked)


def test_without_optuna_the_message_has_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RequestError, match=r"pip install 'fedbench-harness\[tune\]'"):
        drawn("tpe", [LR], [({"local.lr": 0.1}, 1.0)] * STARTUP, STARTUP, 1)

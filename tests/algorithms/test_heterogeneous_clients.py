"""Methods for heterogeneous clients: reductions to one another, and compiled code."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import close, factory, federation, final, make, snapshots
from toy_problems import DRAWN, FULL, UNIFORM

from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD, Optimizer, sgd
from fedbench.data.dataset import Rows
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.local_work import LocalWork

ONE_STEP = LocalWork(lr=0.1, batch_size=None, steps=1)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("mofedsam", {"rho": 0.0, "alpha": 0.3}), ("fedcm", {"alpha": 0.3})),
        (("mofedsam", {"rho": 0.4, "alpha": 1.0}), ("fedsam", {"rho": 0.4})),
        (("fedspeed", {"rho": 0.0, "prox": 0.3, "server": "all"}), ("feddyn", {"alpha": 0.3})),
        (("fedspeed", {"alpha": 0.0, "prox": 0.3, "server": "all"}), ("feddyn", {"alpha": 0.3})),
    ],
)
def test_reduces_to_another_method(one, other, participation):
    data, how = federation(), {"rounds": 5, "work": DRAWN, "participation": participation}
    a, b = (final(make(name, **options), data, **how) for name, options in (one, other))
    assert close(a, b, 1e-10)
    assert not close(a, final(make("fedavg", **UNIFORM), data, **how), 1e-3)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_one_step_per_round_makes_four_methods_one(participation):
    data, how = federation(), {"rounds": 6, "participation": participation}
    methods = [
        ("fedcm", {"alpha": 0.3}),
        ("mimelite", {"beta1": 0.7}),
        ("mofedsam", {"rho": 0.0, "alpha": 0.3}),
        ("fedavgm", {"beta": 0.7, "server_lr": 0.3, **UNIFORM}),
    ]
    runs = [final(make(name, **options), data, work=ONE_STEP, **how) for name, options in methods]
    assert all(close(run, runs[-1], 1e-10) for run in runs)
    longer = [
        final(make(name, **o), data, work=LocalWork(0.1, None, steps=3), **how)
        for name, o in methods[:2]
    ]
    assert not close(*longer, 1e-4)  # MimeLite's c is measured at w^t, FedCM's m along the path


@pytest.mark.parametrize(("name", "options"), [("feddyn", {}), ("fedspeed", {"server": "all"})])
def test_the_server_keeps_the_mean_of_all_drifts(name, options):
    """Also of clients that are absent, whose u_k stay."""
    data = federation()
    algo = make(name, **options)
    for before, after in pairwise(snapshots(algo, data, rounds=6, work=DRAWN, participation=0.6)):
        absent = np.setdiff1d(np.arange(data.num_clients), after.cohort)
        assert torch.equal(before.clients["drift"][absent], after.clients["drift"][absent])
        assert close(after.server["drift"], after.clients["drift"].mean(0), 1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("feddyn", {}), ("feddyn", {"weights": "size"}), ("fedspeed", {"server": "all"}), ("scaffold", {}),
        ("afl", {"lr_lambda": 0.5}),
    ],
)  # fmt: skip
def test_clients_without_training_examples_do_not_count(name, options):
    """Two of five have only test examples: the others train as if they were alone."""
    alone = federation(sizes=(4, 9, 6))
    rows = alone.train.split()
    with_others = replace(
        alone, train=Rows.of([rows[0], rows[0][:0], rows[1], rows[2], rows[0][:0]]),
        test=Rows.of([alone.test.split()[0]] * 5), names=tuple("abcde"),
    )  # fmt: skip
    made = [
        factory(name)(SGD, **options, examples=data.train.counts.tolist())
        for data in (alone, with_others)
    ]
    runs = [
        final(algo, data, rounds=4, work=FULL)
        for algo, data in zip(made, (alone, with_others), strict=True)
    ]
    assert close(*runs, 1e-12)


@pytest.mark.parametrize(
    ("name", "options", "known"),
    [
        ("feddyn", {}, True),
        ("feddyn", {"weights": "size", "examples": [1]}, False),
        ("fedexp", {}, True),
        ("fedcm", {}, True),
        ("mimelite", {}, True),
        ("mimelite", {"base": "adam"}, False),
        ("fedsam", {}, False),
        ("mofedsam", {}, False),
        ("fedspeed", {}, False),
        ("pfedme", {}, False),
        ("apfl", {}, False),
    ],
)
def test_which_local_phases_compiled_code_takes(name, options, known):
    assert DenseKernel.supports(make(name, **options).step) == known


@pytest.mark.parametrize(
    "name", ["feddyn", "fedcm", "mimelite", "mofedsam", "fedspeed", "pfedme", "apfl"]
)
def test_rules_that_are_stated_for_plain_steps_take_no_other(name):
    adaptive = Optimizer(lambda w: {}, lambda g, s: (g, {}), parts=("adaptive steps",))
    others = [sgd(momentum=0.1), sgd(weight_decay=0.1), sgd(clip_norm=10.0), adaptive]
    for solver, part in zip(
        others, ("momentum", "weight decay", "clipping", "adaptive steps"), strict=True
    ):
        with pytest.raises(
            RequestError, match=f"^{name} cannot be combined with local {part}: .*; use "
        ):
            make(name, solver)

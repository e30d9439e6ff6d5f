"""The contract of all methods, each at its defaults and with each of its switches."""

import functools
import inspect
from itertools import pairwise

import numpy as np
import pytest
import reference
import torch
import yaml
from tools import (
    ALGORITHMS,
    CASES,
    ROOT,
    SOLVERS,
    UNEQUAL,
    any_solver,
    case_id,
    close,
    deployed,
    everyone,
    factory,
    federation,
    final,
    is_first,
    make,
    refuses,
    share,
    snapshots,
    task_for,
)
from toy_problems import clients_of

from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.core.options import Schedule
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP
from fedbench.models.parts import places_of
from fedbench.runs.cached_run import METHOD_ARGUMENTS
from fedbench.simulation.local_work import LocalWork

ROUNDS = 4
# short batches, drawn epochs, another rate in every round
DRAWN = LocalWork(
    0.1,
    10,
    (1, 3),
    schedule=Schedule("cosine", decay_to=0.1, rounds=ROUNDS),
)

FIRST = [c for c in CASES if is_first(c)]  # methods at their defaults


def fast_and_slow(fast, cases):
    """Parameters (case, other): those of ``cases`` that ``fast`` selects always run, the rest with
    make test-all.
    """
    return [
        pytest.param(
            *c,
            marks=[] if fast(*c) else [pytest.mark.slow],
            id=f"{c[1]}-{case_id(c[0])}",
        )
        for c in cases
    ]


def at_defaults(others):
    """A choice for ``fast_and_slow``: methods at their defaults, with some values of the other
    parameter.
    """
    return lambda case, other: case in FIRST and other in others


cases = pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            c,
            marks=[] if c in FIRST else [pytest.mark.slow],
            id=case_id(c),
        )
        for c in CASES
    ],
)


@functools.cache
def _run(index, solver, mode, drawn):
    name, case_options = CASES[index]
    algo = make(
        name,
        sgd(**SOLVERS[solver]),
        **case_options,
    )
    options = {}
    if drawn:
        options = {"work": DRAWN, "participation": share(CASES[index])}
    return algo, snapshots(
        algo,
        federation(),
        rounds=ROUNDS,
        mode=mode,
        **options,
    )


def run_of(case, solver=None, mode="stacked", drawn=False):
    """The method and the snapshots of a run that several tests look at, and none changes.

    Args:
        case: The method and its options.
        solver: Name of the local solver; None is momentum, or plain where that is refused.
        mode: The engine mode.
        drawn: Partial participation, drawn epochs and a schedule, in place of everybody's single
            epoch.
    """
    solver = solver or ("sgd" if refuses(case, "momentum") else "momentum")
    return _run(CASES.index(case), solver, mode, drawn)


def agrees_with_the_definition(case, rounds, work, rate, solver="sgd"):
    """Compare the parameters after full-batch rounds with those of the loops in NumPy; a rate may
    be a function.
    """
    name, options = case
    if options.get("mixup", name == "fedcorr"):
        pytest.skip("its batches are mixed; tests/algorithms/test_fedcorr.py has its definition")
    if options.get("snapshot") == "random":
        pytest.skip("its step is drawn; tests/algorithms has its definition")

    data = federation()
    algo = make(
        name,
        sgd(**SOLVERS[solver]),
        **options,
    )
    first, *_, last = snapshots(algo, data, rounds=rounds, work=work)

    names = {"weight_decay": "decay", "clip_norm": "clip"}
    theirs = reference.run(
        name,
        clients_of(data),
        first.server["w"].numpy(),
        rounds,
        rate,
        [work.epochs[0]] * data.num_clients,
        {names.get(key, key): value for key, value in SOLVERS[solver].items()},
        **options,
    )
    if isinstance(theirs, tuple):  # clients with models of their own
        theirs, personal = theirs
        assert close(
            deployed(algo, last).flatten(),
            torch.from_numpy(personal).flatten(),
            1e-9,
        )
        ours = last.server["w"]
    else:
        ours = deployed(algo, last)
    assert close(ours, torch.from_numpy(theirs), 1e-9)


DEFINITIONS = fast_and_slow(
    lambda case, solver: (
        case[0] == "fedavg" or (case in FIRST and (solver == "sgd" or refuses(case, solver)))
    ),
    [(case, solver) for solver in SOLVERS for case in CASES],
)


@pytest.mark.parametrize(("case", "solver"), DEFINITIONS)
def test_equals_the_definition(case, solver):
    """The parameters after six rounds are those of plain loops in NumPy, written from the
    definitions.
    """
    name, options = case
    if refuses(case, solver):
        message = rf"{name} cannot be combined with local .*; use local\."
        with pytest.raises(RequestError, match=message):
            make(name, sgd(**SOLVERS[solver]), **options)
        return
    work = LocalWork(
        lr=0.1,
        batch_size=None,
        epochs=(3, 3),
    )
    agrees_with_the_definition(case, 6, work, 0.1, solver)


MODES = fast_and_slow(
    lambda case, solver: case in FIRST and (solver == "momentum" or refuses(case, "momentum")),
    [
        (case, solver)
        for solver in ("sgd", "momentum")
        for case in CASES
        if not refuses(case, solver)
    ],
)


@pytest.mark.parametrize("mode", ["stacked", "compiled"])
@pytest.mark.parametrize(("case", "solver"), MODES)
def test_the_modes_agree(case, solver, mode):
    """Unequal clients, short batches, drawn epochs, a schedule, a part of the clients: modes change
    rounding only.
    """
    a, b = (run_of(case, solver, m, drawn=True)[1][-1] for m in (mode, "loop"))
    assert close(
        a.server["w"],
        b.server["w"],
        1e-10,
    )
    for key in a.clients:
        assert close(
            a.clients[key].flatten(),
            b.clients[key].flatten(),
            1e-10,
        )


WAYS = {
    "single": (1, 1),
    "3 on 1 thread": (3, 1),
    "3 on 2 threads": (3, 2),
    "single on 2 threads": (1, 2),
}
CHUNKS = fast_and_slow(
    at_defaults(["3 on 2 threads"]), [(case, way) for way in WAYS for case in CASES]
)


@pytest.mark.parametrize(("case", "way"), CHUNKS)
def test_chunks_and_workers_change_nothing(case, way):
    size, workers = WAYS[way]
    algo, seen = run_of(case)
    other = final(
        algo,
        federation(),
        rounds=ROUNDS,
        cohort_size=size,
        workers=workers,
    )
    assert close(
        other,
        seen[-1].server["w"],
        1e-10,
    )


@cases
def test_order_of_clients_changes_nothing(case):
    """Identity 18: the cohort permuted."""
    algo, seen = run_of(case)
    permuted = final(
        algo,
        federation(),
        rounds=ROUNDS,
        sampler=lambda t, n, seed: np.random.default_rng(t).permutation(len(n)),
    )
    assert close(
        permuted,
        seen[-1].server["w"],
        1e-10,
    )


DTYPES = fast_and_slow(
    at_defaults(["float32"]), [(case, dtype) for dtype in ("float32", "float64") for case in CASES]
)


@pytest.mark.parametrize(("case", "dtype"), DTYPES)
def test_same_seed_is_bit_identical_and_others_differ(case, dtype):
    name, options = case
    dtype = getattr(torch, dtype)
    data = federation(dtype=dtype)
    algo = make(name, **options)
    for mode in ("stacked", "compiled"):
        once, again, other = (
            final(
                algo,
                data,
                seed=s,
                rounds=2,
                mode=mode,
            )
            for s in (1, 1, 2)
        )
        assert torch.equal(once, again)
        assert not torch.equal(once, other)
    assert once.dtype == dtype


RESUMED = fast_and_slow(at_defaults([1]), [(case, at) for at in (0, 1, 3) for case in CASES])


@pytest.mark.parametrize(("case", "at"), RESUMED)
def test_going_on_from_any_round_is_bit_identical(case, at):
    """Drawn epochs, partial participation and a schedule included; the snapshot is all that
    resuming needs.
    """
    algo, whole = run_of(case, drawn=True)
    left = whole[at]._replace(clients={k: v.clone() for k, v in whole[at].clients.items()})
    how = {"rounds": ROUNDS, "participation": share(case), "work": DRAWN}
    rest = snapshots(algo, federation(), resume=left, **how)
    assert [s.round for s in rest] == list(range(at + 1, ROUNDS + 1))
    for a, b in zip(
        rest,
        whole[at + 1 :],
        strict=True,
    ):
        assert all(torch.equal(a.server[k], b.server[k]) for k in b.server)
        assert all(torch.equal(a.clients[k], b.clients[k]) for k in b.clients)
        for count in ("bytes_up", "bytes_down", "client_steps"):
            assert getattr(a, count) == getattr(b, count)


@pytest.mark.parametrize(
    "case",
    [c for c in FIRST if not everyone(c)],
    ids=case_id,
)
def test_absent_clients_keep_their_states(case):
    _, seen = run_of(case, drawn=True)
    for before, after in pairwise(seen):
        absent = np.setdiff1d(np.arange(len(UNEQUAL)), after.cohort)
        for key, states in after.clients.items():
            assert torch.equal(before.clients[key][absent], states[absent])


@cases
def test_nothing_that_is_handed_over_is_changed(case):
    """States, messages and uploads are values: an earlier snapshot still holds what it held."""
    algo, seen = run_of(case)
    for t in (0, 1, 3):
        fresh = snapshots(algo, federation(), rounds=t)[-1].server
        # a method of several stages divides other numbers of rounds differently
        shared = seen[t].server.keys() & fresh.keys()
        assert "w" in shared
        assert all(torch.equal(seen[t].server[key], fresh[key]) for key in shared)


@cases
def test_a_client_at_its_optimum_and_tiny_clients(case):
    """Loss and gradient exactly 0, a single example, no test example: the numbers stay finite."""
    name, options = case
    data = federation(
        sizes=(12, 1, 7),
        tests=(2, 0, 1),
        dtype=torch.float32,
    )
    mine = data.train.index[:12]
    data.x[mine], data.y[mine] = 0.0, 0
    task = task_for(data)
    w = torch.zeros(task.size)
    w[-data.classes] = 200.0  # label 0 for an input of zeros, with a probability that rounds to 1
    algo = make(name, any_solver(case), **options)
    for mode, rounds in (("stacked", 10), ("loop", 3)):
        for s in snapshots(
            algo,
            data,
            task=task,
            rounds=rounds,
            w=w,
            mode=mode,
        ):
            assert all(torch.isfinite(v).all() for v in s.server.values())


@cases
def test_cohort_of_one(case):
    name, options = case
    data = federation(sizes=(9,))
    loop, *others = (
        final(
            make(name, **options),
            data,
            mode=m,
            rounds=3,
        )
        for m in ("loop", "stacked", "compiled")
    )
    assert torch.isfinite(loop).all()
    assert all(close(other, loop, 1e-10) for other in others)


OTHER_MODELS = {
    "mlp": (MLP, {"hidden": [7, 5]}, "stacked"),
    "compiled mlp": (MLP, {"hidden": [7, 5]}, "compiled"),
    "cnn": (ConvNet, {"channels": [3, 2], "kernel": 3, "hidden": 5}, "stacked"),
}
# one of each way to ask for gradients: plain, twice on a batch, with probes, in search of a step,
# for models of clients
WITH_IMAGES = ("fedavg", "stem", "adafed", "fedsps", "pfedme", "fedheal")
WITH_MODELS = fast_and_slow(
    lambda case, model: model != "cnn" or case[0] in WITH_IMAGES,
    [(case, m) for case in FIRST for m in OTHER_MODELS],
)


@pytest.mark.parametrize(("case", "model"), WITH_MODELS)
def test_the_modes_agree_for_other_models(case, model):
    data = federation(
        sizes=(5, 12, 3),
        features=64,
        shape=(1, 8, 8),
    )
    module, options, mode = OTHER_MODELS[model]
    task = task_for(data, module, **options)
    places = {"layout": places_of(task.model, task.layout.names)} if case[0] == "fedrod" else {}
    algo = make(case[0], **case[1], **places)
    how = {"task": task, "rounds": 2, "work": LocalWork(0.1, 4)}
    ours = final(algo, data, mode=mode, **how)
    assert close(
        ours,
        final(algo, data, mode="loop", **how),
        1e-9,
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_has_a_config_a_card_and_a_docstring(name):
    """The config names every argument and no other, with the function's own defaults; the card is
    in the docs.
    """
    config = yaml.safe_load((ROOT / "conf" / "algo" / f"{name}.yaml").read_text())
    assert config.pop("_target_").endswith(f".{name}")
    parameters = inspect.signature(factory(name)).parameters
    defaults = {key: parameter.default for key, parameter in parameters.items()}
    for given_by_the_run in METHOD_ARGUMENTS:
        defaults.pop(given_by_the_run, None)
    assert config == defaults
    text = inspect.getdoc(factory(name))
    assert "Identity:" in text, "the docstring needs an Identity:, as those of the other methods"
    cards = (ROOT / "docs" / "algorithms.md").read_text().lower()
    assert f"## {name}\n" in cards, f"docs/algorithms.md needs a card with the heading {name}"

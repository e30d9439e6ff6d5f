"""Learning-rate schedules under every method: the rate of the round, in every mode, resumed or not."""

from functools import partial

import pytest
import reference
import torch
from test_contract import FIRST
from tools import CASES, case_id, close, deployed, everyone, federation, final, make, snapshots, task_for

from fedbench.core.options import Schedule
from fedbench.simulation.local_work import LocalWork

ROUNDS = 5
COSINE = Schedule("cosine", decay_to=0.1, rounds=ROUNDS)
HALVED = Schedule("decay", decay_factor=0.5)
WORK = partial(LocalWork, lr=0.1, batch_size=10)
defaults = pytest.mark.parametrize("case", FIRST, ids=case_id)


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in FIRST else [pytest.mark.slow], id=case_id(c)) for c in CASES]
)
def test_every_method_takes_the_rate_of_the_round(case):
    """The model is that of the definitions in NumPy with another rate in every round."""
    name, options = case
    if options.get("mixup", name == "fedcorr"):
        pytest.skip("its batches are mixed; tests/algorithms/test_fedcorr.py has its definition")
    if options.get("snapshot") == "random":
        pytest.skip("the step of its snapshot is drawn; its rule has a test of its own")
    data, algo = federation(), make(name, **options)
    work = LocalWork(lr=0.1, batch_size=None, epochs=(3, 3), schedule=HALVED)
    last = snapshots(algo, data, rounds=ROUNDS, work=work)[-1]
    clients = [(data.x[rows].numpy(), data.y[rows].numpy()) for rows in data.train.split()]
    start = task_for(data).init(torch.Generator().manual_seed(0)).numpy()
    found = reference.run(name, clients, start, ROUNDS, lambda t: 0.1 / 2**t, [3] * len(clients), **options)
    ours = deployed(algo, last)
    if isinstance(found, tuple):  # clients with models of their own
        found, own = found
        assert close(ours.flatten(), torch.from_numpy(own).flatten(), 1e-9)
        ours = last.server["w"]
    assert close(ours, torch.from_numpy(found), 1e-9)


@defaults
@pytest.mark.parametrize("mode", ["loop", "compiled"])
def test_modes_agree(case, mode):
    data, work = federation(), WORK(epochs=(1, 3), schedule=COSINE)
    a, b = (final(make(case[0], **case[1]), data, rounds=ROUNDS, work=work, mode=m) for m in ("stacked", mode))
    assert close(a, b, 1e-9)


@defaults
def test_going_on_is_bit_identical(case):
    how = {"rounds": ROUNDS, "participation": 1.0 if everyone(case) else 0.6, "work": WORK(schedule=COSINE)}
    whole = snapshots(make(case[0], **case[1]), federation(), **how)
    left = whole[2]._replace(clients={k: v.clone() for k, v in whole[2].clients.items()})
    rest = snapshots(make(case[0], **case[1]), federation(), resume=left, **how)
    assert all(torch.equal(rest[-1].server[k], v) for k, v in whole[-1].server.items())
    assert all(torch.equal(rest[-1].clients[k], v) for k, v in whole[-1].clients.items())


@defaults
def test_a_factor_of_one_is_a_constant_rate_to_the_bit(case):
    same = Schedule("decay", decay_factor=1.0)
    a, b = (final(make(case[0], **case[1]), federation(), work=WORK(schedule=s)) for s in (Schedule(), same))
    assert torch.equal(a, b)

"""Learning-rate schedules under every method: the rate of the round. Modes and resumed runs are in test_contract."""

import pytest
import reference
import torch
from test_contract import FIRST
from tools import CASES, case_id, close, deployed, federation, final, make, snapshots, task_for

from fedbench.core.options import Schedule
from fedbench.simulation.local_work import LocalWork

ROUNDS = 5
HALVED = Schedule("decay", decay_factor=0.5)


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


@pytest.mark.parametrize("case", [c for c in FIRST if c[0] in ("fedavg", "scaffold", "fedcorr")], ids=case_id)
def test_a_factor_of_one_is_a_constant_rate_to_the_bit(case):
    same = Schedule("decay", decay_factor=1.0)
    work = [LocalWork(lr=0.1, batch_size=10, schedule=s) for s in (Schedule(), same)]
    a, b = (final(make(case[0], **case[1]), federation(), work=w) for w in work)
    assert torch.equal(a, b)

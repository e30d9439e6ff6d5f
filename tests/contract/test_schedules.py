"""Learning-rate schedules under every method: the rate of the round. Modes and resumed runs are in
test_contract.
"""

import pytest
import torch
from test_contract import FIRST, agrees_with_the_definition, cases
from tools import case_id, federation, final, make

from fedbench.core.options import Schedule
from fedbench.simulation.local_work import LocalWork

HALVED = Schedule("decay", decay_factor=0.5)


@cases
def test_every_method_takes_the_rate_of_the_round(case):
    """The model is that of the definitions in NumPy with another rate in every round."""
    work = LocalWork(
        lr=0.1,
        batch_size=None,
        epochs=(3, 3),
        schedule=HALVED,
    )
    agrees_with_the_definition(
        case,
        5,
        work,
        lambda t: 0.1 / 2**t,
    )


@pytest.mark.parametrize(
    "case", [c for c in FIRST if c[0] in ("fedavg", "scaffold", "fedcorr")], ids=case_id
)
def test_a_factor_of_one_is_a_constant_rate_to_the_bit(case):
    same = Schedule("decay", decay_factor=1.0)
    constant, scaled = (
        final(
            make(case[0], **case[1]),
            federation(),
            work=LocalWork(lr=0.1, batch_size=10, schedule=schedule),
        )
        for schedule in (Schedule(), same)
    )
    assert torch.equal(constant, scaled)

"""Learning-rate schedules under every method: the rate of the round. Modes and resumed runs are in
test_contract.
"""

from test_contract import agrees_with_the_definition, cases

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

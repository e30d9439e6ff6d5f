"""The number of a local step, which methods that draw in every step read."""

from tools import federation, snapshots

from fedbench.core.algorithm import Algorithm
from fedbench.simulation.local_work import LocalWork


def test_batches_have_the_number_of_their_step():
    numbers = []

    def step(oracle, message, local, batch, info):
        numbers.append((batch.step, len(local["w"])))
        return local

    work = LocalWork(lr=0.1, batch_size=10)
    snapshots(
        Algorithm(step=step),
        federation([40, 12]),
        rounds=1,
        work=work,
    )
    assert numbers == [(0, 2), (1, 2), (2, 1), (3, 1)]

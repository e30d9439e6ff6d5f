"""DRFA: identities, invariances and worked numbers, in float64."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from reference import local_sgd
from tools import close, factory, federation, final, make, snapshots
from toy_problems import D, fair_cohort, on_quadratics, start_of, vector

from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD
from fedbench.core.randomness import Purpose, key, without_replacement
from fedbench.core.types import ClientInfo
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Observer


@pytest.mark.parametrize(
    ("options", "mixture"),
    [
        ({"snapshot": 1}, [0.4, 0.6]),
        ({"snapshot_weights": "uniform"}, [0.45, 0.55]),
        ({"snapshot": 2}, [0.45, 0.55]),
    ],
)
def test_drfa_by_hand(options, mixture):
    """F = w²/2 and (w-4)²/2, w = 1, two steps of rate 1/2, γ = .05: w = 1.75."""
    states = on_quadratics(
        make("drfa", gamma=0.05, **options), [[1.0, 0.0], [1.0, 4.0]], 1, [1.0], steps=2
    )
    assert states[1].server["w"].tolist() == pytest.approx([1.75], abs=1e-12)
    assert states[1].server["lambda"].tolist() == pytest.approx(mixture, abs=1e-12)


def test_drfa_end_measures_in_the_next_round():
    """The adopted form needs no second exchange: its λ of round t+1 is that of an explicit snapshot after round t."""
    rows = [[1.0, 0.0], [1.0, 4.0], [3.0, 1.0]]
    late, at_once = (
        on_quadratics(make("drfa", gamma=0.05, decay=0.9, **o), rows, 6, [1.0], steps=2)
        for o in ({}, {"snapshot": 2})
    )
    for t in range(1, 6):
        assert late[t + 1].server["lambda"].tolist() == pytest.approx(
            at_once[t].server["lambda"].tolist(), abs=1e-12
        )
        assert close(late[t].server["w"], at_once[t].server["w"], 1e-12)
    assert late[1].server["lambda"].tolist() == [1 / 3] * 3


@pytest.mark.parametrize("steps", [1, 3])
def test_drfa_at_the_start_is_afl(steps):
    data, work = federation(), LocalWork(lr=0.1, batch_size=10, steps=steps)
    ours = snapshots(make("drfa", gamma=0.3, snapshot="start"), data, rounds=5, work=work)[
        -1
    ].server
    afl = snapshots(make("afl", lr_lambda=0.3 * steps), data, rounds=5, work=work)[-1].server
    assert close(ours["w"], afl["w"], 1e-10)
    assert close(ours["lambda"], afl["lambda"], 1e-10)
    assert torch.equal(
        final(make("drfa", snapshot=0), data), final(make("drfa", snapshot="start"), data)
    )


def test_drfa_tends_to_the_minimax_point():
    """F = w²/2 and (w-4)²/2 + their heights: max F is smallest at w = 2."""
    states = on_quadratics(
        make("drfa", gamma=0.01), [[1.0, 0.0], [1.0, 4.0]], 800, [-1.0], lr=0.05, steps=2
    )
    assert np.mean([s.server["w"].item() for s in states[400:]]) == pytest.approx(2.0, abs=1e-2)
    for s in states:
        assert s.server["lambda"].sum().item() == pytest.approx(1, abs=1e-12)
        assert (s.server["lambda"] >= 0).all()


def test_drfa_draws_one_step_for_all():
    """Over many rounds every step from 1 to the largest occurs, the same for all clients, and independent of order."""
    algo, seen = make("drfa", snapshot="random"), []
    for t in range(60):
        keys = torch.tensor([key(5, Purpose.LOCAL, t) >> 2, 7, 1000 - t])
        info = fair_cohort([2, 5, 9])
        info = ClientInfo(**{**vars(info), "key": keys, "steps": vector(2.0, 4.0, 3.0)})
        stop = algo.instruct({}, info)["stop"]
        turned = info.take(torch.tensor([2, 0, 1]))
        assert torch.equal(algo.instruct({}, turned)["stop"], stop)
        assert len(set(stop.tolist())) == 1
        seen.append(int(stop[0]))
    assert set(seen) == {1, 2, 3, 4}


def test_drfa_snapshots_are_the_iterates():
    """Clients upload the way to their iterate after two of three steps."""
    algo, data = make("drfa", snapshot=2), federation(sizes=(5, 25))
    server = start_of(data).numpy()
    owned = data.train.split()
    work = LocalWork(lr=0.1, batch_size=None, epochs=(3, 3))
    iterates = [
        local_sgd(server.copy(), data.x[r].numpy(), data.y[r].numpy(), 0.1, 2) for r in owned
    ]
    seen = []
    snapshots(algo, data, rounds=1, work=work, observers=[Observer(lambda t: True, seen.append)])
    back = torch.from_numpy(server - np.array(iterates))
    assert close(seen[0].uploads["snapshot"].flatten(), back.flatten(), 1e-12)


def test_drfa_partial_participation_counts_losses_n_over_c_fold():
    """Four clients, of whom 1 and 3 measure: λ + γ τ̄ (4/2) F there, and Π; the weights are λ_k/Σλ of the cohort."""
    algo = make("drfa", gamma=0.01, snapshot="start")
    server = algo.server_init(torch.zeros(2, dtype=D), 4) | {"lambda": vector(0.1, 0.2, 0.3, 0.4)}
    info = fair_cohort([1, 3], loss=[1.0, 3.0])
    after = algo.update(server, {"delta": torch.eye(2, dtype=D)}, info)
    assert (-after["w"]).tolist() == pytest.approx([1 / 3, 2 / 3])
    raised = np.array([0.1, 0.22, 0.3, 0.46])
    assert after["lambda"].tolist() == pytest.approx((raised - 0.02).tolist(), abs=1e-12)


def test_drfa_measures_on_a_second_cohort_drawn_uniformly():
    data = federation()
    run = snapshots(make("drfa", snapshot=1, gamma=1e-3), data, rounds=8, participation=3)
    n, others = data.train.counts, 0
    for before, after in pairwise(run):
        drawn = without_replacement(key(0, Purpose.TRIALS, before.round), 3, n)
        grown = np.flatnonzero((after.server["lambda"] - before.server["lambda"]).numpy() > 0)
        assert set(grown) <= set(drawn)
        others += not np.array_equal(drawn, after.cohort)
    assert others > 4


def test_drfa_floor_and_first_mixture():
    algo = make("drfa", gamma=5.0, floor=0.1, snapshot="start")
    states = on_quadratics(algo, [[1.0, 0.0], [1.0, 9.0]], 1, [0.0])  # Π gives (0, 1)
    assert states[-1].server["lambda"].tolist() == pytest.approx([0.1 / 1.1, 1 / 1.1])
    algo = factory("drfa")(SGD, init="size", examples=[1, 3, 4])
    assert algo.server_init(torch.zeros(2), 3)["lambda"].tolist() == [0.125, 0.375, 0.5]
    with pytest.raises(RequestError, match="init=size needs the training examples of all clients"):
        make("drfa", init="size")


def test_drfa_leaves_clients_without_training_examples_out():
    """λ stays 0 for them, also below a floor, and losses count N/C-fold with N the others."""
    for options in ({}, {"init": "size"}):
        algo = factory("drfa")(
            SGD, gamma=0.01, snapshot="start", floor=0.05, examples=[2, 0, 2], **options
        )
        server = algo.server_init(torch.zeros(2, dtype=D), 3)
        assert server["lambda"].tolist() == [0.5, 0.0, 0.5]
        after = algo.update(
            server, {"delta": torch.eye(2, dtype=D)}, fair_cohort([0, 2], loss=[1.0, 3.0])
        )
        assert after["lambda"].tolist() == pytest.approx([0.49, 0.0, 0.51], abs=1e-12)

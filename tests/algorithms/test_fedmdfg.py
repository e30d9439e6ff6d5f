"""FedMDFG: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from reference_fair import guided_direction
from tools import close, federation, final, make
from toy_problems import BATCHES, FULL, D, fair_cohort, moved, on_quadratics, vector

from fedbench.algorithms.fedmdfg import chosen, direction, step_sizes
from fedbench.simulation.local_work import LocalWork


def aimed(g, loss, kept=None, theta=11.25, forced=False):
    g, loss = torch.as_tensor(g, dtype=D), torch.as_tensor(loss, dtype=D)
    kept = g[:0] if kept is None else torch.as_tensor(kept, dtype=D)
    return direction(g, loss, kept, theta, torch.tensor(forced))


def test_fedmdfg_by_hand():
    even = aimed(np.eye(2), [1.0, 1.0])
    assert even["d"].tolist() == pytest.approx([0.5, 0.5], abs=1e-12)
    assert not even["fair"]
    guided = aimed(np.eye(2), [1.0, 3.0])  # 26.565°
    assert guided["d"].tolist() == pytest.approx([0.113266, 0.697976], abs=1e-6)
    assert guided["fair"]
    assert not aimed(np.eye(2), [1.0, 3.0], theta=26.6)["fair"]
    assert aimed(np.eye(2), [1.0, 3.0], theta=26.5)["fair"]
    assert aimed(np.eye(2), [1.0, 1.1], forced=True)["fair"]
    equal = aimed(np.eye(2), [2.0, 2.0], forced=True)  # there is no direction towards equal losses
    assert equal["d"].tolist() == pytest.approx([0.5, 0.5], abs=1e-12)


def test_one_client_of_fedmdfg_with_gradients_is_gradient_descent():
    """Whatever its losses and the number of local steps, which are not taken."""
    data = federation(sizes=(23,))
    plain = final(make("fedavg"), data, rounds=4, work=LocalWork(lr=0.05, batch_size=None, steps=1))
    ours = make("fedmdfg", source="gradient", server_lr=0.5)
    assert close(final(ours, data, rounds=4, work=BATCHES), plain, 1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_fedmdfg_no_vector_is_ascended_and_the_support_is_level(seed):
    rng = np.random.default_rng(seed)
    g, loss, kept = (
        rng.normal(size=(5, 9)) + 0.4,
        rng.random(5) + 0.1,
        rng.normal(size=(2, 9)) + 0.4,
    )
    found = aimed(g, loss, kept, theta=5.0)
    d, _, unit, active = guided_direction(g, loss, 5.0, False, kept)
    assert active == bool(found["fair"])
    assert close(found["d"], torch.from_numpy(d), 1e-9)
    f, one = loss / np.linalg.norm(loss), np.full(5, 5**-0.5)
    h = (one @ f) * f - one
    rows = np.vstack([unit, kept, h / np.linalg.norm(h) @ unit] if active else [unit, kept])
    shortest = found["d"].numpy() / float(found["stretch"])
    along = rows @ shortest - shortest @ shortest
    assert (along > -1e-9).all()
    assert (np.abs(along) < 1e-9).sum() >= 2  # those it is made of
    assert found["slope"].tolist() == pytest.approx((unit @ found["d"].numpy()).tolist(), rel=1e-9)
    assert close(aimed(3 * g, loss, 3 * kept, theta=5.0)["d"], 3 * found["d"], 1e-9)
    assert found["d"].norm().item() == pytest.approx(np.linalg.norm(unit.mean(0)), rel=1e-12)
    turn = rng.permutation(5)
    assert close(aimed(g[turn], loss[turn], kept, theta=5.0)["d"], found["d"], 1e-9)


def test_fedmdfg_still_clients_and_opposite_ones():
    """A client that did not move is left out, with its loss; opposite vectors have no common direction."""
    g, loss = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), [1.0, 3.0, 50.0]
    assert close(aimed(g, loss)["d"], aimed(g[:2], loss[:2])["d"], 1e-12)
    for still in ([[1.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]):
        assert not moved("fedmdfg", still, [1.0, 1.0]).any()
        algo = make("fedmdfg", step="search")
        proposed = algo.trials.propose(
            algo.server_init(torch.ones(2, dtype=D), 2),
            {"delta": vector(*still)},
            fair_cohort([0, 1], loss=[1.0, 1.0]),
        )
        assert proposed["trials"].tolist() == [[1.0, 1.0]]


def test_fedmdfg_gradients_and_updates_agree_for_one_step():
    data = federation()
    a, b = (
        final(make("fedmdfg", source=s), data, rounds=4, work=FULL) for s in ("delta", "gradient")
    )
    assert close(a, b, 1e-10)
    a, b = (
        final(make("fedmdfg", source=s, step="search"), data, rounds=4, work=FULL)
        for s in ("delta", "gradient")
    )
    assert close(a, b, 1e-10)


def test_fedmdfg_forces_guidance_if_some_losses_rose():
    """Losses (1, 1), then (.8, 1.2): client 1 rose above its first loss. With both risen, or none, it is not forced."""
    algo = make("fedmdfg", theta=90.0)
    g = {"delta": torch.tensor([[1.0, 0.2], [0.2, 1.0]], dtype=D)}
    first = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 2), g, fair_cohort([0, 1], loss=[1.0, 1.0])
    )
    assert first["expected"].tolist() == [1.0, 1.0]

    def step(losses, **options):
        return make("fedmdfg", theta=90.0, **options).update(
            first, g, fair_cohort([0, 1], loss=losses)
        )

    plain = -(g["delta"].mean(0))
    risen = step([0.8, 1.2])
    assert not close(risen["w"] - first["w"], plain, 1e-3)
    # the mean of two, and what did not hold stays
    assert risen["expected"].tolist() == pytest.approx([0.9, 1.0])
    assert risen["count"].tolist() == [2, 2]
    again = algo.update(risen, g, fair_cohort([0, 1], loss=[0.6, 1.2]))
    assert again["expected"].tolist() == pytest.approx([0.8, 1.0])  # (0.9 · 2 + 0.6) / 3
    for losses in ([1.2, 1.2], [0.8, 0.8]):
        assert close(step(losses)["w"] - first["w"], plain, 1e-9)
    assert close(step([0.8, 1.2], force=False)["w"] - first["w"], plain, 1e-9)


@pytest.mark.parametrize("clients", [2, 3])
def test_fedmdfg_keeps_vectors_of_absent_clients_for_one_round(clients):
    """Client 1 was in the first round, with (0, 1); in the second the others are held to it, in the third no longer."""
    algo = make("fedmdfg", theta=90.0)
    server = algo.server_init(torch.zeros(2, dtype=D), clients)
    assert server["last"].shape == (0, 2)

    def step(server, ids, rows):
        info = fair_cohort(ids, loss=[1.0] * len(ids))
        after = algo.update(server, {"delta": torch.tensor(rows, dtype=D)}, info)
        return after, (server["w"] - after["w"]).tolist()

    server, d = step(server, [0, 1], [[1.0, 0.0], [0.0, 1.0]])
    assert d == pytest.approx([0.5, 0.5])
    others, rows = list(range(0, clients, 2)), [[1.0, -1.0]] * (clients - 1)
    server, d = step(server, others, rows)  # hull of (1, -1) and (0, 1): (.4, .2), made √2 long
    assert d == pytest.approx([np.sqrt(2) * 2 / np.sqrt(5), np.sqrt(2) / np.sqrt(5)])
    server, d = step(server, others, rows)
    assert d == pytest.approx([1.0, -1.0])


def test_fedmdfg_search_by_hand():
    assert step_sizes(0.5, 2, 1.0, changed=False).tolist() == [2, 1, 0.5, 0.25, 0.125]
    assert step_sizes(0.5, 2, 1.0, changed=True).tolist() == [0.5, 0.25, 0.125]
    # down to 1/2 · 1/2 / 2.5 = 0.1
    assert step_sizes(0.5, 1, 2.5, changed=False).tolist() == [1, 0.5, 0.25, 0.125]
    before, no = vector(2.0, 1.0), torch.tensor(False)
    least = torch.full((2, 3), 0.1, dtype=D)

    def best(columns, fair=no):
        return int(chosen(before, torch.tensor(columns, dtype=D).T, least, fair))

    # client 1 is worse off, then both fall by 0.1
    assert best([[1.0, 1.5], [1.85, 0.85], [1.5, 0.5]]) == 1
    assert best([[1.0, 1.5], [1.9, 0.95], [1.5, 0.5]]) == 2
    assert (
        best([[1.0, 0.4], [1.0, 0.8], [1.5, 0.5]], torch.tensor(True)) == 1
    )  # 0.4 to 1 is as uneven as 1 to 2, and more
    assert best([[3.0, 0.1], [1.0, 1.5], [0.1, 1.1]]) == 1  # none: the first with a smaller sum
    assert best([[3.0, 3.0], [2.0, 1.5], [2.5, 1.5]]) == 1  # none: the smallest sum
    assert best([[np.inf, np.inf], [np.nan, 2.0], [2.5, 1.5]]) == 2


def test_fedmdfg_search_lowers_every_loss_of_quadratics():
    """From w = 3 with F = (w-1)²/2, (w+1)²/2: d = 3, and of the steps 3.2, 1.6, 0.8, ... the third lowers both losses.

    It ends at 0.6, between the optima, where the gradients are opposite: from there nothing moves.
    """
    states = on_quadratics(
        make("fedmdfg", source="gradient", step="search", theta=90.0, force=False),
        [[1.0, 1.0], [1.0, -1.0]],
        3,
        [3.0],
        lr=0.1,
    )
    assert [s.server["w"].item() for s in states] == pytest.approx([3.0, 0.6, 0.6, 0.6], abs=1e-12)

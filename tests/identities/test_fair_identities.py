"""Statements about the fair methods of the second wave: reductions, worked numbers, invariances; in float64."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from reference import local_sgd, loss_and_grad
from reference_fair import fedfv_step, guided_direction
from test_more_identities import FULL, cohort, on_quadratics, start_of
from tools import close, factory, federation, final, make, snapshots

from fedbench.algorithms.fedheal import packed, unpacked
from fedbench.algorithms.fedmdfg import chosen, direction, step_sizes
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.core.randomness import Purpose, key, sample_cohort, without_replacement
from fedbench.core.types import ClientInfo
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Observer

D = torch.float64
UNIFORM = {"weights": "uniform"}
BATCHES = LocalWork(lr=0.1, batch_size=10, epochs=(2, 2))


def vector(*values):
    return torch.tensor(values, dtype=D)


def facts(ids, **probe):
    """Facts of a cohort of these clients, of equal weight."""
    ids = torch.tensor(ids)
    ones = torch.ones(len(ids), dtype=D)
    probe = {k: torch.as_tensor(v, dtype=D) for k, v in probe.items()}
    return ClientInfo(
        id=ids, n=ones, p=ones / len(ids), steps=ones, lr=ones, per_epoch=ones, key=ids, probe=probe
    )


def moved(name, updates, loss, rounds=1, **options):
    """The vectors that the server subtracts in successive rounds, all clients, the same uploads."""
    algo, g = make(name, **options), torch.as_tensor(updates, dtype=D)
    server = algo.server_init(torch.zeros(g.shape[1], dtype=D), len(g))
    seen = []
    for _ in range(rounds):
        after = algo.update(server, {"delta": g}, facts(range(len(g)), loss=loss))
        seen.append(server["w"] - after["w"])
        server = after
    return seen[-1]


# ---- reductions to FedAvg


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("fedfv", {"alpha": 1.0, "tau": 0}, "uniform"),
        ("fedfv", {"alpha": 1.0, "tau": 0, "history": "paper"}, "uniform"),
        ("gifair", {"share": 0.0}, "size"),
        ("gifair", {"share": 0.0, "form": "local"}, "size"),
        ("gifair", {"share": 0.0, "rank_at": "last", **UNIFORM}, "uniform"),
        ("drfa", {"gamma": 0.0}, "uniform"),
        ("drfa", {"gamma": 0.0, "snapshot": "random"}, "uniform"),
        ("drfa", {"gamma": 0.0, "snapshot_weights": "uniform"}, "uniform"),
        ("fedheal", {"threshold": -1.0, "beta": 0.0}, "uniform"),
    ],
)
def test_reduces_to_fedavg(name, options, weights, participation):
    data, how = federation(), {"rounds": 5, "work": BATCHES, "participation": participation}
    plain = final(make("fedavg", sgd(momentum=0.5), weights=weights), data, **how)
    assert close(final(make(name, sgd(momentum=0.5), **options), data, **how), plain, 1e-10)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedfv", {}),
        ("fedfv", {"tau": 2}),
        ("gifair", {"share": 0.9}),
        ("gifair", {"share": 0.9, "form": "local"}),
        ("drfa", {}),
        ("drfa", {"snapshot": 1}),
        ("fedmdfg", {}),
        ("fedheal", {"threshold": -1.0}),
    ],
)
def test_one_client_is_fedavg(name, options):
    data = federation(sizes=(23,))
    plain = final(make("fedavg"), data, rounds=4, work=BATCHES)
    assert close(final(make(name, **options), data, rounds=4, work=BATCHES), plain, 1e-10)


def test_one_client_of_propfair_is_not_fedavg():
    """The factor 1/(M - F) stays: the first full-batch step is that much longer."""
    data = federation(sizes=(23,))
    start, rows = start_of(data), data.train.split()[0]
    loss, grad = loss_and_grad(start.numpy(), data.x[rows].numpy(), data.y[rows].numpy())
    after = final(make("propfair"), data, rounds=1, work=FULL)
    assert close(start - after, torch.from_numpy(0.1 / (2 - loss) * grad), 1e-12)


# ---- FedFV


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # h_1 = (.5, .5) and h_2 = (0, 1), each without its part along the other; their mean (.25,
        # .75), made 1/2 long
        ({"alpha": 0.0, "tau": 0}, np.array([0.25, 0.75]) / np.hypot(0.25, 0.75) / 2),
        # the worst client is kept
        ({"alpha": 0.1, "tau": 0}, np.array([-0.25, 0.75]) / np.hypot(0.25, 0.75) / 2),
        ({"alpha": 0.1, "tau": 1}, np.array([0.0, 0.5])),  # then without its part along (1, 0)
        (
            {"alpha": 0.1, "tau": 1, "history": "paper"},
            np.array([-0.25, 0.75]) / np.hypot(0.25, 0.75) / 2,
        ),
        ({"alpha": 1.0, "tau": 0, "server_lr": 3.0}, np.array([0.0, 1.5])),
    ],
)
def test_fedfv_by_hand(options, expected):
    g = moved("fedfv", [[1.0, 0.0], [-1.0, 1.0]], [1.0, 2.0], **options)
    assert g.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_fedfv_equals_the_printed_loops_with_sampled_cohorts():
    """Random sequences of cohorts: vectors, original updates, last rounds, as in the definition."""
    rng = np.random.default_rng(0)
    for trial in range(60):
        options = {
            "alpha": [0.0, 0.1, 0.5, 1.0][trial % 4],
            "tau": trial % 5,
            "history": ["code", "paper"][trial // 4 % 2],
            "server_lr": 0.7,
        }
        algo, seen = make("fedfv", **options), {}
        server = algo.server_init(torch.zeros(6, dtype=D), 9)
        for t in range(1, 7):
            ids = np.sort(rng.choice(9, 4, replace=False))
            delta, loss = rng.normal(size=(4, 6)) + 0.3, rng.random(4)
            seen |= {int(k): (t, d) for k, d in zip(ids, delta, strict=True)}
            after = algo.update(
                server, {"delta": torch.from_numpy(delta)}, facts(ids.tolist(), loss=loss)
            )
            step = fedfv_step(delta, loss, options, seen, t)
            assert close(server["w"] - after["w"], torch.from_numpy(step), 1e-10)
            server = after


@pytest.mark.parametrize("options", [{}, {"alpha": 0.0, "tau": 0}, {"alpha": 0.5, "tau": 3}])
def test_fedfv_steps_are_as_long_as_the_mean_update(options):
    gen = torch.Generator().manual_seed(1)
    for _ in range(20):
        g = torch.randn(6, 8, generator=gen, dtype=D)
        step = moved(
            "fedfv", g, torch.rand(6, generator=gen, dtype=D), rounds=3, server_lr=0.4, **options
        )
        assert step.norm().item() == pytest.approx(0.4 * g.mean(0).norm().item(), rel=1e-12)


def test_fedfv_guards():
    """Zero updates are skipped; a zero direction leaves the model; ties follow the clients' numbers."""
    assert moved("fedfv", [[1.0, 0.0], [0.0, 0.0]], [1.0, 2.0], tau=0).tolist() == [0.5, 0.0]
    assert moved("fedfv", [[1.0, 0.0], [-2.0, 0.0]], [1.0, 2.0], alpha=0.0, tau=0).tolist() == [
        0.0,
        0.0,
    ]
    assert moved("fedfv", [[0.0, 0.0], [0.0, 0.0]], [1.0, 2.0]).tolist() == [0.0, 0.0]
    algo, g = make("fedfv", tau=0), torch.tensor([[1.0, 0.0], [-1.0, 1.0]], dtype=D)
    server = algo.server_init(torch.zeros(2, dtype=D), 2)
    a = algo.update(server, {"delta": g}, facts([0, 1], loss=[1.0, 1.0]))["w"]
    b = algo.update(server, {"delta": g.flip(0)}, facts([1, 0], loss=[1.0, 1.0]))["w"]
    assert torch.equal(a, b)


def test_fedfv_with_history_of_absent_clients_needs_absent_clients():
    data = federation()
    runs = [final(make("fedfv", tau=t, history="paper"), data, rounds=4) for t in (0, 3)]
    assert close(*runs, 1e-12)


# ---- PropFair


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("tail", "rate"), [("huber", 0.1 / 60), ("scaled", 0.1 / 50)])
def test_propfair_in_its_tail_is_fedavg_at_another_rate(tail, rate, participation):
    data, solver, how = (
        federation(),
        sgd(momentum=0.5),
        {"rounds": 4, "participation": participation},
    )
    ours = final(make("propfair", solver, M=50.0, eps=60.0, tail=tail), data, work=BATCHES, **how)
    plain = final(
        make("fedavg", solver), data, work=LocalWork(lr=rate, batch_size=10, epochs=(2, 2)), **how
    )
    assert close(ours, plain, 1e-10)


def test_propfair_with_a_distant_baseline_tends_to_fedavg():
    data = federation()
    plain = final(make("fedavg"), data, rounds=3, work=BATCHES)
    apart = [
        (final(make("propfair", M=m), data, rounds=3, work=LocalWork(0.1 * m, 10, (2, 2))) - plain)
        .norm()
        .item()
        for m in (1e4, 1e5)
    ]
    assert apart[0] / apart[1] == pytest.approx(10, rel=1e-2)


@pytest.mark.parametrize(("M", "eps", "tail"), [(2.0, 0.2, "huber"), (1.6, 0.9, "huber")])
def test_propfair_descends_its_objective(M, eps, tail):
    """One full-batch step is a step on Σ p_k φ(F_k), φ = -log(M - F), continued with slope 1/ε; finite differences."""
    data = federation()
    start, owned = start_of(data).numpy(), data.train.split()
    n = np.array([len(rows) for rows in owned])

    def objective(w):
        total = 0.0
        for share, rows in zip(n / n.sum(), owned, strict=True):
            loss = loss_and_grad(w, data.x[rows].numpy(), data.y[rows].numpy())[0]
            total += share * (
                -np.log(M - loss) if M - loss >= eps else (loss - (M - eps)) / eps - np.log(eps)
            )
        return total

    slope = [
        (objective(start + 1e-6 * e) - objective(start - 1e-6 * e)) / 2e-6
        for e in np.eye(len(start))
    ]
    step = start_of(data) - final(
        make("propfair", M=M, eps=eps, tail=tail), data, rounds=1, work=FULL
    )
    assert close(step / 0.1, torch.tensor(slope, dtype=D), 1e-7)


# ---- GIFAIR


def test_gifair_by_hand():
    """p = (.5, .3, .2), F = (1, 2, 3), share 1/2: r = (-2, 0, 2), λ = .05."""
    info = cohort([0.5, 0.3, 0.2], loss=vector(1.0, 2.0, 3.0))
    algo = make("gifair")
    server = algo.server_init(torch.zeros(3, dtype=D), 3)
    w = algo.update(server, {"delta": torch.eye(3, dtype=D)}, info)["w"]
    assert (-w).tolist() == pytest.approx([0.4, 0.3, 0.3], abs=1e-14)
    factors = make("gifair", form="local").instruct(server, info)["factor"]
    assert factors.tolist() == pytest.approx([0.8, 1.0, 1.5], abs=1e-14)
    # a tie is 0 towards each other: r = (-1, -1, 2)
    equal = cohort([0.5, 0.3, 0.2], loss=vector(1.0, 1.0, 3.0))
    w = algo.update(server, {"delta": torch.eye(3, dtype=D)}, equal)["w"]
    assert (-w).tolist() == pytest.approx([0.45, 0.25, 0.3], abs=1e-14)


def test_gifair_weights_are_positive_and_sum_to_one():
    """Σ r_k = 0, and λ (C-1) < min p_k, whatever the losses; ties included."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 30):
        n, losses = rng.integers(1, 100, count), rng.integers(0, 6, count) / 3
        algo = make("gifair", share=0.99)
        server = algo.server_init(torch.zeros(count, dtype=D), count)
        weights = -algo.update(
            server, {"delta": torch.eye(count, dtype=D)}, cohort(n / n.sum(), loss=vector(*losses))
        )["w"]
        assert weights.min() > 0
        assert weights.sum().item() == pytest.approx(1, abs=1e-12)


def test_gifair_forms_agree_for_one_step_and_to_second_order_otherwise():
    data = federation()
    one = [final(make("gifair", form=f), data, rounds=3, work=FULL) for f in ("server", "local")]
    assert close(*one, 1e-10)
    apart = []
    for lr in (0.02, 0.01):
        work = LocalWork(lr=lr, batch_size=None, steps=5)
        a, b = (
            final(make("gifair", form=f), data, rounds=1, work=work) for f in ("server", "local")
        )
        apart.append((a - b).norm().item())
    assert apart[0] / apart[1] == pytest.approx(4, rel=0.1)


def test_gifair_descends_its_objective():
    """One full-batch step is a step on Σ p_k F_k + λ Σ_{i<j} |F_i - F_j|; finite differences."""
    data = federation()
    start, owned = start_of(data).numpy(), data.train.split()
    n = np.array([len(rows) for rows in owned])
    lam = 0.7 * n.min() / n.sum() / (len(n) - 1)

    def objective(w):
        f = np.array(
            [loss_and_grad(w, data.x[rows].numpy(), data.y[rows].numpy())[0] for rows in owned]
        )
        return n / n.sum() @ f + lam * np.abs(f[:, None] - f).sum() / 2

    slope = [
        (objective(start + 1e-6 * e) - objective(start - 1e-6 * e)) / 2e-6
        for e in np.eye(len(start))
    ]
    step = start_of(data) - final(make("gifair", share=0.7), data, rounds=1, work=FULL)
    assert close(step / 0.1, torch.tensor(slope, dtype=D), 1e-7)


def test_gifair_ranks_the_losses_of_the_last_participation():
    """Clients 0 and 2 have been seen with losses 5 and 1; client 1 has not, and is level with both: r = (1, 0, -1)."""
    algo = make("gifair", rank_at="last", weights="uniform")
    server = algo.server_init(torch.zeros(3, dtype=D), 3)
    server = algo.update(
        server, {"delta": torch.zeros(2, 3, dtype=D)}, facts([0, 2], loss=[5.0, 1.0])
    )
    w = algo.update(
        server, {"delta": torch.eye(3, dtype=D)}, facts([0, 1, 2], loss=[1.0, 2.0, 3.0])
    )["w"]
    assert (-w).tolist() == pytest.approx([1 / 3 + 1 / 12, 1 / 3, 1 / 3 - 1 / 12], abs=1e-14)


# ---- FedMDFG


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
            facts([0, 1], loss=[1.0, 1.0]),
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
        algo.server_init(torch.zeros(2, dtype=D), 2), g, facts([0, 1], loss=[1.0, 1.0])
    )
    assert first["expected"].tolist() == [1.0, 1.0]

    def step(losses, **options):
        return make("fedmdfg", theta=90.0, **options).update(first, g, facts([0, 1], loss=losses))

    plain = -(g["delta"].mean(0))
    risen = step([0.8, 1.2])
    assert not close(risen["w"] - first["w"], plain, 1e-3)
    # the mean of two, and what did not hold stays
    assert risen["expected"].tolist() == pytest.approx([0.9, 1.0])
    assert risen["count"].tolist() == [2, 2]
    again = algo.update(risen, g, facts([0, 1], loss=[0.6, 1.2]))
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
        info = facts(ids, loss=[1.0] * len(ids))
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


# ---- DRFA


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
        info = facts([2, 5, 9])
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
    info = facts([1, 3], loss=[1.0, 3.0])
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
    algo = factory("drfa")(init="size", examples=[1, 3, 4])
    assert algo.server_init(torch.zeros(2), 3)["lambda"].tolist() == [0.125, 0.375, 0.5]
    with pytest.raises(RequestError, match="init=size needs the training examples of all clients"):
        make("drfa", init="size")


def test_drfa_leaves_clients_without_training_examples_out():
    """λ stays 0 for them, also below a floor, and losses count N/C-fold with N the others."""
    for options in ({}, {"init": "size"}):
        algo = factory("drfa")(
            gamma=0.01, snapshot="start", floor=0.05, examples=[2, 0, 2], **options
        )
        server = algo.server_init(torch.zeros(2, dtype=D), 3)
        assert server["lambda"].tolist() == [0.5, 0.0, 0.5]
        after = algo.update(
            server, {"delta": torch.eye(2, dtype=D)}, facts([0, 2], loss=[1.0, 3.0])
        )
        assert after["lambda"].tolist() == pytest.approx([0.49, 0.0, 0.51], abs=1e-12)


# ---- FedHEAL


def test_fedheal_is_frozen_above_every_share():
    data = federation()
    run = snapshots(make("fedheal", threshold=1.0), data, rounds=4)
    assert torch.equal(run[1].server["w"], run[-1].server["w"])
    assert not torch.equal(run[0].server["w"], run[1].server["w"])


def test_fedheal_weights_are_the_running_mean_of_the_shares_of_distance():
    """With β = 1: π after t rounds is 1/C and t shares; the larger update weighs more."""
    algo = make("fedheal", beta=1.0, threshold=-1.0)
    server = algo.server_init(torch.zeros(2, dtype=D), 2)
    for t in (1, 2, 3):
        delta = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=D)
        after = algo.update(server, {"delta": delta, "mask": packed(delta < 9)}, facts([0, 1]))
        p = (0.5 + t * 0.75) / (1 + t)
        assert (server["w"] - after["w"]).tolist() == pytest.approx([3 * p, 1 - p])
        server = after


def test_fedheal_masks_and_shares_by_hand():
    """Signs ++-, then --+ of one coordinate each: shares 1, 1, 0, 1/2, ...; zero counts as a plus."""
    algo = make("fedheal", threshold=0.4)
    state = {"share": torch.zeros(1, 3, dtype=D), "count": torch.zeros(1, 1, dtype=D)}

    def finished(*delta):
        nonlocal state
        up, state = algo.finish({"w": torch.zeros(3, dtype=D)}, state, {"w": -vector(delta)}, None)
        return (
            up["delta"].tolist()[0],
            unpacked(up["mask"], 3).tolist()[0],
            state["share"].tolist()[0],
        )

    assert finished(1.0, 0.0, -1.0) == ([1, 0, -1], [True, True, True], [1, 1, 0])
    assert finished(-1.0, 2.0, 3.0) == ([0, 2, 0], [False, True, False], [0.5, 1, 0.5])
    assert finished(-1.0, -2.0, 3.0) == (
        [-1, 0, 3],
        [True, False, True],
        pytest.approx([1 / 3, 2 / 3, 2 / 3]),
    )


def test_fedheal_coordinates_without_a_sender_stay():
    algo = make("fedheal", beta=0.0)
    delta = torch.tensor([[1.0, 0.0, 5.0], [3.0, 0.0, 0.0]], dtype=D)
    mask = torch.tensor([[True, False, True], [True, False, False]])
    after = algo.update(
        algo.server_init(torch.ones(3, dtype=D), 2),
        {"delta": delta, "mask": packed(mask)},
        facts([0, 1]),
    )
    assert after["w"].tolist() == pytest.approx([1 - 2.0, 1.0, 1 - 5.0])


def test_fedheal_norms_by_tensor():
    """(3, 4 | 12): 13 as a whole, 5 + 12 by tensor; the other client has one tensor, of length 17."""
    delta = torch.tensor([[3.0, 4.0, 12.0], [0.0, 0.0, 17.0]], dtype=D)
    up, w = {"delta": delta, "mask": packed(delta < 99)}, torch.zeros(3, dtype=D)
    increments = {}
    for name, options in (("whole", {}), ("tensor", {"distance": "tensor", "tensors": [2, 1]})):
        algo = make("fedheal", beta=1.0, **options)
        increments[name] = algo.update(algo.server_init(w, 2), up, facts([0, 1]))[
            "increment"
        ].tolist()
    assert increments == {
        "whole": pytest.approx([13 / 30, 17 / 30]),
        "tensor": pytest.approx([0.5, 0.5]),
    }
    with pytest.raises(
        RequestError, match="distance=tensor needs the sizes of the model's tensors"
    ):
        make("fedheal", distance="tensor")


def test_fedheal_counts_own_participations():
    """An absent client keeps its shares and its weight; the first mask of a client is full whenever that is."""
    data = federation()
    draw = sample_cohort(3)
    run = snapshots(make("fedheal"), data, rounds=6, sampler=draw)
    taken = np.zeros(data.num_clients)
    for before, after in pairwise(run):
        taken[after.cohort] += 1
        absent = np.setdiff1d(np.arange(data.num_clients), after.cohort)
        assert torch.equal(before.clients["share"][absent], after.clients["share"][absent])
        assert torch.equal(before.server["gained"][absent], after.server["gained"][absent])
    assert run[-1].clients["count"].flatten().tolist() == taken.tolist()


@pytest.mark.parametrize("size", [1, 7, 8, 9, 30])
def test_masks_travel_as_bits(size):
    mask = torch.rand(5, size, generator=torch.Generator().manual_seed(size)) < 0.5
    assert packed(mask).shape == (5, -(-size // 8))
    assert packed(mask).dtype == torch.uint8
    assert torch.equal(unpacked(packed(mask), size), mask)

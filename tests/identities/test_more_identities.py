"""Statements that reduce a method to another or to a closed form, in float64: beyond the averaging family."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from reference import local_sgd, loss_and_grad
from tools import close, federation, final, make, simulated, snapshots, task_for

from fedbench.algorithms.shared.gram import gram
from fedbench.core.algorithm import Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.core.randomness import sample_cohort
from fedbench.core.types import ClientInfo
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork

UNIFORM = {"weights": "uniform"}
D = torch.float64
FULL = LocalWork(lr=0.1, batch_size=None)


class Given:
    """Losses and gradients of functions of w [A, P] and of one row of numbers per client."""

    def __init__(self, loss, grad):
        self._loss, self._grad = loss, grad

    def grad(self, w, batch):
        return self._grad(w, batch.x[:, 0])

    def loss_and_grad(self, w, batch):
        return self._loss(w, batch.x[:, 0]), self.grad(w, batch)


# F = a/2 ||w - b||², rows (a, b)
QUADRATIC = Given(
    lambda w, r: r[:, :1] / 2 * (w - r[:, 1:]).square().sum(1, keepdim=True),
    lambda w, r: r[:, :1] * (w - r[:, 1:]),
)


class Losses:
    """What ``Measurements`` measures, of F = a/2 ||w - b||² with rows (a, b)."""

    def __init__(self, rows):
        self.rows = torch.tensor(rows, dtype=D)

    def at_broadcast(self, data, ids, w, needs):
        a, b = self.rows[ids, :1], self.rows[ids, 1:]
        found = {"loss": (a / 2 * (w - b).square()).sum(1), "grad": a * (w - b)}
        return {k: v for k, v in found.items() if k in needs}

    def losses_of_several(self, data, ids, models):
        return torch.stack([self.at_broadcast(data, ids, w, {"loss"})["loss"] for w in models], 1)


def run_on(oracle, rows, algo, work, rounds, w, **options):
    """The snapshots of a run on one example per client."""
    rows = torch.tensor(rows, dtype=D)
    data = FederatedDataset(
        x=rows,
        y=torch.zeros(len(rows), dtype=torch.int64),
        train=Rows.of([np.array([k]) for k in range(len(rows))]),
        test=Rows.of([np.arange(0)] * len(rows)),
        names=tuple(map(str, range(len(rows)))),
        classes=1,
        dtype=D,
    )
    engine, start = Engine(oracle, "stacked", 100), torch.tensor(w, dtype=D)
    if "measurements" in options:
        options["measurements"].task, options["measurements"].engine = None, engine
    return list(
        simulated(
            [Stage(algo, rounds)], None, data, work, engine, start, 0, sample_cohort(), **options
        )
    )


def on_quadratics(algo, rows, rounds, w, lr=0.5, steps=1):
    """The snapshots of a run on F = a/2 ||w - b||² with rows (a, b), full batches."""
    work = LocalWork(lr=lr, batch_size=None, steps=steps)
    return run_on(QUADRATIC, rows, algo, work, rounds, w, measurements=Losses(rows))


def cohort(p, **probe):
    """Facts of a cohort for a server's update alone."""
    p = torch.tensor(p, dtype=D)
    ones = torch.ones_like(p)
    return ClientInfo(
        id=torch.arange(len(p)),
        n=p,
        p=p,
        steps=ones,
        lr=ones,
        per_epoch=ones,
        key=ones,
        probe=dict(probe),
    )


def start_of(data):
    return task_for(data).init(torch.Generator().manual_seed(0))


# ---- 1 and 2: FedAvg


@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("term", {"t": 0.0, "weights": "size"}, "size"),
        ("term", {"t": 0.0}, "uniform"),
        ("fedmgda", {"eps": 0.0, "normalize": False}, "size"),
        ("fedmgda", {"eps": 0.0, "normalize": False, "prior": "uniform"}, "uniform"),
        ("ditto", {"lam": 3.0}, "size"),
        ("afl", {"lr_lambda": 0.0}, "uniform"),
        ("fedcorr", {"iterations": 0, "mixup": False}, "size"),
    ],
)
def test_1_2_reduces_to_fedavg(name, options, weights):
    data = federation()
    plain = final(make("fedavg", sgd(momentum=0.5), weights=weights), data, rounds=5)
    assert close(final(make(name, sgd(momentum=0.5), **options), data, rounds=5), plain, 1e-10)


@pytest.mark.parametrize("option", [1, 2])
def test_2_scaffold_begins_as_fedavg(option):
    data = federation()
    plain = final(make("fedavg", **UNIFORM), data, rounds=1)
    assert close(final(make("scaffold", option=option), data, rounds=1), plain, 1e-12)
    later = [
        final(make(m, **o), data, rounds=3)
        for m, o in (("scaffold", {"option": option}), ("fedavg", UNIFORM))
    ]
    assert not close(*later, 1e-4)


def test_2_scaffold_with_one_step_is_fedavg():
    """Σ (c - c_k) = 0 over all clients."""
    data = federation()
    work = LocalWork(lr=0.1, batch_size=None, steps=1)
    runs = [
        final(make(m, **o), data, rounds=6, work=work)
        for m, o in (("scaffold", {}), ("fedavg", UNIFORM))
    ]
    assert close(*runs, 1e-10)


def test_2_fedsps_with_a_tiny_bound_is_fedavg_at_that_rate():
    data = federation()
    ours = final(
        make("fedsps", gamma_b=1e-3), data, rounds=5, work=LocalWork(lr=77.0, batch_size=10)
    )
    plain = final(make("fedavg", **UNIFORM), data, rounds=5, work=LocalWork(lr=1e-3, batch_size=10))
    assert close(ours, plain, 1e-10)


# ---- 3: TERM


def test_3_term_tends_to_fedavg_and_to_the_worst_client():
    data = federation()
    plain = final(make("fedavg", **UNIFORM), data, rounds=1)
    apart = [
        torch.linalg.vector_norm(final(make("term", t=t), data, rounds=1) - plain).item()
        for t in (1e-4, 1e-5)
    ]
    assert apart[0] / apart[1] == pytest.approx(10, rel=1e-3)
    start = start_of(data)
    owned = data.train.split()
    losses = [loss_and_grad(start.numpy(), data.x[r].numpy(), data.y[r].numpy())[0] for r in owned]
    alone = final(
        make("fedavg"), data, rounds=1, sampler=lambda *_: np.array([int(np.argmax(losses))])
    )
    assert close(final(make("term", t=1e4), data, rounds=1), alone, 1e-10)


# ---- 5: SCAFFOLD on two quadratics


def test_5_scaffold_finds_the_optimum_where_fedavg_does_not():
    """F_1 = ½ w², F_2 = 5 (w - 1)²: the optimum of the mean is 10/11; FedAvg with five steps stops elsewhere."""
    rows, work = [[1.0, 0.0], [10.0, 1.0]], LocalWork(lr=0.02, batch_size=None, steps=5)
    ours, plain = (
        run_on(QUADRATIC, rows, make(m, **o), work, 400, [3.0])[-1]
        for m, o in (("scaffold", {}), ("fedavg", UNIFORM))
    )
    assert ours.server["w"].item() == pytest.approx(10 / 11, rel=1e-8)
    assert abs(plain.server["w"].item() - 10 / 11) > 1e-2


@pytest.mark.parametrize("option", [1, 2])
def test_5_c_is_the_mean_of_all_control_variates(option):
    """Also of those that were not drawn."""
    for s in snapshots(make("scaffold", option=option), federation(), rounds=8, participation=3):
        assert torch.allclose(s.server["c"], s.clients["c"].mean(0), rtol=0, atol=1e-12)


# ---- 6: the adaptive servers


def test_6_fedams_begins_as_fedadam():
    data = federation()
    shared = {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "weights": "size"}
    ours = final(make("fedams", option=2, **shared), data, rounds=1)
    assert close(ours, final(make("fedadam", v0=0.0, **shared), data, rounds=1), 1e-10)


def test_6_the_denominator_of_fedams_never_falls():
    servers = [s.server for s in snapshots(make("fedams", beta2=0.1), federation(), rounds=10)]
    assert any((b["v"] < a["v"]).any() for a, b in pairwise(servers[1:]))
    assert all((b["v_max"] >= a["v_max"]).all() for a, b in pairwise(servers))
    assert all((s["v_max"] >= 1e-3).all() for s in servers[1:])


def test_fedadagrad_first_step_by_hand():
    data = federation()
    d = start_of(data) - final(make("fedavg"), data, rounds=1)
    ours = final(make("fedadagrad", server_lr=0.5, beta1=0.2, tau=0.01), data, rounds=1)
    assert close(
        ours, start_of(data) - 0.5 * 0.8 * d / ((0.01**2 + d.square()).sqrt() + 0.01), 1e-12
    )


def test_fedyogi_keeps_v_where_it_equals_the_square():
    """sign(0) = 0, and v moves towards d² by (1-β2) d² from either side."""
    algo = make("fedyogi", beta2=0.75, v0=4.0)
    up = {"delta": torch.tensor([[2.0, 1.0, 3.0]], dtype=D)}
    v = algo.update(algo.server_init(torch.zeros(3, dtype=D), 1), up, cohort([1.0]))["v"]
    assert v.tolist() == [4.0, 4 - 0.25 * 1, 4 + 0.25 * 9]


# ---- 8: AdaFed


def directions(g, f, **options):
    """AdaFed's step on given updates and losses."""
    algo = make("adafed", **options)
    info = cohort(np.full(len(g), 1 / len(g)), loss=f, loss_after=f)
    return -algo.update(
        algo.server_init(torch.zeros(g.shape[1], dtype=D), len(g)), {"delta": g}, info
    )["w"]


@pytest.fixture
def updates():
    gen = torch.Generator().manual_seed(3)
    return torch.randn(5, 12, generator=gen, dtype=D), torch.rand(5, generator=gen, dtype=D) + 0.2


@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 5.0])
def test_8_every_client_descends_in_proportion(updates, gamma):
    """Theorem 4.1 with the constant ||d||²; the closed form; homogeneity; order."""
    g, f = updates
    d, s = directions(g, f, gamma=gamma), f**gamma
    assert torch.allclose(g @ d / s, (d @ d).expand(5), rtol=1e-8, atol=0)
    a = torch.linalg.solve(gram(g), s)
    assert close(d, g.T @ a / (s @ a), 1e-8)
    assert close(directions(3 * g, f, gamma=gamma), 3 * d, 1e-8)
    assert close(directions(g, 2 * f, gamma=gamma), d / 2**gamma, 1e-8)
    assert close(directions(g.flip(0), f.flip(0), gamma=gamma), d, 1e-8)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 5.0])
def test_8_the_closed_form_is_the_shortest_vector_of_the_hull(updates, gamma):
    """Eqs. 5, 6 and 14 as printed: weights above 0 of sum 1, and no vertex g of the hull has g · d < ||d||².

    That is the condition of the shortest vector of a convex hull, and the vector is the direction
    of the code.
    """
    g, f = updates
    turned: list[torch.Tensor] = []
    for update, scale in zip(g, f**gamma, strict=True):
        shares = [(update @ t) / (t @ t) for t in turned]
        rest = update - sum(x * t for x, t in zip(shares, turned, strict=True))
        turned.append(rest / (scale - sum(shares)))
    vertices = torch.stack(turned)
    length = vertices.square().sum(1)
    weight = 1 / (length * (1 / length).sum())
    d = weight @ vertices
    assert bool((weight > 0).all())
    assert weight.sum().item() == pytest.approx(1)
    assert bool((vertices @ d >= (1 - 1e-9) * (d @ d)).all())
    assert close(d, directions(g, f, gamma=gamma), 1e-8)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_8_no_loss_rises_within_the_step_of_theorem_5_1(gamma):
    """f_k = (h_k / 2) ||w - c_k||² + b_k is h_k-smooth: at the largest step, 2 min f^γ / L, no loss rises.

    At 5 min f^γ / min h that of the client with the smallest loss does: by hand, a loss falls up to
    2 f^γ / h_k.
    """
    gen = torch.Generator().manual_seed(5)
    for _ in range(20):
        w, centres = (
            torch.randn(12, generator=gen, dtype=D),
            torch.randn(5, 12, generator=gen, dtype=D),
        )
        h, b = torch.rand(5, generator=gen, dtype=D) + 0.5, torch.rand(5, generator=gen, dtype=D)

        def losses(at, centres=centres, h=h, b=b):
            return h / 2 * (at - centres).square().sum(1) + b

        f, g = losses(w), h.unsqueeze(1) * (w - centres)
        least = (f**gamma).min()
        d = directions(g, f, gamma=gamma)
        assert bool((losses(w - 2 * least / h.max() * d) <= f * (1 + 1e-12)).all())
        assert bool((losses(w - 5 * least / h.min() * d) > f)[f.argmin()])


def test_8_a_single_client_is_not_fedavg(updates):
    g, f = updates
    assert close(directions(g[:1], f[:1], gamma=2.0), g[0] / f[0] ** 2, 1e-8)


def test_8_without_losses_it_is_mgda_where_that_is_interior():
    g = torch.eye(4, dtype=D) * torch.tensor([[1.0], [2.0], [3.0], [0.5]], dtype=D)
    algo = make("fedmgda", eps=1.0, normalize=False)
    mgda = -algo.update(
        algo.server_init(torch.zeros(4, dtype=D), 4), {"delta": g}, cohort([0.25] * 4)
    )["w"]
    assert close(directions(g, torch.ones(4, dtype=D), gamma=0.0), mgda, 1e-8)


def test_8_silent_and_dependent_clients(updates):
    g, f = updates
    silent = torch.cat([g, torch.zeros(1, 12, dtype=D)])
    d = directions(silent, torch.cat([f, f[:1]]))
    assert close(d, directions(g, f), 1e-8)
    twice = torch.cat([g, g[:1]])  # the same update and loss again adds no condition
    assert close(directions(twice, torch.cat([f, f[:1]])), directions(g, f), 1e-7)
    assert not directions(g, torch.zeros(5, dtype=D)).any()
    assert (
        torch.allclose(
            g @ directions(g, f * torch.tensor([0.0, 1, 1, 1, 1])), torch.zeros(5, dtype=D)
        )
        is False
    )
    still = directions(g, f * torch.tensor([0.0, 1, 1, 1, 1], dtype=D))
    assert (g[0] @ still).abs() < 1e-12  # a client without loss is left as it is


def test_8_normalised_losses_change_the_length_only(updates):
    g, f = updates
    d, n = directions(g, f, gamma=5.0), directions(g, f, gamma=5.0, normalize_loss="mean")
    assert close(d / d.norm(), n / n.norm(), 1e-10)
    assert close(n, directions(g, 100 * f, gamma=5.0, normalize_loss="mean"), 1e-10)


# ---- 9: FedMGDA+


@pytest.mark.parametrize("seed", range(5))
def test_9_common_descent(seed):
    gen = torch.Generator().manual_seed(seed)
    g = torch.randn(8, 5, generator=gen, dtype=D) + torch.tensor([1.0, 0, 0, 0, 0], dtype=D)
    algo = make("fedmgda", eps=1.0)
    d = -algo.update(
        algo.server_init(torch.zeros(5, dtype=D), 8), {"delta": g}, cohort([1 / 8] * 8)
    )["w"]
    unit = g / g.norm(dim=1, keepdim=True)
    assert (unit @ d - d @ d).min() > -1e-8
    # any weights that give d: those with slack are 0
    active = torch.linalg.lstsq(unit.T, d).solution
    assert (((unit @ d - d @ d) * active.abs()).abs() < 1e-6).sum() >= 1


def test_9_a_silent_client_does_not_stop_the_others():
    g = torch.tensor([[1.0, 0], [0, 0], [0, 2]], dtype=D)
    algo = make("fedmgda", eps=1.0)
    w = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 3), {"delta": g}, cohort([0.2, 0.6, 0.2])
    )["w"]
    assert w.tolist() == pytest.approx([-0.5, -0.5], abs=1e-8)
    still = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 3), {"delta": 0 * g}, cohort([0.2, 0.6, 0.2])
    )["w"]
    assert not still.any()


def test_9_the_bound_holds_the_weights():
    """Δ = (1, 0), (0, 1), prior (0.9, 0.1): MGDA has ½, ½; with ε = 0.1 the weights stop at 0.8, 0.2."""
    algo = make("fedmgda", eps=0.1)
    w = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 2),
        {"delta": torch.eye(2, dtype=D)},
        cohort([0.9, 0.1]),
    )
    assert w["w"].tolist() == pytest.approx([-0.8, -0.2], abs=1e-9)


# ---- 10: AFL


def test_10_the_mixture_stays_on_the_simplex_and_the_average_finds_the_minimax_point():
    """F_1 = w²/2, F_2 = (w-1)²/2 + 0.2: they meet at w = 0.7, the least largest loss."""
    algo = make("afl", lr_lambda=0.02, average=True)
    server = algo.server_init(torch.tensor([0.0], dtype=D), 2)
    for _ in range(8_000):
        w = server["w"]
        loss = torch.cat([w**2 / 2, (w - 1) ** 2 / 2 + 0.2])
        delta = 0.02 * torch.stack([w, w - 1])
        server = algo.update(server, {"delta": delta}, cohort([0.5, 0.5], loss=loss))
        low, high = server["lambda"].tolist()
        assert min(low, high) >= 0
        assert abs(low + high - 1) < 1e-9
    assert algo.deploy(server, {}).item() == pytest.approx(0.7, abs=5e-3)


def test_10_average_is_of_the_models_after_each_round():
    data = federation()
    models = [s.server["w"] for s in snapshots(make("afl"), data, rounds=5)]
    algo = make("afl", average=True)
    seen = snapshots(algo, data, rounds=5)
    assert torch.equal(algo.deploy(seen[0].server, {}), models[0])
    assert close(algo.deploy(seen[-1].server, {}), torch.stack(models[1:]).mean(0), 1e-12)


def test_10_partial_participation_touches_the_cohort_before_the_projection():
    """N = 4, cohort {1, 3}, λ = ¼ each: weights ½, ½; λ + γ F = (¼, ¼ + .1, ¼, ¼ + .3), by hand 0.1 less after Π."""
    algo = make("afl", lr_lambda=0.1, partial=True)
    server = algo.server_init(torch.zeros(2, dtype=D), 4)
    info = cohort([0.5, 0.5], loss=torch.tensor([1.0, 3.0], dtype=D))
    info = ClientInfo(**{**info.__dict__, "id": torch.tensor([1, 3])})
    after = algo.update(server, {"delta": torch.eye(2, dtype=D)}, info)
    assert after["w"].tolist() == [-0.5, -0.5]
    assert after["lambda"].tolist() == pytest.approx([0.15, 0.25, 0.15, 0.45])
    # all λ of the cohort are 0: uniform
    server = {**server, "lambda": torch.tensor([1.0, 0, 0, 0], dtype=D)}
    assert algo.update(server, {"delta": torch.eye(2, dtype=D)}, info)["w"].tolist() == [-0.5, -0.5]


# ---- 11: Ditto


def test_11_without_the_pull_models_are_trained_apart():
    data = federation()
    last = snapshots(
        make("ditto", lam=0.0), data, rounds=4, work=LocalWork(0.1, None, epochs=(2, 2))
    )[-1]
    for k, rows in enumerate(data.train.split()):
        alone = local_sgd(
            start_of(data).numpy(), data.x[rows].numpy(), data.y[rows].numpy(), 0.1, 8
        )
        assert close(last.clients["personal"][k], torch.from_numpy(alone), 1e-10)


def test_11_a_strong_pull_holds_them_at_the_global_model():
    """λ η = 0.999: v - w^t after a step is 0.001 (v - w^t) - η g."""
    data = federation()
    seen = snapshots(make("ditto", lam=999.0, personal_lr=1e-3), data, rounds=3)
    gap = seen[-1].clients["personal"] - seen[-2].server["w"]
    assert gap.norm(dim=1).max() < 5e-3 * seen[-2].server["w"].norm()


def test_11_unselected_clients_keep_their_model():
    data = federation()
    seen = snapshots(make("ditto"), data, rounds=1, sampler=lambda *_: np.array([1, 4]))[-1]
    moved = (seen.clients["personal"] != start_of(data)).any(1)
    assert moved.tolist() == [k in (1, 4) for k in range(7)]


def test_11_personal_batches_are_its_own():
    """From one start and without the pull, v_k sees other batches than w in the same round; full batches agree."""
    data = federation(sizes=(40,))
    for size, agree in ((10, False), (None, True)):
        last = snapshots(make("ditto", lam=0.0), data, rounds=1, work=LocalWork(0.1, size))[-1]
        assert (
            torch.allclose(last.clients["personal"][0], last.server["w"], rtol=0, atol=1e-12)
            is agree
        )


# ---- 12: FedFa


def fedfa_update(accuracy, count, **options):
    """FedFa's server on unit updates: -w is ω where no step along the momentum is taken."""
    algo = make("fedfa", b=10**6, **options)
    up = {
        "delta": torch.eye(len(accuracy), dtype=D),
        "count": torch.tensor(count, dtype=D).unsqueeze(1),
    }
    info = cohort(
        np.full(len(accuracy), 1 / len(accuracy)), accuracy_after=torch.tensor(accuracy, dtype=D)
    )
    return -algo.update(algo.server_init(torch.zeros(len(accuracy), dtype=D), 9), up, info)["w"]


def test_12_equal_clients_weigh_the_same():
    assert fedfa_update([0.7] * 4, [3.0] * 4).tolist() == pytest.approx([0.25] * 4)
    data = federation(sizes=(10, 10, 10), classes=2)
    options = {"alpha": 0.0, "beta": 1.0, "gamma_c": 0.0, "server_lr": 0.0}
    runs = [
        final(make(m, **o), data, rounds=5) for m, o in (("fedfa", options), ("fedavg", UNIFORM))
    ]
    assert close(*runs, 1e-10)


def test_12_weights_by_hand():
    """Accuracies ½, ¼, ¼: a in bits 1, 2, 2 -> A = .2, .4, .4. Counts 2, 1, 1: 1-φ = ½, ¾, ¾ -> B ∝ 1, log2(4/3)."""
    a = np.array([0.2, 0.4, 0.4])
    b = np.array([1, np.log2(4 / 3), np.log2(4 / 3)])
    want = 0.75 * a + 0.25 * b / b.sum()
    assert fedfa_update(
        [0.5, 0.25, 0.25], [2.0, 1, 1], alpha=0.75, beta=0.25
    ).tolist() == pytest.approx(want.tolist())


def test_12_weights_can_be_switched_off():
    """Eq. 3: α = β = 0."""
    assert fedfa_update(
        [0.5, 0.25, 0.25], [2.0, 1, 1], alpha=0.0, beta=0.0
    ).tolist() == pytest.approx([1 / 3] * 3)


def test_12_edges():
    """Accuracy 0 counts as c; all accuracies 0 are equal; one client has weight 1."""
    bits = np.array([-np.log2(1e-6), 0.0])
    want = 0.5 * bits / bits.sum() + 0.25
    assert fedfa_update([0.0, 1.0], [1.0, 1.0]).tolist() == pytest.approx(want.tolist())
    assert fedfa_update([0.0, 0.0], [1.0, 1.0]).tolist() == pytest.approx([0.5, 0.5])
    assert fedfa_update([0.3], [4.0]).tolist() == pytest.approx([1.0])


def test_12_momentum_grows_in_every_round_and_moves_in_some():
    """b = 3: rounds 1 and 2 are plain averages; round 3 steps back along m by η; m sums all three."""
    algo = make("fedfa", b=3, server_lr=0.5, gamma_s=0.5)
    server = algo.server_init(torch.zeros(1, dtype=D), 1)
    info = cohort([1.0], accuracy_after=torch.ones(1, dtype=D))
    seen = []
    for t in range(3):
        server = algo.update(
            server, {"delta": -torch.ones(1, 1, dtype=D), "count": torch.ones(1, 1) * (t + 1)}, info
        )
        seen.append((server["w"].item(), server["m"].item()))
    assert seen == [(1.0, 0.5), (2.0, 0.75), (pytest.approx(3 - 0.5 * 0.875), 0.875)]


def test_12_counts_only_rounds_taken_part_in():
    seen = snapshots(
        make("fedfa"), federation(), rounds=4, sampler=lambda t, n, s: np.array([0, 1 + t % 2])
    )
    assert seen[-1].clients["count"].flatten().tolist() == [4, 2, 2, 0, 0, 0, 0]


# ---- 13: Theorem 1 of the FAFED paper

# f_1' = 6 sign x, f_2' = f_3' = -2 sign x; the rows hold the slopes
SLOPES = Given(lambda w, r: r * w.abs(), lambda w, r: r * w.sign())


def test_13_naive_adaptation_walks_away_and_fafed_does_not():
    """x_0 = 10, η = 0.1, β = 0.5: first locals 9.8586, 10.1414, 10.1414, and round t adds η/(3 √(1-β^t))."""
    rows, work = [[6.0], [-2.0], [-2.0]], LocalWork(lr=0.1, batch_size=None, steps=1)
    seen = [
        s.server["w"].item() for s in run_on(SLOPES, rows, make("naive_adaptive"), work, 20, [10.0])
    ]
    step = 0.1 / np.sqrt(0.5)
    assert seen[1] == pytest.approx(np.mean([10 - step, 10 + step, 10 + step]), rel=1e-12)
    assert [10 - step, 10 + step, seen[1]] == pytest.approx([9.8586, 10.1414, 10.0471], abs=5e-5)
    assert np.diff(seen) == pytest.approx(
        [0.1 / (3 * np.sqrt(1 - 0.5**t)) for t in range(1, 21)], rel=1e-9
    )
    for variant in ("paper", "code", "stateless"):
        ours = [
            s.server["w"].item()
            for s in run_on(SLOPES, rows, make("fafed", variant=variant), work, 20, [10.0])
        ]
        assert (np.diff(np.abs(ours)) < 0).all()


@pytest.mark.parametrize(("rate", "beta"), [(0.1, 0.5), (1e-3, 0.5), (1.0, 0.1), (0.1, 0.999)])
def test_13_naive_adaptation_walks_away_whatever_the_rate_and_the_decay(rate, beta):
    """Round t adds η / (3 √(1-β^t)), which is above 0 for every η and β: the optimum at 0 is left for good."""
    rows, work = [[6.0], [-2.0], [-2.0]], LocalWork(lr=rate, batch_size=None, steps=1)
    naive = make("naive_adaptive", beta=beta)
    seen = [s.server["w"].item() for s in run_on(SLOPES, rows, naive, work, 20, [10.0])]
    assert np.diff(seen) == pytest.approx(
        [rate / (3 * np.sqrt(1 - beta**t)) for t in range(1, 21)], rel=1e-6
    )
    assert (np.diff(seen) > 0).all()


# ---- 14: STEM and FAFED


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_14_fafed_with_a_constant_matrix_is_stem(variant):
    """A = √v + ρ is ρ for a huge ρ, which the rate undoes."""
    data, rho = federation(), 1e14
    work = [LocalWork(lr=lr, batch_size=10, epochs=(2, 2)) for lr in (0.05, 0.05 * rho)]
    stem = final(make("stem", init_step="none"), data, rounds=5, work=work[0])
    fafed = final(
        make("fafed", rho=rho, variant=variant, init_step="none"), data, rounds=5, work=work[1]
    )
    # the last step is the server's, at the same time for all
    equal = federation(sizes=(20, 20, 20))
    if variant == "paper":
        runs = [final(make("stem", init_step="none"), equal, rounds=5, work=work[0])]
        runs.append(final(make("fafed", rho=rho, init_step="none"), equal, rounds=5, work=work[1]))
        assert close(*runs, 1e-10)
    assert close(fafed, stem, 1e-10)


def test_14_stem_with_one_full_batch_step_is_gradient_descent():
    """R rounds and the exchange before them are R + 1 steps on (1/N) Σ F_k."""
    data = federation()
    work = LocalWork(lr=0.2, batch_size=None, steps=1)
    ours = final(make("stem", alpha=0.3), data, rounds=6, work=work)
    assert close(ours, final(make("fedavg", **UNIFORM), data, rounds=7, work=work), 1e-10)


def test_14_stem_with_alpha_one_is_local_sgd():
    data = federation()
    assert close(
        final(make("stem", alpha=1.0, init_step="none"), data, rounds=5),
        final(make("fedavg", **UNIFORM), data, rounds=5),
        1e-10,
    )


@pytest.mark.parametrize("name", ["stem", "fafed"])
def test_14_iterations_are_the_mean_of_unequal_steps(name):
    algo = make(name, decay_w=1.0)
    server = algo.server_init(torch.zeros(1, dtype=D), 2)
    info = ClientInfo(**{**cohort([0.5, 0.5]).__dict__, "steps": torch.tensor([1.0, 4.0], dtype=D)})
    up = {k: torch.ones(2, 1, dtype=D) for k in ("delta", "m", "v")}
    assert algo.update(server, up, info)["t"].item() == 2.5


@pytest.mark.parametrize("name", ["stem", "fafed"])
def test_14_the_mean_momentum_is_the_mean_gradient(name):
    data = federation()
    owned = data.train.split()
    work = LocalWork(lr=0.01, batch_size=None, steps=4)
    for s in snapshots(make(name), data, rounds=5, work=work)[1:]:
        before = s.clients["prev"].numpy()  # where each took its last gradient
        grads = [
            loss_and_grad(w, data.x[r].numpy(), data.y[r].numpy())[1]
            for w, r in zip(before, owned, strict=True)
        ]
        assert close(s.server["m"], torch.from_numpy(np.mean(grads, 0)), 1e-10)


def test_14_the_rate_decays_with_the_steps():
    """η_t = η/(w + t)^(1/3), t over all steps: with α = 1 and a constant gradient the path is their sum."""
    rows, work = [[2.0], [2.0]], LocalWork(lr=0.3, batch_size=None, steps=3)
    constant = Given(lambda w, r: r * w, lambda w, r: r.clone())
    algo = make("stem", alpha=1.0, decay_w=1.0)
    seen = [s.server["w"].item() for s in run_on(constant, rows, algo, work, 2, [0.0])]
    rates = 0.3 / (1 + np.arange(7)) ** (1 / 3)  # t = 0 is the first exchange
    assert seen == pytest.approx([0, -2 * rates[:4].sum(), -2 * rates.sum()], rel=1e-12)


# ---- 15: Adam


@pytest.mark.parametrize(
    ("name", "options"), [("local_adam", {}), ("fedcada", {"adjust": "adam", "counter": "step"})]
)
def test_15_one_client_is_adam(name, options):
    data = federation(sizes=(12,))
    ours = final(make(name, **options), data, rounds=5, work=LocalWork(0.05, None, epochs=(3, 3)))
    w = torch.nn.Parameter(start_of(data))
    adam, rows, task = torch.optim.Adam([w], lr=0.05), data.train.index, task_for(data)
    for _ in range(15):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(task.predict(w, data.x[rows]), data.y[rows]).backward()
        adam.step()
    assert close(ours, w.detach(), 1e-9)


def test_15_the_adjustment_fades():
    """First step ×0.74 of the uncorrected one for β = .9, .999: √(1.999)/1.9; both tend to the same."""
    data = federation(sizes=(12,))
    work = LocalWork(1e-3, None)
    options = [{"adjust": a, "eps": 1e-300} for a in ("plus", "identity")]
    start = start_of(data)
    steps = [start - final(make("fedcada", **o), data, rounds=1, work=work) for o in options]
    assert close(steps[0], steps[1] * np.sqrt(1.999) / 1.9, 1e-12)
    assert np.sqrt(1.999) / 1.9 == pytest.approx(0.744, abs=1e-3)
    servers = [
        snapshots(make("fedcada", beta2=0.9, **o), data, rounds=1, work=work)[-1].server
        for o in options
    ]
    late = [make("fedcada", beta2=0.9, **o) for o in options]
    ends = [
        run_on(QUADRATIC, [[1.0, 2.0]], algo, LocalWork(1e-3, None), 400, [0.0]) for algo in late
    ]
    moves = [[b.server["w"].item() - a.server["w"].item() for a, b in pairwise(e)] for e in ends]
    assert abs(moves[0][0] / moves[1][0] - 1) > 0.2
    assert moves[0][-1] / moves[1][-1] == pytest.approx(1, abs=1e-3)
    assert servers[0]["t"].item() == 1


@pytest.mark.parametrize(
    ("adjust", "value"), [("plus", 1.5), ("square", 1.25), ("sin", 1 + np.sin(0.5)), ("sqrt", 1 + np.sqrt(0.5)),
                          ("identity", 1.0), ("adam", 0.5)],
)  # fmt: skip
def test_15_adjustments_by_hand(adjust, value):
    """β1 = ½, β2 = 0, t = 1, g = 1: m = ½, v = 1; the step is η (½/D(½)) / √(1/D(0))."""
    zero = {"plus": 1, "square": 1, "sin": 1, "sqrt": 1, "identity": 1, "adam": 1}[adjust]
    constant = Given(lambda w, r: r * w, lambda w, r: r.clone())
    algo = make("fedcada", adjust=adjust, beta1=0.5, beta2=0.0, eps=1e-12)
    w = run_on(constant, [[1.0]], algo, LocalWork(0.1, None), 1, [0.0])[-1].server["w"].item()
    assert w == pytest.approx(-0.1 * 0.5 / value / np.sqrt(1 / zero), rel=1e-9)


# ---- 16: FedSPS


def test_16_a_quadratic_is_solved_in_one_step():
    """F = a/2 ||w - b||², c = ½: γ = F / (½ ||a (w - b)||²) = 1/a."""
    rows = [[4.0, 1.0, -2.0], [4.0, 1.0, -2.0]]
    w = run_on(QUADRATIC, rows, make("fedsps", c=0.5), FULL, 1, [7.0, 3.0])[-1].server["w"]
    assert w.tolist() == pytest.approx([1.0, -2.0], abs=1e-12)


def test_16_no_gradient_or_a_loss_below_the_bound_is_no_step():
    for rows, bound in (([[4.0, 7.0]], 0.0), ([[4.0, 1.0]], 1e6)):
        assert (
            run_on(QUADRATIC, rows, make("fedsps", l_star=bound), FULL, 3, [7.0])[-1]
            .server["w"]
            .item()
            == 7.0
        )


# ---- refusals


def test_the_weights_of_fedfa_sum_to_one():
    with pytest.raises(RequestError, match=r"algo.alpha \+ algo.beta must be 1, got 0.5 \+ 0.6"):
        make("fedfa", alpha=0.5, beta=0.6)

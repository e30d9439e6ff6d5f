"""FedCorr's parts against their definitions, and its three stages as a whole."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference import local_sgd
from sklearn.mixture import GaussianMixture
from tools import close, deployed, federation, final, make, snapshots, task_for

from fedbench.algorithms.fedcorr import pulled_gradient
from fedbench.algorithms.shared.label_noise_estimation import (
    corrected,
    estimate_levels,
    high_component,
    mean_lid,
    nearly_clean,
    note_visit,
)
from fedbench.algorithms.shared.mixup import MixupOracle
from fedbench.core.algorithm import Descent, Stage
from fedbench.core.errors import RequestError
from fedbench.core.randomness import one_by_one
from fedbench.core.types import Batch, ClientInfo
from fedbench.data.dataset import Rows
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.oracles import make_oracle

D = torch.float64
SIZES = (30, 25, 1, 40, 22, 28)


def noisy_federation():
    """Clients 1 and 4 with most labels wrong."""
    data = federation(sizes=SIZES, features=5, classes=3, seed=1)
    y, rng = data.y.clone(), np.random.default_rng(0)
    for k in (1, 4):
        rows = data.train.of_clients(np.array([k]))
        wrong = torch.from_numpy(rng.random(len(rows)) < 0.7)
        y[rows] = torch.where(wrong, (y[rows] + 1) % 3, y[rows])
    return data.relabelled(y)


# ---- parts


def lid_by_loops(p, neighbours):
    scores = []
    for i in range(len(p)):
        r = sorted(np.linalg.norm(p[i] - p[j]) for j in range(len(p)) if j != i)[:neighbours]
        scores.append(-len(r) / sum(np.log(x / (r[-1] + 1e-6)) for x in r))
    return np.mean(scores)


@pytest.mark.parametrize(("n", "k"), [(50, 20), (8, 20), (3, 20), (1500, 5)])
def test_lid_is_the_one_by_loops(n, k, monkeypatch):
    monkeypatch.setattr("fedbench.algorithms.shared.label_noise_estimation._ROWS", 17)
    p = np.random.default_rng(0).dirichlet(np.ones(4), min(n, 120))
    assert mean_lid(torch.from_numpy(p), k).item() == pytest.approx(
        lid_by_loops(p, min(k, len(p) - 1)), rel=1e-9
    )


def test_lid_of_too_few_or_equal_outputs_is_zero():
    assert mean_lid(torch.ones(1, 3), 20).item() == 0
    # its only ratio is 1 but for an offset
    assert mean_lid(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), 20).item() == 0
    assert mean_lid(torch.full((5, 3), 1 / 3), 20).item() == 0


def test_high_component():
    values = np.array([0.1, 0.2, 5.0, 0.15, 5.2])
    assert high_component(values).tolist() == [False, False, True, False, True]
    assert not high_component(np.full(4, 2.0)).any()
    assert not high_component(np.zeros(0)).any()


@pytest.mark.parametrize(
    ("level", "drawn"),
    [([0.1, 0.2, 0.0], [0]), ([0.5, 0.2, 0.3], [0, 1]), ([0.5, 0.2, 0.0], [0, 1])],
)
def test_everybody_is_drawn_when_nobody_is_clean(level, drawn):
    """Client 2 has no training examples, so that its level says nothing."""
    data = federation(sizes=(4, 9))
    first, second = data.train.split()
    data = replace(
        data,
        train=Rows.of([first, second, first[:0]]),
        test=Rows.of([data.test.split()[0]] * 3),
        names=tuple("abc"),
    )
    stage = Stage(
        make("fedavg"), 1, eligible=lambda server: nearly_clean({"level": torch.tensor(level)})
    )
    assert snapshots(lambda **_: [stage], data, rounds=1)[-1].cohort.tolist() == drawn


def test_one_by_one_visits_everybody_once_an_iteration():
    n = np.array([3, 0, 5, 1, 9])
    for first in (0, 4, 8):
        turn = [one_by_one(t, n, 7).tolist() for t in range(first, first + 4)]
        assert sorted(sum(turn, [])) == [0, 2, 3, 4]
    orders = {tuple(one_by_one(t + 4 * i, n, 7)[0] for t in range(4)) for i in range(10)}
    assert len(orders) > 1


def mixed_batch():
    gen = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 6, 4, generator=gen, dtype=D), torch.randint(0, 3, (3, 6), generator=gen)
    weight = torch.full((3, 6), 1 / 6, dtype=D)
    weight[2, 4:], weight[2, :4] = 0, 1 / 4  # the last client's batch is short
    return Batch(x, y, weight)


def test_mixup_is_cross_entropy_with_mixed_labels():
    """Loss and gradient of Σ weight · CE(x̃, λ onehot(y) + (1-λ) onehot(y[π])), by autograd on what was drawn."""
    data = federation(features=4)
    task = task_for(data)
    batch, key = mixed_batch(), torch.tensor([[5], [6], [7]])
    mixed = MixupOracle(make_oracle(task, "stacked"), key)
    share, one, other = mixed.mix(batch)
    w = torch.randn(3, task.size, dtype=D, generator=torch.Generator().manual_seed(1))
    loss, grad = mixed.loss_and_grad(w, batch)
    assert torch.equal(mixed.grad(w, batch), grad)
    for k in range(3):
        wk = w[k].clone().requires_grad_()
        labels = share[k] * F.one_hot(one.y[k], 3) + (1 - share[k]) * F.one_hot(other.y[k], 3)
        value = (
            F.cross_entropy(task.predict(wk, one.x[k]), labels.to(D), reduction="none")
            * batch.weight[k]
        ).sum()
        assert loss[k].item() == pytest.approx(value.item(), rel=1e-12)
        assert close(grad[k], torch.autograd.grad(value, wk)[0], 1e-12)


def test_mixup_pairs_real_examples_and_draws_anew_in_every_step():
    batch, key = mixed_batch(), torch.tensor([[5], [6], [7]])
    draws = [MixupOracle(None, key).mix(batch._replace(step=t)) for t in range(50)]
    shares = torch.cat([d[0] for d in draws])
    assert len(shares.unique()) == 150
    assert shares.mean().item() == pytest.approx(0.5, abs=0.1)
    assert (shares > 0.9).any()
    assert (shares < 0.1).any()
    for share, one, other in draws:
        lam = share[2]
        partner = (one.x[2, :4] - lam * batch.x[2, :4]) / (1 - lam)
        gap = torch.cdist(partner, batch.x[2])
        assert (gap.argmin(1) < 4).all()  # never padding
        assert sorted(gap.argmin(1).tolist()) == [0, 1, 2, 3]  # a permutation
        assert torch.equal(other.y[2, :4], batch.y[2][gap.argmin(1)])
        assert (one.y == batch.y).all()


def test_the_pull_is_of_the_norm_and_spares_the_first_batch_of_an_epoch():
    """β μ (w - w^t)/||w - w^t||, not squared: by hand with a gradient of 0."""
    step = Descent(make_sgd(), pulled_gradient(5.0))
    still = type("Still", (), {"grad": lambda self, w, b: torch.zeros_like(w)})()
    one = torch.ones(1, 1, dtype=D)
    info = ClientInfo(id=one, n=one, p=one, steps=4 * one, lr=0.1 * one, per_epoch=2 * one, key=one)
    msg = {"w": torch.zeros(2, dtype=D)}
    now = {"mu": 0.3 * one, "w": torch.tensor([[3.0, 4.0]], dtype=D)}
    path = [now["w"]]
    for t in range(4):
        now = step(still, msg, now, mixed_batch()._replace(step=t), info)
        path.append(now["w"])
    moves = [(b - a)[0].tolist() for a, b in pairwise(path)]
    length = 0.1 * 5 * 0.3
    want = [[0, 0], [-length * 0.6, -length * 0.8], [0, 0], [-length * 0.6, -length * 0.8]]
    assert moves == [pytest.approx(m) for m in want]
    at_rest = step(
        still, msg, {**now, "w": torch.zeros(1, 2, dtype=D)}, mixed_batch()._replace(step=1), info
    )
    assert not at_rest["w"].any()


def make_sgd():
    from fedbench.core.optim import sgd

    return sgd()


def test_correction_takes_confident_examples_of_the_largest_losses():
    """Level ½ of 4 examples and ratio ½: the one largest loss; then every confident example."""
    data = federation(sizes=(4, 4), features=2, classes=3)
    task = task_for(data)
    rows = data.train.of_clients(np.array([1]))
    data.x[rows] = torch.tensor([[9.0, 0], [0, 9], [9, 0], [0.01, 0]], dtype=D)
    w = task.layout.flatten(
        {
            "weight": torch.tensor([[1.0, 0], [0, 1], [0, 0]], dtype=D),
            "bias": torch.zeros(3, dtype=D),
        }
    )
    y = data.y.clone()
    y[rows] = torch.tensor([2, 2, 2, 2])
    predict_fn = partial(
        Measurements(task, Engine(make_oracle(task, "loop"), "loop", 1)).predictions, data
    )
    loss = torch.zeros(len(y), dtype=D)
    loss[rows] = torch.tensor([1.0, 3.0, 2.0, 4.0], dtype=D)
    server = {"w": w, "level": torch.tensor([0.0, 0.5], dtype=D), "loss": loss}
    assert corrected(server, y, predict_fn, 0.5, 0.5)[rows].tolist() == [
        2,
        2,
        2,
        2,
    ]  # the largest loss is not confident
    # two largest: one is
    assert corrected(server, y, predict_fn, 0.5, 1.0)[rows].tolist() == [2, 1, 2, 2]
    everything = corrected(server, y, predict_fn, 0.5, None)
    assert everything[rows].tolist() == [0, 1, 0, 2]
    others = torch.ones(len(y), dtype=torch.bool).index_fill(0, rows, False)
    assert torch.equal(everything[others], y[others])


# ---- the whole


def by_definition(data, start, iterations, rounds1, rounds2, lr, seed, sure=0.5, ratio=0.5):
    """FedCorr without mixup, full batches (so that the pull never acts), one local step, in NumPy and scikit-learn."""
    owned = data.train.split()
    x, y, count = data.x.numpy(), data.y.numpy().copy(), len(owned)
    w, lid, levels = start.copy(), np.zeros(count), np.zeros(count)

    def outputs(w, rows):
        k = len(w) // (x.shape[1] + 1)
        z = x[rows] @ w[: k * x.shape[1]].reshape(k, -1).T + w[k * x.shape[1] :]
        e = np.exp(z - z.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def high(values):
        if len(np.unique(values)) < 2:
            return np.zeros(len(values), dtype=bool)
        g = GaussianMixture(n_components=2, random_state=0).fit(values.reshape(-1, 1))
        return g.predict(values.reshape(-1, 1)) == np.argmax(g.means_[:, 0])

    for i in range(iterations):
        losses = {}
        for t in range(count):
            (k,) = one_by_one(i * count + t, data.train.counts, seed)
            w = local_sgd(w, x[owned[k]], y[owned[k]], lr, 1)
            p = outputs(w, owned[k])
            if len(p) > 2:
                lid[k] += lid_by_loops(p, min(20, len(p) - 1))
            losses[k] = np.log(np.exp(p).sum(1)) - p[np.arange(len(p)), y[owned[k]]]
        able = np.flatnonzero(lid > 0)
        levels = np.zeros(count)
        for k in able[high(lid[able])]:
            levels[k] = high(losses[k]).mean()
        for k in np.flatnonzero(levels):
            p, rows = outputs(w, owned[k]), owned[k]
            largest = set(
                np.argsort(-losses[k], kind="stable")[: int(len(rows) * levels[k] * ratio)]
            )
            for j in range(len(rows)):
                if j in largest and p[j].max() > sure:
                    y[rows[j]] = p[j].argmax()
    clean = np.flatnonzero(levels <= 0.1)

    def fedavg(w, ids):
        n = np.array([len(owned[k]) for k in ids], dtype=float)
        return sum(
            a / n.sum() * local_sgd(w, x[owned[k]], y[owned[k]], lr, 1)
            for a, k in zip(n, ids, strict=True)
        )

    for _ in range(rounds1):
        w = fedavg(w, clean if len(clean) else np.arange(count))
    for k in np.flatnonzero(levels):
        p = outputs(w, owned[k])
        y[owned[k]] = np.where(p.max(1) > sure, p.argmax(1), y[owned[k]])
    for _ in range(rounds2):
        w = fedavg(w, np.arange(count))
    return w, y, levels


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_three_stages_are_the_definition(iterations):
    data = noisy_federation()
    first = iterations * len(SIZES)
    algo = make("fedcorr", iterations=iterations, rounds1=4, mixup=False)
    seen = snapshots(algo, data, rounds=first + 9, work=LocalWork(0.3, None))
    start = seen[0].server["w"].numpy()
    w, y, levels = by_definition(data, start, iterations, 4, 5, 0.3, 0)
    assert close(seen[-1].server["w"], torch.from_numpy(w), 1e-9)
    assert seen[-1].data.y.tolist() == y.tolist()
    assert seen[first].server["level"].tolist() == pytest.approx(levels)
    assert (seen[-1].data.y != data.y).any()
    assert [s.stage for s in seen[1:]] == [0] * first + [1] * 4 + [2] * 5
    assert all(len(s.cohort) == 1 for s in seen[1 : first + 1])
    clean = np.flatnonzero(levels <= 0.1).tolist()
    assert all(s.cohort.tolist() == clean for s in seen[first + 1 : first + 5])
    test_rows = data.test.index
    assert torch.equal(seen[-1].data.y[test_rows], data.y[test_rows])


def whole_run(data, **options):
    algo = make("fedcorr", iterations=2, rounds1=3)
    return snapshots(
        algo, data, rounds=2 * len(SIZES) + 7, work=LocalWork(0.1, 10, epochs=(2, 2)), **options
    )[-1]


def test_modes_chunks_and_seeds():
    """The pull, mixup and relabelling included."""
    data = noisy_federation()
    last = whole_run(data)
    for other in ({"mode": "loop"}, {"cohort_size": 1}, {"cohort_size": 2, "workers": 2}):
        again = whole_run(data, **other)
        assert close(again.server["w"], last.server["w"], 1e-10)
        assert torch.equal(again.data.y, last.data.y)
    assert torch.equal(whole_run(data).server["w"], last.server["w"])
    assert not torch.equal(whole_run(data, seed=1).server["w"], last.server["w"])


def test_clean_data_stay_as_they_are():
    """One client, or clients of one example: the scores cannot be separated, so no client is noisy."""
    for sizes in ((9,), (1, 1, 1)):
        data = federation(sizes=sizes)
        algo = make("fedcorr", iterations=2, rounds1=2, mixup=False)
        last = snapshots(algo, data, rounds=2 * len(sizes) + 4)[-1]
        assert last.data.y is data.y or torch.equal(last.data.y, data.y)
        assert torch.isfinite(last.server["w"]).all()


def test_another_server_in_the_later_stages():
    data = noisy_federation()
    adafed = make("adafed", gamma=1.0)
    algo = make("fedcorr", iterations=0, mixup=False, server=adafed)
    assert close(final(algo, data, rounds=4), final(adafed, data, rounds=4), 1e-12)
    scaffold = make("fedcorr", iterations=1, mixup=False, server=make("scaffold"))
    last = snapshots(scaffold, data, rounds=12)[-1]
    assert torch.allclose(last.server["c"], last.clients["c"].mean(0), rtol=0, atol=1e-12)
    assert torch.equal(deployed(scaffold, last), last.server["w"])


def test_too_few_rounds_are_refused():
    with pytest.raises(
        RequestError,
        match="rounds=50 is too few for fedcorr: 1 iterations of a round for each of 100",
    ):
        make("fedcorr")(rounds=50, clients=100)
    with pytest.raises(RequestError, match="rounds=20 is too few"):
        make("fedcorr", iterations=1, rounds1=11)(rounds=20, clients=10)


def test_levels_by_hand():
    """Scores 1, .9, 0, 5, 1.1, 5.2: clients 3 and 5 are noisy; of their losses 4 of 10 and none stand apart."""
    data = federation(sizes=(3, 3, 1, 10, 3, 4))
    predict_fn = partial(
        Measurements(
            task_for(data), Engine(make_oracle(task_for(data), "loop"), "loop", 1)
        ).predictions,
        data,
    )
    lid = torch.tensor([1, 0.9, 0, 5, 1.1, 5.2], dtype=D)
    loss = torch.zeros(len(data.y), dtype=D)
    loss[data.train.of_clients(np.array([3]))] = torch.tensor(
        [0.1, 4, 0.11, 4.1, 0.1, 4, 0.12, 4.2, 0.1, 0.1], dtype=D
    )
    w = torch.zeros(task_for(data).size, dtype=D)
    level = estimate_levels({"w": w, "lid": lid, "loss": loss}, data.y, predict_fn)["level"]
    assert level.tolist() == [0, 0, 0, 0.4, 0, 0]


def test_a_visit_notes_score_and_losses_of_its_client_alone():
    data = federation(sizes=(4, 6, 1))
    task = task_for(data)
    w = task.init(torch.Generator().manual_seed(0))
    predict_fn = partial(
        Measurements(task, Engine(make_oracle(task, "loop"), "loop", 1)).predictions, data
    )
    server = {"w": w, "lid": torch.tensor([1.0, 1, 1], dtype=D)}
    noted = note_visit(
        note_visit(server, np.array([1]), data.y, predict_fn, 20),
        np.array([2]),
        data.y,
        predict_fn,
        20,
    )
    rows = data.train.of_clients(np.array([1]))
    p = task.predict(w, data.x[rows]).softmax(1)
    assert noted["lid"].tolist() == pytest.approx([1, 1 + lid_by_loops(p.numpy(), 5), 1])
    applied_twice = -p.double().log_softmax(1)[torch.arange(len(rows)), data.y[rows]]
    assert torch.allclose(noted["loss"][rows], applied_twice)
    assert (noted["loss"] > 0).sum() == 7  # and the one of client 2

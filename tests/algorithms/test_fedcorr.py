"""FedCorr's parts against their definitions, and its three stages as a whole."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference_clients import local_sgd, logits_of
from scipy.special import logsumexp, softmax
from sklearn.mixture import GaussianMixture
from tools import close, federation, make, snapshots, task_for
from toy_problems import BATCHES, D, apart, cohort, vector, with_idle_clients

from fedbench.algorithms.fedcorr import pulled_gradient
from fedbench.algorithms.shared.label_noise_estimation import (
    corrected,
    mean_lid,
    nearly_clean,
)
from fedbench.algorithms.shared.mixup import MixupOracle
from fedbench.core.algorithm import Descent, Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD
from fedbench.core.randomness import one_by_one
from fedbench.core.types import Batch, Predictions
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.oracles import make_oracle

SIZES = (30, 25, 1, 40, 22, 28)
KEYS = torch.tensor([[5], [6], [7]])


def noisy_federation():
    """Clients 1 and 4 with most labels wrong."""
    data = federation(sizes=SIZES, features=5, classes=3, seed=1)
    y = data.y.clone()
    rng = np.random.default_rng(0)
    for k in (1, 4):
        rows = data.train.split()[k]
        wrong = rng.random(len(rows)) < 0.7
        y[rows[wrong]] += 1
    return data.relabelled(y % 3)


def predict_fn(data):
    task = task_for(data)
    engine = Engine(make_oracle(task, "loop"), "loop", 1)
    measurements = Measurements(task, engine)
    return partial(measurements.predictions, data)


# ---- parts


def lid_by_loops(p, neighbours):
    scores = []
    for row in p:
        distances = np.sort(np.linalg.norm(p - row, axis=1))
        nearest = distances[1 : neighbours + 1]
        ratios = nearest / (nearest[-1] + 1e-6)
        scores.append(-len(ratios) / np.log(ratios).sum())
    return np.mean(scores)


@pytest.mark.parametrize(
    ("n", "k"),
    [
        (50, 20),
        (3, 20),
    ],
)
def test_lid_is_the_one_by_loops(n, k, monkeypatch):
    monkeypatch.setattr("fedbench.algorithms.shared.label_noise_estimation._ROWS", 17)
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), n)
    lid = mean_lid(torch.from_numpy(p), k)
    want = lid_by_loops(p, min(k, n - 1))
    assert lid == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    "outputs",
    [
        torch.ones(1, 3),
        torch.tensor([[0.1, 0.9], [0.8, 0.2]]),  # its only ratio is 1 but for an offset
        torch.full((5, 3), 1 / 3),
    ],
)
def test_lid_of_too_few_or_equal_outputs_is_zero(outputs):
    assert mean_lid(outputs, 20).item() == 0


@pytest.mark.parametrize(
    ("level", "drawn"),
    [
        ([0.1, 0.2, 0.0], [0]),
        ([0.5, 0.2, 0.3], [0, 1]),
        ([0.5, 0.2, 0.0], [0, 1]),
    ],
)
def test_everybody_is_drawn_when_nobody_is_clean(level, drawn):
    """Client 2 has no training examples, so that its level says nothing."""
    two = federation(sizes=(4, 9))
    data = with_idle_clients(two, 3, 0, 1)
    server = {"level": torch.tensor(level)}

    def eligible(_):
        return nearly_clean(server)

    def method(**_):
        return [Stage(make("fedavg"), 1, eligible=eligible)]

    last = snapshots(method, data, rounds=1)[-1]
    assert last.cohort.tolist() == drawn


def test_everybody_is_visited_once_an_iteration_in_changing_order():
    n = np.array([3, 0, 5, 1, 9])
    visited = [one_by_one(t, n, 7) for t in range(40)]
    iterations = np.reshape(visited, (10, 4))
    in_order = np.sort(iterations)
    assert (in_order == [0, 2, 3, 4]).all()
    assert len(np.unique(iterations, axis=0)) > 1


def short_batch():
    """Batches of three clients, of which the last has two rows of padding."""
    gen = torch.Generator().manual_seed(0)
    counts = torch.tensor([[6], [6], [4]])
    real = torch.arange(6) < counts
    return Batch(
        x=torch.randn(3, 6, 4, generator=gen, dtype=D),
        y=torch.randint(0, 3, (3, 6), generator=gen),
        weight=real.to(D) / counts,
    )


def test_mixup_is_cross_entropy_with_mixed_labels():
    """Loss and gradient of Σ weight · CE(x̃, λ onehot(y) + (1-λ) onehot(y[π])), by autograd on what
    was drawn.
    """
    task = task_for(federation(features=4))
    batch = short_batch()
    oracle = MixupOracle(make_oracle(task, "stacked"), KEYS)
    draws = torch.Generator().manual_seed(1)
    w = torch.randn(3, task.size, dtype=D, generator=draws)
    loss, gradient = oracle.loss_and_grad(w, batch)
    assert torch.equal(oracle.grad(w, batch), gradient)

    share, one, other = oracle.mix(batch)
    for k in range(3):
        wk = w[k].clone().requires_grad_()
        first = F.one_hot(one.y[k], 3).to(D)
        second = F.one_hot(other.y[k], 3).to(D)
        labels = share[k] * first + (1 - share[k]) * second
        logits = task.predict(wk, one.x[k])
        each = F.cross_entropy(logits, labels, reduction="none")
        value = each @ batch.weight[k]
        (slope,) = torch.autograd.grad(value, wk)
        assert loss[k] == pytest.approx(value.item(), rel=1e-12)
        assert close(gradient[k], slope, 1e-12)


def test_mixup_pairs_real_examples_and_draws_anew_in_every_step():
    batch = short_batch()
    oracle = MixupOracle(None, KEYS)
    x = batch.x[2, :4]
    y = batch.y[2, :4]
    shares = []
    for t in range(50):
        step = batch._replace(step=t)
        share, one, other = oracle.mix(step)
        shares += share.flatten().tolist()
        own = share[2]
        mixed = one.x[2, :4]
        partner = (mixed - own * x) / (1 - own)
        number = torch.cdist(partner, batch.x[2]).argmin(1)
        assert sorted(number) == [0, 1, 2, 3]  # a permutation, without padding
        assert torch.equal(other.y[2, :4], y[number])
        assert torch.equal(one.y, batch.y)

    assert len(set(shares)) == 150
    assert np.mean(shares) == pytest.approx(0.5, abs=0.1)
    assert min(shares) < 0.1
    assert max(shares) > 0.9


def test_the_pull_is_of_the_norm_and_spares_the_first_batch_of_an_epoch():
    """β μ (w - w^t)/||w - w^t||, not squared: by hand with a gradient of 0 and two batches an
    epoch.
    """
    descent = Descent(SGD, pulled_gradient(5.0))
    flat = SimpleNamespace(grad=lambda w, batch: torch.zeros_like(w))
    info = cohort(1, lr=0.1, steps=4)
    info = replace(info, per_epoch=vector(2.0)).columns()
    message = {"w": vector(0.0, 0.0)}

    def step(w, t):
        local = {"mu": vector([0.3]), "w": w}
        batch = short_batch()._replace(step=t)
        return descent(flat, message, local, batch, info)["w"]

    w = vector([3.0, 4.0])
    pull = -0.1 * 5 * 0.3 * vector([0.6, 0.8])
    for t in range(4):
        after = step(w, t)
        expected = pull if t % 2 else 0 * pull
        assert torch.allclose(after - w, expected)
        w = after
    assert not step(0 * w, 1).any()


@pytest.mark.parametrize(
    ("ratio", "labels"),
    [
        (0.5, [2, 2, 2, 2]),  # the largest loss is not confident
        (1.0, [2, 1, 2, 2]),  # two largest: one is
        (None, [0, 1, 0, 2]),
    ],
)
def test_correction_takes_confident_examples_of_the_largest_losses(ratio, labels):
    """Level ½ of 4 examples: the ratio's share of the two largest losses; then every confident
    example.
    """
    data = federation(sizes=(4, 4), features=2, classes=3)
    rows = data.train.split()[1]
    data.x[rows] = vector(
        [9.0, 0.0],
        [0.0, 9.0],
        [9.0, 0.0],
        [0.01, 0.0],
    )
    y = data.y.clone()
    y[rows] = 2
    loss = torch.zeros(len(y), dtype=D)
    loss[rows] = vector(1.0, 3.0, 2.0, 4.0)
    # weights (1, 0), (0, 1) and (0, 0), and no bias
    server = {
        "w": vector(1.0, 0, 0, 1, 0, 0, 0, 0, 0),
        "level": vector(0.0, 0.5),
        "loss": loss,
    }
    after = corrected(server, y, predict_fn(data), 0.5, ratio)
    assert after[rows].tolist() == labels
    y[rows] = after[rows]
    assert torch.equal(after, y)  # no other client's label


def test_a_whole_number_of_labels_is_not_rounded_down():
    """44 · (30/44) · ½ is 15, but a little less in floating point."""
    y = torch.ones(44, dtype=torch.int64)
    sure = torch.tensor([[9.0, 0.0]]).expand(44, 2)
    server = {
        "w": vector(0.0),
        "level": vector(30 / 44),
        "loss": torch.arange(44, dtype=D),
    }

    def predict(w, ids, y):
        return Predictions(torch.arange(44), sure, y)

    after = corrected(server, y, predict, 0.5, 0.5)
    assert (after == 0).sum() == 15


# ---- the whole


class ByDefinition:
    """FedCorr without mixup, full batches (so that the pull never acts), one local step, in NumPy
    and scikit-learn.
    """

    def __init__(self, data, w, lr=0.3, sure=0.5, ratio=0.5):
        self.owned = data.train.split()
        self.counts = data.train.counts
        self.x = data.x.numpy()
        self.y = data.y.numpy().copy()
        self.w = w
        self.lr = lr
        self.sure = sure
        self.ratio = ratio
        self.lid = np.zeros(len(self.owned))
        self.levels = np.zeros(len(self.owned))

    def trained(self, k):
        rows = self.owned[k]
        x = self.x[rows]
        y = self.y[rows]
        return local_sgd(self.w, x, y, self.lr, 1)

    def outputs(self, k):
        x = self.x[self.owned[k]]
        logits = logits_of(self.w, x)
        return softmax(logits, axis=1)

    def relabel(self, k, chosen):
        p = self.outputs(k)
        confident = chosen & (p.max(1) > self.sure)
        rows = self.owned[k][confident]
        self.y[rows] = p.argmax(1)[confident]

    def iteration(self, i):
        count = len(self.owned)
        losses = {}
        for t in range(i * count, (i + 1) * count):
            (k,) = one_by_one(t, self.counts, 0)
            self.w = self.trained(k)
            p = self.outputs(k)
            others = len(p) - 1
            if others > 1:
                self.lid[k] += lid_by_loops(p, min(20, others))
            label = self.y[self.owned[k]]
            of_label = p[np.arange(len(p)), label]
            losses[k] = logsumexp(p, axis=1) - of_label

        scored = np.flatnonzero(self.lid > 0)
        self.levels[:] = 0
        for k in scored[self.high(self.lid[scored])]:
            self.levels[k] = self.high(losses[k]).mean()
        for k in np.flatnonzero(self.levels):
            count = self.counts[k]
            most = int(count * self.levels[k] * self.ratio + 1e-9)
            order = np.argsort(-losses[k], kind="stable")
            chosen = np.zeros(count, dtype=bool)
            chosen[order[:most]] = True
            self.relabel(k, chosen)

    @staticmethod
    def high(values):
        if len(np.unique(values)) < 2:
            return np.zeros(len(values), dtype=bool)
        column = values[:, None]
        mixture = GaussianMixture(n_components=2, random_state=0)
        component = mixture.fit(column).predict(column)
        return component == np.argmax(mixture.means_)

    def fedavg(self, ids, rounds):
        counts = self.counts[ids]
        p = counts / counts.sum()
        for _ in range(rounds):
            self.w = p @ [self.trained(k) for k in ids]


@pytest.mark.parametrize(("iterations", "rounds1"), [(1, 4), (3, 4), (1, 0)])
def test_the_three_stages_are_the_definition(iterations, rounds1):
    data = noisy_federation()
    first = iterations * len(SIZES)
    algo = make("fedcorr", iterations=iterations, rounds1=rounds1, mixup=False)
    work = LocalWork(0.3, None)
    start, *seen = snapshots(algo, data, rounds=first + rounds1 + 5, work=work)

    theirs = ByDefinition(data, start.server["w"].numpy())
    for i in range(iterations):
        theirs.iteration(i)
    clean = np.flatnonzero(theirs.levels <= 0.1)
    theirs.fedavg(clean, rounds=rounds1)
    for k in np.flatnonzero(theirs.levels):
        theirs.relabel(k, chosen=True)
    theirs.fedavg(np.arange(len(SIZES)), rounds=5)

    last = seen[-1]
    want = torch.from_numpy(theirs.w)
    assert close(last.server["w"], want, 1e-9)
    assert last.data.y.tolist() == theirs.y.tolist()
    assert not torch.equal(last.data.y, data.y)
    levels = seen[first - 1].server["level"]
    assert levels == pytest.approx(theirs.levels)

    stages = [s.stage for s in seen]
    assert stages == [0] * first + [1] * rounds1 + [2] * 5
    for s in seen[:first]:
        assert len(s.cohort) == 1
    for s in seen[first : first + rounds1]:
        assert s.cohort.tolist() == clean.tolist()


def test_modes_chunks_and_seeds():
    """The pull, mixup and relabelling included."""
    data = noisy_federation()
    algo = make("fedcorr", iterations=2, rounds1=3)
    how = {"rounds": 2 * len(SIZES) + 7, "work": BATCHES}

    def run(**options):
        return snapshots(algo, data, **how, **options)[-1]

    last = run()
    w = last.server["w"]
    for other in (run(mode="loop"), run(cohort_size=2, workers=2)):
        assert close(other.server["w"], w, 1e-10)
        assert torch.equal(other.data.y, last.data.y)
    again = run()
    assert torch.equal(again.server["w"], w)
    other_seed = run(seed=1)
    assert not torch.equal(other_seed.server["w"], w)


@pytest.mark.parametrize("sizes", [(9,), (1, 1, 1)])
def test_clients_whose_scores_cannot_be_separated_are_clean(sizes):
    """One client, or clients of one example."""
    data = federation(sizes=sizes)
    algo = make("fedcorr", iterations=2, rounds1=2, mixup=False)
    rounds = 2 * len(sizes) + 4
    last = snapshots(algo, data, rounds=rounds)[-1]
    assert torch.equal(last.data.y, data.y)
    assert torch.isfinite(last.server["w"]).all()


def test_the_later_stages_may_have_another_server():
    options = {
        "iterations": 0,
        "mixup": False,
        "server": make("adafed", gamma=1.0),
    }
    plain = ("adafed", {"gamma": 1.0})
    data = noisy_federation()
    assert apart(("fedcorr", options), plain, data=data) < 1e-12


def test_too_few_rounds_are_refused():
    message = "rounds=50 is too few for fedcorr: 1 iterations of a round for each of 100"
    with pytest.raises(RequestError, match=message):
        make("fedcorr")(rounds=50, clients=100)

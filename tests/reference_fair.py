"""The fair methods once more, from their definitions in NumPy, as in ``reference.py``."""

from __future__ import annotations

import itertools
from math import ceil

import numpy as np
from reference_clients import loss_and_grad

INFINITE = 1e300


def propfair(
    clients,
    w,
    M=2.0,
    eps=0.2,
    tail="huber",
    server_lr=1.0,
    weights="size",
):
    below = eps if tail == "huber" else M

    def gradient(k, v):
        loss, g = loss_and_grad(v, *clients.data[k])
        return g / (M - loss if M - loss >= eps else below)

    for lr in clients.rates:
        w = w - server_lr * clients.weights(weights) @ (w - clients.ends(w, lr, gradient))
    return w


# ---- GIFAIR-FL


def gifair(
    clients,
    w,
    share=0.5,
    form="server",
    rank_at="before",
    weights="size",
):
    p = clients.weights(weights)
    last = np.zeros(clients.count)
    for lr in clients.rates:
        now = clients.losses(w)
        ranked = now if rank_at == "before" else last
        ranks = np.sign(ranked[:, None] - ranked).sum(1)
        omega = p + share * p.min() / (clients.count - 1) * ranks  # p_k + λ r_k
        rates = np.full(clients.count, lr)
        if form == "local":
            rates = lr * omega / p
            omega = p
        delta = [w - clients.train(k, w, rate) for k, rate in enumerate(rates)]
        w = w - omega @ delta
        last = now
    return w


# ---- FedFV


def fedfv(clients, w, **options):
    for t, lr in enumerate(clients.rates, 1):
        delta = clients.updates(w, lr)
        seen = {k: (t, d) for k, d in enumerate(delta)}
        w = w - fedfv_step(delta, clients.losses(w), seen, t, **options)
    return w


def fedfv_step(
    delta,
    loss,
    seen,
    t,
    alpha=0.1,
    tau=1,
    history="code",
    server_lr=1.0,
):
    """The vector that FedFV subtracts; ``seen`` maps clients to (round, update), this one's too."""
    g = project_conflicts(delta, loss, alpha)
    if t >= tau:
        ages = range(tau - 1, -1, -1) if history == "code" else range(tau, 0, -1)
        g = external(g, seen, t, ages)
    length = np.linalg.norm(g)
    if not length:
        return g
    return server_lr * g * np.linalg.norm(np.mean(delta, 0)) / length


def project_conflicts(delta, loss, alpha):
    """The internal step as printed: the moving vector, against the original updates by loss."""
    count = len(delta)
    order = np.argsort(loss, kind="stable")
    kept = order[ceil((count - 1) * (1 - alpha) - 1e-9) :] if alpha > 0 else []
    moved = []
    for i in range(count):
        h = delta[i]
        for j in order:
            if i not in kept and j != i:
                h = without_conflict(h, delta[j])
        moved.append(h)
    return np.mean(moved, 0)


def external(
    g,
    seen,
    t,
    ages,
):
    """The external step: against the sum of those of an age that conflict."""
    for age in ages:
        conflicts = [d for last, d in seen.values() if last == t - age and g @ d < 0]
        if conflicts:
            g = without_conflict(g, np.sum(conflicts, 0))
    return g


def without_conflict(g, other):
    """Return g without its part against another vector."""
    return g - (g @ other) / (other @ other) * other if g @ other < 0 else g


# ---- FedMDFG


def fedmdfg(
    clients,
    w,
    theta=11.25,
    step="fixed",
    source="delta",
    force=True,
    s=5,
    armijo=1e-4,
    server_lr=1.0,
):
    expected = clients.losses(w)
    for t, lr in enumerate(clients.rates):
        loss = clients.losses(w)
        rose = loss > expected
        forced = force and 0 < rose.sum() < clients.count
        expected = np.where(rose, expected, (expected * t + loss) / (t + 1))
        g = clients.grads(w) if source == "gradient" else clients.updates(w, lr)
        d, raw, unit, guided = guided_direction(g, loss, theta, forced)
        base = server_lr * (lr if source == "gradient" else 1)
        size = base
        if step == "search":
            least = 2.0**-s * base * np.linalg.norm(raw) / np.linalg.norm(d)
            tried = {}
            size = 2.0**s * base
            while size >= least:
                tried[size] = clients.losses(w - size * d)
                size /= 2
            size = searched(tried, loss, armijo * unit @ d, guided)
        w = w - size * d
    return w


def searched(
    tried,
    loss,
    slope,
    guided,
):
    """The first step that is good enough, else lowers the sum, else has the smallest sum."""
    for size, after in tried.items():
        more_even = cosine(after) > cosine(loss)
        if (loss - after >= size * slope).all() and (more_even or not guided):
            return size
    for size, after in tried.items():
        if after.sum() < loss.sum():
            return size
    return min(tried, key=lambda size: tried[size].sum())


def guided_direction(
    g,
    loss,
    theta,
    forced,
    extra=(),
):
    """FedMDFG's direction: (d, its shortest point, Ĝ, whether guidance is active)."""
    length = np.linalg.norm(g, axis=1)
    unit = g * (length.mean() / length)[:, None]
    rows = list(unit)
    angle = np.degrees(np.arccos(min(1.0, cosine(loss))))
    guided = bool(angle > theta or forced)
    if guided:
        f = loss / np.linalg.norm(loss)
        one = np.full(len(loss), 1 / np.sqrt(len(loss)))
        h = (one @ f) * f - one
        if np.linalg.norm(h) > 1e-12:
            rows.append(h / np.linalg.norm(h) @ unit)
    raw = shortest(np.array([*rows, *extra]))
    return raw * np.linalg.norm(unit.mean(0)) / np.linalg.norm(raw), raw, unit, guided


def cosine(loss):
    """The cosine of the angle of losses to equal ones."""
    return loss.sum() / (np.linalg.norm(loss) * np.sqrt(len(loss)))


def shortest(rows):
    """The shortest point of the convex hull, by trying every face."""
    points = []
    for size in range(1, len(rows) + 1):
        for face in itertools.combinations(rows, size):
            g = np.array(face)
            one = np.ones((size, 1))
            system = np.block([[g @ g.T, one], [one.T, 0]])
            x = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0][:size]
            if (x > -1e-12).all():
                points.append(x @ g)
    return min(points, key=np.linalg.norm)


# ---- FedHEAL


def fedheal(
    clients,
    w,
    beta=0.4,
    threshold=0.3,
    distance="whole",
    tensors=(),
):
    plus = np.zeros(
        (clients.count, len(w))
    )  # share of the rounds in which an update was not negative
    step = np.zeros(clients.count)
    weight = clients.weights("uniform")
    cut = np.cumsum(tensors)[:-1] if distance == "tensor" else []
    for t, lr in enumerate(clients.rates):
        delta = clients.updates(w, lr)
        sign = delta >= 0
        mask = np.where(sign, plus, 1 - plus) > threshold
        if t == 0:
            mask = np.ones_like(sign)
        plus = (plus * t + sign) / (t + 1)
        sent = mask * delta
        far = [sum(np.linalg.norm(v) for v in np.split(row, cut)) for row in sent]
        far = np.array(far) if any(far) else np.ones(clients.count)
        step = (1 - beta) * step + beta * far / far.sum()
        weight = weight + step
        p = weight / weight.sum()
        for i in range(len(w)):
            total = p @ mask[:, i]
            if total:
                w[i] -= p @ sent[:, i] / total
    return w


# ---- DRFA


def drfa(
    clients,
    w,
    gamma=0.1,
    snapshot="end",
    snapshot_weights="lambda",
    floor=0.0,
    decay=1.0,
):
    mixture = clients.weights("uniform")
    stop = {"start": 0, "end": INFINITE}.get(snapshot, snapshot)
    for t, lr in enumerate(clients.rates, 1):
        seen = [
            clients.train(k, w, lr, steps=int(min(stop, clients.steps[k]))) for k in clients.all
        ]
        measured = mixture if snapshot_weights == "lambda" else clients.weights("uniform")
        loss = clients.losses(measured @ seen)
        w = mixture @ clients.ends(w, lr)
        mixture = onto_simplex(mixture + gamma * decay**t * np.mean(clients.steps) * loss)
        mixture = np.maximum(mixture, floor)
        mixture = mixture / mixture.sum()
    return w


def onto_simplex(v):
    """The projection by bisection: Σ max(v - θ, 0) = 1."""
    low = v.min() - 1
    high = v.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(v - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.maximum(v - high, 0)

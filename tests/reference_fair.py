"""The fair methods of the second wave once more, from their definitions: NumPy, one client after another.

Full batches, float64, all clients, plain loops, as in ``reference.py``; nothing is shared with the
package.
"""

from __future__ import annotations

import itertools
from math import ceil

import numpy as np

INFINITE = 1e300


def project_conflicts(delta, loss, alpha):
    """FedFV's internal step as printed: the moving vector, against the original updates in the order of the losses."""
    c = len(delta)
    order = np.argsort(loss, kind="stable")
    kept = set(order[c - (c - ceil((c - 1) * (1 - alpha) - 1e-9)) :]) if alpha > 0 else set()
    out = []
    for i in range(c):
        h = delta[i].copy()
        if i not in kept:
            for j in order:
                if j != i and delta[j] @ h < 0:
                    h = h - (delta[j] @ h) / (delta[j] @ delta[j]) * delta[j]
        out.append(h)
    return np.mean(out, 0)


def external(g, seen, t, ages):
    """FedFV's external step: ``seen`` maps clients to (round, update)."""
    for a in ages:
        conflict = [d for last, d in seen.values() if last == t - a and g @ d < 0]
        if conflict:
            s = np.sum(conflict, 0)
            if g @ s < 0:
                g = g - (g @ s) / (s @ s) * s
    return g


def fedfv_step(delta, loss, o, seen, t):
    """The vector that FedFV subtracts from the model; ``seen`` holds the updates of this round too."""
    tau = o.get("tau", 1)
    g = project_conflicts(delta, loss, o.get("alpha", 0.1))
    if t >= tau:
        ages = range(tau - 1, -1, -1) if o.get("history", "code") == "code" else range(tau, 0, -1)
        g = external(g, seen, t, ages)
    length = np.linalg.norm(g)
    return (
        o.get("server_lr", 1.0) * g * (np.linalg.norm(np.mean(delta, 0)) / length if length else 0)
    )


def ranks(loss):
    return np.array([sum(np.sign(a - b) for b in loss) for a in loss])


def gifair_weights(p, loss, share):
    """p_k + λ r_k."""
    return p + (share * p.min() / (len(p) - 1) if len(p) > 1 else 0) * ranks(loss)


def shortest(rows):
    """The shortest point of the convex hull, by trying every face."""
    best = None
    for size in range(1, len(rows) + 1):
        for face in itertools.combinations(range(len(rows)), size):
            g = rows[list(face)]
            k = np.block([[g @ g.T, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            x = np.linalg.lstsq(k, np.append(np.zeros(size), 1.0), rcond=None)[0][:size]
            d = x @ g
            if (x > -1e-12).all() and (best is None or d @ d < best @ best):
                best = d
    return best


def angle(loss):
    return np.degrees(np.arccos(min(1.0, loss.sum() / (np.linalg.norm(loss) * np.sqrt(len(loss))))))


def guided_direction(g, loss, theta, force, extra=()):
    """FedMDFG's direction: (d, its shortest point, Ĝ, whether guidance is active)."""
    length = np.linalg.norm(g, axis=1)
    unit = g * (length.mean() / length)[:, None]
    rows = list(unit)
    active = angle(loss) > theta or force
    if active:
        f, one = loss / np.linalg.norm(loss), np.full(len(loss), 1 / np.sqrt(len(loss)))
        h = (one @ f) * f - one
        if np.linalg.norm(h) > 1e-12:
            rows.append(h / np.linalg.norm(h) @ unit)
    raw = shortest(np.array([*rows, *extra]))
    return raw * np.linalg.norm(unit.mean(0)) / np.linalg.norm(raw), raw, unit, active


class Guided:
    """FedMDFG's server, all clients."""

    def __init__(self, o, count):
        self.o, self.expected, self.count, self.clients = o, None, 0, count

    def step(self, w, g, loss, lr, losses):
        """The next model; ``losses`` maps a model to all losses."""
        o, force = self.o, False
        if self.expected is None:
            self.expected = loss.copy()
        else:
            rose = loss > self.expected
            force = bool(o.get("force", True) and 0 < rose.sum() < self.clients)
            self.expected = np.where(
                rose, self.expected, (self.expected * self.count + loss) / (self.count + 1)
            )
        self.count += 1
        d, raw, unit, active = guided_direction(g, loss, o.get("theta", 11.25), force)
        base = o.get("server_lr", 1.0) * (lr if o.get("source") == "gradient" else 1)
        if o.get("step", "fixed") == "fixed":
            return w - base * d
        s, a, tried = o.get("s", 5), 2.0 ** o.get("s", 5) * base, []
        while a >= 2.0**-s * base * np.linalg.norm(raw) / np.linalg.norm(d):
            after = losses(w - a * d)
            enough = (loss - after >= a * o.get("armijo", 1e-4) * unit @ d).all()
            if enough and (not active or angle_cosine(after) > angle_cosine(loss)):
                return w - a * d
            tried.append((a, after.sum()))
            a /= 2
        a = next(
            (a for a, total in tried if total < loss.sum()), min(tried, key=lambda pair: pair[1])[0]
        )
        return w - a * d


def angle_cosine(loss):
    return loss.sum() / np.linalg.norm(loss)


def heal(clients, w, rounds, ends, o):
    """FedHEAL; ``ends`` maps a model to the local models."""
    count, beta, threshold = len(clients), o.get("beta", 0.4), o.get("threshold", 0.3)
    share, step, weight = np.zeros((count, len(w))), np.zeros(count), np.full(count, 1 / count)
    for t in range(rounds):
        delta = np.array([w - e for e in ends(w)])
        mask = np.ones_like(delta)
        for k in range(count):
            for i in range(len(w)):
                yes = delta[k, i] >= 0
                if t:
                    mask[k, i] = (share[k, i] if yes else 1 - share[k, i]) > threshold
                share[k, i] = (share[k, i] * t + yes) / (t + 1)
        sent = mask * delta
        cut = np.cumsum(o["tensors"])[:-1] if o.get("distance") == "tensor" else []
        far = np.array([sum(np.linalg.norm(v) for v in np.split(row, cut)) for row in sent])
        step = (1 - beta) * step + beta * (
            far / far.sum() if far.sum() else np.full(count, 1 / count)
        )
        weight = weight + step
        p = weight / weight.sum()
        for i in range(len(w)):
            total = (p * mask[:, i]).sum()
            if total:
                w[i] -= (p * sent[:, i]).sum() / total
    return w


def robust(clients, w, rounds, iterates, losses, onto_simplex, o):
    """DRFA; ``iterates`` maps a model to every client's iterates [τ_k + 1, P], ``losses`` one to all losses."""
    count, snapshot = len(clients), o.get("snapshot", "end")
    lam = np.full(count, 1 / count)
    for t in range(1, rounds + 1):
        paths = iterates(w)
        steps = np.mean([len(path) - 1 for path in paths])
        at = {"start": 0, "end": INFINITE}.get(snapshot, snapshot)
        weights = (
            lam if o.get("snapshot_weights", "lambda") == "lambda" else np.full(count, 1 / count)
        )
        seen = weights @ np.array([path[int(min(at, len(path) - 1))] for path in paths])
        w = lam @ np.array([path[-1] for path in paths])
        lam = onto_simplex(
            lam + o.get("gamma", 0.1) * o.get("decay", 1.0) ** t * steps * losses(seen)
        )
        lam = np.maximum(lam, o.get("floor", 0.0))
        lam = lam / lam.sum()
    return w

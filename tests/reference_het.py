"""The methods for heterogeneous clients and the personal ones once more, from their definitions: NumPy, plain loops.

Full batches, float64, all clients, as in ``reference.py``; nothing is shared with the package.
``grad(k, w)`` is the gradient of client k; ``rates`` has the local rate of every round.
"""

from __future__ import annotations

import numpy as np

METHODS = (
    "feddyn",
    "fedexp",
    "fedcm",
    "mimelite",
    "fedsam",
    "mofedsam",
    "fedspeed",
    "pfedme",
    "apfl",
)


def share(clients, o, default):
    n = np.array([len(y) for _, y in clients], dtype=float)
    return n / n.sum() if o.get("weights", default) == "size" else np.full(len(n), 1 / len(n))


def descend(gradient, w, lr, steps, solver):
    """Steps of a local solver in the order of torch.optim.SGD."""
    rho, b = solver.get("momentum", 0.0), None
    for _ in range(steps):
        g = gradient(w)
        if solver.get("clip") is not None:
            g = g * min(1.0, solver["clip"] / max(np.linalg.norm(g), 1e-300))
        g = g + solver.get("decay", 0.0) * w
        b = g if b is None else rho * b + g
        w = w - lr * (g + rho * b if solver.get("nesterov") else b)
    return w


def climbed(grad, k, w, rho):
    """ŵ."""
    g = grad(k, w)
    return w + rho * g / np.linalg.norm(g) if np.linalg.norm(g) else w


def feddyn(grad, clients, w, rates, steps, solver, o):
    """In the paper's letters: linear terms l_k, and h = -α ū."""
    c, alpha = len(clients), o.get("alpha", 0.01)
    n = np.array([len(y) for _, y in clients], dtype=float)
    each = alpha / (c * n / n.sum()) if o.get("weights") == "size" else np.full(c, alpha)
    linear, shown = [np.zeros_like(w) for _ in clients], w
    for lr in rates:
        ends = []
        for k, tau in enumerate(steps):
            v = w.copy()
            for _ in range(tau):
                v = v - lr * (grad(k, v) - linear[k] + each[k] * (v - w))
            linear[k] = linear[k] - each[k] * (v - w)
            ends.append(v)
        shown = np.mean(ends, 0)
        w = shown - np.mean([lk / a for lk, a in zip(linear, each, strict=True)], 0)
    return shown if o.get("deploy") == "mean" else w


def fedexp(grad, clients, w, rates, steps, solver, o):
    p, before, shown = share(clients, o, "size"), None, w
    floor = o.get("eps", 0.001) * (len(clients) if o.get("eps_per_client") else 1)
    for lr in rates:
        delta = [
            w - descend(lambda v, k=k: grad(k, v), w, lr, tau, solver)
            for k, tau in enumerate(steps)
        ]
        d = sum(pk * dk for pk, dk in zip(p, delta, strict=True))
        eta = max(
            1.0,
            sum(pk * (dk @ dk) for pk, dk in zip(p, delta, strict=True)) / (2 * (d @ d + floor)),
        )
        before, w = w if before is not None else w - eta * d, w - eta * d
        shown = (before + w) / 2
    return shown if o.get("average", True) else w


def fedcm(grad, clients, w, rates, steps, solver, o, rho=0.0):
    p, m, alpha = share(clients, o, "uniform"), np.zeros_like(w), o.get("alpha", 0.1)
    for lr in rates:
        ends = []
        for k, tau in enumerate(steps):
            v = w.copy()
            for _ in range(tau):
                v = v - lr * (alpha * grad(k, climbed(grad, k, v, rho)) + (1 - alpha) * m)
            ends.append(v)
        m = sum(pk * (w - v) / (lr * tau) for pk, v, tau in zip(p, ends, steps, strict=True))
        w = w - o.get("server_lr", 1.0) * sum(pk * (w - v) for pk, v in zip(p, ends, strict=True))
    return w


def mofedsam(grad, clients, w, rates, steps, solver, o):
    return fedcm(grad, clients, w, rates, steps, solver, o, rho=o.get("rho", 0.1))


def mimelite(grad, clients, w, rates, steps, solver, o):
    p, m, s = share(clients, o, "uniform"), np.zeros_like(w), np.zeros_like(w)
    b1, b2, eps = o.get("beta1", 0.9), o.get("beta2", 0.99), o.get("eps", 1e-3)
    for lr in rates:
        under = np.sqrt(s) + eps if o.get("base") == "adam" else 1.0
        c = sum(pk * grad(k, w) for k, pk in enumerate(p))
        ends = []
        for k, tau in enumerate(steps):
            v = w.copy()
            for _ in range(tau):
                v = v - lr * ((1 - b1) * grad(k, v) + b1 * m) / under
            ends.append(v)
        w = w - o.get("server_lr", 1.0) * sum(pk * (w - v) for pk, v in zip(p, ends, strict=True))
        m, s = b1 * m + (1 - b1) * c, b2 * s + (1 - b2) * c * c
    return w


def fedsam(grad, clients, w, rates, steps, solver, o):
    p, rho = share(clients, o, "uniform"), o.get("rho", 0.1)
    for lr in rates:
        ends = [
            descend(lambda v, k=k: grad(k, climbed(grad, k, v, rho)), w, lr, tau, solver)
            for k, tau in enumerate(steps)
        ]
        w = w - o.get("server_lr", 1.0) * sum(pk * (w - v) for pk, v in zip(p, ends, strict=True))
    return w


def fedspeed(grad, clients, w, rates, steps, solver, o):
    prox, a, rho = o.get("prox", 0.1), o.get("alpha", 1.0), o.get("rho", 0.1)
    u = [np.zeros_like(w) for _ in clients]
    for lr in rates:
        sent = []
        for k, tau in enumerate(steps):
            v = w.copy()
            for _ in range(tau):
                g = (1 - a) * grad(k, v) + a * grad(k, climbed(grad, k, v, rho))
                v = v - lr * (g + prox * (v - w + u[k]))
            u[k] = u[k] + v - w
            sent.append(v + u[k])
        w = np.mean(sent, 0)
    return w


def pfedme(grad, clients, w, rates, steps, solver, o):
    p, lam, own = share(clients, o, "size"), o.get("lam", 15.0), [w.copy() for _ in clients]
    for lr in rates:
        ends = []
        for k, tau in enumerate(steps):
            x, theta = w.copy(), w.copy()
            for _ in range(tau):
                theta = x if o.get("start") == "reset" else theta
                for _ in range(o.get("inner", 5)):
                    theta = theta - o.get("personal_lr", 0.09) * (
                        grad(k, theta) + lam * (theta - x)
                    )
                x = x - lr * lam * (x - theta)
            own[k] = theta
            ends.append(x)
        beta = o.get("beta", 1.0)
        w = (1 - beta) * w + beta * sum(pk * x for pk, x in zip(p, ends, strict=True))
    return w, np.array(own)


def apfl(grad, clients, w, rates, steps, solver, o):
    p, own, mix = (
        share(clients, o, "size"),
        [w.copy() for _ in clients],
        [o.get("alpha", 0.5)] * len(clients),
    )
    for lr in rates:
        ends = []
        for k, tau in enumerate(steps):
            x, v = w.copy(), own[k]
            for t in range(tau):
                if t == 0 and o.get("adaptive"):
                    slope = (v - x) @ grad(k, mix[k] * v + (1 - mix[k]) * x)
                    mix[k] = min(1.0, max(0.0, mix[k] - lr * slope))
                y = mix[k] * v + (1 - mix[k]) * x
                x, v = x - lr * grad(k, x), v - lr * mix[k] * grad(k, y)
            own[k] = v
            ends.append(x)
        w = sum(pk * x for pk, x in zip(p, ends, strict=True))
    return w, np.array([a * v + (1 - a) * w for a, v in zip(mix, own, strict=True)])

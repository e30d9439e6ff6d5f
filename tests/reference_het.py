"""The methods for heterogeneous clients and the personal ones, as in ``reference.py``."""

from __future__ import annotations

import numpy as np


def climbed(
    clients,
    k,
    w,
    rho,
):
    """ŵ."""
    g = clients.grad(k, w)
    return w + rho * g / np.linalg.norm(g) if g.any() else w


def feddyn(
    clients,
    w,
    alpha=0.01,
    weights="uniform",
    deploy="server",
    examples=(),
):
    """In the paper's letters: linear terms l_k, and h = -α ū."""
    scale = np.full(clients.count, alpha)
    if weights == "size":
        scale = alpha / (clients.count * clients.weights("size"))
    scale = scale[:, None]
    linear = np.zeros((clients.count, len(w)))

    def gradient(k, v):
        return clients.grad(k, v) - linear[k] + scale[k] * (v - w)

    for lr in clients.rates:
        ends = clients.ends(w, lr, gradient)
        linear = linear - scale * (ends - w)
        mean = ends.mean(0)
        w = mean - (linear / scale).mean(0)
    return mean if deploy == "mean" else w


def fedexp(
    clients,
    w,
    eps=0.001,
    eps_per_client=False,
    average=True,
    weights="size",
):
    p = clients.weights(weights)
    floor = eps * (clients.count if eps_per_client else 1)
    models = []
    for lr in clients.rates:
        delta = clients.updates(w, lr)
        d = p @ delta
        eta = p @ (delta**2).sum(1) / (2 * (d @ d + floor))
        w = w - max(1.0, eta) * d
        models.append(w)
    return np.mean(models[-2:], 0) if average else w


def fedcm(
    clients,
    w,
    alpha=0.1,
    server_lr=1.0,
    weights="uniform",
    rho=0.0,
):
    p = clients.weights(weights)
    m = 0.0

    def gradient(k, v):
        return alpha * clients.grad(k, climbed(clients, k, v, rho)) + (1 - alpha) * m

    for lr in clients.rates:
        delta = w - clients.ends(w, lr, gradient)
        m = p @ (delta / (lr * np.array(clients.steps)[:, None]))
        w = w - server_lr * p @ delta
    return w


def mofedsam(clients, w, rho=0.1, **options):
    return fedcm(clients, w, rho=rho, **options)


def mimelite(
    clients,
    w,
    base="momentum",
    beta1=0.9,
    beta2=0.99,
    eps=1e-3,
    server_lr=1.0,
    weights="uniform",
):
    p = clients.weights(weights)
    m = s = np.zeros_like(w)

    def gradient(k, v):
        root = np.sqrt(s) + eps if base == "adam" else 1.0
        return ((1 - beta1) * clients.grad(k, v) + beta1 * m) / root

    for lr in clients.rates:
        delta = w - clients.ends(w, lr, gradient)
        g = p @ clients.grads(w)
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g * g
        w = w - server_lr * p @ delta
    return w


def fedsam(
    clients,
    w,
    rho=0.1,
    server_lr=1.0,
    weights="uniform",
):
    def gradient(k, v):
        return clients.grad(k, climbed(clients, k, v, rho))

    for lr in clients.rates:
        w = w - server_lr * clients.weights(weights) @ (w - clients.ends(w, lr, gradient))
    return w


def fedspeed(
    clients,
    w,
    prox=0.1,
    alpha=1.0,
    rho=0.1,
    server="cohort",
):
    u = np.zeros((clients.count, len(w)))

    def gradient(k, v):
        g = (1 - alpha) * clients.grad(k, v) + alpha * clients.grad(k, climbed(clients, k, v, rho))
        return g + prox * (v - w + u[k])

    for lr in clients.rates:
        ends = clients.ends(w, lr, gradient)
        u = u + ends - w
        w = np.mean(ends + u, 0)
    return w


def pfedme(
    clients,
    w,
    lam=15.0,
    inner=5,
    personal_lr=0.09,
    beta=1.0,
    start="warm",
    weights="size",
):
    for lr in clients.rates:
        own = []
        ends = []
        for k in clients.all:
            x = theta = w
            for _ in range(clients.steps[k]):
                theta = x if start == "reset" else theta
                for _ in range(inner):
                    theta = theta - personal_lr * (clients.grad(k, theta) + lam * (theta - x))
                x = x - lr * lam * (x - theta)
            own.append(theta)
            ends.append(x)
        w = (1 - beta) * w + beta * clients.weights(weights) @ ends
    return w, np.array(own)


def local(clients, w):
    """As a method without personal parts, which the run adds."""
    for lr in clients.rates:
        w = w - clients.weights("uniform") @ clients.updates(w, lr)
    return w


def fedamp(clients, w, alpha=1e4, lam=1.0, sigma=1e6):
    own = [w] * clients.count
    for lr in clients.rates:
        ends = []
        for k in clients.all:
            mixture = own[k].copy()
            for j in clients.all:
                if j != k:
                    near = np.exp(-np.sum((own[k] - own[j]) ** 2) / sigma)
                    mixture += alpha * near / sigma * (own[j] - own[k])

            def pulled(k, v, mixture=mixture):
                return clients.grad(k, v) + lam / alpha * (v - mixture)

            ends.append(clients.train(k, own[k], lr, pulled))
        own = ends
    return np.mean(own, 0), np.array(own)


def apfl(
    clients,
    w,
    alpha=0.5,
    adaptive=False,
    weights="size",
):
    own = [w] * clients.count
    share = np.full((clients.count, 1), alpha)
    for lr in clients.rates:
        ends = []
        for k in clients.all:
            x = w
            for t in range(clients.steps[k]):
                if t == 0 and adaptive:
                    mixed = share[k] * own[k] + (1 - share[k]) * x
                    slope = (own[k] - x) @ clients.grad(k, mixed)
                    share[k] = np.clip(share[k] - lr * slope, 0.0, 1.0)
                mixed = share[k] * own[k] + (1 - share[k]) * x
                x = x - lr * clients.grad(k, x)
                own[k] = own[k] - lr * share[k] * clients.grad(k, mixed)
            ends.append(x)
        w = clients.weights(weights) @ ends
    return w, share * own + (1 - share) * w

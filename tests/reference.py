"""The methods once more, written from their definitions: softmax regression in NumPy, one client after another.

Full batches, float64, all clients, plain loops; nothing is shared with the package.
"""

from __future__ import annotations

import numpy as np


def loss_and_grad(w, x, y):
    """Mean cross-entropy and its gradient; w = (weight [K, D], bias [K]) as one vector."""
    k = y.max() + 1 if w.ndim == 0 else len(w) // (x.shape[1] + 1)
    weight, bias = w[: k * x.shape[1]].reshape(k, -1), w[k * x.shape[1] :]
    z = x @ weight.T + bias
    z -= z.max(1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    return loss, np.concatenate([(p.T @ x).ravel(), p.sum(0)])


def local_sgd(w, x, y, lr, steps, momentum=0.0, nesterov=False, decay=0.0, mu=0.0, clip=None):
    """Full-batch steps from w in the order of torch.optim.SGD, with FedProx's term."""
    start, b = w.copy(), None
    for _ in range(steps):
        g = loss_and_grad(w, x, y)[1] + mu * (w - start)
        if clip is not None and np.linalg.norm(g) > clip:
            g = g * clip / np.linalg.norm(g)
        g = g + decay * w
        if momentum:
            b = g if b is None else momentum * b + g
            g = g + momentum * b if nesterov else b
        w = w - lr * g
    return w


def run(name, clients, w, rounds, lr, steps, solver=None, **o):
    """Run a method; ``clients`` is a list of (x, y), ``steps`` one number of local steps per client."""
    solver = solver or {}
    n = np.array([len(y) for _, y in clients], dtype=float)
    p = n / n.sum() if o.get("weights", "size") == "size" else np.full(len(n), 1 / len(n))
    w0, s = w.copy(), {"m": np.zeros_like(w), "v": None, "cm": 1.0, "cv": 1.0, "t": 0}
    mu = o.get("mu", 0.1) if name == "fedprox" else 0.0
    for _ in range(rounds):
        before = [loss_and_grad(w, x, y) for x, y in clients]
        delta = [
            w - local_sgd(w.copy(), x, y, lr, tau, mu=mu, **solver) for (x, y), tau in zip(clients, steps, strict=True)
        ]
        d = sum(pk * dk for pk, dk in zip(p, delta, strict=True))
        s["t"] += 1
        if name in ("fedavg", "fedprox"):
            w = w - o.get("server_lr", 1.0) * d
        elif name == "fedavgm":
            beta = o.get("beta", 0.9)
            s["m"] = beta * s["m"] + d
            w = w - o.get("server_lr", 1.0) * (d + beta * s["m"] if o.get("nesterov") else s["m"])
        elif name == "fedadam":
            w = w - o.get("server_lr", 0.1) * _adam(s, d, o)
        elif name == "fednova":
            a = np.array([_counted(tau, **solver) for tau in steps])
            d = (p * a).sum() * sum(pk * dk / ak for pk, dk, ak in zip(p, delta, a, strict=True))
            s["m"] = o.get("server_momentum", 0.0) * s["m"] + d
            w = w - s["m"]
        elif name == "qfedavg":
            q, big = o.get("q", 1.0), o.get("L") or 1 / lr
            f = np.array([b[0] for b in before]) + 1e-10
            g = [big * dk for dk in delta]
            h = [q * fk ** (q - 1) * (gk @ gk) + big * fk**q for fk, gk in zip(f, g, strict=True)]
            w = w - sum(fk**q * gk for fk, gk in zip(f, g, strict=True)) / sum(h)
        elif name == "adafedadam":
            w = w - _adafedadam_step(s, o, n, before, delta, lr, [loss_and_grad(w0, x, y)[0] for x, y in clients])
        else:
            raise AssertionError(name)
    return w


def _adam(s, d, o):
    b1, b2, tau = o.get("beta1", 0.9), o.get("beta2", 0.99), o.get("tau", 1e-3)
    if s["v"] is None:
        s["v"] = np.full_like(d, tau**2 if o.get("v0") is None else o["v0"])
    s["m"] = b1 * s["m"] + (1 - b1) * d
    s["v"] = b2 * s["v"] + (1 - b2) * d**2
    m, v = s["m"], s["v"]
    if o.get("bias_correction"):
        m, v = m / (1 - b1 ** s["t"]), v / (1 - b2 ** s["t"])
    return m / np.sqrt(v + tau) if o.get("eps_inside") else m / (np.sqrt(v) + tau)


def _counted(tau, momentum=0.0, nesterov=False, decay=0.0, clip=None):
    """How far a constant unit gradient carries in tau steps of rate 1, by doing it."""
    b = total = 0.0
    for _ in range(tau):
        b = momentum * b + 1
        total += 1 + momentum * b if nesterov else b
    return total


def _adafedadam_step(s, o, n, before, delta, lr, initial):
    alpha, eta, scale = o.get("alpha", 1.0), o.get("server_lr", 1e-3), o.get("step_scale", "certainty")
    f = np.array([b[0] for b in before])
    if alpha != int(alpha):
        f = f + 1e-10
    if o.get("inverse_rate", "loss") == "ratio":
        f = f / (np.array(initial) + 1e-10)
    omega = n * f**alpha
    omega = omega / omega.sum()
    u, chi = [], []
    for (_, g), dk in zip(before, delta, strict=True):
        if np.linalg.norm(g) == 0 or np.linalg.norm(dk) == 0:
            u.append(np.zeros_like(dk))
            chi.append(1.0)
            continue
        r = np.linalg.norm(dk) / np.linalg.norm(g)
        u.append(dk / r)
        chi.append(max(np.log(r / lr) + 1, 0.1))
    g = sum(ok * uk for ok, uk in zip(omega, u, strict=True))
    c = float(omega @ np.array(chi))
    b1, b2 = 0.9**c, 0.999**c
    s["cm"], s["cv"] = s["cm"] * b1, s["cv"] * b2
    s["v"] = np.zeros_like(g) if s["v"] is None else s["v"]
    s["m"] = b1 * s["m"] + (1 - b1) * g
    s["v"] = b2 * s["v"] + (1 - b2) * g**2
    if scale == "one" or (scale == "certainty_after_6" and s["t"] <= 6):
        c = 1.0
    return c * eta * (s["m"] / (1 - s["cm"])) / (np.sqrt(s["v"] / (1 - s["cv"])) + 1e-8)

"""The methods once more, written from their definitions: softmax regression in NumPy, one client after another.

Full batches, float64, all clients, plain loops; nothing is shared with the package.
"""

from __future__ import annotations

import itertools

import numpy as np
import reference_het
from reference_fair import Guided, fedfv_step, gifair_weights, heal, robust


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


def rates(lr, rounds):
    """The local rate of every round; ``lr`` is a number, or a function of the number of rounds before."""
    return [lr(t) if callable(lr) else lr for t in range(rounds)]


def run(name, clients, w, rounds, lr, steps, solver=None, **o):
    """Run a method; ``clients`` is a list of (x, y), ``steps`` one number of local steps per client.

    Returns the global model, and for methods that have them the clients' own models.
    """
    solver = solver or {}
    if name in OTHERS:
        return OTHERS[name](clients, w.copy(), rounds, lr, steps, solver, o)
    n = np.array([len(y) for _, y in clients], dtype=float)
    base = {"fedams": "uniform", "term": "uniform", "fedfa": "uniform", "scaffold": "uniform"}.get(
        name, "size"
    )
    p = (
        n / n.sum()
        if o.get("weights", o.get("prior", base)) == "size"
        else np.full(len(n), 1 / len(n))
    )
    w0, s = w.copy(), {"m": np.zeros_like(w), "v": None, "cm": 1.0, "cv": 1.0, "t": 0}
    mu = o.get("mu", 0.1) if name == "fedprox" else 0.0
    if name == "fedfa":
        solver = {**solver, "momentum": o.get("gamma_c", 0.9)}
    lam = np.full(len(n), 1 / len(n))
    averaged, own = [], [w.copy() for _ in clients]
    every = rates(lr, rounds)
    for lr in every:
        before = [loss_and_grad(w, x, y) for x, y in clients]
        ends = [
            local_sgd(w.copy(), x, y, lr, tau, mu=mu, **solver)
            for (x, y), tau in zip(clients, steps, strict=True)
        ]
        delta = [w - e for e in ends]
        d = sum(pk * dk for pk, dk in zip(p, delta, strict=True))
        s["t"] += 1
        if name in ("fedavg", "fedprox", "fedcorr"):  # FedCorr's later stages alone, without mixup
            w = w - o.get("server_lr", 1.0) * d
        elif name == "ditto":
            more = (
                steps if o.get("personal_epochs") is None else [o["personal_epochs"]] * len(steps)
            )
            rate = o.get("personal_lr") or lr
            own = [
                _towards(v, w, x, y, rate, tau, o.get("lam", 0.1), solver)
                for v, (x, y), tau in zip(own, clients, more, strict=True)
            ]
            w = w - d
        elif name == "fedavgm":
            beta = o.get("beta", 0.9)
            s["m"] = beta * s["m"] + d
            w = w - o.get("server_lr", 1.0) * (d + beta * s["m"] if o.get("nesterov") else s["m"])
        elif name == "fedadam":
            w = w - o.get("server_lr", 0.1) * _adam(s, d, o)
        elif name in ("fedadagrad", "fedyogi"):
            b1, tau = o.get("beta1", 0.0 if name == "fedadagrad" else 0.9), o.get("tau", 1e-3)
            v = (
                np.full_like(d, tau**2 if o.get("v0") is None else o["v0"])
                if s["v"] is None
                else s["v"]
            )
            rest = 1 - o.get("beta2", 0.99)
            s["v"] = v + d * d if name == "fedadagrad" else v - rest * d * d * np.sign(v - d * d)
            s["m"] = b1 * s["m"] + (1 - b1) * d
            w = w - o.get("server_lr", 0.1) * s["m"] / (np.sqrt(s["v"]) + tau)
        elif name == "fedams":
            w = w - o.get("server_lr", 0.1) * _amsgrad(s, d, o)
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
        elif name == "term":
            omega = p * np.exp(o.get("t", 1.0) * np.array([b[0] for b in before]))
            w = w - o.get("server_lr", 1.0) * (omega / omega.sum()) @ np.array(delta)
        elif name == "afl":
            w = w - lam @ np.array(delta)
            lam = onto_simplex(lam + o.get("lr_lambda", 0.1) * np.array([b[0] for b in before]))
            averaged.append(w)
        elif name == "fedmgda":
            length = np.array([np.linalg.norm(dk) for dk in delta])
            g = np.array(delta) / (length[:, None] if o.get("normalize", True) else 1)
            eps = o.get("eps", 0.5)
            found = box_simplex(g @ g.T, np.maximum(p - eps, 0), np.minimum(p + eps, 1))
            w = w - o.get("server_lr", 1.0) * found @ g
        elif name == "adafed":
            at = (
                before
                if o.get("loss_at", "before") == "before"
                else [loss_and_grad(e, x, y) for e, (x, y) in zip(ends, clients, strict=True)]
            )
            f = np.array([b[0] for b in at])
            if o.get("normalize_loss") == "mean":
                f = f / f.mean()
            w = w - o.get("server_lr", 1.0) * gram_schmidt(delta, f ** o.get("gamma", 1.0))
        elif name == "fedfa":
            w = _fedfa(s, o, w, ends, clients, lr)
        elif name == "adafedadam":
            w = w - _adafedadam_step(
                s, o, n, before, delta, lr, [loss_and_grad(w0, x, y)[0] for x, y in clients]
            )
        else:
            raise AssertionError(
                f"{name} has no definition in tests/reference.py: add a branch to run, or to OTHERS"
            )
    if o.get("average"):
        w = np.mean(averaged, 0)
    return (w, np.array(own)) if name == "ditto" else w


def onto_simplex(v):
    """The projection by bisection: Σ max(v - θ, 0) = 1."""
    low, high = v.min() - 1, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(v - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(v - high, 0)


def box_simplex(k, low, high):
    """argmin λᵀKλ over Σλ = 1, low <= λ <= high, by trying every set of active bounds."""
    best, value, c = None, np.inf, len(k)
    for state in itertools.product((0, 1, 2), repeat=c):  # 0: at low, 1: at high, 2: free
        state = np.array(state)
        x = np.where(state == 0, low, high)
        free = np.flatnonzero(state == 2)
        fixed = np.flatnonzero(state != 2)
        if len(free):
            a = np.zeros((len(free) + 1, len(free) + 1))
            a[:-1, :-1], a[:-1, -1], a[-1, :-1] = k[np.ix_(free, free)], 1, 1
            right = np.append(-k[np.ix_(free, fixed)] @ x[fixed], 1 - x[fixed].sum())
            x[free] = np.linalg.solve(a, right)[:-1]
        inside = abs(x.sum() - 1) < 1e-9 and (x > low - 1e-12).all() and (x < high + 1e-12).all()
        if inside and x @ k @ x < value:
            best, value = x, x @ k @ x
    return best


def gram_schmidt(g, s):
    """AdaFed's direction as printed: Eqs. 5-6, 14, one client after another."""
    done = []
    for gk, sk in zip(g, s, strict=True):
        top = gk - sum((gk @ e) / (e @ e) * e for e in done)
        done.append(top / (sk - sum((gk @ e) / (e @ e) for e in done)))
    inverse = np.array([1 / (e @ e) for e in done])
    return (inverse / inverse.sum()) @ np.array(done)


def _accuracy(w, x, y):
    k = len(w) // (x.shape[1] + 1)
    return (
        np.argmax(x @ w[: k * x.shape[1]].reshape(k, -1).T + w[k * x.shape[1] :], 1) == y
    ).mean()


def _fedfa(s, o, w, ends, clients, lr):
    judged = ends if o.get("acc_at", "after") == "after" else [w] * len(ends)
    acc = np.array([_accuracy(e, x, y) for e, (x, y) in zip(judged, clients, strict=True)])
    c, count = o.get("c", 1e-6), len(ends)
    a = (
        np.array([c if v == 0 else v / acc.sum() for v in acc])
        if acc.sum()
        else np.full(count, 1 / count)
    )
    f = np.full(count, 1 / count)  # everybody took part equally often
    bits = [-np.log2(a), -np.log2(np.where(f < 1, 1 - f, c))]
    bits = [v / v.sum() if v.sum() else np.full(count, 1 / count) for v in bits]
    omega = o.get("alpha", 0.5) * bits[0] + o.get("beta", 0.5) * bits[1]
    mean = omega @ np.array(ends)
    gamma = o.get("gamma_s", 0.5)
    s["m"] = gamma * s["m"] + (1 - gamma) * (mean - w)
    rate = lr if o.get("server_lr") is None else o["server_lr"]
    return mean + o.get("server_sign", -1) * rate * s["m"] if s["t"] % o.get("b", 1) == 0 else mean


def _towards(v, anchor, x, y, lr, steps, lam, solver):
    """Ditto's personal steps; momentum starts from zero."""
    b, rho = None, solver.get("momentum", 0.0)
    for _ in range(steps):
        g = loss_and_grad(v, x, y)[1] + lam * (v - anchor)
        clip = solver.get("clip")
        if clip is not None and np.linalg.norm(g) > clip:
            g = g * clip / np.linalg.norm(g)
        g = g + solver.get("decay", 0.0) * v
        if rho:
            b = g if b is None else rho * b + g
            g = g + rho * b if solver.get("nesterov") else b
        v = v - lr * g
    return v


def _shaped(w, x, y, solver):
    g = loss_and_grad(w, x, y)[1]
    clip = solver.get("clip")
    if clip is not None and np.linalg.norm(g) > clip:
        g = g * clip / np.linalg.norm(g)
    return g + solver.get("decay", 0.0) * w


def _scaffold(clients, w, rounds, lr, steps, solver, o):
    c, mine = np.zeros_like(w), [np.zeros_like(w) for _ in clients]
    every = rates(lr, rounds)
    for lr in every:
        ends, new = [], []
        for (x, y), tau, ck in zip(clients, steps, mine, strict=True):
            v, b = w.copy(), np.zeros_like(w)
            for _ in range(tau):
                g = loss_and_grad(v, x, y)[1] + c - ck
                clip = solver.get("clip")
                if clip is not None and np.linalg.norm(g) > clip:
                    g = g * clip / np.linalg.norm(g)
                b = solver.get("momentum", 0.0) * b + g + solver.get("decay", 0.0) * v
                v = v - lr * (b if not solver.get("nesterov") else g + solver["momentum"] * b)
            ends.append(v)
            new.append(
                loss_and_grad(w, x, y)[1]
                if o.get("option", 2) == 1
                else ck - c + (w - v) / (tau * lr)
            )
        w = w - o.get("server_lr", 1.0) * (w - np.mean(ends, 0))
        mine, c = new, np.mean(new, 0)  # everybody takes part: the mean is the running sum
    return w


def _naive(clients, w, rounds, lr, steps, solver, o):
    beta, mine = o.get("beta", 0.5), [np.zeros_like(w) for _ in clients]
    every = rates(lr, rounds)
    for lr in every:
        ends = []
        for k, ((x, y), tau) in enumerate(zip(clients, steps, strict=True)):
            v = w.copy()
            for _ in range(tau):
                g = _shaped(v, x, y, solver)
                mine[k] = beta * mine[k] + (1 - beta) * g * g
                v = v - lr * g / (np.sqrt(mine[k]) + o.get("eps", 0.0))
            ends.append(v)
        w = np.mean(ends, 0)
    return w


def _local_adam(clients, w, rounds, lr, steps, solver, o):
    n = np.array([len(y) for _, y in clients], dtype=float)
    p = n / n.sum() if o.get("weights") == "size" else np.full(len(n), 1 / len(n))
    b1, b2, eps = o.get("beta1", 0.9), o.get("beta2", 0.999), o.get("eps", 1e-8)
    mine = [[np.zeros_like(w), np.zeros_like(w), 0] for _ in clients]
    every = rates(lr, rounds)
    for lr in every:
        ends = []
        for k, ((x, y), tau) in enumerate(zip(clients, steps, strict=True)):
            m, u, t = (
                mine[k]
                if o.get("state", "persist") == "persist"
                else [np.zeros_like(w), np.zeros_like(w), 0]
            )
            v = w.copy()
            for _ in range(tau):
                g, t = _shaped(v, x, y, solver), t + 1
                m, u = b1 * m + (1 - b1) * g, b2 * u + (1 - b2) * g * g
                v = v - lr * (m / (1 - b1**t)) / (np.sqrt(u / (1 - b2**t)) + eps)
            mine[k] = [m, u, t]
            ends.append(v)
        w = p @ np.array(ends)
    return w


_ADJUST = {
    "plus": lambda z: 1 + z,
    "square": lambda z: 1 + z * z,
    "sin": lambda z: 1 + np.sin(z),
    "sqrt": lambda z: 1 + np.sqrt(z),
    "identity": lambda z: 1.0,
    "adam": lambda z: 1 - z,
}


def _fedcada(clients, w, rounds, lr, steps, solver, o):
    n = np.array([len(y) for _, y in clients], dtype=float)
    p = n / n.sum() if o.get("weights") == "size" else np.full(len(n), 1 / len(n))
    b1, b2, eps, d = (
        o.get("beta1", 0.9),
        o.get("beta2", 0.999),
        o.get("eps", 1e-8),
        _ADJUST[o.get("adjust", "plus")],
    )
    big, counts = [np.zeros_like(w), np.zeros_like(w)], [0] * len(clients)
    every = rates(lr, rounds)
    for r, lr in enumerate(every, 1):
        ends = []
        for k, ((x, y), tau) in enumerate(zip(clients, steps, strict=True)):
            v, m, u = w.copy(), big[0], big[1]
            for _ in range(tau):
                counts[k] += 1
                t = r if o.get("counter", "round") == "round" else counts[k]
                g = _shaped(v, x, y, solver)
                m, u = b1 * m + (1 - b1) * g, b2 * u + (1 - b2) * g * g
                v = v - lr * (m / d(b1**t)) / (np.sqrt(u / d(b2**t)) + eps)
            ends.append((w - v, m, u))
        w = w - o.get("server_lr", 1.0) * sum(pk * e[0] for pk, e in zip(p, ends, strict=True))
        big = [sum(pk * e[i] for pk, e in zip(p, ends, strict=True)) for i in (1, 2)]
    return w


def _fafed(clients, w, rounds, lr, steps, solver, o, adaptive=True):
    alpha, beta, rho, ext = (
        o.get("alpha", 0.1),
        o.get("beta", 0.9),
        o.get("rho", 0.01),
        o.get("ext", 1.0),
    )
    variant, first = o.get("variant", "paper"), o.get("init_step", "plain")
    every = rates(lr, rounds)
    lr = every[0]
    rate = (
        (lambda t: lr)
        if o.get("decay_w") is None
        else (lambda t: lr / (o["decay_w"] + t) ** (1 / 3))
    )
    start = [_shaped(w, x, y, solver) for x, y in clients]
    m, v = np.mean(start, 0), np.mean([g * g for g in start], 0)
    scale = (lambda v: np.sqrt(v) + rho) if adaptive else (lambda v: 1.0)
    before, t = [w.copy() for _ in clients], 0
    w = w - {"plain": rate(0) * m, "adaptive": rate(0) * m / scale(v), "none": 0.0}[first]
    for current in every:
        lr, a, ends = current, scale(v), []
        for k, ((x, y), tau) in enumerate(zip(clients, steps, strict=True)):
            xk, mk, vk = w.copy(), m, v
            old = w.copy() if variant == "stateless" else before[k]
            for s in range(1, tau + 1):
                g, g_old = _shaped(xk, x, y, solver), _shaped(old, x, y, solver)
                mk = g + (1 - alpha) * (mk - ext * g_old)
                vk = beta * vk + (1 - beta) * g * g
                old = xk
                if s < tau or variant == "code" or not adaptive:
                    xk = xk - rate(t + s) * mk / a
            before[k] = old
            ends.append((xk, mk, vk))
        w, m, v = (np.mean([e[i] for e in ends], 0) for i in range(3))
        t += np.mean(steps)
        if variant != "code" and adaptive:
            w = w - rate(t) * m / scale(v)
    return w


def _stem(clients, w, rounds, lr, steps, solver, o):
    return _fafed(clients, w, rounds, lr, steps, solver, o, adaptive=False)


def _fedsps(clients, w, rounds, lr, steps, solver, o):
    c, most, least = o.get("c", 0.5), o.get("gamma_b", 1.0), o.get("l_star", 0.0)
    for _ in range(rounds):
        ends = []
        for (x, y), tau in zip(clients, steps, strict=True):
            v = w.copy()
            for _ in range(tau):
                f, g = loss_and_grad(v, x, y)
                v = v - min(max(f - least, 0) / (c * (g @ g)), most) * g
            ends.append(v)
        w = np.mean(ends, 0)
    return w


def _propfair(clients, w, rounds, lr, steps, solver, o):
    m, eps = o.get("M", 2.0), o.get("eps", 0.2)
    below = 1 / (eps if o.get("tail", "huber") == "huber" else m)

    def factor(loss):
        return 1 / (m - loss) if m - loss >= eps else below

    p = _weights(clients, o)
    every = rates(lr, rounds)
    for lr in every:
        ends = [
            _scaled_sgd(w.copy(), x, y, lr, tau, factor, solver)
            for (x, y), tau in zip(clients, steps, strict=True)
        ]
        w = w + o.get("server_lr", 1.0) * (p @ np.array(ends) - w)
    return w


def _weights(clients, o, default="size"):
    n = np.array([len(y) for _, y in clients], dtype=float)
    return n / n.sum() if o.get("weights", default) == "size" else np.full(len(n), 1 / len(n))


def _scaled_sgd(w, x, y, lr, steps, factor, solver):
    """Steps along factor(loss) times the gradient, which the solver then shapes."""
    b, rho = None, solver.get("momentum", 0.0)
    for _ in range(steps):
        loss, g = loss_and_grad(w, x, y)
        g = _clipped(w, g * factor(loss), solver)
        if rho:
            b = g if b is None else rho * b + g
            g = g + rho * b if solver.get("nesterov") else b
        w = w - lr * g
    return w


def _clipped(w, g, solver):
    clip = solver.get("clip")
    if clip is not None and np.linalg.norm(g) > clip:
        g = g * clip / np.linalg.norm(g)
    return g + solver.get("decay", 0.0) * w


def _gifair(clients, w, rounds, lr, steps, solver, o):
    p, last, every = _weights(clients, o), None, rates(lr, rounds)
    for lr in every:
        now = np.array([loss_and_grad(w, x, y)[0] for x, y in clients])
        ranked = (
            now
            if o.get("rank_at", "before") == "before"
            else np.zeros(len(p))
            if last is None
            else last
        )
        omega = gifair_weights(p, ranked, o.get("share", 0.5))
        own = lr * omega / p if o.get("form") == "local" else np.full(len(p), lr)
        ends = [
            local_sgd(w.copy(), x, y, r, t, **solver)
            for (x, y), r, t in zip(clients, own, steps, strict=True)
        ]
        w = w - (p if o.get("form") == "local" else omega) @ (w - np.array(ends))
        last = now
    return w


def _fedfv(clients, w, rounds, lr, steps, solver, o):
    every = rates(lr, rounds)
    for t, lr in enumerate(every, 1):
        loss = np.array([loss_and_grad(w, x, y)[0] for x, y in clients])
        delta = np.array(
            [
                w - local_sgd(w.copy(), x, y, lr, tau, **solver)
                for (x, y), tau in zip(clients, steps, strict=True)
            ]
        )
        w = w - fedfv_step(delta, loss, o, dict(enumerate((t, d) for d in delta)), t)
    return w


def _fedmdfg(clients, w, rounds, lr, steps, solver, o):
    def losses(w):
        return np.array([loss_and_grad(w, x, y)[0] for x, y in clients])

    server = Guided(o, len(clients))
    every = rates(lr, rounds)
    for lr in every:
        g = np.array([loss_and_grad(w, x, y)[1] for x, y in clients])
        if o.get("source") != "gradient":
            ends = [
                local_sgd(w.copy(), x, y, lr, tau, **solver)
                for (x, y), tau in zip(clients, steps, strict=True)
            ]
            g = w - np.array(ends)
        w = server.step(w, g, losses(w), lr, losses)
    return w


def _fedheal(clients, w, rounds, lr, steps, solver, o):
    every = iter(rates(lr, rounds))  # asked for once a round

    def ends(w):
        rate = next(every)
        return [
            local_sgd(w.copy(), x, y, rate, tau, **solver)
            for (x, y), tau in zip(clients, steps, strict=True)
        ]

    return heal(clients, w, rounds, ends, o)


def _drfa(clients, w, rounds, lr, steps, solver, o):
    every = iter(rates(lr, rounds))  # asked for once a round

    def iterates(w):
        rate = next(every)
        return [
            np.array([local_sgd(w.copy(), x, y, rate, t, **solver) for t in range(tau + 1)])
            for (x, y), tau in zip(clients, steps, strict=True)
        ]

    def losses(w):
        return np.array([loss_and_grad(w, x, y)[0] for x, y in clients])

    return robust(clients, w, rounds, iterates, losses, onto_simplex, o)


def _het(method):
    """A method of ``reference_het`` as the others are called."""

    def run(clients, w, rounds, lr, steps, solver, o):
        return method(
            lambda k, v: loss_and_grad(v, *clients[k])[1],
            clients,
            w,
            rates(lr, rounds),
            steps,
            solver,
            o,
        )

    return run


OTHERS = {
    **{name: _het(getattr(reference_het, name)) for name in reference_het.METHODS},
    "propfair": _propfair,
    "gifair": _gifair,
    "fedfv": _fedfv,
    "fedmdfg": _fedmdfg,
    "fedheal": _fedheal,
    "drfa": _drfa,
    "scaffold": _scaffold,
    "naive_adaptive": _naive,
    "local_adam": _local_adam,
    "fedcada": _fedcada,
    "fafed": _fafed,
    "stem": _stem,
    "fedsps": _fedsps,
}


def _amsgrad(s, d, o):
    b1, b2, tau = o.get("beta1", 0.9), o.get("beta2", 0.99), o.get("tau", 1e-3)
    v, top = (np.zeros_like(d), np.zeros_like(d)) if s["v"] is None else s["v"]
    s["m"] = b1 * s["m"] + (1 - b1) * d
    v = b2 * v + (1 - b2) * d * d
    top = np.maximum(top, v)
    if o.get("option", 1) == 1:
        top = np.maximum(top, tau)
    s["v"] = (v, top)
    m, root = s["m"], np.sqrt(top)
    if o.get("bias_correction"):
        m, root = m / (1 - b1 ** s["t"]), root / np.sqrt(1 - b2 ** s["t"])
    return m / (root if o.get("option", 1) == 1 else root + tau)


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
    alpha, eta, scale = (
        o.get("alpha", 1.0),
        o.get("server_lr", 1e-3),
        o.get("step_scale", "certainty"),
    )
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

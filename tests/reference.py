"""The methods once more, written from their definitions in NumPy, one client after another.

Full batches, float64, all clients, plain loops; nothing is shared with the package. The arguments
of a function are the clients, the first model, and the options of the method with their defaults.
"""

from __future__ import annotations

import itertools

import numpy as np
import reference_fair
import reference_het
from reference_clients import Clients, logits_of, loss_and_grad


def run(name, clients, w, rounds, lr, steps, solver=None, **options):
    """Run a method; ``clients`` is a list of (x, y), ``steps`` the local steps of every client.

    The local rate is a number, or a function of the number of rounds before. Returns the global
    model, and for methods that have them the clients' own models.
    """
    rates = [lr(t) if callable(lr) else lr for t in range(rounds)]
    everyone = Clients(clients, steps, rates, solver or {})
    for definitions in (globals(), vars(reference_fair), vars(reference_het)):
        if name in definitions:
            return definitions[name](everyone, w.copy(), **options)
    raise AssertionError(f"{name} has no definition in tests/reference.py: add a function")


# ---- averages


def fedavg(
    clients,
    w,
    server_lr=1.0,
    weights="size",
):
    for lr in clients.rates:
        w = w - server_lr * clients.weights(weights) @ clients.updates(w, lr)
    return w


def fedavg_ft(clients, w, server_lr=1.0, weights="size"):
    """Fine-tuning leaves the server's model alone."""
    return fedavg(clients, w, server_lr, weights)


def fedbabu(clients, w, weights="uniform"):
    """Without a frozen part."""
    return fedavg(clients, w, weights=weights)


def fedper(clients, w, weights="size"):
    """Without a personal part."""
    return fedavg(clients, w, weights=weights)


def fedrep(clients, w, body_epochs=1, weights="uniform"):
    """Without a personal part: the other epochs move nothing."""
    for lr in clients.rates:
        ends = []
        for k in clients.all:
            steps = min(body_epochs, clients.steps[k])
            ends.append(clients.train(k, w, lr, steps=steps))
        w = clients.weights(weights) @ np.array(ends)
    return w


def lgfedavg(clients, w, weights="uniform"):
    """Without a personal part."""
    return fedavg(clients, w, weights=weights)


def moon(clients, w, mu=1.0, tau=0.5, server_lr=1.0, weights="size"):
    """Of a linear model, whose features do not depend on its parameters."""
    return fedavg(clients, w, server_lr, weights)


def feddecorr(clients, w, coef=0.1, form="code", server_lr=1.0, weights="size"):
    """Of a linear model, whose features do not depend on its parameters."""
    return fedavg(clients, w, server_lr, weights)


def averaged(clients, w, gradient_at, server_lr, weights):
    """FedAvg along ``gradient_at(w)``, a function of (k, model) in the round that starts at w."""
    for lr in clients.rates:
        updates = w - clients.ends(w, lr, gradient_at(w))
        w = w - server_lr * clients.weights(weights) @ updates
    return w


def by_logits(d, x):
    """The gradient of a linear model, given that of its logits [B, K]."""
    return np.concatenate([(d.T @ x).ravel(), d.sum(0)])


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def fedntd(clients, w, beta=1.0, tau=1.0, server_lr=1.0, weights="size"):
    """The derivative of the term by a logit is β τ (q_c - q^g_c)."""

    def gradient_at(w):
        def gradient(k, v):
            x, y = clients.data[k]
            shares = []
            for model in (v, w):
                z = logits_of(model, x) / tau
                z[np.arange(len(y)), y] = -np.inf
                shares.append(softmax(z))
            d = beta * tau * (shares[0] - shares[1]) / len(y)
            return clients.grad(k, v) + by_logits(d, x)

        return gradient

    return averaged(clients, w, gradient_at, server_lr, weights)


def shifted(clients, k, v, shifts):
    """The gradient of the cross-entropy of shifted logits."""
    x, y = clients.data[k]
    d = softmax(logits_of(v, x) + shifts)
    d[np.arange(len(y)), y] -= 1
    return by_logits(d / len(y), x)


def class_counts(clients, k, w):
    x, y = clients.data[k]
    return np.bincount(y, minlength=len(w) // (x.shape[1] + 1)).astype(float)


def fedlc(clients, w, tau=1.0, floor=0.0, server_lr=1.0, weights="size"):
    def gradient(k, v):
        counts = class_counts(clients, k, v)
        counts[counts == 0] = floor
        with np.errstate(divide="ignore"):
            return shifted(clients, k, v, -tau * counts**-0.25)

    return averaged(clients, w, lambda w: gradient, server_lr, weights)


def fedrod(clients, w, start="copy", server_lr=1.0, weights="size"):
    """Second heads go along with the shared model, step by step."""
    seconds = np.array([w if start == "copy" else 0 * w] * clients.count)
    for lr in clients.rates:

        def gradient(k, v, lr=lr):
            own = clients.grad(k, v + seconds[k])  # of a linear model: the sum of both heads
            with np.errstate(divide="ignore"):
                g = shifted(clients, k, v, np.log(class_counts(clients, k, v)))
            seconds[k] = seconds[k] - lr * own
            return g

        updates = w - clients.ends(w, lr, gradient)
        w = w - server_lr * clients.weights(weights) @ updates
    return w, w + seconds


def fedbn(clients, w, weights="uniform"):
    """Without normalisation."""
    return fedavg(clients, w, weights=weights)


def silobn(clients, w, weights="size"):
    """Without running statistics."""
    return fedavg(clients, w, weights=weights)


def fixbn(clients, w, weights="size"):
    """Without running statistics."""
    return fedavg(clients, w, weights=weights)


def fedcorr(
    clients,
    w,
    iterations=0,
    mixup=False,
    rounds1=0,
):
    """The later stages alone, without mixup."""
    return fedavg(clients, w)


def fedprox(
    clients,
    w,
    mu=0.1,
    server_lr=1.0,
    weights="size",
):
    def gradient(k, v):
        return clients.grad(k, v) + mu * (v - w)

    for lr in clients.rates:
        delta = w - clients.ends(w, lr, gradient)
        w = w - server_lr * clients.weights(weights) @ delta
    return w


def ditto(
    clients,
    w,
    lam=0.1,
    personal_lr=None,
    personal_epochs=None,
    weights="size",
):
    """Momentum of the personal models starts from zero."""
    own = [w] * clients.count

    def pulled(k, v):
        return clients.grad(k, v) + lam * (v - w)

    for lr in clients.rates:
        rate = personal_lr or lr
        own = [clients.train(k, own[k], rate, pulled, personal_epochs) for k in clients.all]
        w = w - clients.weights(weights) @ clients.updates(w, lr)
    return w, np.array(own)


def fednova(
    clients,
    w,
    server_momentum=0.0,
    weights="size",
):
    p = clients.weights(weights)
    m = 0.0
    passes = np.array([counted(tau, **clients.solver) for tau in clients.steps])
    for lr in clients.rates:
        normalized = clients.updates(w, lr) / passes[:, None]
        m = server_momentum * m + (p @ passes) * (p @ normalized)
        w = w - m
    return w


def counted(tau, momentum=0.0, nesterov=False, **shape):
    """How far a constant unit gradient carries in tau steps of rate 1, by doing it."""
    b = total = 0.0
    for _ in range(tau):
        b = momentum * b + 1
        total += 1 + momentum * b if nesterov else b
    return total


# ---- adaptive servers


def fedavgm(
    clients,
    w,
    beta=0.9,
    nesterov=False,
    server_lr=1.0,
    weights="size",
):
    m = 0.0
    for lr in clients.rates:
        d = clients.weights(weights) @ clients.updates(w, lr)
        m = beta * m + d
        w = w - server_lr * (d + beta * m if nesterov else m)
    return w


def fedadagrad(
    clients,
    w,
    beta1=0.0,
    tau=1e-3,
    v0=None,
    server_lr=0.1,
    weights="size",
):
    m = 0.0
    v = tau**2 if v0 is None else v0
    for lr in clients.rates:
        d = clients.weights(weights) @ clients.updates(w, lr)
        m = beta1 * m + (1 - beta1) * d
        v = v + d * d
        w = w - server_lr * m / (np.sqrt(v) + tau)
    return w


def fedyogi(
    clients,
    w,
    beta1=0.9,
    beta2=0.99,
    tau=1e-3,
    v0=None,
    server_lr=0.1,
    weights="size",
):
    m = 0.0
    v = tau**2 if v0 is None else v0
    for lr in clients.rates:
        d = clients.weights(weights) @ clients.updates(w, lr)
        m = beta1 * m + (1 - beta1) * d
        v = v - (1 - beta2) * d * d * np.sign(v - d * d)
        w = w - server_lr * m / (np.sqrt(v) + tau)
    return w


def fedadam(
    clients,
    w,
    beta1=0.9,
    beta2=0.99,
    tau=1e-3,
    v0=None,
    bias_correction=False,
    eps_inside=False,
    server_lr=0.1,
    weights="size",
):
    m = 0.0
    v = tau**2 if v0 is None else v0
    for t, lr in enumerate(clients.rates, 1):
        d = clients.weights(weights) @ clients.updates(w, lr)
        m = beta1 * m + (1 - beta1) * d
        v = beta2 * v + (1 - beta2) * d * d
        mean, square = m, v
        if bias_correction:
            mean = m / (1 - beta1**t)
            square = v / (1 - beta2**t)
        root = np.sqrt(square + tau) if eps_inside else np.sqrt(square) + tau
        w = w - server_lr * mean / root
    return w


def fedams(
    clients,
    w,
    beta1=0.9,
    beta2=0.99,
    tau=1e-3,
    option=1,
    bias_correction=False,
    server_lr=0.1,
    weights="uniform",
):
    m = v = largest = 0.0
    for t, lr in enumerate(clients.rates, 1):
        d = clients.weights(weights) @ clients.updates(w, lr)
        m = beta1 * m + (1 - beta1) * d
        v = beta2 * v + (1 - beta2) * d * d
        largest = np.maximum(largest, v)
        if option == 1:
            largest = np.maximum(largest, tau)
        mean = m
        root = np.sqrt(largest)
        if bias_correction:
            mean = m / (1 - beta1**t)
            root = root / np.sqrt(1 - beta2**t)
        w = w - server_lr * mean / (root if option == 1 else root + tau)
    return w


def adafedadam(
    clients,
    w,
    alpha=1.0,
    server_lr=1e-3,
    step_scale="certainty",
    inverse_rate="loss",
):
    first = clients.losses(w)
    m = v = 0.0
    decay_m = decay_v = 1.0
    for t, lr in enumerate(clients.rates, 1):
        f = clients.losses(w)
        if alpha != int(alpha):
            f = f + 1e-10
        if inverse_rate == "ratio":
            f = f / (first + 1e-10)
        omega = clients.n * f**alpha
        omega = omega / omega.sum()
        pairs = zip(clients.grads(w), clients.updates(w, lr), strict=True)
        u, certainty = zip(*(normalized(g, delta, lr) for g, delta in pairs), strict=True)
        g = omega @ u
        chi = omega @ certainty
        b1 = 0.9**chi
        b2 = 0.999**chi
        decay_m *= b1
        decay_v *= b2
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        scale = chi
        if step_scale == "one" or (step_scale == "certainty_after_6" and t <= 6):
            scale = 1.0
        direction = m / (1 - decay_m) / (np.sqrt(v / (1 - decay_v)) + 1e-8)
        w = w - scale * server_lr * direction
    return w


def normalized(g, delta, lr):
    """Return an update of the gradient's length, and its certainty."""
    if not g.any() or not delta.any():
        return np.zeros_like(delta), 1.0
    r = np.linalg.norm(delta) / np.linalg.norm(g)
    return delta / r, max(np.log(r / lr) + 1, 0.1)


# ---- weights by losses and accuracies


def qfedavg(
    clients,
    w,
    q=1.0,
    L=None,
):
    for lr in clients.rates:
        lipschitz = L or 1 / lr
        f = clients.losses(w) + 1e-10
        g = lipschitz * clients.updates(w, lr)
        h = q * f ** (q - 1) * (g * g).sum(1) + lipschitz * f**q
        w = w - f**q @ g / h.sum()
    return w


def term(
    clients,
    w,
    t=1.0,
    server_lr=1.0,
    weights="uniform",
):
    for lr in clients.rates:
        omega = clients.weights(weights) * np.exp(t * clients.losses(w))
        w = w - server_lr * omega @ clients.updates(w, lr) / omega.sum()
    return w


def afl(
    clients,
    w,
    lr_lambda=0.1,
    average=False,
):
    mixture = clients.weights("uniform")
    models = []
    for lr in clients.rates:
        risen = mixture + lr_lambda * clients.losses(w)
        w = w - mixture @ clients.updates(w, lr)
        mixture = reference_fair.onto_simplex(risen)
        models.append(w)
    return np.mean(models, 0) if average else w


def fedmgda(
    clients,
    w,
    eps=0.5,
    normalize=True,
    prior="size",
    server_lr=1.0,
):
    p = clients.weights(prior)
    for lr in clients.rates:
        g = clients.updates(w, lr)
        if normalize:
            g = g / np.linalg.norm(g, axis=1, keepdims=True)
        mixture = box_simplex(g @ g.T, np.maximum(p - eps, 0), np.minimum(p + eps, 1))
        w = w - server_lr * mixture @ g
    return w


def box_simplex(k, low, high):
    """argmin λᵀKλ over Σλ = 1, low <= λ <= high, by trying every set of active bounds."""
    best = None
    least = np.inf
    for state in itertools.product((0, 1, 2), repeat=len(k)):  # 0: at low, 1: at high, 2: free
        state = np.array(state)
        x = np.where(state == 0, low, high)
        free = np.flatnonzero(state == 2)
        fixed = np.flatnonzero(state != 2)
        if len(free):
            one = np.ones((len(free), 1))
            system = np.block([[k[np.ix_(free, free)], one], [one.T, 0]])
            right = np.append(-k[np.ix_(free, fixed)] @ x[fixed], 1 - x[fixed].sum())
            x[free] = np.linalg.solve(system, right)[:-1]
        inside = (x > low - 1e-12).all() and (x < high + 1e-12).all()
        value = x @ k @ x
        if inside and abs(x.sum() - 1) < 1e-9 and value < least:
            best = x
            least = value
    return best


def adafed(
    clients,
    w,
    gamma=1.0,
    loss_at="before",
    normalize_loss="none",
    server_lr=1.0,
):
    for lr in clients.rates:
        ends = clients.ends(w, lr)
        f = clients.losses(w)
        if loss_at == "after":
            f = [loss_and_grad(end, *data)[0] for end, data in zip(ends, clients.data, strict=True)]
            f = np.array(f)
        if normalize_loss == "mean":
            f = f / f.mean()
        w = w - server_lr * gram_schmidt(w - ends, f**gamma)
    return w


def gram_schmidt(g, s):
    """AdaFed's direction as printed: Eqs. 5-6, 14, one client after another."""
    done = []
    for gk, sk in zip(g, s, strict=True):
        along = [(gk @ e) / (e @ e) for e in done]
        rest = gk - sum(a * e for a, e in zip(along, done, strict=True))
        done.append(rest / (sk - sum(along)))
    inverse = np.array([1 / (e @ e) for e in done])
    return inverse @ done / inverse.sum()


def fedfa(
    clients,
    w,
    alpha=0.5,
    beta=0.5,
    gamma_s=0.5,
    gamma_c=0.9,
    b=1,
    server_lr=None,
    acc_at="after",
    server_sign=-1,
    c=1e-6,
):
    clients.solver = clients.solver | {"momentum": gamma_c}
    m = 0.0
    for t, lr in enumerate(clients.rates, 1):
        ends = clients.ends(w, lr)
        judged = ends if acc_at == "after" else [w] * clients.count
        accuracy = np.array([right(v, *data) for v, data in zip(judged, clients.data, strict=True)])
        share = clients.weights("uniform")
        if accuracy.any():
            share = np.where(accuracy == 0, c, accuracy / accuracy.sum())
        taken = clients.weights("uniform")  # everybody took part equally often
        others = np.where(taken < 1, 1 - taken, c)
        omega = alpha * bits(share) + beta * bits(others)
        mean = omega @ ends
        m = gamma_s * m + (1 - gamma_s) * (mean - w)
        w = mean
        if t % b == 0:
            w = mean + server_sign * (lr if server_lr is None else server_lr) * m
    return w


def right(w, x, y):
    """Return the share of examples that a model is right on."""
    return (logits_of(w, x).argmax(1) == y).mean()


def bits(share):
    """Return weights in proportion to the information -log2 of shares."""
    information = -np.log2(share)
    if not information.any():
        return np.full(len(share), 1 / len(share))
    return information / information.sum()


# ---- states and adaptive steps of clients


def scaffold(
    clients,
    w,
    option=2,
    server_lr=1.0,
    weights="uniform",
):
    p = clients.weights(weights)
    mean = np.zeros_like(w)
    own = [mean] * clients.count

    def corrected(k, v):
        return clients.grad(k, v) + mean - own[k]

    for lr in clients.rates:
        ends = clients.ends(w, lr, corrected)
        if option == 1:
            own = clients.grads(w)
        else:
            passed = lr * np.array(clients.steps)[:, None]
            own = own - mean + (w - ends) / passed
        mean = p @ own  # everybody takes part: the mean is the running sum
        w = w - server_lr * (w - p @ ends)
    return w


def naive_adaptive(
    clients,
    w,
    beta=0.5,
    eps=0.0,
):
    square = [np.zeros_like(w)] * clients.count
    for lr in clients.rates:
        ends = []
        for k in clients.all:
            x = w
            for _ in range(clients.steps[k]):
                g = clients.shaped(k, x)
                square[k] = beta * square[k] + (1 - beta) * g * g
                x = x - lr * g / (np.sqrt(square[k]) + eps)
            ends.append(x)
        w = np.mean(ends, 0)
    return w


def local_adam(
    clients,
    w,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    state="persist",
    weights="uniform",
):
    fresh = (0.0, 0.0, 0)
    states = [fresh] * clients.count
    for lr in clients.rates:
        ends = []
        for k in clients.all:
            m, v, t = states[k] if state == "persist" else fresh
            x = w
            for _ in range(clients.steps[k]):
                g = clients.shaped(k, x)
                t += 1
                m = beta1 * m + (1 - beta1) * g
                v = beta2 * v + (1 - beta2) * g * g
                x = x - lr * m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps)
            states[k] = (m, v, t)
            ends.append(x)
        w = clients.weights(weights) @ ends
    return w


ADJUST = {
    "plus": lambda z: 1 + z,
    "square": lambda z: 1 + z * z,
    "sin": lambda z: 1 + np.sin(z),
    "sqrt": lambda z: 1 + np.sqrt(z),
    "identity": lambda z: 1.0,
    "adam": lambda z: 1 - z,
}


def fedcada(
    clients,
    w,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    adjust="plus",
    counter="round",
    server_lr=1.0,
    weights="uniform",
):
    adjusted = ADJUST[adjust]
    p = clients.weights(weights)
    first = second = np.zeros_like(w)
    taken = [0] * clients.count
    for t, lr in enumerate(clients.rates, 1):
        ends = []
        for k in clients.all:
            x, m, v = w, first, second
            for _ in range(clients.steps[k]):
                taken[k] += 1
                power = t if counter == "round" else taken[k]
                g = clients.shaped(k, x)
                m = beta1 * m + (1 - beta1) * g
                v = beta2 * v + (1 - beta2) * g * g
                root = np.sqrt(v / adjusted(beta2**power)) + eps
                x = x - lr * m / adjusted(beta1**power) / root
            ends.append((x, m, v))
        mean, first, second = np.tensordot(p, ends, 1)
        w = w - server_lr * (w - mean)
    return w


def fafed(
    clients,
    w,
    alpha=0.1,
    beta=0.9,
    rho=0.01,
    decay_w=None,
    variant="paper",
    init_step="plain",
    ext=1.0,
    adaptive=True,
):
    def rate(lr, t):
        return lr if decay_w is None else lr / (decay_w + t) ** (1 / 3)

    def matrix(v):
        return np.sqrt(v) + rho if adaptive else 1.0

    start = np.array([clients.shaped(k, w) for k in clients.all])
    m = start.mean(0)
    v = (start**2).mean(0)
    before = [w] * clients.count
    t = 0
    if init_step != "none":
        w = w - rate(clients.rates[0], 0) * m / (matrix(v) if init_step == "adaptive" else 1.0)
    for lr in clients.rates:
        ends = []
        for k in clients.all:
            xk, mk, vk = w, m, v
            old = w if variant == "stateless" else before[k]
            for s in range(1, clients.steps[k] + 1):
                g = clients.shaped(k, xk)
                mk = g + (1 - alpha) * (mk - ext * clients.shaped(k, old))
                vk = beta * vk + (1 - beta) * g * g
                old = xk
                # with the paper's variant the last step is the server's
                if s < clients.steps[k] or variant == "code" or not adaptive:
                    xk = xk - rate(lr, t + s) * mk / matrix(v)
            before[k] = old
            ends.append((xk, mk, vk))
        w, m, v = np.mean(ends, 0)
        t += np.mean(clients.steps)
        if variant != "code" and adaptive:
            w = w - rate(lr, t) * m / matrix(v)
    return w


def stem(
    clients,
    w,
    alpha=0.1,
    decay_w=None,
    init_step="plain",
):
    return fafed(clients, w, alpha, decay_w=decay_w, init_step=init_step, adaptive=False)


def fedsps(
    clients,
    w,
    c=0.5,
    gamma_b=1.0,
    l_star=0.0,
):
    for _ in clients.rates:
        ends = []
        for k in clients.all:
            x = w
            for _ in range(clients.steps[k]):
                f, g = loss_and_grad(x, *clients.data[k])
                size = max(f - l_star, 0) / (c * (g @ g))
                x = x - min(size, gamma_b) * g
            ends.append(x)
        w = np.mean(ends, 0)
    return w

"""FedAvg, SCAFFOLD and FedAdam in plain NumPy, for the test vectors.

Written from results/vectors/README.md and the formulas in the files of the vectors.

    python scripts/check_vectors.py scaffold examples/vectors/plain.py --function scaffold
"""

import numpy as np

# ---- the model: linear layers with ReLU between them, and the mean cross-entropy


def tensors(w, shapes):
    """Return the weights and biases that a flat model consists of."""
    parts = []
    for shape in shapes:
        count = int(np.prod(shape))
        parts.append(w[:count].reshape(shape))
        w = w[count:]
    return parts


def gradient(w, x, y, shapes):
    """Return the gradient of the mean cross-entropy on examples x [B, D] with labels y [B]."""
    parts = tensors(w, shapes)
    inputs = []
    h = x
    for layer in range(0, len(parts), 2):
        inputs.append(h)
        z = h @ parts[layer].T + parts[layer + 1]
        h = np.maximum(z, 0)

    d = np.exp(z - z.max(axis=1, keepdims=True))
    d = d / d.sum(axis=1, keepdims=True)
    d[np.arange(len(y)), y] -= 1
    d = d / len(y)
    slopes = []
    for layer in reversed(range(0, len(parts), 2)):
        h = inputs.pop()
        slopes = [(d.T @ h).ravel(), d.sum(axis=0), *slopes]
        d = (d @ parts[layer]) * (h > 0)
    return np.concatenate(slopes)


def shares(cohort, data, weights):
    """Return the weights of a cohort: by number of examples, or uniform."""
    n = np.ones(len(cohort))
    if weights == "size":
        n = np.array([len(data["clients"][k][1]) for k in cohort])
    return n / n.sum()


def local_steps(w, k, batches, data, o, correction=0.0):
    """Return the models after every local step [tau, P]."""
    x, y = data["clients"][k]
    buffer = np.zeros_like(w)
    models = []
    for batch in batches:
        g = gradient(w, x[batch], y[batch], data["tensors"]) + correction
        buffer = o["momentum"] * buffer + g
        w = w - o["lr"] * buffer
        models.append(w)
    return np.array(models)


# ---- the methods


def fedavg(data, w0, schedule, hyperparameters):
    """Return the states of FedAvg after every round."""
    o = hyperparameters
    w = w0
    states = []
    for plan in schedule:
        p = shares(plan["cohort"], data, o["weights"])
        clients = {}
        d = np.zeros_like(w)
        for share, k in zip(p, plan["cohort"], strict=True):
            models = local_steps(w, k, plan["batches"][k], data, o)
            delta = w - models[-1]
            d = d + share * delta
            clients[k] = {
                "receives": {"w": w},
                "steps": {"w": models},
                "upload": {"delta": delta},
            }
        w = w - o["server_lr"] * d
        states.append({"clients": clients, "server": {"w": w}, "model": w})
    return states


def scaffold(data, w0, schedule, hyperparameters):
    """Return the states of SCAFFOLD after every round."""
    o = hyperparameters
    w = w0
    c = np.zeros_like(w)
    own = [np.zeros_like(w) for _ in data["clients"]]
    states = []
    for plan in schedule:
        p = shares(plan["cohort"], data, o["weights"])
        clients = {}
        d = np.zeros_like(w)
        change = np.zeros_like(w)
        for share, k in zip(p, plan["cohort"], strict=True):
            batches = plan["batches"][k]
            models = local_steps(w, k, batches, data, o, correction=c - own[k])
            delta = w - models[-1]
            if o["option"] == 1:
                x, y = data["clients"][k]
                new = gradient(w, x, y, data["tensors"])
            else:
                new = own[k] - c + delta / (len(batches) * o["lr"])
            d = d + share * delta
            change = change + share * (new - own[k])
            clients[k] = {
                "receives": {"w": w, "c": c},
                "steps": {"w": models},
                "upload": {"delta": delta, "c": new - own[k]},
                "state": {"c": new},
            }
            own[k] = new
        w = w - o["server_lr"] * d
        c = c + len(plan["cohort"]) / len(data["clients"]) * change
        states.append({"clients": clients, "server": {"w": w, "c": c}, "model": w})
    return states


def fedadam(data, w0, schedule, hyperparameters):
    """Return the states of FedAdam after every round."""
    o = hyperparameters
    w = w0
    m = np.zeros_like(w)
    s = np.full_like(w, o["tau"] ** 2 if o["v0"] is None else o["v0"])
    states = []
    for t, plan in enumerate(schedule, start=1):
        p = shares(plan["cohort"], data, o["weights"])
        clients = {}
        d = np.zeros_like(w)
        for share, k in zip(p, plan["cohort"], strict=True):
            models = local_steps(w, k, plan["batches"][k], data, o)
            delta = w - models[-1]
            d = d + share * delta
            clients[k] = {"steps": {"w": models}, "upload": {"delta": delta}}
        m = o["beta1"] * m + (1 - o["beta1"]) * d
        s = o["beta2"] * s + (1 - o["beta2"]) * d**2
        mean, square = m, s
        if o["bias_correction"]:
            mean = m / (1 - o["beta1"] ** t)
            square = s / (1 - o["beta2"] ** t)
        root = np.sqrt(square + o["tau"]) if o["eps_inside"] else np.sqrt(square) + o["tau"]
        w = w - o["server_lr"] * mean / root
        server = {"w": w, "m": m, "v": s, "t": t}
        states.append({"clients": clients, "server": server, "model": w})
    return states

"""Clients of the definitions: softmax regression in NumPy, float64, full batches, plain loops.

Nothing is shared with the package.
"""

from __future__ import annotations

import numpy as np


def logits_of(w, x):
    """Return the logits of examples; w = (weight [K, D], bias [K]) as one vector."""
    features = x.shape[1]
    classes = len(w) // (features + 1)
    weight, bias = np.split(w, [classes * features])
    return x @ weight.reshape(classes, features).T + bias


def loss_and_grad(w, x, y):
    """Return the mean cross-entropy and its gradient."""
    z = logits_of(w, x)
    z -= z.max(1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labelled = np.arange(len(y)), y
    loss = -np.log(p[labelled]).mean()
    p[labelled] -= 1
    p /= len(y)
    return loss, np.concatenate([(p.T @ x).ravel(), p.sum(0)])


def shaped(
    g,
    w,
    clip=None,
    decay=0.0,
):
    """Return a gradient that is clipped first, and then has the weight decay added."""
    length = np.linalg.norm(g)
    if clip is not None and length > clip:
        g = g * clip / length
    return g + decay * w


def descend(gradient, w, lr, steps, momentum=0.0, nesterov=False, **shape):
    """Take steps from w in the order of torch.optim.SGD."""
    b = 0.0
    for _ in range(steps):
        g = shaped(gradient(w), w, **shape)
        b = momentum * b + g
        w = w - lr * (g + momentum * b if nesterov else b)
    return w


def local_sgd(
    w,
    x,
    y,
    lr,
    steps,
):
    """Take plain steps on the full batch of one client."""
    return descend(lambda v: loss_and_grad(v, x, y)[1], w, lr, steps)


class Clients:
    """The clients of a run: ``data`` has their (x, y), ``rates`` the local rate of every round."""

    def __init__(
        self,
        data,
        steps,
        rates,
        solver,
    ):
        self.data = data
        self.steps = steps
        self.rates = rates
        self.solver = solver
        self.n = np.array([len(y) for _, y in data], dtype=float)
        self.count = len(data)
        self.all = range(self.count)

    def weights(self, by):
        """Return the clients' shares by size, or uniform ones."""
        n = self.n if by == "size" else np.ones(self.count)
        return n / n.sum()

    def grad(self, k, w):
        return loss_and_grad(w, *self.data[k])[1]

    def shaped(self, k, w):
        """Return a gradient with the clipping and the weight decay of the local solver."""
        return shaped(self.grad(k, w), w, **self.solver)

    def losses(self, w):
        return np.array([loss_and_grad(w, *data)[0] for data in self.data])

    def grads(self, w):
        return np.array([self.grad(k, w) for k in self.all])

    def train(
        self,
        k,
        w,
        lr,
        gradient=None,
        steps=None,
    ):
        """Return the model of a client after its steps, along a function of (k, model) if given."""
        gradient = gradient or self.grad
        steps = self.steps[k] if steps is None else steps
        return descend(lambda v: gradient(k, v), w, lr, steps, **self.solver)

    def ends(
        self,
        w,
        lr,
        gradient=None,
    ):
        """Return the local models [C, P]."""
        return np.array([self.train(k, w, lr, gradient) for k in self.all])

    def updates(self, w, lr):
        """Return w minus the local models [C, P]."""
        return w - self.ends(w, lr)

"""The model of the test vectors in PyTorch, for the adapters to peers.

Every adapter runs in its peer's own environment, so this needs PyTorch and NumPy alone.
"""

import numpy as np
import torch
from torch import nn


def network(w, shapes):
    """Return the linear layers, with ReLU between them, that hold a model w [P], in float64."""
    layers = []
    for outputs, inputs in shapes[::2]:
        layers += [nn.Linear(inputs, outputs, dtype=torch.float64), nn.ReLU()]
    net = nn.Sequential(*layers[:-1])
    load(net, w)
    return net


def load(net, w):
    """Put a model w [P] into a network."""
    nn.utils.vector_to_parameters(torch.tensor(w), net.parameters())


def flat(tensors):
    """Return tensors or arrays as one vector [P]."""
    return np.concatenate([np.asarray(torch.as_tensor(t).detach()).ravel() for t in tensors])


def split(w, shapes):
    """Return the arrays that a model w [P] consists of."""
    ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(w, ends), shapes, strict=True)]


def examples(data, k, indices=slice(None)):
    """Return examples of a client as tensors x [B, D], y [B]."""
    x, y = data["clients"][k]
    return torch.tensor(x[indices]), torch.tensor(y[indices])


def batches(data, plan, k):
    """Return the batches of a client's local training in a round."""
    return [examples(data, k, batch) for batch in plan["batches"][k]]


def loss(net, x, y):
    """Return the mean cross-entropy of a batch."""
    return nn.functional.cross_entropy(net(x), y)


def sgd(net, pairs, lr, momentum=0.0, penalty=None):
    """Train a network on batches, with a penalty on its parameters."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
    for x, y in pairs:
        optimizer.zero_grad()
        value = loss(net, x, y)
        if penalty is not None:
            value = value + penalty(list(net.parameters()))
        value.backward()
        optimizer.step()


def refuse(peer, options, **only):
    """Refuse the cases in which an option has another value than the only one that a peer has.

    Raises:
        NotImplementedError: If there is one.
    """
    for name, value in only.items():
        if options[name] != value:
            raise NotImplementedError(f"{peer} has no {name}={options[name]}")

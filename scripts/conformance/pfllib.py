"""PFLlib's own clients and servers on the test vectors.

Peer: TsingZ0/PFLlib, commit d832e76 (29 November 2025). Run with Python 3.11, PyTorch 2.13.0,
scikit-learn 1.9.1 and h5py 3.16.0 on a CPU, in float64.

Its ``Server.train`` runs whole. It is given the model, the cohorts and the batches, which its
loader would draw (without the last one of an epoch, if that is smaller). Nothing is evaluated.

    export PFLLIB=a checkout
    python scripts/check_vectors.py scaffold scripts/conformance/pfllib.py --function scaffold
"""

import numpy as np
from conformance.pfllib_run import MODEL, Log, run, two_parts, vector
from conformance.torch_model import flat, refuse

SIZE = {"weights": "size", "server_lr": 1.0}


def method(server, options, seen=None, **only):
    """Return the ``train`` of a method.

    Args:
        server: The server's module and class.
        options: PFLlib's options, and the hyperparameters that they are.
        seen: What is recorded, as ``run`` takes it.
        only: Hyperparameters of which PFLlib has one value alone.
    """

    def train(data, w0, schedule, o):
        refuse("PFLlib", o, momentum=0.0, **{k: v for k, v in only.items() if k in o})
        given = {name: o[ours] for name, ours in options.items()}
        given |= {"model": two_parts(w0, data["tensors"]), "local_learning_rate": o["lr"]}
        return run(server, Log(seen or {}, data, schedule), **given)

    return train


def heads(server, w):
    """Return the shared part of the model with each client's own head."""
    return np.array([np.r_[w, flat(client.model.head.parameters())] for client in server.clients])


def personal(server, w):
    """Return the personal models."""
    return np.array([vector(client, "model_per") for client in server.clients])


def tensors(name, scale=lambda owner: 1.0):
    """Return a function that reads a list of tensors, or a model, of a client or the server."""

    def read(owner):
        values = getattr(owner, name)
        values = values.parameters() if hasattr(values, "parameters") else values
        return scale(owner) * flat(values)

    return read


def state(**readers):
    """Return a function that reads the state of a client or of the server."""
    return lambda owner: {name: read(owner) for name, read in readers.items()}


def inverse(owner):
    """Return the factor between FedDyn's states here and the drift of the vectors."""
    return -1 / owner.alpha


c, global_c = state(c=tensors("client_c")), state(c=tensors("global_c"))
gradient, server_state = (
    state(drift=tensors(name, inverse)) for name in ("old_grad", "server_state")
)
own = state(personal=tensors("model_per"))
theta = tensors("personalized_params")
thetas = lambda server, w: np.array([theta(client) for client in server.clients])  # noqa: E731
pair = {"optimizer_per": ("steps", {"w": "model", "personal": "model_per"})}
second = MODEL | {"optimizer_per": ("personal_steps", {"w": "model_per"})}
part = {"judged": heads, "shared": "base"}
pfedme_options = {"lamda": "lam", "K": "inner", "p_learning_rate": "personal_lr", "beta": "beta"}

fedavg = method(("serveravg", "FedAvg"), {}, **SIZE)
fedprox = method(("serverprox", "FedProx"), {"mu": "mu"}, **SIZE)
scaffold = method(
    ("serverscaffold", "SCAFFOLD"),
    {"server_learning_rate": "server_lr"},
    {"state": c, "server": global_c},
    option=2,
    weights="uniform",
)
feddyn = method(
    ("serverdyn", "FedDyn"),
    {"alpha": "alpha"},
    {"state": gradient, "server": server_state},
    weights="uniform",
    deploy="server",
)
ditto = method(
    ("serverditto", "Ditto"),
    {"mu": "lam"},
    {"steps": second, "state": own, "judged": personal},
    personal_lr=None,
    personal_epochs=None,
    **SIZE,
)
pfedme = method(
    ("serverpFedMe", "pFedMe"),
    pfedme_options,
    {"steps": {}, "state": state(personal=theta), "judged": thetas},
    start="warm",
    **SIZE,
)
apfl = method(
    ("serverapfl", "APFL"), {"alpha": "alpha"}, {"steps": pair, "judged": personal}, **SIZE
)
moon = method(("servermoon", "MOON"), {"mu": "mu", "tau": "tau"}, **SIZE)
fedper = method(("serverper", "FedPer"), {}, part, **SIZE)
part = part | {"judged": lambda server, w: heads(server, w)[0]}
fedbabu = method(("serverbabu", "FedBABU"), {}, part, **SIZE)

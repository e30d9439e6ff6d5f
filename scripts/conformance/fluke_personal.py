"""fluke's personal methods on the test vectors.

Peer: fluke (fluke-fl) 0.8.1, run as in fluke.py.

    python scripts/check_vectors.py ditto scripts/conformance/fluke_personal.py --function ditto
"""

import numpy as np
from conformance.fluke import flat, trained


def personal(algorithm):
    """Return the clients' personal models [N, P]."""
    return np.stack([flat(c.personalized_model.parameters()) for c in algorithm.clients])


def trained_last(algorithm):
    """Return the models that clients of pFedMe trained last, or the server's [N, P]."""
    models = [c.model or algorithm.server.model for c in algorithm.clients]
    return np.stack([flat(model.parameters()) for model in models])


def joined(algorithm):
    """Return the server's part of the model with each client's own [N, P]."""
    shared = flat(algorithm.server.model.parameters())
    models = []
    for client in algorithm.clients:
        own = flat(client.model.get_local().parameters())
        last = client.model.get_local() is client.model.model.head
        models.append(np.concatenate([shared, own] if last else [own, shared]))
    return np.stack(models)


encoder = {"part": lambda net: net.encoder, "judged": joined, "server_lr": 1.0}
head = {**encoder, "part": lambda net: net.head}

apfl = trained(
    ".apfl",
    "APFL",
    lambda o: {"lam": o["alpha"]},
    lambda o: {"tau": 1},
    judged=personal,
    adaptive=False,
)
ditto = trained(".ditto", "Ditto", lambda o: {"lam": o["lam"]}, judged=personal, personal_lr=None)
fedper = trained(".fedper", "FedPer", **encoder)
lgfedavg = trained(".lg_fedavg", "LGFedAVG", **head)
pfedme = trained(
    ".pfedme",
    "PFedMe",
    lambda o: {"k": o["inner"]},
    lambda o: {"beta": o["beta"]},
    optimizer=lambda o: {"lr": o["personal_lr"], "lamda": o["lam"], "mu": 0.0},
    judged=trained_last,
    start="warm",
)

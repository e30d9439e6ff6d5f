"""fluke's FedDyn on the test vectors, as it is and with three changes that show what differs.

Peer: fluke (fluke-fl) 0.8.1, run as in fluke.py. Its penalty is alpha n / (N n_k), as here with the
weights size.

    python scripts/check_vectors.py feddyn scripts/conformance/fluke_feddyn.py --function feddyn
"""

from unittest import mock

from conformance.fluke import flat, trained
from fluke.algorithms.feddyn import FedDynClient, FedDynServer
from fluke.algorithms.feddyn import get_all_params_of as parameters
from fluke.algorithms.feddyn import load_all_params as load

FIT, AGGREGATE, RECEIVE = FedDynClient.fit, FedDynServer.aggregate, FedDynClient.receive_model


def models(algorithm):
    """Return the model that the server sends, and the mean of the clients' models."""
    server = algorithm.server
    return {"w": flat(server.cld_mdl.parameters()), "mean": flat(server.model.parameters())}


feddyn = trained(
    ".feddyn",
    "FedDyn",
    lambda o: {"alpha": o["alpha"]},
    lambda o: {"weighted": False},
    state=models,
    judged=lambda algorithm: flat(algorithm.server.cld_mdl.parameters()),
    deploy="server",
    weights="size",
)


def fit(client, override_local_epochs=0):
    """Train, and add v - w to the client's state, where fluke adds alpha (w - v)."""
    w, state = parameters(client.model), client.prev_grads.clone()
    value = FIT(client, override_local_epochs)
    client.prev_grads = state + parameters(client.model) - w
    return value


def receive_model(client):
    """Receive the server's model, where fluke's clients first start at the mean."""
    message = client.channel[client.index][-1].payload[1]
    RECEIVE(client)
    client.model.load_state_dict(message.state_dict())


def aggregate(server, eligible, client_models):
    """Add the mean of all clients' states to the model, where fluke adds the cohort's."""
    AGGREGATE(server, eligible, client_models)
    states = [c.prev_grads for c in server.clients if c.prev_grads is not None]
    load("cpu", server.cld_mdl, parameters(server.model) + sum(states) / len(server.clients))


def mended(data, w0, schedule, o):
    """Return the states with these changes."""
    with (
        mock.patch.object(FedDynClient, "fit", fit),
        mock.patch.object(FedDynClient, "receive_model", receive_model),
        mock.patch.object(FedDynServer, "aggregate", aggregate),
    ):
        return feddyn(data, w0, schedule, o)

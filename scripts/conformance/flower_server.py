"""Rounds of Flower's servers on the test vectors, for the adapters to its baselines.

The clients are in this process, and the cohort is that of the schedule.
"""

import logging
import tempfile

from conformance.torch_model import batches, flat, network, split
from flwr.common import Code, FitRes, GetParametersRes, Status, parameters_to_ndarrays
from flwr.common import ndarrays_to_parameters as packed
from flwr.server.client_manager import SimpleClientManager

logging.getLogger("flwr").setLevel(logging.ERROR)
OK = Status(Code.OK, "")


class Batches(list):
    """Batches in the place of a data loader, with the number of examples that weighs a client."""

    def __init__(self, data, plan, k, weights):
        super().__init__(batches(data, plan, k))
        self.dataset = data["clients"][k][1] if weights == "size" else [0]


class Client:
    """A client that a server can reach; a new Flower client is created for it in every round."""

    def __init__(self, make):
        self.make = make

    def get_parameters(self, **_):
        """Return the initial model."""
        return GetParametersRes(OK, packed(self.make().get_parameters({})))

    def fit(self, ins, **_):
        """Return the result of local training."""
        arrays, n, metrics = self.make().fit(parameters_to_ndarrays(ins.parameters), ins.config)
        return FitRes(OK, packed(arrays), n, metrics)


class Cohort(SimpleClientManager):
    """All clients, of which the cohort is sampled."""

    def sample(self, *_, **__):
        """Return the cohort."""
        return [self.clients[k] for k in self.plan["cohort"]]


def trained(make_server, make_client, begin=lambda server, data, folder: None):
    """Return a ``train`` with a server and clients of Flower.

    Args:
        make_server: Makes a server, given the initial arrays, the hyperparameters and the manager
            of the clients.
        make_client: Makes a client, given its number, its network with the initial model, its
            batches, the hyperparameters, the data and a folder.
        begin: Prepares the first round.
    """

    def train(data, w0, schedule, o):
        with tempfile.TemporaryDirectory() as folder:
            manager = Cohort()

            def client(k):
                loader = Batches(data, manager.plan, k, o["weights"])
                return make_client(k, network(w0, data["tensors"]), loader, o, data, folder)

            for k in range(len(data["clients"])):
                manager.clients[k] = Client(lambda k=k: client(k))
            arrays = split(w0, data["tensors"])
            server = make_server(arrays, o, manager)
            server.parameters = packed(arrays)
            states = []
            for t, manager.plan in enumerate(schedule, start=1):
                if t == 1:
                    begin(server, data, folder)
                server.parameters, _, (_, failures) = server.fit_round(t, None)
                if failures:
                    raise failures[0]
                w = flat(parameters_to_ndarrays(server.parameters))
                c = {"c": flat(server.server_cv)} if hasattr(server, "server_cv") else {}
                states.append({"server": {"w": w, **c}, "model": w})
            return states

    return train

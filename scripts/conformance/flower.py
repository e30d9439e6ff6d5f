"""Flower's strategies on the test vectors.

Peer: Flower (flwr) 1.42.0, its ``flwr.serverapp.strategy``. Run with Python 3.11.7, NumPy 2.4.6 and
PyTorch 2.13.0 on a CPU, in float64.

Its strategies sample, out of a grid that has the cohort alone, and aggregate. Local training is the
user's, so its steps are not compared.

    python scripts/check_vectors.py fedadam scripts/conformance/flower.py --function fedadam
"""

import logging

import numpy as np
from conformance.torch_model import batches, examples, flat, loss, network, refuse, sgd, split
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
logging.getLogger("flwr").setLevel(logging.ERROR)


class Cohort:
    """A grid of the clients that take part in a round."""

    def __init__(self, ids):
        self.ids = ids

    def get_node_ids(self):
        """Return the clients, of which Flower samples all."""
        return self.ids


def record(tensors):
    """Return arrays as Flower sends them."""
    return ArrayRecord({str(i): Array(np.asarray(t)) for i, t in enumerate(tensors)})


def reply(message, data, plan, o, penalty):
    """Return a client's answer to the server, after local training."""
    k = message.metadata.dst_node_id
    w = flat(message.content["arrays"].to_numpy_ndarrays())
    net = network(w, data["tensors"])
    start = [p.detach().clone() for p in net.parameters()]
    metrics = {"num-examples": len(data["clients"][k][1]), "one": 1}
    metrics["train_loss"] = float(loss(net, *examples(data, k)).detach())
    mu = message.content["config"].get("proximal-mu")
    term = penalty and (lambda parameters: penalty(parameters, start, mu))
    sgd(net, batches(data, plan, k), o["lr"], o["momentum"], term)
    arrays = record(p.detach().numpy() for p in net.parameters())
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content, reply_to=message)


def formula(parameters, received, mu):
    """Return the penalty in the formula of Flower's page on FedProx: mu/2 ||w - w^t||^2."""
    return mu / 2 * sum(((p - q) ** 2).sum() for p, q in zip(parameters, received, strict=True))


def snippet(parameters, received, mu):
    """Return the penalty in the code of that page, whose norms are not squared."""
    return mu / 2 * sum((p - q).norm(2) for p, q in zip(parameters, received, strict=True))


def trained(kind, names, only, penalty=None, first=1, v0=False):
    """Return a ``train`` with a strategy.

    Args:
        kind: The strategy.
        names: Its arguments, and the hyperparameters that they are.
        only: Options of which there is one value alone.
        penalty: Of local training, out of the parameters, those received and ``proximal-mu``.
        first: Number of the first round; Flower's own is 1.
        v0: Whether the second moment starts at tau^2 instead of Flower's 0.
    """

    def train(data, w0, schedule, o):
        refuse(f"Flower's {kind.__name__}", o, **only)
        key = "one" if o.get("weights") == "uniform" else "num-examples"
        strategy = kind(weighted_by_key=key, **{name: o[ours] for name, ours in names.items()})
        arrays = record(split(w0, data["tensors"]))
        if v0:
            strategy.v_t = {k: np.full(a.shape, o["tau"] ** 2) for k, a in arrays.items()}
        states = []
        for t, plan in enumerate(schedule, start=first):
            grid = Cohort(plan["cohort"])
            messages = strategy.configure_train(t, arrays, ConfigRecord(), grid)
            replies = [reply(message, data, plan, o, penalty) for message in messages]
            arrays, _ = strategy.aggregate_train(t, replies)
            w = flat(arrays.to_numpy_ndarrays())
            server = {"w": w}
            if getattr(strategy, "v_t", None):
                server |= {"m": -flat(strategy.m_t.values()), "v": flat(strategy.v_t.values())}
            states.append({"server": server, "model": w})
        return states

    return train


rates = {"eta": "server_lr", "tau": "tau"}
adam = {**rates, "beta_1": "beta1", "beta_2": "beta2"}

fedavg = trained(flower.FedAvg, {}, {"server_lr": 1.0})
fedprox = trained(flower.FedProx, {"proximal_mu": "mu"}, {"server_lr": 1.0}, formula)
fedprox_snippet = trained(flower.FedProx, {"proximal_mu": "mu"}, {"server_lr": 1.0}, snippet)
fedavgm = trained(
    flower.FedAvgM,
    {"server_learning_rate": "server_lr", "server_momentum": "beta"},
    {"nesterov": False},
)
qfedavg = trained(flower.QFedAvg, {"client_learning_rate": "lr", "q": "q"}, {"L": None})
fedadam = trained(flower.FedAdam, adam, {"eps_inside": False})
fedadam_from_0 = trained(flower.FedAdam, adam, {"eps_inside": False}, first=0)
fedadagrad = trained(flower.FedAdagrad, rates, {"beta1": 0.0})
fedadagrad_v0 = trained(flower.FedAdagrad, rates, {"beta1": 0.0, "v0": None}, v0=True)
fedyogi = trained(flower.FedYogi, adam, {})
fedyogi_v0 = trained(flower.FedYogi, adam, {"v0": None}, v0=True)

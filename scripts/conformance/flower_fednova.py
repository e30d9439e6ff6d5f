"""Flower's baseline ``fednova`` on the test vectors.

Peer: github.com/flwrlabs/flower, baselines/fednova at commit 77068b8497, with flwr 1.9.0, which it
asks for. Run with Python 3.11.7, NumPy 1.26.4, PyTorch 2.13.0, pandas 2 and hydra-core 1.3.8 on a
CPU, in float64.

Its client, its optimizer and its strategy train. The folder has to be in PYTHONPATH:

    python scripts/check_vectors.py fednova scripts/conformance/flower_fednova.py
"""

from conformance.flower_server import packed, trained
from fednova.client import FedNovaClient
from fednova.strategy import FedNova
from flwr.server import Server
from omegaconf import OmegaConf


def configuration(o):
    """Return the baseline's configuration."""
    optimizer = {"_target_": "fednova.models.ProxSGD", "mu": 0, "weight_decay": 0}
    optimizer |= {"lr": o["lr"], "momentum": o["momentum"], "gmf": o["server_momentum"]}
    return OmegaConf.create(
        {"var_local_epochs": False, "exp_name": "vanilla", "optimizer": optimizer}
    )


def client(k, net, loader, o, data, folder):
    """Return a client; as in the baseline, its weight is its part of all clients' examples."""
    n = [len(y) if o["weights"] == "size" else 1 for _, y in data["clients"]]
    return FedNovaClient(net, str(k), loader, None, "cpu", 1, n[k] / sum(n), configuration(o))


def server(strategy):
    """Return what makes a server with a kind of strategy."""

    def make(arrays, o, manager):
        rates = {"on_fit_config_fn": lambda t: {"lr": o["lr"]}}
        used = strategy(configuration(o), initial_parameters=packed(arrays), **rates)
        return Server(client_manager=manager, strategy=used)

    return make


class Undivided(FedNova):
    """FedNova without the division by the sum of the weights, which ``aggregate`` does."""

    def aggregate_fit(self, server_round, results, failures):
        """Multiply the averaged update by that sum before it is used."""
        tau = sum(res.metrics["tau"] for _, res in results)
        terms = (res.metrics["weight"] / res.metrics["local_norm"] for _, res in results)
        self.total = tau * sum(terms)
        return super().aggregate_fit(server_round, results, failures)

    def update_server_params(self, cum_grad):
        """Update the model."""
        super().update_server_params([self.total * layer for layer in cum_grad])


train = trained(server(FedNova), client)
undivided = trained(server(Undivided), client)

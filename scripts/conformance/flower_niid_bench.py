"""Flower's baseline ``niid_bench`` on the test vectors: FedProx, FedNova and SCAFFOLD.

Peer: github.com/flwrlabs/flower, baselines/niid_bench at commit 77068b8497, with flwr 1.5.0, which
it asks for. Run with Python 3.11.7, NumPy 1.26.4, PyTorch 2.13.0 and hydra-core 1.3.8 on a CPU. Its
clients round what they receive to float32.

Its clients, strategies and servers train. The folder has to be in PYTHONPATH:

    python scripts/check_vectors.py scaffold scripts/conformance/flower_niid_bench.py \
      --function scaffold --tolerance 1e-6
"""

from pathlib import Path

import torch
from conformance.flower_server import trained
from conformance.torch_model import refuse
from flwr.server import Server
from flwr.server.strategy import FedAvg
from niid_bench.client_fednova import FlowerClientFedNova
from niid_bench.client_fedprox import FlowerClientFedProx
from niid_bench.client_scaffold import FlowerClientScaffold
from niid_bench.server_fednova import FedNovaServer
from niid_bench.server_scaffold import ScaffoldServer
from niid_bench.strategy import FedNovaStrategy, ScaffoldStrategy
from omegaconf import OmegaConf


def client(kind, own=lambda k, o, folder: {}, **only):
    """Return what makes a kind of client; ``own`` gives the arguments that the others lack."""

    def make(k, net, loader, o, data, folder):
        refuse("niid_bench", o, **only)
        places = {"net": net, "trainloader": loader, "valloader": None, "device": "cpu"}
        rates = {"learning_rate": o["lr"], "momentum": o["momentum"], "weight_decay": 0.0}
        return kind(num_epochs=1, **places, **rates, **own(k, o, folder))

    return make


def scaffold_server(arrays, o, manager):
    """Return the server of SCAFFOLD."""
    model = OmegaConf.create({"_target_": "torch.nn.Identity"})
    return ScaffoldServer(ScaffoldStrategy(), model, manager)


def begin(server, data, folder):
    """Get the initial model from a client, as the server does before the first round."""
    server.parameters = server._get_initial_parameters(None)


def begin_at_zero(server, data, folder):
    """Set all control variates to 0, as in the paper."""
    begin(server, data, folder)
    server.server_cv = [torch.zeros(shape) for shape in data["tensors"]]
    for k in range(len(data["clients"])):
        torch.save(server.server_cv, Path(folder) / f"client_cv_{k}.pt")


scaffold_client = client(
    FlowerClientScaffold,
    lambda k, o, folder: {"cid": k, "save_dir": folder},
    option=2,
    server_lr=1.0,
)

scaffold = trained(scaffold_server, scaffold_client, begin)
scaffold_at_zero = trained(scaffold_server, scaffold_client, begin_at_zero)
fednova = trained(
    lambda arrays, o, manager: FedNovaServer(strategy=FedNovaStrategy(), client_manager=manager),
    client(FlowerClientFedNova, server_momentum=0.0),
)
fedprox = trained(
    lambda arrays, o, manager: Server(strategy=FedAvg(), client_manager=manager),
    client(FlowerClientFedProx, lambda k, o, folder: {"proximal_mu": o["mu"]}, server_lr=1.0),
)

"""FL-Simulator's own clients and servers on the test vectors.

Peer: woodenchild95/FL-Simulator, commit 502bec6 (26 October 2024). Run with Python 3.11, PyTorch
2.13.0 and torchvision 0.28.0 on a CPU, in float64.

Its ``Server.train`` runs whole. It is given the model, the cohorts and the batches; its rates do
not decay, and nothing is evaluated. SCAFFOLD, FedCM and MoFedSAM count local steps as epochs n / B
with the n of its first client, for everyone: they are asked with clients of equal size.

    export FLSIMULATOR=a checkout
    python scripts/check_vectors.py fedcm scripts/conformance/fl_simulator.py --function fedcm \
      --vectors build/equal  # of scripts/equal_vectors.py
"""

import contextlib
import importlib
import os
import sys
from types import SimpleNamespace

import numpy as np
import torch
from conformance.torch_model import batches, flat, network, refuse

sys.path.insert(0, os.environ["FLSIMULATOR"])
torch.set_default_dtype(torch.float64)
peer = importlib.import_module("server")
CLIENTS = {"c": "c_i_params_list", "drift": "h_params_list"}
SERVER = {"c": "c_params_list", "v": "v"}


def fields_of(server, fields, pick=lambda value: value):
    """Return the values of those fields that a server has."""
    values = {name: getattr(server, field, None) for name, field in fields.items()}
    return {name: flat([pick(value)]) for name, value in values.items() if value is not None}


class Log:
    """Gives a server its cohorts and batches, and records what it does."""

    def __init__(self, server, data, schedule):
        self.server, self.data, self.schedule = server, data, schedule
        self.states, self.pairs, self.now = [], [], {}
        self.kind, self.send = server.Client, server.process_for_communication
        self.kept = server.postprocess
        server.Client, server.postprocess = self.client, self.leave
        server.process_for_communication = self.enter
        server._activate_clients_, server._test_ = self.cohort, self.end_round
        server._save_results_ = server._summary_ = lambda: None

    def cohort(self, t):
        """Return the clients of a round."""
        self.states.append({"clients": {}})
        return np.array(self.schedule[t]["cohort"])

    def enter(self, k, average):
        """Send a client what it needs."""
        self.send(k, average)
        given = SimpleNamespace(**self.server.comm_vecs)
        received = fields_of(given, {"w": "Params_list", "m": "Client_momentum"})
        self.now = {"receives": received, "steps": {"w": []}}
        self.states[-1]["clients"][int(k)] = self.now
        self.pairs = batches(self.data, self.schedule[len(self.states) - 1], k)

    def client(self, **given):
        """Return a client with its batches."""
        client = self.kind(**given)
        client.dataset = iter(self.pairs)  # of all epochs, which are over then
        steps, model = self.now["steps"]["w"], client.model
        optimizer = getattr(client, "base_optimizer", client.optimizer)
        optimizer.register_step_post_hook(lambda *_: steps.append(flat(model.parameters())))
        return client

    def leave(self, k, received):
        """Let the server use what a client sent."""
        self.kept(k, received)
        self.now["upload"] = {"delta": -flat([received["local_update_list"]])}
        self.now["state"] = fields_of(self.server, CLIENTS, lambda values: values[k])

    def end_round(self, t, cohort):
        """Record the server."""
        w = flat([self.server.server_model_params_list])
        self.states[-1] |= {"server": {"w": w, **fields_of(self.server, SERVER)}, "model": w}


def method(name, options, **only):
    """Return the ``train`` of a method: a server, options there, and what it cannot vary."""

    def train(data, w0, schedule, o):
        refuse("FL-Simulator", o, momentum=0.0, **{k: v for k, v in only.items() if k in o})
        x, y = zip(*data["clients"], strict=True)
        k = schedule[0]["cohort"][0]
        epochs = len(schedule[0]["batches"][k]) // -(-len(y[k]) // o["batch_size"])
        args = {"total_client": len(x), "comm_rounds": len(schedule), "local_epochs": epochs}
        args |= {"local_learning_rate": o["lr"], "lr_decay": 1.0, "weight_decay": 0.0}
        args |= {"dataset": "CIFAR10", "batchsize": o["batch_size"], "use_RI": False}
        args |= {"global_learning_rate": o.get("server_lr", 1.0), "method": name}
        args |= {theirs: o[ours] for theirs, ours in options.items()}
        net = lambda: network(w0, data["tensors"])  # noqa: E731
        sets, args = SimpleNamespace(client_x=x, client_y=y), SimpleNamespace(**args)
        with contextlib.redirect_stdout(None):
            server = getattr(peer, name)("cpu", net, net(), torch.tensor(w0), sets, name, args)
            log = Log(server, data, schedule)
            server.train()
        return log.states

    return train


equal = {"weights": "uniform"}
adam = {"beta1": "beta1", "beta2": "beta2", "epsilon": "tau"}
fedavg = method("FedAvg", {}, **equal)
fedprox = method("FedProx", {"lamb": "mu"}, **equal)
scaffold = method("SCAFFOLD", {}, option=2, **equal)
feddyn = method("FedDyn", {"lamb": "alpha"}, deploy="server", **equal)
fedcm = method("FedCM", {"alpha": "alpha"}, **equal)
fedsam = method("FedSAM", {"rho": "rho"}, **equal)
mofedsam = method("MoFedSAM", {"rho": "rho", "alpha": "alpha"}, **equal)
fedspeed = method("FedSpeed", {"rho": "rho", "lamb": "prox"}, alpha=1.0, server="all")
fedadam = method("FedAdam", adam, v0=0.0, bias_correction=False, eps_inside=False, **equal)

"""The rounds of PFLlib, for pfllib.py.

Peer: TsingZ0/PFLlib, commit d832e76 (29 November 2025), in the folder $PFLLIB.
"""

import contextlib
import importlib
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from conformance.torch_model import batches, flat, network
from torch import nn

sys.path.insert(0, str(Path(os.environ["PFLLIB"], "system")))
torch.set_default_dtype(torch.float64)
base = importlib.import_module("flcore.servers.serverbase")
MODEL = {"optimizer": ("steps", {"w": "model"})}
SEEN = {"state": lambda client: {}, "server": lambda server: {}, "judged": lambda server, w: w}


class Options(dict):
    """PFLlib's options; those that are not given are 0."""

    def __getattr__(self, name):
        return self.get(name, 0)


def vector(owner, name):
    """Return a model of a client or of the server."""
    return flat(getattr(owner, name).parameters())


class Log:
    """Gives the clients their batches, and records what they and the server do.

    ``seen`` says what is recorded: "steps", the models after the step of an optimizer; "state" of a
    client and of the "server"; "judged", out of the server and w; "shared", the part that is sent.
    """

    def __init__(self, seen, data, schedule):
        self.seen = SEEN | seen
        self.data, self.schedule, self.states, self.queues = data, schedule, [], {}

    def cohort(self, server):
        """End a round, and return the clients of the next one."""
        self.end_round(server)
        plan = self.schedule[len(self.states)]
        self.states.append({"clients": {k: {} for k in plan["cohort"]}})
        for k in plan["cohort"]:
            ways = [{"batches": plan.get("personal_batches")}, plan]
            self.queues[k] = [batches(self.data, way, k) for way in ways if way["batches"]]
        return [server.clients[k] for k in plan["cohort"]]

    def end_round(self, server):
        """Record the server."""
        if self.states:
            w = vector(server, "global_model")
            further = self.seen["server"](server)
            model = self.seen["judged"](server, w)
            self.states[-1] |= {"server": {"w": w, **further}, "model": model}

    def load(self, client):
        """Return the batches of a local training."""
        return self.queues[client.id].pop(0) if self.queues.get(client.id) else []

    def note(self, client, part, models, *_):
        """Record a step."""
        there = self.states[-1]["clients"][client.id].setdefault(part, {})
        for word, name in models.items():
            there.setdefault(word, []).append(vector(client, name))

    def visit(self, client, train):
        """Let a client train, and record what it receives, sends and keeps."""
        part = client.model.get_submodule(self.seen.get("shared", ""))
        w = flat(part.parameters())
        train()
        done = {"receives": {"w": w}, "upload": {"delta": w - flat(part.parameters())}}
        self.states[-1]["clients"][client.id] |= done | {"state": self.seen["state"](client)}

    def follow(self, client):
        """Follow a client."""
        client.load_train_data = partial(self.load, client)
        client.train = partial(self.visit, client, client.train)
        for optimizer, (part, models) in self.seen.get("steps", MODEL).items():
            hook = partial(self.note, client, part, models)
            getattr(client, optimizer).register_step_post_hook(hook)


def two_parts(w, shapes):
    """Return the network of the vectors, in PFLlib's two parts."""
    net = network(w, shapes)
    model = nn.Sequential()
    model.add_module("base", net[:-1])
    model.add_module("head", net[-1])
    return model


def run(server, log, **options):
    """Let a server (its module and class) train with PFLlib's options, and return its states."""
    counts = [len(y) for _, y in log.data["clients"]]
    base.read_client_data = lambda dataset, k, is_train, few_shot: range(counts[k])
    share = (len(log.schedule[0]["cohort"]) + 0.5) / len(counts)
    args = Options(num_clients=len(counts), join_ratio=share, device="cpu", time_threthold=np.inf)
    args |= {"global_rounds": len(log.schedule) - 1, "local_epochs": 1, "plocal_epochs": 1}
    args |= {"eval_gap": 1, "learning_rate_decay_gamma": 1.0, **options}
    module, name = server
    with contextlib.redirect_stdout(None):
        peer = getattr(importlib.import_module(f"flcore.servers.{module}"), name)(args, 0)
        peer.select_clients = partial(log.cohort, peer)
        peer.save_results = partial(log.end_round, peer)
        peer.evaluate = peer.evaluate_personalized = peer.save_global_model = lambda: None
        peer.rs_test_acc = peer.rs_test_acc_per = [0.0]
        for client in peer.clients:
            log.follow(client)
        peer.train()
    return log.states

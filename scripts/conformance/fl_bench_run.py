"""The rounds of FL-bench, for fl_bench.py.

Peer: KarhouTam/FL-bench, commit 06e658b (9 October 2025), in the folder $FLBENCH.
"""

import importlib
import os
import sys
from types import SimpleNamespace

import torch
from conformance.torch_model import batches, flat, network

sys.path.insert(0, os.environ["FLBENCH"])
torch.set_default_dtype(torch.float64)
root = importlib.import_module("src.server.fedavg").FedAvgServer
constants = importlib.import_module("src.utils.constants")
models = importlib.import_module("src.utils.models")


def two_parts(w, shapes):
    """Return the network of the vectors in FL-bench's two parts, base and classifier."""
    net = network(w, shapes)
    model = models.DecoupledModel()
    model.base, model.classifier = net[:-1], net[-1]
    return model


def set_up(server, given):
    """Set up a server as its ``__init__`` does, with a model and clients that are given."""
    server.args, model, counts = given
    server.device = torch.device("cpu")
    server.train_clients, server.client_num = list(range(len(counts))), len(counts)
    server.testing = server.verbose = False
    server.init_model(model)
    for name in ("client_optimizer_states", "client_lr_scheduler_states", "client_metrics"):
        setattr(server, name, {k: {} for k in server.train_clients})
    server.dataset = SimpleNamespace(train=lambda: None, eval=lambda: None)
    server.client_data_indices = [{"train": range(n), "val": [], "test": []} for n in counts]
    server.client_local_epoches = [1] * len(counts)
    server.init_trainer()


def difference(log, w, sent):
    """Return Delta_k out of what a client sends."""
    if "model_params_diff" in sent:
        return log.shared(sent["model_params_diff"])
    return w - log.shared(sent["regular_model_params"])


SEEN = {"steps": {"w": "model"}, "personal_steps": {}, "part": "", "delta": difference}
SEEN |= {"judged": lambda server, w: w, "server": lambda _: {}, "state": lambda server, k: {}}


class Log:
    """Gives the clients their batches, and records what they and the server do.

    ``seen`` says what is recorded: "steps" and "personal_steps", models of the client after a
    batch; "delta", out of w and what it sent; "state", kept for it, and of the "server"; "judged",
    out of the server and w; "part", how the names of what is shared begin. ``by_step`` says whether
    ``local_epoch`` counts steps.
    """

    def __init__(self, server, data, schedule, seen, by_step):
        self.server, self.data, self.schedule, self.by_step = server, data, schedule, by_step
        self.seen, self.states, self.queue, self.snaps = SEEN | seen, [], [], []
        self.worker = server.trainer.worker
        self.train, self.worker.train, self.worker.trainloader = self.worker.train, self.visit, self
        self.worker.optimizer.register_step_post_hook(self.snap)

    def __iter__(self):
        """Yield the batches of the next epoch; one example is given twice, or it is left out."""
        for x, y in self.queue.pop(0):
            yield (x, y) if len(y) > 1 else (x.repeat(2, 1), y.repeat(2))

    def snap(self, *_):
        """Record the models after a step."""
        names = {*self.seen["steps"].values(), *self.seen["personal_steps"].values()}
        self.snaps.append({name: flat(getattr(self.worker, name).parameters()) for name in names})

    def shared(self, tensors):
        """Return the shared part of a dictionary of tensors as a vector."""
        return flat(v for name, v in tensors.items() if name.startswith(self.seen["part"]))

    def visit(self, package):
        """Let a client train, and record what it receives and sends."""
        k, self.snaps, plan = package["client_id"], [], self.schedule[len(self.states) - 1]
        self.queue = [batches(self.data, plan, k)]
        if "personal_batches" in plan:
            self.queue.append(batches(self.data, {"batches": plan["personal_batches"]}, k))
        first, total = len(self.queue[0]), sum(map(len, self.queue))
        package["local_epoch"] = self.worker.args.common.local_epoch = first if self.by_step else 1
        w = self.shared(package["regular_model_params"])
        sent = self.train(package)
        every = len(self.snaps) // total or 1
        taken = self.snaps[every - 1 :: every]
        rows = {"steps": taken[:first], "personal_steps": taken[first:]}
        done = {part: {} for part in rows}
        for part, snaps in rows.items():
            for name, model in self.seen[part].items():
                done[part][name] = [snap[model] for snap in snaps]
        delta = self.seen["delta"](self, w, sent)
        self.states[-1]["clients"][k] = done | {"receives": {"w": w}, "upload": {"delta": delta}}
        return sent

    def run(self):
        """Return the states of all rounds."""
        for t, plan in enumerate(self.schedule):
            self.server.current_epoch, self.server.selected_clients = t, plan["cohort"]
            self.states.append({"clients": {}})
            self.server.train_one_round()
            w = self.shared(self.server.public_model_params)
            model = self.seen["judged"](self.server, w)
            self.states[-1] |= {
                "server": {"w": w} | self.seen["server"](self.server),
                "model": model,
            }
            for k, done in self.states[-1]["clients"].items():
                done["state"] = self.seen["state"](self.server, k)
        return self.states

"""FL-bench's own clients and servers on the test vectors.

Peer: KarhouTam/FL-bench, commit 06e658b (9 October 2025). Run with Python 3.11, PyTorch 2.13.0,
torchvision 0.28.0, Ray 2.60.0 and Hydra 1.3.8 on a CPU, in float64.

Its trainer, its clients and its servers' ``train_one_round`` run; the set-up of a server is ours,
since FL-bench's reads data sets. It leaves out batches of one example (for BatchNorm): they are
given twice over, which has the same mean loss. SCAFFOLD's ``local_epoch`` counts steps there.

    export FLBENCH=a checkout
    python scripts/check_vectors.py scaffold scripts/conformance/fl_bench.py --function scaffold
"""

import importlib

import numpy as np
from conformance.fl_bench_run import Log, constants, root, set_up, two_parts
from conformance.torch_model import flat, refuse
from omegaconf import OmegaConf

SIZE = {"weights": "size", "server_lr": 1.0}


def method(name, options, seen=None, by_step=False, **only):
    """Return the ``train`` of a method.

    Args:
        name: The server's module and class, without "Server".
        options: Its options there, which are hyperparameters of the vectors, or values.
        seen: What is recorded, for ``Log``.
        by_step: Whether ``local_epoch`` counts steps.
        only: Hyperparameters of which FL-bench has one value alone.
    """
    module, kind = name

    def train(data, w0, schedule, o):
        refuse("FL-bench", o, momentum=0.0, **{k: v for k, v in only.items() if k in o})
        common = {"batch_size": o["batch_size"], "use_cuda": False, "client_side_evaluation": False}
        common |= {"test": {"client": {"finetune_epoch": 1}}}  # FedBABU asks for it
        own = {theirs: o.get(ours, ours) for theirs, ours in options.items()}
        args = {"optimizer": {"lr": o["lr"]}, "common": common, module: own}
        args = OmegaConf.merge(constants.DEFAULTS, args)
        counts = [len(y) for _, y in data["clients"]]
        model = two_parts(w0, data["tensors"])
        root.__init__ = lambda server, given: set_up(server, (given, model, counts))
        server = getattr(importlib.import_module(f"src.server.{module}"), f"{kind}Server")(args)
        return Log(server, data, schedule, seen or {}, by_step).run()

    return train


def vector(tensors):
    """Return a dictionary of tensors as a vector."""
    return flat(tensors.values())


def heads(server, w):
    """Return the shared part with each client's own head."""
    own = [
        server.clients_personal_model_params[k] or server.public_model_params
        for k in server.train_clients
    ]
    return np.array([np.r_[w, flat(p[name] for name in HEAD)] for p in own])


def personal(field):
    """Return what reads the personal models, which are judged."""
    return lambda server, w: np.array([vector(own) for own in getattr(server, field).values()])


def mixtures(server, w):
    """Return APFL's mixtures of the personal models and the server's."""
    pairs = zip(server.client_alphas.values(), personal(LOCAL)(server, w), strict=True)
    return np.array([float(a) * own + (1 - float(a)) * w for a, own in pairs])


def opt(server):
    """Return the moments of the server's optimizer."""
    made = server.adaptive_optimizer
    return {"m": -flat(made.momentums), "v": flat(made.velocities)}


HEAD = ("classifier.weight", "classifier.bias")
LOCAL, OWN = "client_local_model_params", "clients_personalized_model_params"
c = {"state": lambda server, k: {"c": flat(server.c_local[k])}}
c["server"] = lambda server: {"c": flat(server.c_global)}
drift = {"state": lambda server, k: {"drift": server.nabla[k].numpy().copy()}}
body = {"part": "base", "judged": heads}
whole = {"part": "base", "judged": lambda server, w: vector(server.public_model_params)}
two = {"steps": {"w": "model", "personal": "local_model"}, "judged": mixtures}
own = {"personal_steps": {"w": "pers_model"}, "judged": personal(OWN)}
theta = {"steps": {}, "judged": personal(OWN)}
theta["delta"] = lambda log, w, sent: w - flat(sent["local_model_params"])
moments = {"beta1": "beta1", "beta2": "beta2", "tau": "tau", "server_lr": "server_lr"}
plain = {"v0": 0.0, "bias_correction": False, "eps_inside": False, "weights": "size"}
moreau = {"lamda": "lam", "k": "inner", "pers_lr": "personal_lr", "beta": "beta"}
warm = {"start": "warm", **SIZE}

fedavg = method(("fedavg", "FedAvg"), {}, **SIZE)
fedprox = method(("fedprox", "FedProx"), {"mu": "mu"}, **SIZE)
scaffold = method(
    ("scaffold", "SCAFFOLD"), {"global_lr": "server_lr"}, c, True, option=2, weights="uniform"
)
feddyn = method(
    ("feddyn", "FedDyn"), {"alpha": "alpha", "max_grad_norm": 10}, drift, deploy="server"
)
fedavgm = method(("fedavgm", "FedAvgM"), {"server_momentum": "beta"}, nesterov=True, **SIZE)
fedadam, fedyogi, fedadagrad = (
    method(("fedopt", "FedOpt"), {"type": kind, **moments}, {"server": opt}, **plain)
    for kind in ("adam", "yogi", "adagrad")
)
ditto = method(("ditto", "Ditto"), {"lamda": "lam", "pers_epoch": 1}, own, personal_lr=None, **SIZE)
pfedme = method(("pfedme", "pFedMe"), moreau | {"mu": 1e-3}, theta, **warm)
pfedme_mu_0 = method(("pfedme", "pFedMe"), moreau | {"mu": 0.0}, theta, **warm)
apfl = method(("apfl", "APFL"), {"alpha": "alpha", "adaptive_alpha": "adaptive"}, two, **SIZE)
moon = method(("moon", "MOON"), {"mu": "mu", "tau": "tau"}, **SIZE)
fedper = method(("fedper", "FedPer"), {}, body, **SIZE)
fedbabu = method(("fedbabu", "FedBabu"), {}, whole, **SIZE)

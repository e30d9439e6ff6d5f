"""fluke's algorithms on the test vectors.

Peer: fluke (fluke-fl) 0.8.1, with Python 3.11.7, NumPy 2.4.6, PyTorch 2.13.0, a CPU and float64.

Its clients and servers train, in the loop of ``CentralizedFL.run`` with the given cohorts. Clients
keep their optimizer from round to round unless ``persistency`` is off: so here for momentum.

    python scripts/check_vectors.py scaffold scripts/conformance/fluke.py --function scaffold
"""

from copy import deepcopy
from importlib import import_module
from itertools import chain

from conformance.torch_model import batches, examples, flat, network, nn, refuse
from fluke.algorithms import PersonalizedFL
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.nets import EncoderHeadNet


class Loader(FastDataLoader):
    """A client's data, in the batches of the schedule, epoch by epoch."""

    def plan(self, *trainings):
        """Take the steps of a round's trainings, and return the number of epochs of each."""
        count = len(self)
        cut = [[t[i : i + count] for i in range(0, len(t), count)] for t in trainings]
        self.remaining = chain(*cut)
        return [len(epochs) for epochs in cut]

    def __iter__(self):
        """Return the batches of the next epoch."""
        return iter(next(self.remaining))


def one_round(algorithm, data, plan, judged, state):
    """Return the states after a round."""
    cohort = [algorithm.clients[k] for k in plan["cohort"]]
    algorithm.server.broadcast_model(cohort)
    for client in cohort:
        schedules = [plan[name] for name in ("batches", "personal_batches") if name in plan]
        trainings = [batches(data, {"batches": each}, client.index) for each in schedules]
        names = ("local_epochs", "tau")  # fluke's names of the epochs of each training
        for name, epochs in zip(names, client.train_set.plan(*trainings), strict=False):
            client.hyper_params.update({name: epochs})
        client.local_update(algorithm.rounds + 1)
    models = algorithm.server.receive_client_models(cohort, state_dict=False)
    algorithm.server.aggregate(cohort, models)
    algorithm.rounds += 1
    return {"server": state(algorithm), "model": judged(algorithm)}


def trained(module, name, client=lambda o: {}, server=lambda o: {}, **more):
    """Return a ``train`` with an algorithm of fluke.

    ``client`` and ``server`` give their arguments. ``more`` may have ``optimizer``, its arguments,
    ``part``, the server's part of the model, and ``judged`` and ``state``, which give what is
    compared; else it has the options of which there is one value alone.
    """
    kind = getattr(import_module(f"fluke.algorithms{module}"), name)
    optimizer = more.pop("optimizer", lambda o: {})
    part = more.pop("part", lambda net: net)
    judged = more.pop("judged", lambda algorithm: flat(algorithm.server.model.parameters()))
    state = more.pop("state", lambda algorithm: {"w": flat(algorithm.server.model.parameters())})

    def train(data, w0, schedule, o):
        refuse("fluke", o, **more)
        rates = {"name": kind.get_optimizer_class(None), "lr": o["lr"], **optimizer(o)}
        rates |= {"momentum": o["momentum"]} if o["momentum"] else {}
        whole = network(w0, data["tensors"])
        net = EncoderHeadNet(whole[:-1], whole[-1]) if len(whole) > 1 else whole
        labels, clients = data["layers"][-1], []
        for k in range(len(data["clients"])):
            size = o["batch_size"]
            loader = Loader(*examples(data, k), num_labels=labels, batch_size=size)
            own = {"local_epochs": 1, "persistency": not o["momentum"], "clipping": 0, **client(o)}
            own |= {"model": deepcopy(net)} if issubclass(kind, PersonalizedFL) else {}
            own |= {"optimizer_cfg": OptimizerConfigurator(rates), "loss_fn": nn.CrossEntropyLoss()}
            one = kind.get_client_class(None)(index=k, train_set=loader, test_set=None, **own)
            clients.append(one)
        weighted = {"weighted": o.get("weights") == "size", **server(o)}
        center = kind.get_server_class(None)(part(net), None, clients, **weighted)
        algorithm = kind(len(clients), None, {}, clients=clients, server=center)
        algorithm._round_zero()
        return [one_round(algorithm, data, plan, judged, state) for plan in schedule]

    return train


def controls(algorithm):
    """Return the state of SCAFFOLD's server."""
    server = algorithm.server
    return {"w": flat(server.model.parameters()), "c": flat(server.control.values())}


def adaptive(mode, *names, **only):
    """Return a ``train`` of FedOpt."""

    def rates(o):
        return {"mode": mode, "lr": o["server_lr"], **{name: o[name] for name in names}}

    return trained(".fedopt", "FedOpt", server=rates, **only)


rate = {"server": lambda o: {"lr": o["server_lr"]}}
step = {"server": lambda o: {"global_step": o["server_lr"]}}

fedavg = trained("", "CentralizedFL", **rate)
fedprox = trained(".fedprox", "FedProx", lambda o: {"mu": o["mu"]}, **rate)
fedlc = trained(".fedlc", "FedLC", lambda o: {"tau": o["tau"]}, **rate, floor=0.0)
fedsam = trained(".fedsam", "FedSAM", lambda o: {"rho": o["rho"]}, **rate)
moon = trained(".moon", "MOON", lambda o: {"mu": o["mu"], "tau": o["tau"]}, **rate)
scaffold = trained(".scaffold", "SCAFFOLD", **step, option=2, state=controls)
scaffold_lr = trained(".scaffold", "SCAFFOLD", **rate, option=2, state=controls)
fednova = trained(".fednova", "FedNova", server_momentum=0.0)
fedavgm = trained(".fedavgm", "FedAVGM", server=lambda o: {"momentum": o["beta"]}, nesterov=False)
fedadam = adaptive("adam", "beta1", "beta2", "tau", eps_inside=False, bias_correction=False)
fedadagrad = adaptive("adagrad", "beta1", "tau", v0=None)
fedyogi = adaptive("yogi", "beta1", "beta2", "tau", v0=None)

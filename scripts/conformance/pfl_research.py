"""pfl-research's algorithms on the test vectors.

Peer: pfl-research (pfl) 0.6.0, with Python 3.11.7, NumPy 2.4.6, PyTorch 2.13.0 and a CPU; models in
float64, whose updates it rounds to float32. The server's optimizer is PyTorch's: here also FedAvgM,
FedAdam and FedAdagrad.

    python scripts/check_vectors.py scaffold scripts/conformance/pfl_research.py \
      --function scaffold --tolerance 1e-6
"""

from dataclasses import replace

import torch
from conformance.torch_model import batches, examples, flat, loss, network, refuse
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.fedprox import FedProx, FedProxParams
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.context import UserContext
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import optim


class User(PyTorchTensorDataset):
    """A user's data, in the batches of the schedule, epoch by epoch."""

    def __init__(self, data, plan, k, size):
        super().__init__(examples(data, k), user_id=str(k))
        steps = batches(data, plan, k)
        count = -(-len(self) // size)
        self.epochs = [steps[i : i + count] for i in range(0, len(steps), count)]
        self.remaining = iter(self.epochs)

    def iter(self, batch_size):
        """Return the batches of the next epoch, or all data as one batch."""
        return [self.raw_data] if batch_size is None else next(self.remaining)


def pfl_model(w0, data, o, server):
    """Return a model with the two optimizers."""
    net = network(w0, data["tensors"])
    net.loss, net.metrics = lambda x, y: loss(net, x, y), None

    def local(parameters, lr):
        return optim.SGD(parameters, lr=lr, momentum=o["momentum"])

    return PyTorchModel(net, local, server(net.parameters(), o))


def trained(kind, params, server, own=lambda o, data: {}, **only):
    """Return a ``train`` with an algorithm, its parameters and the server's optimizer.

    ``own`` gives parameters that only it has, ``only`` options of which there is one value alone.
    """

    def train(data, w0, schedule, o):
        refuse("pfl-research", o, **only)
        model, algorithm = pfl_model(w0, data, o, server), kind()
        weighting = WeightByDatapoints() if o["weights"] == "size" else WeightByUser()
        local = NNTrainHyperParams(o["batch_size"], 1, o["lr"])
        states = []
        for t, plan in enumerate(schedule):
            parameters = params(len(schedule), 1, len(plan["cohort"]), None, **own(o, data))
            contexts, model, _ = algorithm.get_next_central_contexts(model, t, parameters, local)
            total = None
            for k in plan["cohort"]:
                user = User(data, plan, k, o["batch_size"])
                mine = replace(local, local_num_epochs=len(user.epochs))
                context = replace(contexts[0], do_evaluation=False, model_train_params=mine)
                stats, _ = algorithm.simulate_one_user(model, user, context)
                about = UserContext(len(user), None)
                weighting.postprocess_one_user(stats=stats, user_context=about)  # in place
                stats = stats.apply_elementwise(torch.clone)
                total = stats if total is None else stats + total
            model, _ = algorithm.process_aggregated_statistics(context, Metrics(), model, total)
            w = flat(model.get_parameters().values())
            c = getattr(algorithm, "_server_c", None)
            server_state = {"w": w} if c is None else {"w": w, "c": flat(c.values())}
            states.append({"server": server_state, "model": w})
        return states

    return train


def sgd(parameters, o):
    """Return plain steps of the server, or FedAvgM."""
    beta = o.get("beta", 0.0)
    return optim.SGD(
        parameters, lr=o["server_lr"], momentum=beta, nesterov=o.get("nesterov", False)
    )


def adam(parameters, o):
    """Return FedAdam."""
    return optim.Adam(parameters, o["server_lr"], (o["beta1"], o["beta2"]), o["tau"])


def adagrad(parameters, o):
    """Return FedAdagrad, whose second moment starts at tau^2 or v0."""
    v0 = o["tau"] ** 2 if o["v0"] is None else o["v0"]
    return optim.Adagrad(parameters, o["server_lr"], initial_accumulator_value=v0, eps=o["tau"])


def control(o, data):
    """Return the parameters of SCAFFOLD, with one storage of its states for all rounds."""
    storage = data.setdefault("storage", InMemoryUserStateStorage())
    option = {"use_gradient_as_control_variate": o["option"] == 1}
    return {"population": len(data["clients"]), "user_state_storage": storage, **option}


fedavg = fedavgm = trained(FederatedAveraging, NNAlgorithmParams, sgd)
fedadam = trained(FederatedAveraging, NNAlgorithmParams, adam, eps_inside=False)
fedadagrad = trained(FederatedAveraging, NNAlgorithmParams, adagrad, beta1=0.0)
fedprox = trained(FedProx, FedProxParams, sgd, lambda o, data: {"mu": o["mu"]})
scaffold = trained(SCAFFOLD, SCAFFOLDParams, sgd, control)

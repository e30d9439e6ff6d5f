"""fluke's algorithms with one change each, which shows what differs.

Peer: fluke (fluke-fl) 0.8.1, run as in fluke.py.

    python scripts/check_vectors.py fednova scripts/conformance/fluke_mended.py --function fednova
"""

from copy import deepcopy
from unittest import mock

import torch
from conformance import fluke
from fluke import server
from fluke.algorithms import fednova as nova
from fluke.algorithms.fedavgm import FedAVGMServer
from fluke.algorithms.fedopt import FedOptServer
from fluke.algorithms.fedsam import SAMOptimizer
from fluke.utils.model import aggregate_models, state_dict_zero_like


def complete(target, models, weights, eta, inplace=True):
    """Average models with weights whose sum is not 1: the server's own model has the rest."""
    models = [*models, deepcopy(target)]
    return aggregate_models(target, models, [*weights, 1 - sum(weights)], eta, inplace)


def undamped(target, models, weights, eta, inplace=True):
    """Average models without the server's learning rate, which FedOpt uses after that."""
    return aggregate_models(target, models, weights, 1.0, inplace)


def second_step(self, zero_grad=False):
    """Take SAM's step, and forget its gradient."""
    SECOND_STEP(self, zero_grad=True)


def begin_at_zero(self, *args, **kwargs):
    """Make FedAvgM's server, whose momentum is 0 at first, not None."""
    FEDAVGM(self, *args, **kwargs)
    self.momentum_vector = state_dict_zero_like(self.model.state_dict())


def begin_at_tau(self):
    """Let FedOpt's second moment begin at tau^2, as the comment there says."""
    MOMENTS(self)
    self.v_t = {k: torch.full_like(v, self.hyper_params.tau**2) for k, v in self.v_t.items()}


def changed(train, *changes):
    """Return a ``train`` with other functions in fluke: (where, name, function) each."""

    def run(data, w0, schedule, o):
        patches = [mock.patch.object(*change) for change in changes]
        for patch in patches:
            patch.start()
        try:
            return train(data, w0, schedule, o)
        finally:
            for patch in patches:
                patch.stop()

    return run


SECOND_STEP = SAMOptimizer.second_step
FEDAVGM = FedAVGMServer.__init__
MOMENTS = FedOptServer._init_moments
fedopt = (server, "aggregate_models", undamped), (FedOptServer, "_init_moments", begin_at_tau)

fednova = changed(fluke.fednova, (nova, "aggregate_models", complete))
fedsam = changed(fluke.fedsam, (SAMOptimizer, "second_step", second_step))
fedavgm = changed(fluke.fedavgm, (FedAVGMServer, "__init__", begin_at_zero))
fedadam = changed(fluke.fedadam, *fedopt)
fedadagrad = changed(fluke.fedadagrad, *fedopt)
fedyogi = changed(fluke.fedyogi, *fedopt)

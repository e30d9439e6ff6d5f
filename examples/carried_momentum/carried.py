"""Momentum that lives on with the client between rounds, for any method: a reading of AdaFedAdam's Table 7.

The paper does not say whether a client's momentum buffer starts from zero in every round. fedbench's methods let it;
these keep it. docs/reproduction.md has what comes of either.
"""

from dataclasses import replace

from fedbench.algorithms.adafedadam import adafedadam
from fedbench.algorithms.fedadam import fedadam
from fedbench.algorithms.fedavg import fedavg
from fedbench.algorithms.fednova import fednova
from fedbench.algorithms.qfedavg import qfedavg
from fedbench.core.algorithm import Algorithm
from fedbench.core.optim import SGD, Optimizer
from fedbench.core.types import ClientInfo, State

METHODS = {"fedavg": fedavg, "fedadam": fedadam, "qfedavg": qfedavg, "fednova": fednova, "adafedadam": adafedadam}


def carried(local: Optimizer = SGD, *, method: str, **settings: object) -> Algorithm:
    """Return a method whose clients keep the state of their local solver.

    Args:
        local: the solver, with momentum.
        method: fedavg, fedadam, qfedavg, fednova or adafedadam.
        settings: of the method.

    Identity: one client with FedAvg is SGD with momentum, uninterrupted.
    """
    algo: Algorithm = METHODS[method](local, **settings)  # type: ignore[operator]

    def start(msg: State, client: State, info: ClientInfo) -> State:
        return {**algo.start(msg, client, info), **client}

    def finish(msg: State, client: State, now: State, info: ClientInfo) -> tuple[State, State]:
        return algo.finish(msg, {}, now, info)[0], {k: now[k] for k in client}

    return replace(algo, client_init=local.init, start=start, finish=finish)

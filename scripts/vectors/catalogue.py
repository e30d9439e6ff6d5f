"""The methods and variants of the vectors, and the problems that they are run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vectors.methods import (
    adaptive_clients,
    averaging,
    fair,
    objectives,
    personal,
    servers,
    statistics,
)
from vectors.problems import (
    BATCHNORM_ALL,
    BATCHNORM_SAMPLED,
    NETWORK_ALL,
    NETWORK_SAMPLED,
    SOFTMAX_ALL,
    SOFTMAX_SAMPLED,
    Problem,
    Round,
)
from vectors.rounds import Method

Options = Mapping[str, Any]

UNIFORM = {"weights uniform": {"weights": "uniform"}}
SIZE = {"weights size": {"weights": "size"}}
SLOWER = {"server_lr 0.5": {"server_lr": 0.5}}
MOMENTUM = "local momentum 0.9"
# a variant's keys that belong to the local solver, and the number of rounds
LOCAL = ("momentum", "lr")
ROUNDS = "rounds"


@dataclass(frozen=True)
class Entry:
    """A method with its variants.

    Attributes:
        method: The class.
        variants: Options that differ from the defaults, by name; "momentum" and "lr" are the local
            solver's, and "rounds" is the number of rounds, if three do not show the variant.
        lr: Rate of the local steps.
        network: "only" if softmax regression does not show the method, "variants" if not its
            variants; "batchnorm" if the method needs BatchNorm.
        epochs: Whether all clients must take the same number of epochs.
    """

    method: type[Method]
    variants: Mapping[str, Options] = field(default_factory=dict)
    lr: float = 0.2
    network: Literal["no", "variants", "only", "batchnorm"] = "no"
    epochs: bool = False


METHODS: dict[str, Entry] = {
    "fedavg": Entry(averaging.FedAvg, {**UNIFORM, **SLOWER, MOMENTUM: {"momentum": 0.9}}),
    "fedprox": Entry(averaging.FedProx, {"mu 1": {"mu": 1.0}, **UNIFORM}),
    "scaffold": Entry(averaging.Scaffold, {"option 1": {"option": 1}, **SIZE, **SLOWER}),
    "fedadam": Entry(
        servers.FedAdam,
        {
            "torch": {
                "bias_correction": True,
                "v0": 0.0,
                "tau": 1e-8,
                "server_lr": 0.01,
                "beta2": 0.999,
            },
            "bias_correction": {"bias_correction": True},
            "eps_inside": {"eps_inside": True},
            **UNIFORM,
        },
    ),
    "fedavgm": Entry(servers.FedAvgM, {"nesterov": {"nesterov": True}, **UNIFORM}),
    "fedadagrad": Entry(
        servers.FedAdagrad, {"beta1 0.5, v0 0.1": {"beta1": 0.5, "v0": 0.1}, **UNIFORM}
    ),
    "fedyogi": Entry(servers.FedYogi, {"v0 0.01": {"v0": 0.01}, **UNIFORM}),
    "fedams": Entry(
        servers.FedAms,
        {
            "option 2": {"option": 2, "beta2": 0.5},
            "bias_correction": {"bias_correction": True, "tau": 1e-4},
            **SIZE,
        },
    ),
    "fednova": Entry(
        averaging.FedNova,
        {
            "server_momentum 0.5": {"server_momentum": 0.5},
            MOMENTUM: {"momentum": 0.9},
            **UNIFORM,
        },
    ),
    "qfedavg": Entry(averaging.QFedAvg, {"q 0": {"q": 0.0}, "q 5": {"q": 5.0}, "L 1": {"L": 1.0}}),
    "term": Entry(averaging.Term, {"t -2": {"t": -2.0}, **SIZE}),
    "afl": Entry(
        averaging.Afl,
        {
            "average": {"average": True},
            "partial": {"partial": True},
            "lr_lambda 3": {"lr_lambda": 3.0},
        },
    ),
    "fedfa": Entry(
        fair.FedFa,
        {
            "acc_at before": {"acc_at": "before"},
            "server_sign 1": {"server_sign": 1, "server_lr": 1.0},
            "b 2": {"b": 2, "server_lr": 0.5},
            "accuracy alone": {"alpha": 1.0, "beta": 0.0, "gamma_c": 0.0},
        },
    ),
    "fedmgda": Entry(
        fair.FedMgda,
        {
            "eps 0.1": {"eps": 0.1},
            "without normalize": {"normalize": False, "eps": 0.1},
            "prior uniform, without normalize": {
                "prior": "uniform",
                "eps": 0.1,
                "normalize": False,
            },
        },
    ),
    "adafed": Entry(
        fair.AdaFed,
        {
            "loss_at after": {"loss_at": "after"},
            "normalize_loss mean": {"normalize_loss": "mean", "gamma": 5.0},
            "gamma 0": {"gamma": 0.0},
        },
    ),
    "adafedadam": Entry(
        fair.AdaFedAdam,
        {
            "step_scale one": {"step_scale": "one"},
            "step_scale certainty_after_6": {"step_scale": "certainty_after_6", "rounds": 8},
            "inverse_rate ratio": {"inverse_rate": "ratio", "alpha": 2.0},
        },
    ),
    "propfair": Entry(
        fair.PropFair,
        {"tail scaled": {"tail": "scaled", "eps": 1.2}, "M 5": {"M": 5.0}, **UNIFORM},
    ),
    "gifair": Entry(
        fair.Gifair,
        {
            "form local": {"form": "local"},
            "rank_at last": {"rank_at": "last"},
            "form local, rank_at last": {"form": "local", "rank_at": "last"},
            **UNIFORM,
        },
    ),
    "fedfv": Entry(
        fair.FedFv,
        {
            "alpha 0, tau 0": {"alpha": 0.0, "tau": 0},
            "tau 2": {"tau": 2},
            "history paper": {"history": "paper"},
        },
        network="variants",
    ),
    "fedmdfg": Entry(
        fair.FedMdfg,
        {
            "step search": {"step": "search", "theta": 5.0},
            "source gradient": {"source": "gradient"},
            "without force": {"force": False, "theta": 60.0},
        },
    ),
    "drfa": Entry(
        fair.Drfa,
        {
            "snapshot start": {"snapshot": "start"},
            "snapshot 2": {"snapshot": 2, "gamma": 0.5},
            "snapshot_weights uniform": {"snapshot_weights": "uniform", "gamma": 0.5},
            "init size": {"init": "size"},
            "floor, decay": {"floor": 0.05, "decay": 0.9, "gamma": 0.5},
        },
    ),
    "fedheal": Entry(
        fair.FedHeal,
        {
            "threshold 0.6": {"threshold": 0.6, "beta": 1.0},
            "distance tensor": {"distance": "tensor"},
        },
    ),
    "naive_adaptive": Entry(adaptive_clients.NaiveAdaptive, {"eps": {"eps": 1e-3}}, lr=0.05),
    "local_adam": Entry(
        adaptive_clients.LocalAdam, {"state reset": {"state": "reset"}, **SIZE}, lr=0.05
    ),
    "fedcada": Entry(
        adaptive_clients.FedCada,
        {
            "adjust square": {"adjust": "square"},
            "adjust sin": {"adjust": "sin"},
            "adjust sqrt": {"adjust": "sqrt"},
            "adjust identity": {"adjust": "identity"},
            "adjust adam": {"adjust": "adam"},
            "counter step": {"counter": "step"},
            **SIZE,
        },
        lr=0.05,
    ),
    "fafed": Entry(
        adaptive_clients.FaFed,
        {
            "variant code": {"variant": "code"},
            "variant stateless": {"variant": "stateless"},
            "init_step adaptive": {"init_step": "adaptive"},
            "init_step none": {"init_step": "none"},
            "decay_w, ext": {"decay_w": 1.0, "ext": 0.95},
        },
        lr=0.05,
    ),
    "stem": Entry(
        adaptive_clients.Stem,
        {"decay_w": {"decay_w": 2.0, "alpha": 0.5}, "init_step none": {"init_step": "none"}},
        lr=0.1,
    ),
    "fedsps": Entry(
        adaptive_clients.FedSps,
        {"c 10, gamma_b 0.3": {"c": 10.0, "gamma_b": 0.3}, "l_star 0.5": {"l_star": 0.5}},
    ),
    "feddyn": Entry(
        averaging.FedDyn,
        {
            "alpha 0.5": {"alpha": 0.5},
            "deploy mean": {"deploy": "mean", "alpha": 0.5},
            "weights size": {"weights": "size", "alpha": 0.3},
        },
    ),
    "fedexp": Entry(
        averaging.FedExp,
        {
            "eps_per_client": {"eps_per_client": True, "eps": 0.1},
            "without average": {"average": False, "eps": 0.0},
            **UNIFORM,
        },
    ),
    "fedcm": Entry(averaging.FedCm, {"alpha 0.5": {"alpha": 0.5, "server_lr": 0.5}, **SIZE}),
    "mimelite": Entry(
        averaging.MimeLite,
        {"base adam": {"base": "adam", "eps": 0.3, "beta2": 0.5}, **SIZE},
    ),
    "fedsam": Entry(averaging.FedSam, {"rho 1": {"rho": 1.0}, **SIZE}),
    "mofedsam": Entry(averaging.MoFedSam, {"alpha 0.5, rho 1": {"alpha": 0.5, "rho": 1.0}, **SIZE}),
    "fedspeed": Entry(
        averaging.FedSpeed,
        {"server all": {"server": "all"}, "alpha 0.3": {"alpha": 0.3, "rho": 0.5, "prox": 0.5}},
    ),
    "ditto": Entry(
        personal.Ditto,
        {"own rate and epochs": {"lam": 2.0, "personal_lr": 0.05, "personal_epochs": 3}, **UNIFORM},
    ),
    "pfedme": Entry(
        personal.PFedMe,
        {"start reset": {"start": "reset"}, "beta 0.5": {"beta": 0.5}, **UNIFORM},
        lr=0.02,
    ),
    "apfl": Entry(personal.Apfl, {"adaptive": {"adaptive": True}, **UNIFORM}),
    "fedamp": Entry(personal.FedAmp, {"near": {"alpha": 0.3, "sigma": 2.0, "lam": 0.5}}),
    "local": Entry(personal.Local),
    "fedper": Entry(personal.FedPer, UNIFORM, network="only"),
    "lgfedavg": Entry(personal.LgFedAvg, SIZE, network="only"),
    "fedrep": Entry(
        personal.FedRep, {"body_epochs 2": {"body_epochs": 2}, **SIZE}, network="only", epochs=True
    ),
    "fedbabu": Entry(personal.FedBabu, SIZE, network="only"),
    "fedrod": Entry(personal.FedRod, {"start zero": {"start": "zero"}, **UNIFORM}),
    "fedlc": Entry(objectives.FedLc, {"floor 0.5": {"tau": 0.5, "floor": 0.5}, **UNIFORM}),
    "fedntd": Entry(
        objectives.FedNtd, {"tau 2": {"beta": 0.3, "tau": 2.0}, **UNIFORM}, network="only"
    ),
    "feddecorr": Entry(
        objectives.FedDecorr, {"form paper": {"form": "paper"}, **UNIFORM}, network="only"
    ),
    "fedbn": Entry(statistics.FedBn, SIZE, network="batchnorm"),
    "silobn": Entry(statistics.SiloBn, UNIFORM, network="batchnorm"),
    "fixbn": Entry(statistics.FixBn, UNIFORM, network="batchnorm"),
    "moon": Entry(objectives.Moon, {"mu 5": {"mu": 5.0, "tau": 1.0}, **UNIFORM}, network="only"),
}


@dataclass(frozen=True)
class Case:
    """A variant of a method on a problem.

    Attributes:
        name: Name of the method.
        variant: Name of the variant.
        method: The method on the problem.
        rounds: The schedule.
    """

    name: str
    variant: str
    method: Method
    rounds: list[Round]


def cases_of(name: str) -> Iterator[Case]:
    """Yield the cases of a method: the defaults on all problems, each variant on one."""
    entry = METHODS[name]
    for variant, given in {"default": {}, **entry.variants}.items():
        local = {"lr": entry.lr}
        options = {}
        for key, value in given.items():
            if key in LOCAL:
                local[key] = value
            elif key != ROUNDS:
                options[key] = value
        for short in _problems(entry, options, variant == "default"):
            problem = short.lasting(given[ROUNDS]) if ROUNDS in given else short
            method = entry.method(problem, options, **local)
            personal_epochs = options.get("personal_epochs")
            rounds = problem.schedule(name == "ditto", personal_epochs)
            yield Case(name, variant, method, rounds)


def _problems(entry: Entry, options: Options, default: bool) -> list[Problem]:
    softmax = [SOFTMAX_SAMPLED, SOFTMAX_ALL]
    network = [NETWORK_SAMPLED, NETWORK_ALL]
    if entry.epochs:
        network = [problem.with_epochs(2) for problem in network]
    if entry.method(SOFTMAX_ALL, options).everyone:
        softmax = softmax[1:]
        network = network[1:]
    if entry.network == "batchnorm":
        network = [BATCHNORM_SAMPLED, BATCHNORM_ALL]
    if entry.network in ("only", "batchnorm"):
        return network if default else network[:1]
    if entry.network == "variants":
        return [softmax[0], *network] if default else network
    return [*softmax, network[0]] if default else softmax[:1]

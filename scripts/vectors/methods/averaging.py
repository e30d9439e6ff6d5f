"""FedAvg and the methods that differ from it in a term, a weight or a control variate."""

from __future__ import annotations

from typing import Any

import numpy as np

from vectors.geometry import onto_simplex
from vectors.models import Array
from vectors.problems import Batch
from vectors.rounds import Method, State, Visit, stacked


class FedAvg(Method):
    """McMahan et al. 2017."""

    defaults = {"server_lr": 1.0, "weights": "size"}
    formulas = ("w <- w - server_lr sum_k p_k Delta_k",)


class FedProx(Method):
    """Li et al. 2020."""

    defaults = {"mu": 0.1, "server_lr": 1.0, "weights": "size"}
    formulas = (
        "step: local gradient g + mu (v - w)",
        "server: as FedAvg",
    )

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        pull = self.o.mu * (w - visit.message["w"])
        return self.batch_gradient(visit, w, batch) + pull


class FedNova(Method):
    """Wang et al. 2020."""

    defaults = {"server_momentum": 0.0, "weights": "size"}
    symbols = {
        "upload.unit": "Delta_k / a_k",
        "upload.a": "a_k, how often a constant gradient is counted in the local steps",
        "server.momentum": "b (server_momentum above 0)",
    }
    formulas = (
        "a_k = tau_k; with local momentum r: sum over j = 1..tau_k of (1 - r^j) / (1 - r)",
        "d = (sum_k p_k a_k) (sum_k p_k Delta_k / a_k)",
        "b <- server_momentum b + d, b = 0 at first",
        "w <- w - b",
    )

    def server_init(self, w: Array) -> State:
        if not self.o.server_momentum:
            return {"w": w}
        return {"w": w, "momentum": np.zeros_like(w)}

    def finish(self, visit: Visit, w: Array) -> None:
        r = self.momentum
        counted = [(1 - r**j) / (1 - r) for j in range(1, visit.tau + 1)]
        a = sum(counted)
        visit.upload = {"unit": (visit.message["w"] - w) / a, "a": a}
        visit.new_state = visit.state

    def server_step(self, server: State, visits: list[Visit]) -> State:
        p = self.share(visits)
        d = (p @ stacked(visits, "a")) * (p @ stacked(visits, "unit"))
        if not self.o.server_momentum:
            return {"w": server["w"] - d}
        b = self.o.server_momentum * server["momentum"] + d
        return {"w": server["w"] - b, "momentum": b}


class Scaffold(Method):
    """Karimireddy et al. 2020, Algorithm 1."""

    defaults = {"server_lr": 1.0, "option": 2, "weights": "uniform"}
    symbols = {
        "receives.c": "c, the server's control variate",
        "state.c": "c_k, the client's control variate",
        "upload.c": "c_k+ - c_k",
        "server.c": "c",
    }
    formulas = (
        "first: c = c_k = 0",
        "step: local gradient g + c - c_k",
        "option 2: c_k+ = c_k - c + Delta_k / (tau_k lr)",
        "option 1: c_k+ = gradient of F_k at w, the received model",
        "w <- w - server_lr sum_k p_k Delta_k",
        "c <- c + (C / N) sum_k p_k (c_k+ - c_k)",
        "c_k <- c_k+",
    )

    def server_init(self, w: Array) -> State:
        return {"w": w, "c": np.zeros_like(w)}

    def client_init(self, k: int, w: Array) -> State:
        return {"c": np.zeros_like(w)}

    def message(self, server: State, k: int) -> State:
        return {"w": server["w"], "c": server["c"]}

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        correction = visit.message["c"] - visit.state["c"]
        return self.batch_gradient(visit, w, batch) + correction

    def finish(self, visit: Visit, w: Array) -> None:
        start = visit.message["w"]
        old = visit.state["c"]
        if self.o.option == 1:
            new = self.full_gradient(visit, start)
        else:
            new = old - visit.message["c"] + (start - w) / (visit.tau * self.lr)
        visit.upload = {"delta": start - w, "c": new - old}
        visit.new_state = {"c": new}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        w = server["w"] - self.o.server_lr * self.mean(visits, "delta")
        c = server["c"] + len(visits) / self.count * self.mean(visits, "c")
        return {"w": w, "c": c}


class Losses(Method):
    """A method whose clients send their mean training loss at the model that they receive."""

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.upload["loss"] = self.full_loss(visit, visit.message["w"])


class QFedAvg(Losses):
    """Li et al. 2020, Algorithm 2."""

    defaults = {"q": 1.0, "L": None}
    symbols = {"upload.loss": "F_k(w)"}
    formulas = (
        "F = F_k(w) + 1e-10",
        "g_k = L Delta_k, L null: 1 / lr",
        "h_k = q F^(q-1) |g_k|^2 + L F^q",
        "w <- w - sum_k F^q g_k / sum_k h_k",
    )

    def server_step(self, server: State, visits: list[Visit]) -> State:
        q = self.o.q
        lipschitz = 1 / self.lr if self.o.L is None else self.o.L
        f = stacked(visits, "loss") + 1e-10
        g = lipschitz * stacked(visits, "delta")
        squares = (g**2).sum(1)
        h = q * f ** (q - 1) * squares + lipschitz * f**q
        return {"w": server["w"] - f**q @ g / h.sum()}


class Term(Losses):
    """Li et al. 2021."""

    defaults = {"t": 1.0, "weights": "uniform", "server_lr": 1.0}
    symbols = {"upload.loss": "F_k(w)"}
    formulas = (
        "o_k = p_k exp(t F_k(w)) / their sum",
        "w <- w - server_lr sum_k o_k Delta_k",
    )

    def server_step(self, server: State, visits: list[Visit]) -> State:
        tilted = self.share(visits) * np.exp(self.o.t * stacked(visits, "loss"))
        d = tilted @ stacked(visits, "delta") / tilted.sum()
        return {"w": server["w"] - self.o.server_lr * d}


class Afl(Losses):
    """Mohri et al. 2019, with local steps in the place of one gradient."""

    defaults = {"lr_lambda": 0.1, "average": False, "partial": False}
    symbols = {
        "upload.loss": "F_k(w)",
        "server.lambda": "l, the mixture of all N clients",
        "server.mean": "mean of the models of all rounds",
    }
    formulas = (
        "first: l = 1/N",
        (
            "w <- w - sum_k l_k Delta_k, l divided by its sum over the cohort (uniform if it is 0 "
            "there)"
        ),
        "then l_k <- l_k + lr_lambda F_k(w) for the cohort, with the old w",
        "l <- its Euclidean projection onto the simplex",
        "judged: w; average: the mean of the models after all rounds so far",
        "partial: whether clients may be absent; the formulas are the same",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.everyone = not self.o.partial

    def server_init(self, w: Array) -> State:
        uniform = np.full(self.count, 1 / self.count)
        return {"w": w, "lambda": uniform, "mean": w, "t": 0}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        ids = [v.k for v in visits]
        mixture = server["lambda"].copy()
        share = renormalised(mixture[ids])
        w = server["w"] - share @ stacked(visits, "delta")
        mixture[ids] += self.o.lr_lambda * stacked(visits, "loss")
        t = server["t"] + 1
        mean = w if t == 1 else server["mean"] + (w - server["mean"]) / t
        return {"w": w, "lambda": onto_simplex(mixture), "mean": mean, "t": t}

    def judged(self, server: State, states: list[State]) -> Array:
        w: Array = server["mean" if self.o.average else "w"]
        return w


def renormalised(mixture: Array) -> Array:
    """Return weights with sum 1; uniform ones if all are 0."""
    if not mixture.any():
        return np.full(len(mixture), 1 / len(mixture))
    return mixture / mixture.sum()


class FedSam(Method):
    """Qu et al. 2022."""

    defaults = {"rho": 0.1, "server_lr": 1.0, "weights": "uniform"}
    formulas = (
        "step: u = v + rho g / |g| (u = v if g = 0)",
        "step: local gradient that of the same batch at u",
        "server: as FedAvg",
    )

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        g = self.batch_gradient(visit, w, batch)
        return self.batch_gradient(visit, uphill(w, g, self.o.rho), batch)


def uphill(w: Array, g: Array, rho: float) -> Array:
    """Return the point of higher loss, at the distance rho along the gradient."""
    length = np.linalg.norm(g)
    if length == 0:
        return w
    return w + rho * g / length


class FedCm(Method):
    """Xu et al. 2021."""

    defaults = {"alpha": 0.1, "server_lr": 1.0, "weights": "uniform"}
    symbols = {"receives.m": "m", "server.m": "m, the mean gradient of the last cohort"}
    formulas = (
        "first: m = 0",
        "step: local gradient alpha g + (1 - alpha) m",
        "m <- sum_k p_k Delta_k / (lr tau_k)",
        "w <- w - server_lr sum_k p_k Delta_k",
    )

    def server_init(self, w: Array) -> State:
        return {"w": w, "m": np.zeros_like(w)}

    def message(self, server: State, k: int) -> State:
        return {"w": server["w"], "m": server["m"]}

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        own = self.own_gradient(visit, w, batch)
        return self.o.alpha * own + (1 - self.o.alpha) * visit.message["m"]

    def own_gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        """Return the client's share of the gradient."""
        return self.batch_gradient(visit, w, batch)

    def server_step(self, server: State, visits: list[Visit]) -> State:
        steps = np.array([v.tau for v in visits])
        delta = stacked(visits, "delta")
        m = self.share(visits) @ (delta / (self.lr * steps[:, None]))
        w = server["w"] - self.o.server_lr * self.share(visits) @ delta
        return {"w": w, "m": m}


class MoFedSam(FedCm):
    """Qu et al. 2022."""

    defaults = {"rho": 0.1, "alpha": 0.1, "server_lr": 1.0, "weights": "uniform"}
    formulas = (
        "first: m = 0",
        "step: u = v + rho g / |g| (u = v if g = 0), h the gradient of the same batch at u",
        "step: local gradient alpha h + (1 - alpha) m",
        "m <- sum_k p_k Delta_k / (lr tau_k)",
        "w <- w - server_lr sum_k p_k Delta_k",
    )

    def own_gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        g = self.batch_gradient(visit, w, batch)
        return self.batch_gradient(visit, uphill(w, g, self.o.rho), batch)


class MimeLite(Method):
    """Karimireddy et al. 2021."""

    defaults = {
        "base": "momentum",
        "beta1": 0.9,
        "beta2": 0.99,
        "eps": 1e-3,
        "server_lr": 1.0,
        "weights": "uniform",
    }
    symbols = {
        "receives.m": "m",
        "receives.v": "s (base: adam)",
        "upload.grad": "gradient of F_k at w",
        "server.m": "m",
        "server.v": "s (base: adam)",
    }
    formulas = (
        "first: m = s = 0",
        "step: local gradient u = (1 - beta1) g + beta1 m; m and s do not move in the steps",
        "base adam: local gradient u / (sqrt(s) + eps)",
        "c = sum_k p_k grad F_k(w), at the old w",
        "m <- beta1 m + (1 - beta1) c",
        "s <- beta2 s + (1 - beta2) c^2",
        "w <- w - server_lr sum_k p_k Delta_k",
    )

    def server_init(self, w: Array) -> State:
        zero = np.zeros_like(w)
        if self.o.base == "adam":
            return {"w": w, "m": zero, "v": zero}
        return {"w": w, "m": zero}

    def message(self, server: State, k: int) -> State:
        return server

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        g = self.batch_gradient(visit, w, batch)
        u = (1 - self.o.beta1) * g + self.o.beta1 * visit.message["m"]
        if self.o.base == "adam":
            u = u / (np.sqrt(visit.message["v"]) + self.o.eps)
        return u

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.upload["grad"] = self.full_gradient(visit, visit.message["w"])

    def server_step(self, server: State, visits: list[Visit]) -> State:
        c = self.mean(visits, "grad")
        o = self.o
        new = {
            "w": server["w"] - o.server_lr * self.mean(visits, "delta"),
            "m": o.beta1 * server["m"] + (1 - o.beta1) * c,
        }
        if o.base == "adam":
            new["v"] = o.beta2 * server["v"] + (1 - o.beta2) * c**2
        return new


class FedExp(Method):
    """Jhunjhunwala et al. 2023."""

    defaults = {"eps": 0.001, "eps_per_client": False, "average": True, "weights": "size"}
    symbols = {"server.mean": "mean of the last two models; in round 1 the model"}
    formulas = (
        "d = sum_k p_k Delta_k",
        (
            "e = max(1, sum_k p_k |Delta_k|^2 / (2 (|d|^2 + eps))); eps_per_client: C eps in the "
            "place of eps"
        ),
        "w <- w - e d",
        "judged: w; average: (new w + old w) / 2 from round 2 on",
    )

    def server_init(self, w: Array) -> State:
        return {"w": w, "mean": w, "t": 0}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        p = self.share(visits)
        delta = stacked(visits, "delta")
        d = p @ delta
        floor = self.o.eps * (len(visits) if self.o.eps_per_client else 1)
        squares = (delta**2).sum(1)
        rate = max(1.0, p @ squares / (2 * (d @ d + floor)))
        w = server["w"] - rate * d
        mean = (w + server["w"]) / 2 if server["t"] else w
        return {"w": w, "mean": mean, "t": server["t"] + 1}

    def judged(self, server: State, states: list[State]) -> Array:
        w: Array = server["mean" if self.o.average else "w"]
        return w


class FedDyn(Method):
    """Acar et al. 2021."""

    defaults = {"alpha": 0.01, "weights": "uniform", "deploy": "server"}
    symbols = {
        "state.drift": "u_k (the paper's gradient term is -alpha u_k)",
        "server.drift": "u, the mean of all N u_k (the paper's h is -alpha u)",
        "server.mean": "mean of the cohort's local models",
    }
    formulas = (
        "first: u_k = u = 0",
        "step: local gradient g + a_k (v - w + u_k), a_k = alpha",
        "weights size: a_k = alpha n / (N n_k), n the examples of all N clients",
        "u_k <- u_k - Delta_k",
        "u <- u - (1/N) sum_k Delta_k",
        "w <- w - (1/C) sum_k Delta_k + u, with the new u",
        "judged: w; deploy mean: server.mean, old w - (1/C) sum_k Delta_k",
    )

    def server_init(self, w: Array) -> State:
        return {"w": w, "drift": np.zeros_like(w), "mean": w}

    def client_init(self, k: int, w: Array) -> State:
        return {"drift": np.zeros_like(w)}

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        strength = self.o.alpha
        if self.o.weights == "size":
            strength = strength * self.n.sum() / (self.count * visit.n)
        pull = w - visit.message["w"] + visit.state["drift"]
        return self.batch_gradient(visit, w, batch) + strength * pull

    def finish(self, visit: Visit, w: Array) -> None:
        delta = visit.message["w"] - w
        visit.upload = {"delta": delta}
        visit.new_state = {"drift": visit.state["drift"] - delta}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        delta = stacked(visits, "delta")
        drift = server["drift"] - delta.sum(0) / self.count
        mean = server["w"] - delta.mean(0)
        return {"w": mean + drift, "drift": drift, "mean": mean}

    def judged(self, server: State, states: list[State]) -> Array:
        w: Array = server["mean" if self.o.deploy == "mean" else "w"]
        return w


class FedSpeed(Method):
    """Sun et al. 2023."""

    defaults = {"prox": 0.1, "alpha": 1.0, "rho": 0.1, "server": "cohort"}
    symbols = {
        "state.drift": "u_k",
        "upload.delta": "w - v - u_k with the new u_k; with server: all, w - v",
        "server.drift": "u, the mean of all N u_k (server: all)",
        "server.mean": "mean of the cohort's local models (server: all)",
    }
    formulas = (
        "first: u_k = 0",
        "step: h the gradient of the same batch at v + rho g / |g|",
        "step: local gradient (1 - alpha) g + alpha h + prox (v - w + u_k)",
        "u_k <- u_k - Delta_k",
        "server cohort: w <- mean of v_k + u_k over the cohort",
        "server all: w <- (mean of v_k over the cohort) + (mean of u_k over all N)",
    )

    def server_init(self, w: Array) -> State:
        if self.o.server == "cohort":
            return {"w": w}
        return {"w": w, "drift": np.zeros_like(w), "mean": w}

    def client_init(self, k: int, w: Array) -> State:
        return {"drift": np.zeros_like(w)}

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        g = self.batch_gradient(visit, w, batch)
        h = self.batch_gradient(visit, uphill(w, g, self.o.rho), batch)
        mixed = (1 - self.o.alpha) * g + self.o.alpha * h
        pull = w - visit.message["w"] + visit.state["drift"]
        total: Array = mixed + self.o.prox * pull
        return total

    def finish(self, visit: Visit, w: Array) -> None:
        delta = visit.message["w"] - w
        drift = visit.state["drift"] - delta
        visit.upload = {"delta": delta - drift if self.o.server == "cohort" else delta}
        visit.new_state = {"drift": drift}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        delta = stacked(visits, "delta")
        mean = server["w"] - delta.mean(0)
        if self.o.server == "cohort":
            return {"w": mean}
        drift = server["drift"] - delta.sum(0) / self.count
        return {"w": mean + drift, "drift": drift, "mean": mean}

"""Server optimisers."""

from __future__ import annotations

import numpy as np

from vectors.models import Array
from vectors.rounds import Method, State, Visit


class FedAvgM(Method):
    """Hsu et al. 2019."""

    defaults = {"server_lr": 1.0, "beta": 0.9, "nesterov": False, "weights": "size"}
    symbols = {"server.momentum": "b"}
    formulas = (
        "d = sum_k p_k Delta_k",
        "b <- beta b + d, b = 0 at first",
        "w <- w - server_lr b",
        "nesterov: w <- w - server_lr (d + beta b)",
    )

    def server_init(self, w: Array) -> State:
        return {"w": w, "momentum": np.zeros_like(w)}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        d = self.mean(visits, "delta")
        b = self.o.beta * server["momentum"] + d
        direction = d + self.o.beta * b if self.o.nesterov else b
        return {"w": server["w"] - self.o.server_lr * direction, "momentum": b}


class Adaptive(Method):
    """Reddi et al. 2021, Algorithm 2: the part that the three methods share."""

    symbols = {
        "server.m": "m, the first moment",
        "server.v": "s, the second moment",
        "server.t": "rounds so far",
    }

    def server_init(self, w: Array) -> State:
        first = self.o.tau**2 if self.o.v0 is None else self.o.v0
        return {"w": w, "m": np.zeros_like(w), "v": np.full_like(w, first), "t": 0}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        d = self.mean(visits, "delta")
        m = self.o.beta1 * server["m"] + (1 - self.o.beta1) * d
        v = self.second_moment(server["v"], d**2)
        t = server["t"] + 1
        w = server["w"] - self.o.server_lr * self.direction(m, v, t)
        return {"w": w, "m": m, "v": v, "t": t}

    def second_moment(self, v: Array, square: Array) -> Array:
        """Return the new second moment."""
        raise NotImplementedError

    def direction(self, m: Array, v: Array, t: int) -> Array:
        """Return the direction of the step."""
        return m / (np.sqrt(v) + self.o.tau)


_SHARED = {"server_lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "v0": None}
_START = ("first: m = 0 and s = v0, v0 null: tau^2", "d = sum_k p_k Delta_k")
_STEP = "w <- w - server_lr m / (sqrt(s) + tau)"


class FedAdagrad(Adaptive):
    """Reddi et al. 2021."""

    defaults = {"server_lr": 0.1, "beta1": 0.0, "tau": 1e-3, "v0": None, "weights": "size"}
    formulas = (
        *_START,
        "m <- beta1 m + (1 - beta1) d",
        "s <- s + d^2",
        _STEP,
    )

    def second_moment(self, v: Array, square: Array) -> Array:
        return v + square


class FedYogi(Adaptive):
    """Reddi et al. 2021."""

    defaults = {**_SHARED, "weights": "size"}
    formulas = (
        *_START,
        "m <- beta1 m + (1 - beta1) d",
        "s <- s - (1 - beta2) d^2 sign(s - d^2)",
        _STEP,
    )

    def second_moment(self, v: Array, square: Array) -> Array:
        return v - (1 - self.o.beta2) * square * np.sign(v - square)


class FedAdam(Adaptive):
    """Reddi et al. 2021."""

    defaults = {**_SHARED, "bias_correction": False, "eps_inside": False, "weights": "size"}
    formulas = (
        *_START,
        "m <- beta1 m + (1 - beta1) d",
        "s <- beta2 s + (1 - beta2) d^2",
        _STEP,
        "eps_inside: sqrt(s + tau) in the place of sqrt(s) + tau",
        "bias_correction: m / (1 - beta1^t) and s / (1 - beta2^t) in the step of w, t = 1, 2, ...",
    )

    def second_moment(self, v: Array, square: Array) -> Array:
        return self.o.beta2 * v + (1 - self.o.beta2) * square

    def direction(self, m: Array, v: Array, t: int) -> Array:
        if self.o.bias_correction:
            m = m / (1 - self.o.beta1**t)
            v = v / (1 - self.o.beta2**t)
        if self.o.eps_inside:
            return m / np.sqrt(v + self.o.tau)
        return m / (np.sqrt(v) + self.o.tau)


class FedAms(Method):
    """Wang, Lin and Chen 2022."""

    defaults = {
        "server_lr": 0.1,
        "beta1": 0.9,
        "beta2": 0.99,
        "tau": 1e-3,
        "option": 1,
        "bias_correction": False,
        "weights": "uniform",
    }
    symbols = {
        "server.m": "m, the first moment",
        "server.v": "s, the second moment",
        "server.v_max": "h, the largest second moment so far",
        "server.t": "rounds so far",
    }
    formulas = (
        "first: m = s = h = 0",
        "d = sum_k p_k Delta_k",
        "m <- beta1 m + (1 - beta1) d",
        "s <- beta2 s + (1 - beta2) d^2",
        "option 1: h <- max(h, s, tau); w <- w - server_lr m / sqrt(h)",
        "option 2: h <- max(h, s); w <- w - server_lr m / (sqrt(h) + tau)",
        "bias_correction: m / (1 - beta1^t) and h / (1 - beta2^t) in the step of w, t = 1, 2, ...",
    )

    def server_init(self, w: Array) -> State:
        zero = np.zeros_like(w)
        return {"w": w, "m": zero, "v": zero, "v_max": zero, "t": 0}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        o = self.o
        d = self.mean(visits, "delta")
        t = server["t"] + 1
        m = o.beta1 * server["m"] + (1 - o.beta1) * d
        v = o.beta2 * server["v"] + (1 - o.beta2) * d**2
        largest = np.maximum(server["v_max"], v)
        if o.option == 1:
            largest = np.maximum(largest, o.tau)
        first = m / (1 - o.beta1**t) if o.bias_correction else m
        second = largest / (1 - o.beta2**t) if o.bias_correction else largest
        below = np.sqrt(second) if o.option == 1 else np.sqrt(second) + o.tau
        w = server["w"] - o.server_lr * first / below
        return {"w": w, "m": m, "v": v, "v_max": largest, "t": t}

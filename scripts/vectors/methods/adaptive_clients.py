"""Adaptive steps on the clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vectors.models import Array
from vectors.problems import Batch
from vectors.rounds import Method, State, Visit, stacked


class NaiveAdaptive(Method):
    """FAFED's paper, Algorithm 1."""

    defaults = {"beta": 0.5, "eps": 0.0}
    symbols = {"state.v": "s_k"}
    formulas = (
        "first: s_k = 0, kept",
        "step: s_k <- beta s_k + (1 - beta) g^2",
        "step: v <- v - lr g / (sqrt(s_k) + eps), 0 / 0 = 0",
        "server: w <- mean of v over the cohort",
    )

    def client_init(self, k: int, w: Array) -> State:
        return {"v": np.zeros_like(w)}

    def train(self, visit: Visit) -> Array:
        w = visit.message["w"]
        square = visit.state["v"]
        for batch in visit.batches:
            g = self.batch_gradient(visit, w, batch)
            square = self.o.beta * square + (1 - self.o.beta) * g**2
            root = np.sqrt(square) + self.o.eps
            zero = np.zeros_like(g)
            w = w - self.lr * np.divide(g, root, out=zero, where=root > 0)
            visit.record(w=w)
        visit.local = {"v": square}
        return np.asarray(w)

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.new_state = visit.local


class LocalAdam(Method):
    """FedAvg with Adam on the clients."""

    defaults = {
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "state": "persist",
        "weights": "uniform",
    }
    symbols = {
        "state.m": "m (state: persist)",
        "state.v": "s (state: persist)",
        "state.t": "local steps so far (state: persist)",
    }
    formulas = (
        "first: m = s = 0 and t = 0, kept; state reset: at the start of every round",
        "step: t <- t + 1",
        "step: m <- beta1 m + (1 - beta1) g",
        "step: s <- beta2 s + (1 - beta2) g^2",
        "step: v <- v - lr (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + eps)",
        "server: as FedAvg",
    )

    def client_init(self, k: int, w: Array) -> State:
        zero = np.zeros_like(w)
        return {"m": zero, "v": zero, "t": 0} if self.o.state == "persist" else {}

    def train(self, visit: Visit) -> Array:
        o = self.o
        w = visit.message["w"]
        zero = np.zeros_like(w)
        m = visit.state.get("m", zero)
        v = visit.state.get("v", zero)
        t = visit.state.get("t", 0)
        for batch in visit.batches:
            g = self.batch_gradient(visit, w, batch)
            t += 1
            m = o.beta1 * m + (1 - o.beta1) * g
            v = o.beta2 * v + (1 - o.beta2) * g**2
            root = np.sqrt(v / (1 - o.beta2**t)) + o.eps
            w = w - self.lr * m / (1 - o.beta1**t) / root
            visit.record(w=w)
        visit.local = {"m": m, "v": v, "t": t}
        return np.asarray(w)

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.new_state = visit.local if self.o.state == "persist" else {}


ADJUSTED: dict[str, Callable[[float], float]] = {
    "plus": lambda z: 1 + z,
    "square": lambda z: 1 + z * z,
    "sin": lambda z: 1 + float(np.sin(z)),
    "sqrt": lambda z: 1 + float(np.sqrt(z)),
    "identity": lambda z: 1.0,
    "adam": lambda z: 1 - z,
}


class FedCada(Method):
    """Zhou et al. 2024."""

    defaults = {
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "adjust": "plus",
        "counter": "round",
        "server_lr": 1.0,
        "weights": "uniform",
    }
    symbols = {
        "receives.m": "M",
        "receives.v": "S",
        "receives.t": "rounds before this one",
        "state.t": "local steps so far (counter: step)",
        "upload.m": "m",
        "upload.v": "s",
        "server.m": "M",
        "server.v": "S",
        "server.t": "rounds so far",
    }
    formulas = (
        "first: M = S = 0",
        "client: starts from m = M, s = S",
        "step: m <- beta1 m + (1 - beta1) g",
        "step: s <- beta2 s + (1 - beta2) g^2",
        "step: v <- v - lr (m / D(beta1^t)) / (sqrt(s / D(beta2^t)) + eps)",
        "counter round: t the round, from 1",
        "counter step: t the client's local step, from 1, over all rounds",
        "adjust plus: D(z) = 1 + z",
        "adjust square: D(z) = 1 + z^2",
        "adjust sin: D(z) = 1 + sin z",
        "adjust sqrt: D(z) = 1 + sqrt z",
        "adjust identity: D(z) = 1",
        "adjust adam: D(z) = 1 - z",
        "w <- w - server_lr sum_k p_k Delta_k",
        "M <- sum_k p_k m_k",
        "S <- sum_k p_k s_k",
    )

    def server_init(self, w: Array) -> State:
        zero = np.zeros_like(w)
        return {"w": w, "m": zero, "v": zero, "t": 0}

    def client_init(self, k: int, w: Array) -> State:
        return {"t": 0} if self.o.counter == "step" else {}

    def message(self, server: State, k: int) -> State:
        return server

    def train(self, visit: Visit) -> Array:
        o = self.o
        adjusted = ADJUSTED[o.adjust]
        w = visit.message["w"]
        m = visit.message["m"]
        v = visit.message["v"]
        taken = visit.state.get("t", 0)
        for batch in visit.batches:
            taken += 1
            t = visit.message["t"] + 1 if o.counter == "round" else taken
            g = self.batch_gradient(visit, w, batch)
            m = o.beta1 * m + (1 - o.beta1) * g
            v = o.beta2 * v + (1 - o.beta2) * g**2
            root = np.sqrt(v / adjusted(o.beta2**t)) + o.eps
            w = w - self.lr * m / adjusted(o.beta1**t) / root
            visit.record(w=w)
        visit.local = {"m": m, "v": v}
        return np.asarray(w)

    def finish(self, visit: Visit, w: Array) -> None:
        visit.upload = {"delta": visit.message["w"] - w, **visit.local}
        if self.o.counter == "step":
            visit.new_state = {"t": visit.state["t"] + visit.tau}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        return {
            "w": server["w"] - self.o.server_lr * self.mean(visits, "delta"),
            "m": self.mean(visits, "m"),
            "v": self.mean(visits, "v"),
            "t": server["t"] + 1,
        }


class FaFed(Method):
    """Wu et al. 2023, Algorithm 2."""

    defaults = {
        "alpha": 0.1,
        "beta": 0.9,
        "rho": 0.01,
        "decay_w": None,
        "variant": "paper",
        "init_step": "plain",
        "ext": 1.0,
    }
    setup = True
    symbols = {
        "receives.m": "m",
        "receives.v": "s",
        "receives.t": "t",
        "state.prev": "the client's iterate before its last step",
        "upload.m": "m_k",
        "upload.v": "s_k",
        "server.m": "m",
        "server.v": "s",
        "server.t": "t, mean number of steps so far",
    }
    formulas = (
        (
            "before the first round: every client sends g and g^2 of one batch at w^0; m, s are "
            "their means"
        ),
        "init_step plain: then w <- w - lr m",
        "init_step adaptive: then w <- w - lr m / (sqrt(s) + rho)",
        "init_step none: w stays",
        "A = sqrt(s) + rho of the broadcast s",
        "step, one batch: g at v, h at the iterate before it (the client's own also across rounds)",
        "the iterate before the first is w^0; variant stateless: v in the first step of a round",
        "step: m_k <- g + (1 - alpha) (m_k - ext h)",
        "step: s_k <- beta s_k + (1 - beta) g^2",
        (
            "step: v <- v - lr m_k / A, but not after the last gradient of a round (variant code: "
            "also then)"
        ),
        "server: m, s <- means of m_k, s_k",
        (
            "server: w <- mean v - lr m / (sqrt(s) + rho) with the new m, s (variant code: w <- "
            "mean v)"
        ),
        (
            "decay_w: lr / (decay_w + t)^(1/3) in the place of lr, t the steps so far, this one "
            "included; t = 0 for init_step"
        ),
    )
    adaptive = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.everyone = self.o.variant != "stateless"

    def server_init(self, w: Array) -> State:
        zero = np.zeros_like(w)
        if self.adaptive:
            return {"w": w, "m": zero, "v": zero, "t": 0.0}
        return {"w": w, "m": zero, "t": 0.0}

    def client_init(self, k: int, w: Array) -> State:
        return {} if self.o.variant == "stateless" else {"prev": w}

    def message(self, server: State, k: int) -> State:
        return server

    def decayed(self, t: float) -> float:
        """Return the rate of the step t."""
        if self.o.decay_w is None:
            return self.lr
        return float(self.lr / (self.o.decay_w + t) ** (1 / 3))

    def divided(self, m: Array, v: Array | None) -> Array:
        """Return A^-1 m."""
        return m if v is None else m / (np.sqrt(v) + self.o.rho)

    def set_up(self, server: State, visits: list[Visit]) -> State:
        for visit in visits:
            g = self.batch_gradient(visit, visit.message["w"], visit.batches[0])
            visit.upload = {"m": g}
            if self.adaptive:
                visit.upload["v"] = g**2
        new = dict(server)
        for name in visits[0].upload:
            new[name] = stacked(visits, name).mean(0)
        step = new["m"]
        if self.o.init_step == "adaptive":
            step = self.divided(step, new["v"])
        if self.o.init_step != "none":
            new["w"] = server["w"] - self.decayed(0) * step
        return new

    def train(self, visit: Visit) -> Array:
        o = self.o
        w = visit.message["w"]
        m = visit.message["m"]
        sent = visit.message.get("v")
        v = sent
        old = visit.state.get("prev", w)
        server_steps = self.adaptive and o.variant != "code"
        for s, batch in enumerate(visit.batches, 1):
            g = self.batch_gradient(visit, w, batch)
            h = self.batch_gradient(visit, old, batch)
            m = g + (1 - o.alpha) * (m - o.ext * h)
            if v is not None:
                v = o.beta * v + (1 - o.beta) * g**2
            old = w
            if s < visit.tau or not server_steps:
                rate = self.decayed(visit.message["t"] + s)
                w = w - rate * self.divided(m, sent)
            visit.record(w=w)
        visit.local = {"m": m} | ({} if v is None else {"v": v})
        if o.variant != "stateless":
            visit.new_state = {"prev": old}
        return np.asarray(w)

    def finish(self, visit: Visit, w: Array) -> None:
        visit.upload = {"delta": visit.message["w"] - w, **visit.local}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        names = [name for name in server if name in ("m", "v")]
        new: State = {name: stacked(visits, name).mean(0) for name in names}
        new["t"] = server["t"] + float(np.mean([v.tau for v in visits]))
        new["w"] = server["w"] - stacked(visits, "delta").mean(0)
        if self.adaptive and self.o.variant != "code":
            rate = self.decayed(new["t"])
            new["w"] = new["w"] - rate * self.divided(new["m"], new["v"])
        return new


class Stem(FaFed):
    """Khanduri et al. 2021."""

    defaults = {"alpha": 0.1, "decay_w": None, "init_step": "plain"}
    symbols = {
        "receives.m": "m",
        "receives.t": "t",
        "state.prev": "the client's iterate before its last step",
        "upload.m": "m_k",
        "server.m": "m",
        "server.t": "t, mean number of steps so far",
    }
    formulas = (
        (
            "before the first round: every client sends the gradient g of one batch at w^0; m is "
            "their mean"
        ),
        "init_step plain: then w <- w - lr m",
        "init_step none: w stays",
        "step, one batch: g at v, h at the iterate before it (the client's own also across rounds)",
        "the iterate before the first is w^0",
        "step: m_k <- g + (1 - alpha) (m_k - h)",
        "step: v <- v - lr m_k",
        "server: w, m <- means of v, m_k",
        (
            "decay_w: lr / (decay_w + t)^(1/3) in the place of lr, t the steps so far, this one "
            "included; t = 0 for init_step"
        ),
    )
    adaptive = False

    def __init__(self, *args: Any, **options: Any) -> None:
        Method.__init__(self, *args, **options)
        vars(self.o).update(variant="code", ext=1.0)
        self.everyone = True


class FedSps(Method):
    """Mukherjee et al. 2023."""

    defaults = {"c": 0.5, "gamma_b": 1.0, "l_star": 0.0}
    formulas = (
        "step: F and g of the same batch",
        "step: v <- v - min(max(F - l_star, 0) / (c |g|^2), gamma_b) g",
        "server: w <- mean of v over the cohort",
    )

    def train(self, visit: Visit) -> Array:
        w = visit.message["w"]
        for batch in visit.batches:
            w = w - self.size(visit, w, batch) * self.batch_gradient(visit, w, batch)
            visit.record(w=w)
        return np.asarray(w)

    def size(self, visit: Visit, w: Array, batch: Batch) -> float:
        """Return the size of a step."""
        g = self.batch_gradient(visit, w, batch)
        loss = self.model.loss(w, visit.x[batch], visit.y[batch])
        if not g.any():
            return 0.0
        above = max(loss - self.o.l_star, 0.0)
        size = above / (self.o.c * float(g @ g))
        return min(size, float(self.o.gamma_b))

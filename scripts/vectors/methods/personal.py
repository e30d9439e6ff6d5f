"""Methods with models, or parts of a model, of the clients' own."""

from __future__ import annotations

from typing import Any

import numpy as np

from vectors.models import Array
from vectors.problems import Batch
from vectors.rounds import Method, State, Visit, stacked


class Ditto(Method):
    """Li et al. 2021."""

    defaults = {"lam": 0.1, "personal_lr": None, "personal_epochs": None, "weights": "size"}
    symbols = {"state.personal": "u_k, the personal model", "personal_steps.w": "u_k"}
    formulas = (
        "first: u_k = w^0, kept",
        "w: as FedAvg",
        "then, on the personal batches: u_k <- u_k - personal_lr (g + lam (u_k - w)), g at u_k",
        "w is the received model there; personal_lr null: lr",
        "personal_epochs null: as many epochs as for w; the schedule has the batches",
        "judged: u_k",
    )

    def client_init(self, k: int, w: Array) -> State:
        return {"personal": w}

    def train(self, visit: Visit) -> Array:
        rate = self.lr if self.o.personal_lr is None else self.o.personal_lr
        own = visit.state["personal"]
        recorded = []
        for batch in visit.personal:
            pull = self.o.lam * (own - visit.message["w"])
            own = own - rate * (self.batch_gradient(visit, own, batch) + pull)
            recorded.append(own)
        visit.personal_steps = {"w": recorded}
        visit.local = {"personal": own}
        return super().train(visit)

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.new_state = visit.local

    def judged(self, server: State, states: list[State]) -> Array:
        return np.array([state["personal"] for state in states])


class PFedMe(Method):
    """Dinh et al. 2020."""

    defaults = {
        "lam": 15.0,
        "inner": 5,
        "personal_lr": 0.09,
        "beta": 1.0,
        "start": "warm",
        "weights": "size",
    }
    symbols = {"steps.personal": "u", "state.personal": "u_k, the last u; w^0 at first"}
    formulas = (
        "start of a round: u = v = w",
        "step, one batch: inner times u <- u - personal_lr (g + lam (u - v)), g at u",
        "start reset: u = v before them, in every step",
        "step: then v <- v - lr lam (v - u)",
        "w <- w - beta sum_k p_k Delta_k",
        "judged: u_k, the client's last u",
    )

    def client_init(self, k: int, w: Array) -> State:
        return {"personal": w}

    def train(self, visit: Visit) -> Array:
        o = self.o
        x = own = visit.message["w"]
        for batch in visit.batches:
            if o.start == "reset":
                own = x
            for _ in range(o.inner):
                g = self.batch_gradient(visit, own, batch)
                own = own - o.personal_lr * (g + o.lam * (own - x))
            x = x - self.lr * o.lam * (x - own)
            visit.record(w=x, personal=own)
        visit.local = {"personal": own}
        return np.asarray(x)

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.new_state = visit.local

    def server_step(self, server: State, visits: list[Visit]) -> State:
        return {"w": server["w"] - self.o.beta * self.mean(visits, "delta")}

    def judged(self, server: State, states: list[State]) -> Array:
        return np.array([state["personal"] for state in states])


class Apfl(Method):
    """Deng et al. 2020."""

    defaults = {"alpha": 0.5, "adaptive": False, "weights": "size"}
    symbols = {
        "steps.personal": "u_k",
        "state.personal": "u_k, w^0 at first",
        "state.alpha": "a_k",
    }
    formulas = (
        "first: u_k = w^0 and a_k = alpha, kept",
        "step, one batch, both gradients before either model moves: y = a_k u_k + (1 - a_k) v",
        "step: v <- v - lr g(v); u_k <- u_k - lr a_k g(y)",
        "adaptive: first, once in a round, on the batch of step 1: a_k <- a_k - lr (u_k - v).g(y)",
        "adaptive: a_k is then clipped to [0, 1]",
        "server: as FedAvg",
        "judged: a_k u_k + (1 - a_k) w, with the new w",
    )

    def client_init(self, k: int, w: Array) -> State:
        return {"personal": w, "alpha": self.o.alpha}

    def train(self, visit: Visit) -> Array:
        x = visit.message["w"]
        own = visit.state["personal"]
        a = visit.state["alpha"]
        for place, batch in enumerate(visit.batches):
            if self.o.adaptive and place == 0:
                mixed = a * own + (1 - a) * x
                slope = (own - x) @ self.batch_gradient(visit, mixed, batch)
                a = float(np.clip(a - self.lr * slope, 0, 1))
            mixed = a * own + (1 - a) * x
            g = self.batch_gradient(visit, x, batch)
            own = own - self.lr * a * self.batch_gradient(visit, mixed, batch)
            x = x - self.lr * g
            visit.record(w=x, personal=own)
        visit.local = {"personal": own, "alpha": a}
        return np.asarray(x)

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.new_state = visit.local

    def judged(self, server: State, states: list[State]) -> Array:
        models = []
        for state in states:
            a = state["alpha"]
            models.append(a * state["personal"] + (1 - a) * server["w"])
        return np.array(models)


class FedAmp(Method):
    """Huang et al. 2021, Algorithm 1."""

    defaults = {"alpha": 1e4, "lam": 1.0, "sigma": 1e6}
    everyone = True
    symbols = {
        "receives.w": "u_k, a mixture of the clients' models",
        "state.personal": "w_k, the client's model",
        "upload.model": "w_k",
        "server.models": "the models of all clients",
        "server.w": "their mean",
    }
    formulas = (
        "first: w_k = w^0",
        "x_kj = alpha exp(-|w_k - w_j|^2 / sigma) / sigma for j not k",
        "client k receives u_k = (1 - sum_j x_kj) w_k + sum_j x_kj w_j",
        "step, from its own w_k: local gradient g + (lam / alpha) (v - u_k)",
        "w_k <- v",
        "judged: w_k",
    )

    def server_init(self, w: Array) -> State:
        return {"w": w, "models": np.array([w] * self.count)}

    def client_init(self, k: int, w: Array) -> State:
        return {"personal": w}

    def message(self, server: State, k: int) -> State:
        models = server["models"]
        far = ((models - models[k]) ** 2).sum(1)
        near = np.exp(-far / self.o.sigma)
        share = self.o.alpha / self.o.sigma * near
        share[k] = 0
        return {"w": (1 - share.sum()) * models[k] + share @ models}

    def train(self, visit: Visit) -> Array:
        w = visit.state["personal"]
        for batch in visit.batches:
            pull = self.o.lam / self.o.alpha * (w - visit.message["w"])
            w = w - self.lr * (self.batch_gradient(visit, w, batch) + pull)
            visit.record(w=w)
        return np.asarray(w)

    def finish(self, visit: Visit, w: Array) -> None:
        visit.upload = {"model": w}
        visit.new_state = {"personal": w}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        models = stacked(visits, "model")
        return {"w": models.mean(0), "models": models}

    def judged(self, server: State, states: list[State]) -> Array:
        return np.array([state["personal"] for state in states])


class Parts(Method):
    """FedAvg on a part of the model; every client keeps the rest, or nobody trains it.

    The personal part is a mask over the entries of w.
    """

    symbols = {
        "receives.w": "the shared part of the model",
        "upload.delta": "the shared part of Delta_k",
        "state.personal_part": "the personal part of the client's model",
        "server.w": "the shared part of the model",
    }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kept = self.kept_entries()

    def kept_entries(self) -> Array:
        """Return which entries of w clients do not share, [P] of booleans."""
        kept = np.zeros(sum(self.model.counts), dtype=bool)
        kept[-self.model.head :] = True
        return kept

    def whole(self, shared: Array, own: Array) -> Array:
        """Return a model from its two parts."""
        w = np.empty(len(self.kept))
        w[~self.kept] = shared
        w[self.kept] = own
        return w

    def server_init(self, w: Array) -> State:
        return {"w": w[~self.kept]}

    def client_init(self, k: int, w: Array) -> State:
        return {"personal_part": w[self.kept]}

    def train(self, visit: Visit) -> Array:
        w = self.whole(visit.message["w"], visit.state["personal_part"])
        buffer = np.zeros_like(w)
        for place, batch in enumerate(visit.batches):
            moves = self.moving(visit, place)
            g = self.batch_gradient(visit, w, batch)
            buffer = np.where(moves, self.momentum * buffer + g, buffer)
            w = np.where(moves, w - self.lr * buffer, w)
            visit.record(w=w)
        return w

    def moving(self, visit: Visit, place: int) -> Array:
        """Return which entries a step moves."""
        return np.ones_like(self.kept)

    def finish(self, visit: Visit, w: Array) -> None:
        visit.upload = {"delta": visit.message["w"] - w[~self.kept]}
        visit.new_state = {"personal_part": w[self.kept]}

    def judged(self, server: State, states: list[State]) -> Array:
        return np.array([self.whole(server["w"], state["personal_part"]) for state in states])


class FedPer(Parts):
    """Arivazhagan et al. 2019."""

    defaults = {"server_lr": 1.0, "weights": "size"}
    formulas = (
        "the last layer (weight and bias) is personal: every client keeps its own, from w^0 on",
        "step: moves both parts",
        "server: FedAvg of the other layers",
        "judged: the server's part with the client's own",
    )


class LgFedAvg(Parts):
    """Liang et al. 2020."""

    defaults = {"server_lr": 1.0, "weights": "uniform"}
    formulas = (
        "all but the last layer is personal: every client keeps its own, from w^0 on",
        "step: moves both parts",
        "server: FedAvg of the last layer",
        "judged: the server's part with the client's own",
    )

    def kept_entries(self) -> Array:
        return ~super().kept_entries()


class FedRep(Parts):
    """Collins et al. 2021."""

    defaults = {"body_epochs": 1, "server_lr": 1.0, "weights": "uniform"}
    formulas = (
        "the last layer (weight and bias) is personal: every client keeps its own, from w^0 on",
        "step, in a round's last body_epochs epochs: moves the other layers alone",
        "step, before them: moves the last layer alone",
        "server: FedAvg of the other layers",
        "judged: the server's part with the client's own",
    )

    def moving(self, visit: Visit, place: int) -> Array:
        per_epoch = -(-visit.n // self.problem.batch_size)
        first = visit.tau - self.o.body_epochs * per_epoch
        return self.kept if place < first else ~self.kept


class FedBabu(Parts):
    """Oh et al. 2022, before the fine-tuning."""

    defaults = {"server_lr": 1.0, "weights": "uniform"}
    symbols = {
        "receives.w": "the model without its last layer, which stays as in w^0",
        "upload.delta": "Delta_k without the last layer",
        "server.w": "the model without its last layer",
    }
    formulas = (
        "the last layer keeps its initial values",
        "FedAvg of the rest",
        "fine-tuning before an evaluation is not part of the vectors",
    )

    def client_init(self, k: int, w: Array) -> State:
        return {}

    def train(self, visit: Visit) -> Array:
        head = self.problem.w0[self.kept]
        w = visit.message["w"]
        buffer = np.zeros_like(w)
        for batch in visit.batches:
            g = self.batch_gradient(visit, self.whole(w, head), batch)
            buffer = self.momentum * buffer + g[~self.kept]
            w = w - self.lr * buffer
            visit.record(w=self.whole(w, head))
        return np.asarray(w)

    def finish(self, visit: Visit, w: Array) -> None:
        visit.upload = {"delta": visit.message["w"] - w}

    def judged(self, server: State, states: list[State]) -> Array:
        return self.whole(server["w"], self.problem.w0[self.kept])


class Local(Parts):
    """Local training only."""

    symbols = {"state.personal_part": "the client's model"}
    formulas = (
        "nothing is sent",
        "every client goes on from its own model in the rounds in which it takes part",
        "judged: its own model",
    )

    def kept_entries(self) -> Array:
        return np.ones_like(super().kept_entries())

    def message(self, server: State, k: int) -> State:
        return {"w": np.zeros(0)}

    def server_init(self, w: Array) -> State:
        return {"w": np.zeros(0)}


class FedRod(Method):
    """Chen and Chao 2022."""

    defaults = {"start": "copy", "server_lr": 1.0, "weights": "size"}
    symbols = {
        "steps.second": "the client's second last layer",
        "state.second": "the client's second last layer (weight, then bias)",
    }
    formulas = (
        "first: every client keeps a second last layer V; start copy: that of w^0, start zero: 0",
        "step, one batch, both gradients at the same point",
        "step: the model, by the cross-entropy of its logits plus ln n_c",
        "n_c: the client's training examples of class c (ln n_c = -inf for 0)",
        "step: V, by the cross-entropy of the sum of both layers' logits on the same features",
        "V's rate is lr, without momentum",
        "server: as FedAvg",
        "judged: the model with both last layers added",
    )

    def client_init(self, k: int, w: Array) -> State:
        head = w[-self.model.head :]
        return {"second": head if self.o.start == "copy" else np.zeros_like(head)}

    def train(self, visit: Visit) -> Array:
        w = visit.message["w"]
        second = visit.state["second"]
        buffer = np.zeros_like(w)
        for batch in visit.batches:
            moved = second - self.lr * self.own_gradient(visit, w, second, batch)
            buffer = self.momentum * buffer + self.balanced_gradient(visit, w, batch)
            w = w - self.lr * buffer
            second = moved
            visit.record(w=w, second=second)
        visit.local = {"second": second}
        return np.asarray(w)

    def own_gradient(self, visit: Visit, w: Array, second: Array, batch: Batch) -> Array:
        """Return the gradient by the second last layer."""
        both = w.copy()
        both[-len(second) :] += second
        return self.batch_gradient(visit, both, batch)[-len(second) :]

    def balanced_gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        """Return the gradient of the balanced softmax."""
        counts = np.bincount(visit.y, minlength=self.model.classes).astype(float)
        with np.errstate(divide="ignore"):
            shifts = np.log(counts)
        return self.model.shifted_gradient(w, visit.x[batch], visit.y[batch], shifts)

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.new_state = visit.local

    def judged(self, server: State, states: list[State]) -> Array:
        models = np.array([server["w"]] * len(states))
        models[:, -self.model.head :] += [state["second"] for state in states]
        return models

"""Methods that replace the loss of the local steps."""

from __future__ import annotations

import numpy as np

from vectors.models import Array, softmax
from vectors.problems import Batch
from vectors.rounds import Method, State, Visit


class FedLc(Method):
    """Zhang et al. 2022."""

    defaults = {"tau": 1.0, "floor": 0.0, "server_lr": 1.0, "weights": "size"}
    formulas = (
        "loss: cross-entropy of the logits minus tau n_c^(-1/4)",
        "n_c: the client's training examples of class c, floor for none",
        "floor 0: a class without examples leaves the softmax",
        "server: as FedAvg",
    )

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        counts = np.bincount(visit.y, minlength=self.model.classes).astype(float)
        counts[counts == 0] = self.o.floor
        with np.errstate(divide="ignore"):
            shifts = -self.o.tau * counts**-0.25
        return self.model.shifted_gradient(w, visit.x[batch], visit.y[batch], shifts)


class FedNtd(Method):
    """Lee et al. 2022."""

    defaults = {"beta": 1.0, "tau": 1.0, "server_lr": 1.0, "weights": "size"}
    formulas = (
        "q, r: softmax over the classes other than the label, of logits / tau of v and of w",
        "loss: cross-entropy + beta tau^2 sum_c r_c ln(r_c / q_c), r constant",
        "server: as FedAvg",
    )

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        x = visit.x[batch]
        y = visit.y[batch]
        shares = []
        for model in (w, visit.message["w"]):
            z = self.model.logits(model, x) / self.o.tau
            z[np.arange(len(y)), y] = -np.inf
            shares.append(softmax(z))
        d = self.o.beta * self.o.tau * (shares[0] - shares[1]) / len(y)
        return self.batch_gradient(visit, w, batch) + self.model.backward(w, x, d)


class FedDecorr(Method):
    """Shi et al. 2023."""

    defaults = {"coef": 0.1, "form": "code", "server_lr": 1.0, "weights": "size"}
    formulas = (
        "z [B, D]: the inputs of the last layer on the batch",
        "u = (z - mean) / sqrt(variance with B - 1, plus 1e-8)",
        "G = u'u",
        "loss: cross-entropy + coef R; B = 1: cross-entropy",
        "form code: R = mean over i not j of G_ij^2, divided by B",
        "form paper: R = sum of all (G_ij / (B - 1))^2 / D^2",
        "server: as FedAvg",
    )

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        g = self.batch_gradient(visit, w, batch)
        if len(batch) == 1:
            return g
        x = visit.x[batch]
        d = self.o.coef * self.slope(self.model.features(w, x))
        nothing = np.zeros((len(batch), self.model.classes))
        return g + self.model.backward(w, x, nothing, d)

    def slope(self, z: Array) -> Array:
        """Return the derivative of the penalty by the features [B, D]."""
        count, width = z.shape
        centred = z - z.mean(0)
        deviation = np.sqrt((centred**2).sum(0) / (count - 1) + 1e-8)
        u = centred / deviation
        gram = u.T @ u
        if self.o.form == "code":
            off_diagonal = gram - np.diag(np.diag(gram))
            by_gram = 2 * off_diagonal / (count * width * (width - 1))
        else:
            by_gram = 2 * gram / ((count - 1) ** 2 * width**2)
        by_u = 2 * u @ by_gram
        by_deviation = -(by_u * centred).sum(0) / deviation**2
        by_centred = by_u / deviation + by_deviation * centred / ((count - 1) * deviation)
        slope: Array = by_centred - by_centred.mean(0)
        return slope


class Moon(Method):
    """Li, He and Song 2021."""

    defaults = {"mu": 1.0, "tau": 0.5, "server_lr": 1.0, "weights": "size"}
    symbols = {
        "state.previous": "the client's last local model; 0 before its first",
        "state.trained": "whether the client has taken part",
    }
    formulas = (
        "z, z_g, z_p: inputs of the last layer under v, w and the client's last local model",
        "loss: cross-entropy + mu ln(1 + exp((cos(z, z_p) - cos(z, z_g)) / tau)), by example",
        "z_g and z_p are constants",
        "a client's first participation: the cross-entropy alone",
        "server: as FedAvg",
    )

    def client_init(self, k: int, w: Array) -> State:
        return {"previous": np.zeros_like(w), "trained": 0}

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        g = self.batch_gradient(visit, w, batch)
        if not visit.state["trained"]:
            return g
        x = visit.x[batch]
        z = self.model.features(w, x)
        near, near_slope = cosine(z, self.model.features(visit.message["w"], x))
        far, far_slope = cosine(z, self.model.features(visit.state["previous"], x))
        share = 1 / (1 + np.exp(-(far - near) / self.o.tau))
        strength = self.o.mu / self.o.tau / len(batch)
        d = strength * share[:, None] * (far_slope - near_slope)
        nothing = np.zeros((len(batch), self.model.classes))
        return g + self.model.backward(w, x, nothing, d)

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.new_state = {"previous": w, "trained": 1}


def cosine(z: Array, other: Array) -> tuple[Array, Array]:
    """Return the cosines of rows [B] and their derivatives by z [B, D]; 0 for rows of length 0."""
    length = np.linalg.norm(z, axis=1)
    others = np.linalg.norm(other, axis=1)
    usable = (length > 1e-8) & (others > 1e-8)
    length = np.where(usable, length, 1.0)
    others = np.where(usable, others, 1.0)
    cosines = np.where(usable, (z * other).sum(1) / (length * others), 0.0)
    by_other = other / (length * others)[:, None]
    by_own = z / (length**2)[:, None]
    slope = by_other - cosines[:, None] * by_own
    return cosines, np.where(usable[:, None], slope, 0.0)

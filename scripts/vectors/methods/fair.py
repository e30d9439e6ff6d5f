"""Methods that weight or combine the clients' updates for the sake of fairness."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np

from vectors.geometry import in_box, onto_simplex, shortest
from vectors.methods.averaging import Losses, renormalised
from vectors.models import Array
from vectors.problems import Batch
from vectors.rounds import Method, State, Visit, stacked


class FedFa(Method):
    """Huang et al. 2022."""

    defaults = {
        "alpha": 0.5,
        "beta": 0.5,
        "gamma_s": 0.5,
        "gamma_c": 0.9,
        "b": 1,
        "server_lr": None,
        "acc_at": "after",
        "server_sign": -1,
        "c": 1e-6,
    }
    symbols = {
        "state.count": "rounds in which the client took part",
        "upload.count": "f_k, this round included",
        "upload.accuracy": "share of the training examples that v (acc_at: before: w) is right on",
        "server.m": "m",
        "server.t": "rounds so far",
    }
    formulas = (
        "step: local momentum gamma_c, from 0 in every round",
        "a_k = accuracy / their sum (1/C if all are 0; c for an accuracy of 0)",
        "f_k = count / their sum",
        "A_k = -log2 a_k and B_k = -log2(1 - f_k), each divided by its sum",
        "e = sum_k (alpha A_k + beta B_k) v_k",
        "m <- gamma_s m + (1 - gamma_s) (e - w), m = 0 at first",
        "w <- e + server_sign server_lr m in every b-th round, else e",
        "server_lr null: lr",
    )

    @property
    def buffering(self) -> float:
        return float(self.o.gamma_c)

    def server_init(self, w: Array) -> State:
        return {"w": w, "m": np.zeros_like(w), "t": 0}

    def client_init(self, k: int, w: Array) -> State:
        return {"count": 0}

    def finish(self, visit: Visit, w: Array) -> None:
        judged = w if self.o.acc_at == "after" else visit.message["w"]
        count = visit.state["count"] + 1
        visit.upload = {
            "delta": visit.message["w"] - w,
            "count": count,
            "accuracy": self.model.accuracy(judged, visit.x, visit.y),
        }
        visit.new_state = {"count": count}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        o = self.o
        accuracy = stacked(visits, "accuracy")
        share = np.full(len(visits), 1 / len(visits))
        if accuracy.any():
            share = np.where(accuracy == 0, o.c, accuracy / accuracy.sum())
        count = stacked(visits, "count")
        rest = 1 - count / count.sum()
        rest = np.where(rest == 0, o.c, rest)
        omega = o.alpha * information(share) + o.beta * information(rest)
        # the weights sum to 1, so the mean of the local models is w minus that of the updates
        mean = server["w"] - omega @ stacked(visits, "delta")
        m = o.gamma_s * server["m"] + (1 - o.gamma_s) * (mean - server["w"])
        t = server["t"] + 1
        w = mean
        if t % o.b == 0:
            rate = self.lr if o.server_lr is None else o.server_lr
            w = mean + o.server_sign * rate * m
        return {"w": w, "m": m, "t": t}


def information(share: Array) -> Array:
    """Return weights in proportion to -log2 of shares."""
    bits = -np.log2(share)
    if not bits.any():
        return np.full(len(share), 1 / len(share))
    return bits / bits.sum()


class FedMgda(Method):
    """FedMGDA+, Hu et al. 2022."""

    defaults = {"eps": 0.5, "server_lr": 1.0, "normalize": True, "prior": "size"}
    formulas = (
        "u_k = Delta_k / |Delta_k|; normalize false: Delta_k",
        "l minimises |sum_k l_k u_k|^2 on the simplex with |l_k - p_k| <= eps",
        "prior size: p_k by size; prior uniform: 1/C",
        "w <- w - server_lr sum_k l_k u_k",
    )

    def server_step(self, server: State, visits: list[Visit]) -> State:
        u = stacked(visits, "delta")
        if self.o.normalize:
            u = u / np.linalg.norm(u, axis=1, keepdims=True)
        p = self.share(visits, self.o.prior)
        low = np.maximum(p - self.o.eps, 0)
        high = np.minimum(p + self.o.eps, 1)
        mixture = in_box(u @ u.T, low, high)
        return {"w": server["w"] - self.o.server_lr * mixture @ u}


class AdaFed(Method):
    """AdaFed, Algorithm 1 and Equations 5, 6, 14."""

    defaults = {"gamma": 1.0, "server_lr": 1.0, "loss_at": "before", "normalize_loss": "none"}
    symbols = {"upload.loss": "f_k = F_k(w), with loss_at: after F_k(v)"}
    formulas = (
        "normalize_loss mean: f_k divided by their mean",
        "s_k = |f_k|^gamma",
        "e_1 = Delta_1 / s_1",
        "e_k = (Delta_k - sum_{i<k} a_i e_i) / (s_k - sum_{i<k} a_i), a_i = Delta_k.e_i / e_i.e_i",
        "l_k = |e_k|^-2 / their sum",
        "w <- w - server_lr sum_k l_k e_k",
    )

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        at = w if self.o.loss_at == "after" else visit.message["w"]
        visit.upload["loss"] = self.full_loss(visit, at)

    def server_step(self, server: State, visits: list[Visit]) -> State:
        f = stacked(visits, "loss")
        if self.o.normalize_loss == "mean":
            f = f / f.mean()
        done: list[Array] = []
        scale = np.abs(f) ** self.o.gamma
        for delta, s in zip(stacked(visits, "delta"), scale, strict=True):
            along = [(delta @ e) / (e @ e) for e in done]
            rest = delta - sum(a * e for a, e in zip(along, done, strict=True))
            done.append(rest / (s - sum(along)))
        inverse = np.array([1 / (e @ e) for e in done])
        d = inverse @ np.array(done) / inverse.sum()
        return {"w": server["w"] - self.o.server_lr * d}


class AdaFedAdam(Method):
    """AdaFedAdam, Algorithms 1 and 2."""

    defaults = {
        "alpha": 1.0,
        "server_lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "step_scale": "certainty",
        "inverse_rate": "loss",
    }
    symbols = {
        "upload.update": "U_k",
        "upload.certainty": "C_k",
        "upload.loss": "F_k(w)",
        "server.m": "m",
        "server.v": "s",
        "server.c_m": "c_m, the product of the beta1^C",
        "server.c_v": "c_v, the product of the beta2^C",
        "server.t": "rounds so far",
    }
    formulas = (
        "first: c_m = c_v = 1, m = s = 0",
        "r = |Delta_k| / |grad F_k(w)|",
        "U_k = Delta_k / r",
        "C_k = max(ln(r / lr) + 1, 0.1)",
        "o_k = n_k F_k(w)^alpha / their sum",
        "inverse_rate ratio: F_k(w) / (F_k(w^0) + 1e-10) in the place of F_k(w)",
        "g = sum_k o_k U_k; here C = sum_k o_k C_k",
        "b1 = beta1^C, b2 = beta2^C",
        "c_m <- c_m b1, c_v <- c_v b2",
        "m <- b1 m + (1 - b1) g",
        "s <- b2 s + (1 - b2) g^2",
        "w <- w - C server_lr (m / (1 - c_m)) / (sqrt(s / (1 - c_v)) + eps)",
        "step_scale one: 1 in the place of the factor C of this step",
        "step_scale certainty_after_6: 1 in its place in rounds 1 to 6",
    )

    def server_init(self, w: Array) -> State:
        zero = np.zeros_like(w)
        return {"w": w, "m": zero, "v": zero, "c_m": 1.0, "c_v": 1.0, "t": 0}

    def finish(self, visit: Visit, w: Array) -> None:
        start = visit.message["w"]
        delta = start - w
        ratio = np.linalg.norm(delta) / np.linalg.norm(self.full_gradient(visit, start))
        visit.upload = {
            "update": delta / ratio,
            "certainty": max(np.log(ratio / self.lr) + 1, 0.1),
            "loss": self.full_loss(visit, start),
        }
        visit.new_state = visit.state

    def server_step(self, server: State, visits: list[Visit]) -> State:
        o = self.o
        f = stacked(visits, "loss")
        if o.inverse_rate == "ratio":
            first = [self.full_loss(v, self.problem.w0) for v in visits]
            f = f / (np.array(first) + 1e-10)
        omega = np.array([v.n for v in visits]) * f**o.alpha
        omega = omega / omega.sum()
        g = omega @ stacked(visits, "update")
        certainty = omega @ stacked(visits, "certainty")
        b1 = o.beta1**certainty
        b2 = o.beta2**certainty
        c_m = server["c_m"] * b1
        c_v = server["c_v"] * b2
        m = b1 * server["m"] + (1 - b1) * g
        v = b2 * server["v"] + (1 - b2) * g**2
        t = server["t"] + 1
        is_one = o.step_scale == "one" or (o.step_scale == "certainty_after_6" and t <= 6)
        scale = 1.0 if is_one else certainty
        direction = m / (1 - c_m) / (np.sqrt(v / (1 - c_v)) + o.eps)
        w = server["w"] - scale * o.server_lr * direction
        return {"w": w, "m": m, "v": v, "c_m": c_m, "c_v": c_v, "t": t}


class PropFair(Method):
    """Zhang et al. 2023."""

    defaults = {"M": 2.0, "eps": 0.2, "tail": "huber", "server_lr": 1.0, "weights": "size"}
    formulas = (
        "F: the loss of the batch",
        "step: local gradient g / (M - F) if M - F >= eps",
        "tail huber: else g / eps",
        "tail scaled: else g / M",
        "server: as FedAvg",
    )

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        margin = self.o.M - self.model.loss(w, visit.x[batch], visit.y[batch])
        if margin < self.o.eps:
            margin = self.o.eps if self.o.tail == "huber" else self.o.M
        return self.batch_gradient(visit, w, batch) / margin


class Gifair(Losses):
    """Yue et al. 2022."""

    defaults = {"share": 0.5, "form": "server", "rank_at": "before", "weights": "size"}
    symbols = {
        "upload.loss": "F_k(w)",
        "server.loss": "losses of the clients' last participations (rank_at: last)",
        "server.known": "whether a client has taken part (rank_at: last)",
    }
    formulas = (
        "r_k = sum_j sign(F_k(w) - F_j(w)) over the cohort",
        "l = share min p / (C - 1)",
        "form server: w <- w - sum_k (p_k + l r_k) Delta_k",
        "form local: client k's rate is lr (1 + l r_k / p_k)",
        "form local: w <- w - sum_k p_k Delta_k",
        "rank_at last: the losses of the clients' last rounds in the place of F(w)",
        "rank_at last: sign 0 for a pair of which one has not taken part before",
    )

    def server_init(self, w: Array) -> State:
        zero = np.zeros(self.count)
        return {"w": w, "loss": zero, "known": zero}

    def prepare(self, server: State, visits: list[Visit]) -> None:
        self.ranks = self._ranks(server, visits)
        self.cohort = [v.k for v in visits]
        self.p = self.share(visits)

    def _ranks(self, server: State, visits: list[Visit]) -> Array:
        if self.o.rank_at == "before":
            f = np.array([self.full_loss(v, server["w"]) for v in visits])
            return np.sign(f[:, None] - f).sum(1)
        ids = [v.k for v in visits]
        f = server["loss"][ids]
        known = server["known"][ids]
        signs: Array = np.sign(f[:, None] - f) * known[:, None] * known
        return signs.sum(1)

    def _added(self) -> Array:
        """Return l r_k for the cohort."""
        if len(self.p) == 1:
            return np.zeros(1)
        return self.o.share * self.p.min() / (len(self.p) - 1) * self.ranks

    def rate(self, visit: Visit) -> float:
        if self.o.form == "server":
            return self.lr
        place = self.cohort.index(visit.k)
        return float(self.lr * (1 + self._added()[place] / self.p[place]))

    def server_step(self, server: State, visits: list[Visit]) -> State:
        omega = self.p + self._added() if self.o.form == "server" else self.p
        loss = server["loss"].copy()
        known = server["known"].copy()
        loss[self.cohort] = stacked(visits, "loss")
        known[self.cohort] = 1
        w = server["w"] - omega @ stacked(visits, "delta")
        return {"w": w, "loss": loss, "known": known}


class FedFv(Losses):
    """Wang et al. 2021."""

    defaults = {"alpha": 0.1, "tau": 1, "history": "code", "server_lr": 1.0}
    symbols = {
        "upload.loss": "F_k(w)",
        "server.t": "rounds so far",
        "server.updates": "the clients' last updates, if they are needed",
        "server.last": "the rounds that they are of, from 1; -1 for none",
    }
    formulas = (
        "order: clients by ascending F_k(w)",
        "kept: the last C - ceil((C - 1)(1 - alpha)) of them, none if alpha = 0; h_k = Delta_k",
        "k not kept: h_k = Delta_k, then for j in order, j not k:",
        "if Delta_j.h_k < 0: h_k <- h_k - (Delta_j.h_k / |Delta_j|^2) Delta_j",
        "g = mean of h_k",
        "in round t >= tau (from 1), for a = tau - 1, ..., 0 (history paper: tau, ..., 1):",
        "s = sum of the last updates of round t - a with g.Delta < 0",
        "if g.s < 0: g <- g - (g.s / |s|^2) s",
        "w <- w - server_lr g |mean of Delta_k| / |g|",
    )

    def server_init(self, w: Array) -> State:
        state = {"w": w, "t": 0}
        if self._remembers():
            state["updates"] = np.zeros((self.count, len(w)))
            state["last"] = np.full(self.count, -1.0)
        return state

    def _remembers(self) -> bool:
        return bool(self.o.tau > (1 if self.o.history == "code" else 0))

    def server_step(self, server: State, visits: list[Visit]) -> State:
        delta = stacked(visits, "delta")
        t = server["t"] + 1
        new: State = {"t": t}
        last = {v.k: (t, d) for v, d in zip(visits, delta, strict=True)}
        if self._remembers():
            updates = server["updates"].copy()
            seen = server["last"].copy()
            for k, (_, d) in last.items():
                updates[k] = d
                seen[k] = t
            new |= {"updates": updates, "last": seen}
            last = {}
            for k in range(self.count):
                if seen[k] > 0:
                    last[k] = (int(seen[k]), updates[k])

        g = self.internal(delta, stacked(visits, "loss"))
        if t >= self.o.tau:
            g = self.external(g, t, last)
        length = np.linalg.norm(g)
        if length:
            g = self.o.server_lr * g * np.linalg.norm(delta.mean(0)) / length
        return {"w": server["w"] - g, **new}

    def internal(self, delta: Array, loss: Array) -> Array:
        """Return the mean of the updates after the internal step."""
        count = len(delta)
        order = np.argsort(loss, kind="stable")
        moved = ceil((count - 1) * (1 - self.o.alpha) - 1e-9)
        kept = set(order[moved:].tolist()) if self.o.alpha > 0 else set()
        rows = []
        for k in range(count):
            h = delta[k]
            if k not in kept:
                for j in order:
                    if j != k:
                        h = without_conflict(h, delta[j])
            rows.append(h)
        return np.mean(rows, 0)

    def external(self, g: Array, t: int, last: Mapping[int, tuple[int, Array]]) -> Array:
        """Return the direction after the external step."""
        tau = self.o.tau
        ages = range(tau - 1, -1, -1)
        if self.o.history == "paper":
            ages = range(tau, 0, -1)
        for age in ages:
            conflicts = [d for seen, d in last.values() if seen == t - age and g @ d < 0]
            if conflicts:
                g = without_conflict(g, np.sum(conflicts, 0))
        return g


def without_conflict(g: Array, other: Array) -> Array:
    """Return g without its part against another vector."""
    if g @ other >= 0:
        return g
    return g - (g @ other) / (other @ other) * other


class FedMdfg(Losses):
    """Pan et al. 2023."""

    defaults = {
        "theta": 11.25,
        "step": "fixed",
        "source": "delta",
        "force": True,
        "s": 5,
        "armijo": 1e-4,
        "server_lr": 1.0,
    }
    symbols = {
        "upload.loss": "F_k(w)",
        "upload.grad": "grad F_k(w) (source: gradient)",
        "server.expected": "expected losses, 0 for clients that have not taken part",
        "server.count": "participations",
        "server.last": "the last cohort's vectors G_k, of equal length",
        "server.last_id": "the last cohort",
    }
    formulas = (
        "G_k = Delta_k (source gradient: grad F_k(w)), scaled to their mean length",
        (
            "expected loss of a client: its first loss; then, in rounds in which the loss is not "
            "above it, the mean of what it was, weighted by the earlier participations, and of the"
            " loss"
        ),
        (
            "guidance: if the angle of F to (1, ..., 1) is above theta degrees, or (force) the "
            "losses of some, not all, clients of the cohort are above their expected losses"
        ),
        "rows: the G_k; the last round's G_k of clients that are absent now",
        "rows, under guidance: also sum_k h_k G_k, h = (o.f) f - o of unit length",
        "f = F / |F|, o = 1 / sqrt(C)",
        "q = the shortest point of the rows' convex hull; d = q |mean G_k| / |q|",
        "source gradient: no local steps",
        "w <- w - a d; b = server_lr (source gradient: lr server_lr)",
        "step fixed: a = b",
        "step search: a is one of 2^s b, 2^s b / 2, ... down to 2^-s b |q| / |d|",
        "step search: they begin at b, not 2^s b, if a client of the last cohort is absent",
        (
            "step search: the first with F_k(w) - F_k(w - a d) >= armijo a G_k.d for every k of "
            "the cohort, and, under guidance, a smaller angle of F(w - a d) to (1, ..., 1) than "
            "that of F(w)"
        ),
        "step search, else: the first that lowers sum_k F_k; else that with the least sum",
    )

    def server_init(self, w: Array) -> State:
        zero = np.zeros(self.count)
        return {
            "w": w,
            "expected": zero,
            "count": zero,
            "last": np.zeros((0, len(w))),
            "last_id": np.zeros(0),
        }

    def train(self, visit: Visit) -> Array:
        if self.o.source == "gradient":  # no local steps
            w: Array = visit.message["w"]
            return w
        return super().train(visit)

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        if self.o.source == "gradient":
            del visit.upload["delta"]
            visit.upload["grad"] = self.full_gradient(visit, w)

    def server_step(self, server: State, visits: list[Visit]) -> State:
        o = self.o
        ids = [v.k for v in visits]
        loss = stacked(visits, "loss")
        expected = server["expected"].copy()
        count = server["count"].copy()
        rose = np.zeros(len(ids), dtype=bool)
        for place, k in enumerate(ids):
            rose[place] = count[k] > 0 and loss[place] > expected[k]
            if not rose[place]:
                expected[k] = (expected[k] * count[k] + loss[place]) / (count[k] + 1)
            count[k] += 1

        vectors = stacked(visits, "grad" if o.source == "gradient" else "delta")
        length = np.linalg.norm(vectors, axis=1)
        unit = vectors * (length.mean() / length)[:, None]
        angle = np.degrees(np.arccos(min(1.0, evenness(loss))))
        forced = o.force and 0 < rose.sum() < len(ids)
        rows = list(unit)
        guided = bool(angle > o.theta or forced)
        if guided:
            h = guidance(loss)
            if np.linalg.norm(h) > 1e-12:
                rows.append(h / np.linalg.norm(h) @ unit)
        old = zip(server["last_id"], server["last"], strict=True)
        rows += [row for k, row in old if k not in ids]
        raw = shortest(rows)
        d = raw * np.linalg.norm(unit.mean(0)) / np.linalg.norm(raw)

        size = o.server_lr * (self.lr if o.source == "gradient" else 1)
        if o.step == "search":
            absent = set(server["last_id"]) - set(ids)
            least = 2.0**-o.s * size * np.linalg.norm(raw) / np.linalg.norm(d)
            first = size if absent else 2.0**o.s * size
            slope = o.armijo * unit @ d
            size = self.search(visits, server["w"], d, first, least, slope, guided)
        return {
            "w": server["w"] - size * d,
            "expected": expected,
            "count": count,
            "last": unit,
            "last_id": np.array(ids, dtype=float),
        }

    def search(
        self,
        visits: list[Visit],
        w: Array,
        d: Array,
        first: float,
        least: float,
        slope: Array,
        guided: bool,
    ) -> float:
        """Return the step: good for all, else lowering the sum, else of the smallest sum."""
        loss = stacked(visits, "loss")
        tried = {}
        size = first
        while size >= least:
            candidate = w - size * d
            tried[size] = np.array([self.full_loss(v, candidate) for v in visits])
            size /= 2
        for size, after in tried.items():
            more_even = evenness(after) > evenness(loss)
            if (loss - after >= size * slope).all() and (more_even or not guided):
                return size
        for size, after in tried.items():
            if after.sum() < loss.sum():
                return size
        return min(tried, key=lambda size: float(tried[size].sum()))


def evenness(loss: Array) -> float:
    """Return the cosine of the angle of losses to equal ones."""
    return float(loss.sum() / (np.linalg.norm(loss) * np.sqrt(len(loss))))


def guidance(loss: Array) -> Array:
    """Return the weights h of the row that makes losses more equal, not yet of unit length."""
    f = loss / np.linalg.norm(loss)
    one = np.full(len(loss), 1 / np.sqrt(len(loss)))
    return (one @ f) * f - one


class Drfa(Losses):
    """Deng et al. 2020."""

    defaults = {
        "gamma": 0.1,
        "snapshot": "end",
        "snapshot_weights": "lambda",
        "init": "uniform",
        "floor": 0.0,
        "decay": 1.0,
    }
    symbols = {
        "upload.loss": "F_k(w)",
        "upload.snapshot": "w - v, v after the steps of the snapshot",
        "server.lambda": "l, the mixture of all N clients",
        "server.t": "rounds so far",
        "server.steps": "mean number of local steps of the last cohort",
    }
    formulas = (
        "first: l = 1/N (init size: n_k / n)",
        "w <- w - sum_k l_k Delta_k, l divided by its sum over the cohort",
        "mixture: l_k <- l_k + gamma decay^t T (N / C) F_k for the measured cohort",
        "mixture: T is the mean number of local steps",
        "mixture: l <- its Euclidean projection onto the simplex; floor: max(l, floor) / its sum",
        "snapshot start: with F_k(w) of this round, after the step of w, t = 1, 2, ...",
        (
            "snapshot end: with F_k(w) of the next round, before its step, with the t and T of the"
            " round before"
        ),
        (
            "snapshot a number, or snapshot_weights uniform (all clients take part): after the "
            "step of w, with F_k of sum_k s_k (v of client k after that many steps, or its last v)"
        ),
        "snapshot_weights lambda: s = l of the step; snapshot_weights uniform: s = 1/N",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        is_number = self.o.snapshot not in ("start", "end")
        # otherwise a second cohort is drawn, which measures the model of the snapshot
        self.everyone = is_number or self.o.snapshot_weights == "uniform"

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        if self.everyone:
            del visit.upload["loss"]
        if self.o.snapshot not in ("start", "end"):
            models = visit.steps["w"]
            at = models[min(self.o.snapshot, len(models)) - 1]
            visit.upload["snapshot"] = visit.message["w"] - at

    def server_init(self, w: Array) -> State:
        first = self.n if self.o.init == "size" else np.ones(self.count)
        return {"w": w, "lambda": first / first.sum(), "t": 0, "steps": 0.0}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        ids = [v.k for v in visits]
        mixture = server["lambda"]
        t = server["t"] + 1
        steps = float(np.mean([v.tau for v in visits]))
        loss = [visit.upload.get("loss") for visit in visits]
        if self.o.snapshot == "end" and not self.everyone and server["t"]:
            mixture = self.raised(mixture, ids, loss, server["t"], server["steps"])
        share = renormalised(mixture[ids])
        w = server["w"] - share @ stacked(visits, "delta")
        if self.o.snapshot == "start":
            mixture = self.raised(mixture, ids, loss, t, steps)
        elif self.everyone:
            if self.o.snapshot_weights == "uniform":
                share = self.share(visits, "uniform")
            change = share @ stacked(visits, "delta" if self.o.snapshot == "end" else "snapshot")
            loss = [self.full_loss(visit, server["w"] - change) for visit in visits]
            mixture = self.raised(mixture, ids, loss, t, steps)
        return {"w": w, "lambda": mixture, "t": t, "steps": steps}

    def raised(
        self, mixture: Array, ids: list[int], loss: list[Any], t: int, steps: float
    ) -> Array:
        """Return the mixture after its step along the losses of a cohort."""
        o = self.o
        risen = mixture.copy()
        rate = o.gamma * o.decay**t * steps * self.count / len(ids)
        risen[ids] += rate * np.array(loss)
        projected = np.maximum(onto_simplex(risen), o.floor)
        return projected / projected.sum() if o.floor else projected


class FedHeal(Method):
    """Chen et al. 2024."""

    defaults = {"beta": 0.4, "threshold": 0.3, "distance": "whole"}
    symbols = {
        "state.share": "s_k, the share of the participations with Delta_k >= 0, by entry",
        "state.count": "participations",
        "upload.delta": "mask times Delta_k",
        "upload.mask": "mask: 1 for entries that are sent, 0 for the others",
        "server.increment": "i, by client",
        "server.gained": "the sum of all i, by client",
    }
    formulas = (
        "mask: 1 in the first participation",
        "mask, later: 1 where s_k (Delta_k >= 0) or 1 - s_k (Delta_k < 0) is above the threshold",
        "then s_k <- (s_k count + [Delta_k >= 0]) / (count + 1)",
        "e_k = |mask Delta_k| (distance tensor: sum of the norms of the model's tensors)",
        "i_k <- (1 - beta) i_k + beta e_k / sum_j e_j for the cohort, 0 at first",
        "a_k = 1/C + sum of all i_k so far",
        "p_k = a_k / their sum over the cohort",
        (
            "every entry: w <- w - sum_k p_k mask Delta_k / sum_k p_k mask, unchanged if nobody "
            "sends it"
        ),
    )

    def server_init(self, w: Array) -> State:
        zero = np.zeros(self.count)
        return {"w": w, "increment": zero, "gained": zero}

    def client_init(self, k: int, w: Array) -> State:
        return {"share": np.zeros_like(w), "count": 0}

    def finish(self, visit: Visit, w: Array) -> None:
        delta = visit.message["w"] - w
        rises = delta >= 0
        share = visit.state["share"]
        count = visit.state["count"]
        mask = np.where(rises, share, 1 - share) > self.o.threshold
        if count == 0:
            mask = np.ones_like(mask)
        visit.upload = {"delta": mask * delta, "mask": mask.astype(float)}
        mean = (share * count + rises) / (count + 1)
        visit.new_state = {"share": mean, "count": count + 1}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        ids = [v.k for v in visits]
        delta = stacked(visits, "delta")
        mask = stacked(visits, "mask")
        far = np.array([self.distance(row) for row in delta])
        share = np.full(len(ids), 1 / len(ids))
        if far.any():
            share = far / far.sum()
        increment = server["increment"].copy()
        gained = server["gained"].copy()
        increment[ids] = (1 - self.o.beta) * increment[ids] + self.o.beta * share
        gained[ids] += increment[ids]
        p = 1 / len(ids) + gained[ids]
        p = p / p.sum()
        total = p @ mask
        zero = np.zeros_like(total)
        step = np.divide(p @ delta, total, out=zero, where=total > 0)
        return {"w": server["w"] - step, "increment": increment, "gained": gained}

    def distance(self, row: Array) -> float:
        """Return the length of an update."""
        if self.o.distance == "whole":
            return float(np.linalg.norm(row))
        return float(sum(np.linalg.norm(part) for part in self.model.tensors(row)))

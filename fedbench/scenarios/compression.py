"""Compression: clients and server send vectors in fewer bytes, and the other side decodes them.

Messages are simulated by what is decoded from them; their sizes are those of packed values, indices and levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, prod, sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.config.targets import Component, call
from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError
from fedbench.core.options import Count, PositiveShare
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import ClientInfo, State, nbytes
from fedbench.core.validation import choice
from fedbench.scenarios.population import Population, normal
from fedbench.scenarios.scenario_stack import sending
from fedbench.scenarios.vectors import lengths, vectors
from fedbench.simulation.scenario import OWN, RoundPlan

_BIASED = ("top_k", "sign", "power")
_ERROR = f"{OWN}compression_error"  # of a client's upload [C, 1], and in the server's state their mean
_MISSED = f"{OWN}missed"  # messages since each client's last broadcast [N] float64, on the host; inf: it has had none
_HELD, _FACTORS = f"{OWN}held.", f"{OWN}factors."  # with a vector's name: what feedback and ``power`` keep of it
_DEPENDENT = 1e-12  # a column that is shorter than this, in units of its matrix, is rounding


@dataclass(frozen=True, kw_only=True)
class Codec:
    """A compressor of vectors [P].

    Attributes:
        kind: ``top_k``: the largest values; ``random_k``: random ones, both Stich et al. (NeurIPS 2018); ``qsgd``:
            random rounding to few levels (Alistarh et al., NeurIPS 2017, Sec. 3.1); ``sign``: signs and one scale
            (Karimireddy et al., ICML 2019, Alg. 1); ``power``: matrices of low rank, PowerSGD (Vogels et al., NeurIPS
            2019, Alg. 1); ``none``.
        feedback: What becomes of what an upload has lost. ``ef``: it is added to the client's next one (Seide et al.,
            Interspeech 2014); ``ef21``: clients send how far their vector is from the sum of what they have sent, which
            the server takes for it (Richtárik et al., NeurIPS 2021, Alg. 2); ``none``; ``auto``: ``ef`` for ``top_k``,
            ``sign`` and ``power``, which are biased. The broadcast has ``none``: it has a reference instead.
        ratio: Share of the values that ``top_k`` and ``random_k`` send, in (0, 1].
        levels: Levels s of ``qsgd``, without 0 and the sign.
        bucket: Values with a norm of their own, of ``qsgd``; None is the whole vector.
        norm: Norm of a bucket, ``l2`` or ``max``.
        per: Whether ``sign`` has a scale for the whole ``vector`` or for every ``tensor``.
        rank: Rank of ``power``.
        warm: Whether ``power`` starts from the last factor that was sent, or from a random one.
        side: Whether it is for messages ``up`` to the server or ``down`` to the clients.
        population: All clients.
    """

    kind: Literal["none", "top_k", "random_k", "qsgd", "sign", "power"] = "none"
    feedback: Literal["auto", "none", "ef", "ef21"] = "auto"
    ratio: PositiveShare = 0.01
    levels: Count = 7
    bucket: Count | None = 512
    norm: Literal["l2", "max"] = "l2"
    per: Literal["vector", "tensor"] = "vector"
    rank: Count = 2
    warm: bool = True
    side: Literal["up", "down"]
    population: Population

    def __post_init__(self) -> None:
        if self.side == "down":
            choice("feedback", self.feedback, ("none",))
        if self.kind == "power" and all(len(shape) < 2 for shape in self.population.shapes):
            fault = "needs a model with a tensor of two dimensions; use another kind, such as top_k"
            raise RequestError(f"compression.{self.side}.kind=power {fault}")

    @property
    def memory(self) -> str:
        """What is kept of a vector: nothing, what was lost ("ef"), or all that has arrived ("ef21", a reference)."""
        if self.side == "down":
            return "ef21"
        return ("ef" if self.kind in _BIASED else "none") if self.feedback == "auto" else self.feedback

    @cached_property
    def matrices(self) -> list[tuple[int, int, int]]:
        """Rows, columns and rank of each tensor; rank 0 where it is sent as it is."""
        sizes = [(s[0], prod(s[1:])) for s in ((1,) * (2 - len(shape)) + shape for shape in self.population.shapes)]
        ranks = [(n, m, min(self.rank, n, m)) for n, m in sizes]
        return [(n, m, r if r * (n + m) < n * m else 0) for n, m, r in ranks]

    def fresh(self, known: State) -> State:
        """What is kept of vectors at first, of which the receiver knows ``known``."""
        own = {_HELD + name: v for name, v in known.items() if self.memory != "none"}
        if self.kind == "power" and self.warm:
            own |= {_FACTORS + name: v.new_zeros(sum(m * r for _, m, r in self.matrices)) for name, v in known.items()}
        return own

    def size(self, count: int, b: int) -> int:
        """The size of a message in bytes, for a vector of ``count`` values of ``b`` bytes each."""
        k = self.entries(count)
        if self.kind == "qsgd":
            values, bits = ceil(count / (self.bucket or count)), count * (2 * self.levels).bit_length()
        elif self.kind == "sign":
            values, bits = len(self.matrices) if self.per == "tensor" else 1, count
        elif self.kind == "power":
            values, bits = sum(r * (n + m) if r else n * m for n, m, r in self.matrices), 0
        else:  # both sides know the hash of random_k
            values, bits = k, 0 if self.kind == "random_k" or k == count else min(k * (count - 1).bit_length(), count)
        return b * values + ceil(bits / 8)

    def entries(self, count: int) -> int:
        """The number of ``count`` values that are sent by ``top_k`` and ``random_k``."""
        return max(1, ceil(self.ratio * count - 1e-9))  # 1e-9: 0.07 * 100 is a little more than 7 in floating point

    def passed(self, sent: State, kept: State, draw: int, *at: Tensor) -> tuple[State, State, Tensor]:
        """Pass vectors through the compressor.

        Args:
            sent: The vectors of some senders [c, P], by name.
            kept: What is kept of them [c, ...].
            draw: The key of the draws.
            at: Further coordinates of the draws [c, 1], before that of the name and of a value in its vector.

        Returns:
            What the receiver has of the vectors; what is kept of them from now on; and the part of a vector that its
            message loses, the mean over the vectors [c] float64.
        """
        got, now, errors = {}, {}, []
        for place, (name, x) in enumerate(sent.items()):
            held, factors = kept.get(_HELD + name), kept.get(_FACTORS + name)
            if held is not None:
                x = x + held if self.memory == "ef" else x - held
            got[name], new = self.decoded(x, draw, (*at, torch.full((1, 1), place, device=x.device)), factors)
            lost = lengths(x - got[name])
            errors.append(torch.where(lost == 0, 0, lost / lengths(x)))
            if self.memory == "ef":
                now[_HELD + name] = x - got[name]
            elif held is not None:
                now[_HELD + name] = got[name] = held + got[name]
            now |= {} if new is None else {_FACTORS + name: new}
        return got, now, torch.stack(errors).mean(0)

    def decoded(self, x: Tensor, draw: int, at: Sequence[Tensor], last: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What is decoded from the messages for x [c, P], and the factors of ``power``.

        Args:
            x: The vectors.
            draw: The key of the draws.
            at: Further coordinates of the draws [c, 1], before that of a value in its vector.
            last: The factors before; zeros at first, None if they are not kept.
        """
        count, k = x.shape[1], self.entries(x.shape[1])
        if self.kind == "power":
            return self._power(x, draw, last)
        if self.kind == "top_k":
            size = x.abs().nan_to_num(nan=inf, posinf=inf)  # what is not finite is sent
            return torch.where(_largest(size, k), x, 0), None
        if self.kind == "sign":
            parts = x.split([n * m for n, m, _ in self.matrices], 1) if self.per == "tensor" else [x]
            means = [v.abs().mean(1, keepdim=True, dtype=torch.float64).to(x.dtype).expand_as(v) for v in parts]
            scale = torch.cat(means, 1)
            return torch.where(x >= 0, scale, -scale), None  # 0 has the sign +
        hashes = fold_in(draw, *at, torch.arange(count, device=x.device))
        if self.kind == "qsgd":
            return self._qsgd(x, hashes), None
        sent = torch.where(_largest(-hashes, k), x, 0)
        return (sent.double() * (count / k)).to(x.dtype) if self.memory == "none" else sent, None

    def _qsgd(self, x: Tensor, hashes: Tensor) -> Tensor:
        """Levels of each value, up or down at random, in units of the norm of its bucket."""
        count, s = x.shape[1], self.levels
        d = min(self.bucket or count, count)
        v, u = (F.pad(a, (0, -count % d)).view(len(x), -1, d) for a in (x.double(), (hashes.double() + 0.5) / 2.0**63))
        length = torch.linalg.vector_norm(v, 2 if self.norm == "l2" else inf, 2, keepdim=True)
        length = length.to(x.dtype).double()  # as it is sent
        r = torch.where(length > 0, s * v.abs() / length, 0)
        level = (r.floor() + (u < r - r.floor())).clamp(max=s)
        omega = min(d / s**2, sqrt(d) / s) if self.norm == "l2" else d / (4 * s**2)
        got: Tensor = (length * level * v.sign() / s).flatten(1)[:, :count]
        return (got if self.memory == "none" else got / (1 + omega)).to(x.dtype)

    def _power(self, x: Tensor, draw: int, last: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """One step of the power method on each matrix, from the last factor that was sent."""
        got, factors, at = list(x.split([n * m for n, m, _ in self.matrices], 1)), [x[:, :0]], 0
        for place, (n, m, r) in enumerate(self.matrices):
            if not r:
                continue
            entry = torch.arange(m * r, device=x.device)  # the same factor in every round would never send the rest
            q = normal(fold_in(key(draw, Purpose.SKETCH), torch.full_like(entry, place), entry)).view(m, r)
            if last is not None:  # a column of zeros, of a matrix of lower rank, is drawn again
                before = last[:, at : at + m * r].view(-1, m, r).double()
                q, at = torch.where((before != 0).any(1, keepdim=True), before, q), at + m * r
            matrix = got[place].double().view(-1, n, m)
            basis = _orthonormal(matrix @ q).to(x.dtype).double()
            factor = (matrix.mT @ basis).to(x.dtype)
            got[place] = (basis @ factor.double().mT).flatten(1).to(x.dtype)
            factors.append(factor.flatten(1))
        return torch.cat(got, 1), None if last is None else torch.cat(factors, 1)


def _largest(values: Tensor, k: int) -> Tensor:
    """Return which k values of each row [c, P] are the largest; of equal ones the first."""
    least = values.topk(k, 1, sorted=False).values.amin(1, keepdim=True)
    above, equal = values > least, values == least
    chosen: Tensor = above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
    return chosen


def _orthonormal(y: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns of y [c, n, r], with 0 for columns that depend on those before."""
    least = _DEPENDENT * torch.linalg.vector_norm(y, dim=(1, 2)).view(-1, 1, 1)
    basis = y[:, :, :0]
    for column in y.split(1, 2):
        for _ in range(2):  # once more for what rounding leaves
            column = column - basis @ (basis.mT @ column)
        length = torch.linalg.vector_norm(column, dim=1, keepdim=True)
        basis = torch.cat([basis, torch.where(length > least, column / length, 0)], 2)
    return basis


@dataclass(frozen=True)
class Compression:
    """The compressors of uploads and of the broadcast; None sends vectors as they are."""

    up: Codec | None
    down: Codec | None

    @property
    def needs(self) -> dict[str, str]:
        """What it needs of a method (``fedbench.scenarios.allowed``), with the key that asks for it."""
        used = [one for one in (self.up, self.down) if one is not None]
        found: dict[str, str] = {one.side: f"compression.{one.side}.kind={one.kind}" for one in used}
        if self.up is not None and self.up.memory != "ef":
            found["unsent"] = f"compression.up.feedback={self.up.memory}"
        return found

    def wrap(self, algo: Algorithm, plan: RoundPlan) -> Algorithm:
        """The method with what clients and server keep for it, and with decoded uploads."""
        init, down = algo.server_init, self.down
        algo = algo if self.up is None else _compressed(algo, self.up, plan)
        if down is None:
            return algo

        def server_init(w: Tensor, num_clients: int) -> State:
            state, missed = init(w, num_clients), torch.full((num_clients,), inf, dtype=torch.float64)
            return state | {_MISSED: missed} | down.fresh(vectors(algo.broadcast(state), w.shape))

        return replace(algo, server_init=server_init)

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """The round with the sizes of its messages, and with the broadcast that clients decode."""
        if (up := self.up) is not None:
            names, dense = _sent(plan.algorithm), plan.bytes_up

            def bytes_up(uploads: State) -> int:
                sent = [uploads[name] for name in names]
                return dense(uploads) - sum(v.nbytes - len(v) * up.size(v.shape[1], v.element_size()) for v in sent)

            notes = {} if len(plan.ids) else {_ERROR.removeprefix(OWN): torch.nan}
            plan = replace(plan, bytes_up=bytes_up, notes={**plan.notes, **notes})
        return plan if self.down is None else _sent_down(plan, self.down)


def _compressed(algo: Algorithm, codec: Codec, plan: RoundPlan) -> Algorithm:
    """The method whose uploads are decoded from compressed ones."""
    update, names = algo.averaging, _sent(algo)
    inner, draw = update.step, key(plan.seed, Purpose.UPLINK, plan.round)

    def client_init(w: Tensor) -> State:
        return algo.client_init(w) | codec.fresh(dict.fromkeys(names, torch.zeros_like(w)))

    def send(msg: State, uploads: State, states: State, ids: Tensor) -> tuple[State, State]:
        sent = vectors(uploads, msg["w"].shape)
        if list(sent) != names:
            fault = f"compression.up expects the vectors {', '.join(names)}, and the method sends {', '.join(sent)}"
            raise RequestError(f"{fault}; let its update be an Averaging of these")
        got, kept, error = codec.passed(sent, states, draw, ids.unsqueeze(1))
        return uploads | got | {_ERROR: error.unsqueeze(1)}, states | kept

    def step(server: State, uploads: State, cohort: ClientInfo) -> State:
        error = {_ERROR: uploads[_ERROR].mean()} if _ERROR in uploads else {}  # no upload has arrived
        return inner(server, uploads | error, cohort)

    def remarks(server: State) -> list[str]:
        lost = f"compression.up.kind={codec.kind} is biased, and without feedback what it leaves out is never sent"
        return algo.remarks(server) + ([lost] if codec.memory == "none" and codec.kind in _BIASED else [])

    update = replace(update, step=step)
    return replace(sending(algo, send), client_init=client_init, update=update, remarks=remarks)


def _sent_down(plan: RoundPlan, codec: Codec) -> RoundPlan:
    """The round whose clients work from the reference after this round's message; an empty round has no message."""
    message, kept, missed = plan.algorithm.broadcast(plan.server), dict(plan.kept), plan.server[_MISSED].cpu()
    sent = vectors(message, plan.server["w"].shape)
    if len(plan.ids):
        rows, own = ({k: v.unsqueeze(0) for k, v in of.items()} for of in (sent, plan.server))
        got, now, _ = codec.passed(rows, own, key(plan.seed, Purpose.DOWNLINK, plan.round))
        message = message | {k: v[0] for k, v in got.items()}
        kept |= {k: v[0] for k, v in now.items()}
        missed = missed + 1
    behind = missed[plan.receivers]
    size = nbytes({k: v for k, v in message.items() if k not in sent}) * len(behind)
    for v in sent.values():  # those that have missed too much, or have nothing yet, get all of it
        size += int((behind * codec.size(len(v), v.element_size())).clamp(max=v.nbytes).sum())
    kept[_MISSED] = missed.index_fill(0, torch.from_numpy(plan.receivers), 0)
    algo = replace(plan.algorithm, broadcast=lambda server: message)
    return replace(plan, algorithm=algo, bytes_down=lambda message, receivers: size, kept=kept)


def _sent(algo: Algorithm) -> list[str]:
    """Return the names of the vectors that clients upload: those that the server sums, or the pseudo-gradient."""
    return sorted(algo.averaging.weights) or ["delta"]


def compression(*, up: Mapping[str, Any], down: Mapping[str, Any], population: Population) -> Compression:
    """Vectors of uploads and of the broadcast are sent in fewer bytes.

    Args:
        up: Options of ``Codec`` for uploads: every client compresses each of its vectors by itself.
        down: Options for the broadcast: server and clients share a reference x̂, and the server sends what takes it
            nearer to its model (EF21-P, Gruntkowska et al., ICML 2023).
        population: All clients.
    """
    return Compression(_codec("up", up, population), _codec("down", down, population))


def _codec(side: str, options: Mapping[str, Any], population: Population) -> Codec | None:
    where = f"compression.{side}"
    asked = Component(f"{__name__}.Codec", Component.of(where, options).options)
    one: Codec = call(asked, where, side=side, population=population)
    return None if one.kind == "none" else one

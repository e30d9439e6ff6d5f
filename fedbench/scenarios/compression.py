"""Compression: clients and server send vectors in fewer bytes, and the other side decodes them.

Messages are simulated by what is decoded from them; their sizes are those of packed values, indices and levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod, sqrt
from typing import Any, Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.config.targets import Component, call
from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError, boolean, choice, integer, number
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import ClientInfo, State, nbytes
from fedbench.scenarios.draws import Population, normal
from fedbench.scenarios.surroundings import At, sending, shown
from fedbench.scenarios.vectors import vectors
from fedbench.simulation.local_work import started
from fedbench.simulation.turn import OWN, Turn

Kind: TypeAlias = Literal["none", "top_k", "random_k", "qsgd", "sign", "power"]
Feedback: TypeAlias = Literal["auto", "none", "ef", "ef21"]
Decoded: TypeAlias = tuple[Tensor, Tensor | None]

_BIASED = ("top_k", "sign", "power")
_ERROR = f"{OWN}compression_error"  # of a client's upload [C, 1], and in the server's state their mean
_MISSED = f"{OWN}missed"  # broadcasts that each client has missed since its last one [N]; -1: it has had none
_RESIDUAL, _SKETCH, _REFERENCE = (f"{OWN}{word}." for word in ("residual", "sketch", "reference"))  # of a vector's name
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

    kind: Kind = "none"
    feedback: Feedback = "auto"
    ratio: float = 0.01
    levels: int = 7
    bucket: int | None = 512
    norm: Literal["l2", "max"] = "l2"
    per: Literal["vector", "tensor"] = "vector"
    rank: int = 2
    warm: bool = True
    side: Literal["up", "down"]
    population: Population

    def __post_init__(self) -> None:
        choice("kind", self.kind, get_args(Kind))
        choice("feedback", self.feedback, get_args(Feedback) if self.side == "up" else ("none",))
        choice("norm", self.norm, ("l2", "max"))
        choice("per", self.per, ("vector", "tensor"))
        number("ratio", self.ratio, above=0, at_most=1)
        boolean("warm", self.warm)
        counts = {k: integer(k, getattr(self, k), at_least=1) for k in ("levels", "rank")}
        if self.bucket is not None:
            counts["bucket"] = integer("bucket", self.bucket, at_least=1, instead="null")
        feedback = ("ef" if self.kind in _BIASED else "none") if self.feedback == "auto" else self.feedback
        for name, value in (*counts.items(), ("feedback", feedback)):
            object.__setattr__(self, name, value)
        if self.kind == "power" and all(len(shape) < 2 for shape in self.population.shapes):
            fault = "needs a model with a tensor of two dimensions; use another kind, such as top_k"
            raise RequestError(f"compression.{self.side}.kind=power {fault}")

    @property
    def contractive(self) -> bool:
        """Whether messages are to be near to the vector, as residuals and references need it, or right on average."""
        return self.side == "down" or self.feedback != "none"

    @cached_property
    def matrices(self) -> list[tuple[int, int, int]]:
        """Rows, columns and rank of each tensor; rank 0 where it is sent as it is."""
        sizes = [(s[0], prod(s[1:])) for s in ((1,) * (2 - len(shape)) + shape for shape in self.population.shapes)]
        ranks = [(n, m, min(self.rank, n, m)) for n, m in sizes]
        return [(n, m, r if r * (n + m) < n * m else 0) for n, m, r in ranks]

    @property
    def remembered(self) -> int:
        """Number of values that ``power`` keeps from one message to the next."""
        return sum(m * r for _, m, r in self.matrices) if self.kind == "power" and self.warm else 0

    def entries(self, count: int) -> int:
        """The number of ``count`` values that are sent by ``top_k`` and ``random_k``."""
        return max(1, ceil(self.ratio * count - 1e-9))  # 1e-9: 0.07 * 100 is a little more than 7 in floating point

    def size(self, count: int, b: int) -> int:
        """The size of a message in bytes, for a vector of ``count`` values of ``b`` bytes each."""
        if self.kind == "sign":
            return b * (len(self.matrices) if self.per == "tensor" else 1) + ceil(count / 8)
        if self.kind == "power":
            return b * sum(r * (n + m) if r else n * m for n, m, r in self.matrices)
        if self.kind == "qsgd":
            return b * ceil(count / (self.bucket or count)) + ceil(count * (2 * self.levels).bit_length() / 8)
        k = self.entries(count)
        known = self.kind == "random_k" or k == count
        return b * k + (0 if known else min(ceil(k * (count - 1).bit_length() / 8), ceil(count / 8)))

    def decoded(self, x: Tensor, draw: int, at: Sequence[Tensor], kept: Tensor | None) -> Decoded:
        """What is decoded from the messages for x, and what is kept for the next ones.

        Args:
            x: Vectors [c, P].
            draw: The key of the draws.
            at: Further coordinates of the draws [c, 1], before that of a value in its vector.
            kept: What was kept from the messages before, [c, ``remembered``]; zeros at first, None if nothing is kept.
        """
        count, k = x.shape[1], self.entries(x.shape[1])
        if self.kind == "top_k":
            size = x.abs().nan_to_num(nan=torch.inf, posinf=torch.inf)  # what is not finite is sent
            return torch.where(_largest(size, k), x, 0), kept
        if self.kind == "sign":
            parts = x.split([n * m for n, m, _ in self.matrices], 1) if self.per == "tensor" else [x]
            means = [v.abs().mean(1, keepdim=True, dtype=torch.float64).to(x.dtype).expand_as(v) for v in parts]
            scale = torch.cat(means, 1)
            return torch.where(x >= 0, scale, -scale), kept  # 0 has the sign +
        if self.kind == "power":
            return self._power(x, draw, kept)
        hashes = fold_in(draw, *at, torch.arange(count, device=x.device))
        if self.kind == "qsgd":
            return self._qsgd(x, hashes), kept
        sent = torch.where(_largest(-hashes, k), x, 0)
        return sent if self.contractive else (sent.double() * (count / k)).to(x.dtype), kept

    def _qsgd(self, x: Tensor, hashes: Tensor) -> Tensor:
        """Levels of each value, up or down at random, in units of the norm of its bucket."""
        count, s = x.shape[1], self.levels
        d = min(self.bucket or count, count)
        v, u = (F.pad(a, (0, -count % d)).view(len(x), -1, d) for a in (x.double(), (hashes.double() + 0.5) / 2.0**63))
        length = torch.linalg.vector_norm(v, 2 if self.norm == "l2" else torch.inf, 2, keepdim=True)
        length = length.to(x.dtype).double()  # as it is sent
        r = torch.where(length > 0, s * v.abs() / length, 0)
        level = (r.floor() + (u < r - r.floor())).clamp(max=s)
        omega = min(d / s**2, sqrt(d) / s) if self.norm == "l2" else d / (4 * s**2)
        got: Tensor = (length * level * v.sign() / s).flatten(1)[:, :count]
        return (got / (1 + omega) if self.contractive else got).to(x.dtype)

    def _power(self, x: Tensor, draw: int, kept: Tensor | None) -> Decoded:
        """One step of the power method on each matrix, from the last factor that was sent."""
        got, factors, at = list(x.split([n * m for n, m, _ in self.matrices], 1)), [], 0
        for place, (n, m, r) in enumerate(self.matrices):
            if not r:
                continue
            entry = torch.arange(m * r, device=x.device)  # the same factor in every round would never send the rest
            q = normal(fold_in(key(draw, Purpose.SKETCH), torch.full_like(entry, place), entry)).view(m, r)
            if kept is not None:  # a column that was lost, since the matrix was 0 or of lower rank, starts anew
                last = kept[:, at : at + m * r].view(-1, m, r).double()
                q, at = torch.where((last != 0).any(1, keepdim=True), last, q), at + m * r
            matrix = got[place].double().view(-1, n, m)
            basis = _orthonormal(matrix @ q).to(x.dtype).double()
            factor = (matrix.mT @ basis).to(x.dtype)
            got[place] = (basis @ factor.double().mT).flatten(1).to(x.dtype)
            factors.append(factor.flatten(1))
        return torch.cat(got, 1), None if kept is None else torch.cat(factors, 1)


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
        if self.up is not None and self.up.feedback != "ef":
            found["unsent"] = f"compression.up.feedback={self.up.feedback}"
        return found

    def wrap(self, algo: Algorithm, at: At) -> Algorithm:
        """The method with what clients and server keep for it, and with decoded uploads."""
        algo = algo if self.up is None else _compressed(algo, self.up, at)
        return algo if self.down is None else _referring(algo, self.down)

    def turn(self, turn: Turn, at: At) -> Turn:
        """The round with the sizes of its messages, and with the broadcast that clients decode."""
        if (up := self.up) is not None:
            shape = at.server["w"].shape

            def bytes_up(uploads: State) -> int:
                sent = vectors(uploads, shape)
                numbers = nbytes({k: v for k, v in shown(uploads).items() if k not in sent})
                return numbers + sum(len(v) * up.size(v.shape[1], v.element_size()) for v in sent.values())

            notes = {} if len(at.ids) else {_ERROR.removeprefix(OWN): torch.nan}
            turn = replace(turn, bytes_up=bytes_up, notes={**turn.notes, **notes})
        return turn if self.down is None else _sent_down(turn, self.down, at)


def _compressed(algo: Algorithm, codec: Codec, at: At) -> Algorithm:
    """The method whose uploads are decoded from compressed ones, with the residuals in the clients' states."""
    feedback, draw = codec.feedback, key(at.seed, Purpose.UPLINK, at.round)

    def client_init(w: Tensor) -> State:
        names = _uploads(algo, w)
        own = {_RESIDUAL + name: torch.zeros_like(w) for name in names if feedback != "none"}
        own |= {_SKETCH + name: w.new_zeros(codec.remembered) for name in names if codec.remembered}
        return algo.client_init(w) | own

    def send(msg: State, uploads: State, states: State, ids: Tensor) -> tuple[State, State]:
        new, states, ids, errors = dict(uploads), dict(states), ids.unsqueeze(1), []
        for place, (name, x) in enumerate(vectors(uploads, msg["w"].shape).items()):
            residual = states.get(_RESIDUAL + name)
            if residual is not None:
                x = x + residual if feedback == "ef" else x - residual
            new[name], kept = codec.decoded(x, draw, (ids, torch.full_like(ids, place)), states.get(_SKETCH + name))
            lost, length = (torch.linalg.vector_norm(v, dim=1, dtype=torch.float64) for v in (x - new[name], x))
            errors.append(torch.where(lost == 0, 0, lost / length))
            if feedback == "ef":
                states[_RESIDUAL + name] = x - new[name]
            elif residual is not None:  # the sum of all messages is what the server has of the client
                states[_RESIDUAL + name] = new[name] = residual + new[name]
            states |= {} if kept is None else {_SKETCH + name: kept}
        return new | {_ERROR: torch.stack(errors).mean(0).unsqueeze(1)}, states

    def remarks(server: State) -> list[str]:
        lost = f"compression.up.kind={codec.kind} is biased, and without feedback what it leaves out is never sent"
        return algo.remarks(server) + ([lost] if feedback == "none" and codec.kind in _BIASED else [])

    def step(server: State, uploads: State, cohort: ClientInfo) -> State:
        return update.step(server, uploads | {_ERROR: uploads[_ERROR].mean()}, cohort)

    update, coded = algo.averaging, sending(algo, send)
    return replace(coded, client_init=client_init, update=replace(update, step=step), remarks=remarks)


def _referring(algo: Algorithm, codec: Codec) -> Algorithm:
    """The method with what server and clients have in common at first: the vectors of the first broadcast."""

    def server_init(w: Tensor, num_clients: int) -> State:
        state = algo.server_init(w, num_clients)
        sent = vectors(algo.broadcast(state), w.shape)
        own = {_REFERENCE + name: v for name, v in sent.items()}
        own |= {_SKETCH + name: w.new_zeros(codec.remembered) for name in sent if codec.remembered}
        return state | own | {_MISSED: torch.full((num_clients,), -1, dtype=torch.int64, device=w.device)}

    return replace(algo, server_init=server_init)


def _sent_down(turn: Turn, codec: Codec, at: At) -> Turn:
    """The round whose clients work from the reference after this round's message; an empty round has no message."""
    message, missed, kept = dict(turn.algorithm.broadcast(at.server)), at.server[_MISSED], dict(turn.kept)
    sent = vectors(message, at.server["w"].shape)
    if len(at.ids):
        missed, draw = torch.where(missed < 0, missed, missed + 1), key(at.seed, Purpose.DOWNLINK, at.round)
        for place, (name, v) in enumerate(sent.items()):
            reference, last = at.server[_REFERENCE + name], at.server.get(_SKETCH + name)
            which = torch.full((1, 1), place, device=v.device)
            got, now = codec.decoded((v - reference)[None], draw, (which,), None if last is None else last[None])
            message[name] = kept[_REFERENCE + name] = reference + got[0]
            kept |= {} if now is None else {_SKETCH + name: now[0]}
    receivers = torch.from_numpy(at.receivers).to(missed.device)
    behind = missed[receivers]
    size = nbytes({k: v for k, v in message.items() if k not in sent}) * len(receivers)
    for v in sent.values():  # those that have missed too much, or have nothing yet, get all of it
        each = torch.where(behind < 0, v.nbytes, behind * codec.size(len(v), v.element_size()))
        size += int(each.clamp(max=v.nbytes).sum())
    kept[_MISSED] = missed.index_fill(0, receivers, 0)
    algo = replace(turn.algorithm, broadcast=lambda server: message)
    return replace(turn, algorithm=algo, bytes_down=lambda message, receivers: size, kept=kept)


def _uploads(algo: Algorithm, w: Tensor) -> list[str]:
    """Return the names of the vectors that a client uploads, by asking one that takes no local step."""
    server, one, id = algo.server_init(w, 1), w.new_ones(1), torch.zeros(1, dtype=torch.int64, device=w.device)
    probe: State = {need: w[None] if need == "grad" else one.double() for need in algo.needs}
    info = ClientInfo(id, one, one, one, one, one, id, probe)
    if algo.instruct is not None:
        info = replace(info, probe=probe | algo.instruct(server, info))
    message, info = algo.broadcast(server), info.columns()
    client = {k: v[None] for k, v in algo.client_init(w).items()}
    local = started(algo, message, client, info)
    return list(vectors(algo.finish(message, client, local, info)[0], w.shape))


def compression(*, up: Mapping[str, Any], down: Mapping[str, Any], population: Population) -> Compression:
    """Vectors of uploads and of the broadcast are sent in fewer bytes.

    Args:
        up: Options of ``Codec`` for uploads: every client compresses each of its vectors by itself.
        down: Options for the broadcast: server and clients share a reference x̂, and the server sends what takes it
            nearer to its model (EF21-P, Gruntkowska et al., ICML 2023).
        population: All clients.
    """
    found: list[Codec | None] = []
    for side, options in (("up", up), ("down", down)):
        where = f"compression.{side}"
        asked = Component(f"{__name__}.Codec", Component.of(where, options).options)
        one: Codec = call(asked, where, side=side, population=population)
        found.append(None if one.kind == "none" else one)
    return Compression(*found)

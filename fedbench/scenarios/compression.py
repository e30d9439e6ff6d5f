"""Compression of vectors: clients and server send fewer bytes, and the receiver decodes them.

Only the decoded vectors are simulated; message sizes are those of packed values, indices and
levels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, prod
from typing import Any, Literal

import torch
from pydantic import InstanceOf
from torch import Tensor

from fedbench.config.targets import Component, call
from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError, arguments_of
from fedbench.core.options import Count, PositiveShare
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import (
    ClientInfo,
    State,
    lengths,
    nbytes,
)
from fedbench.core.user_code import is_own
from fedbench.core.validation import choice
from fedbench.scenarios import compressors
from fedbench.scenarios.allowed import Demand
from fedbench.scenarios.layers import Layer, cause, sending
from fedbench.scenarios.population import Population
from fedbench.scenarios.vectors import vectors
from fedbench.simulation.checks import FirstCall, checked
from fedbench.simulation.scenario import OWN, RoundPlan

_BIASED = ("top_k", "sign", "power")
# relative error of each upload [C, 1]; in the server's state, the mean error
_ERROR = f"{OWN}compression_error"
# messages since the last one that each client received [N] float64, on the host; inf: none
_MISSED = f"{OWN}missed"
# prefixes of a vector's name: states kept by feedback and by ``power``
_HELD, _FACTORS = f"{OWN}held.", f"{OWN}factors."


@dataclass(frozen=True, kw_only=True)
class Codec:
    """A compressor of vectors [P].

    A subclass may override ``decoded`` and ``size``, which then replace ``kind``.

    Attributes:
        kind: Compression method. ``top_k``: the largest values; ``random_k``: random values (both
            Stich et al., NeurIPS 2018); ``qsgd``: random rounding to few levels (Alistarh et al.,
            NeurIPS 2017, Sec. 3.1); ``sign``: signs and one scale (Karimireddy et al., ICML 2019,
            Alg. 1); ``power``: low-rank matrices, PowerSGD (Vogels et al., NeurIPS 2019, Alg. 1);
            ``none``: no compression.
        feedback: Treatment of the compression error of an upload. ``ef``: the error is added to the
            client's next upload (Seide et al., Interspeech 2014); ``ef21``: clients send the
            difference between their vector and the sum of their earlier messages, and the server
            uses the updated sum as the vector (Richtárik et al., NeurIPS 2021, Alg. 2); ``none``:
            the error is discarded; ``auto``: ``ef`` for the biased kinds ``top_k``, ``sign`` and
            ``power``, otherwise ``none``. The broadcast uses ``none``, because it has a reference
            instead.
        ratio: Share of the values that ``top_k`` and ``random_k`` send, in (0, 1].
        levels: Number of levels s of ``qsgd``, not counting 0 and the sign.
        bucket: Number of values of ``qsgd`` that share a norm. If None, the whole vector shares
            one.
        norm: Norm of a bucket, ``l2`` or ``max``.
        per: Whether ``sign`` uses one scale for the whole ``vector`` or one for every ``tensor``.
        rank: Rank of ``power``.
        warm: Whether ``power`` starts from the last factor that was sent rather than from a random
            one.
        side: Direction of the messages: ``up`` to the server or ``down`` to the clients.
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
    side: Literal["up", "down"] = "up"
    population: Population

    def __post_init__(self) -> None:
        if is_own(self.size) and not is_own(self.decoded):
            name = type(self).__name__
            raise RequestError(
                f"{name} has size(count, b) and must also have decoded(x, draw, at), the vectors "
                "that the receiver decodes"
            )
        if self.side == "down":
            choice("feedback", self.feedback, ("none",))
        dimensions = map(len, self.population.shapes)
        if self.kind == "power" and max(dimensions, default=0) < 2:
            fault = "needs a model with a tensor of two dimensions; use another kind, such as top_k"
            raise RequestError(f"compression.{self.side}.kind=power {fault}")

    @property
    def selector(self) -> str:
        """The configuration key that selects the compressor; empty if there is none."""
        return cause(self, self.decoded, f"compression.{self.side}.kind", self.kind)

    @property
    def memory(self) -> str:
        """Kind of state kept for a vector.

        "none", "ef" (the accumulated compression error) or "ef21" (the sum of everything received,
        as a reference).
        """
        if self.side == "down":
            return "ef21"
        if self.feedback != "auto":
            return self.feedback
        return "ef" if self.kind in _BIASED else "none"

    @cached_property
    def matrices(self) -> list[tuple[int, int, int]]:
        """Rows, columns and rank of each tensor; rank 0 if it is sent uncompressed."""
        matrices = []
        for shape in self.population.shapes:
            n = prod(shape[:1])
            m = prod(shape[1:])
            rank = min(self.rank, n, m)
            if rank * (n + m) >= n * m:
                rank = 0
            matrices.append((n, m, rank))
        return matrices

    def fresh(self, known: State) -> State:
        """Return the initial state of vectors whose values ``known`` the receiver already has."""
        state: State = {}
        factors = sum(m * r for _, m, r in self.matrices)
        for name, v in known.items():
            if self.memory != "none":
                state[_HELD + name] = v
            if self.kind == "power" and self.warm:
                state[_FACTORS + name] = v.new_zeros(factors)
        return state

    def size(
        self,
        count: int,
        b: int,
    ) -> int:
        """Return the size of a message in bytes, for a vector of ``count`` values.

        Args:
            count: Number of values.
            b: Number of bytes per value.

        Raises:
            RequestError: If a subclass overrides ``decoded`` alone.
        """
        values, bits = self.entries(count), 0  # both sides know the hashes of random_k
        match self.kind:
            case "none":
                raise RequestError(
                    f"{type(self).__name__} has decoded(x, draw, at) and must also have "
                    "size(count, b), the bytes of a message for count values of b bytes"
                )
            case "top_k" if values < count:  # indices, or a mask
                bits = min(values * (count - 1).bit_length(), count)
            case "qsgd":
                values = ceil(count / (self.bucket or count))
                bits = count * (2 * self.levels).bit_length()
            case "sign":
                values, bits = len(self._scales(count)), count
            case "power":
                values = 0
                for n, m, r in self.matrices:
                    values += r * (n + m) if r else n * m
        return b * values + ceil(bits / 8)

    def entries(self, count: int) -> int:
        """Return how many of ``count`` values ``top_k`` and ``random_k`` send."""
        # 1e-9: 0.07 * 100 is a little more than 7 in floating point
        return max(1, ceil(self.ratio * count - 1e-9))

    def _scales(self, count: int) -> list[int]:
        """Return the sizes of the groups of values that share a scale under ``sign``."""
        if self.per == "vector":
            return [count]
        return [n * m for n, m, _ in self.matrices]

    def passed(
        self,
        sent: State,
        kept: State,
        draw: int,
        *at: Tensor,
    ) -> tuple[State, State, Tensor]:
        """Pass vectors through the compressor.

        Args:
            sent: The vectors of some senders [c, P], by name.
            kept: States of these vectors [c, ...].
            draw: Key of the random draws.
            at: Further coordinates of the draws [c, 1]; those of the vector's name and of a value
                in the vector follow.

        Returns:
            The vectors at the receiver; their new states; and the share of a vector's length lost
            by compression, averaged over the vectors [c] float64.
        """
        received, states, errors = {}, {}, []
        for place, (name, x) in enumerate(sent.items()):
            held = kept.get(_HELD + name)
            factors = kept.get(_FACTORS + name)
            if held is not None:
                x = x + held if self.memory == "ef" else x - held
            position = torch.full((1, 1), place, device=x.device)
            decoded, factors = self.coded(x, draw, (*at, position), factors)
            lost = lengths(x - decoded)
            part = lost / lengths(x)
            errors.append(torch.where(lost == 0, 0, part))
            received[name] = decoded
            if self.memory == "ef":
                states[_HELD + name] = x - decoded
            elif held is not None:  # ef21
                received[name] = states[_HELD + name] = held + decoded
            if factors is not None:
                states[_FACTORS + name] = factors
        return received, states, torch.stack(errors).mean(0)

    def coded(
        self,
        x: Tensor,
        draw: int,
        at: tuple[Tensor, ...],
        factors: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the decoded vectors, and the factors of ``power``.

        Args:
            x: The vectors.
            draw: Key of the random draws.
            at: Further coordinates of the draws [c, 1].
            factors: Previous factors; zeros initially, None if factors are not kept.
        """
        if self.kind == "power":
            return compressors.power(x, self.matrices, draw, factors)
        return self._checked(x, draw, at), None

    @cached_property
    def _checked(self) -> Any:
        """``decoded``, with a check of the first result of a subclass outside fedbench."""
        return checked(self.decoded, f"compression.{self.side}.decoded")

    def decoded(
        self,
        x: Tensor,
        draw: int,
        at: tuple[Tensor, ...],
    ) -> Tensor:
        """Return the vectors decoded from the messages for x, [c, P] of the type of x.

        Args:
            x: The vectors, one per sender.
            draw: Key of the random draws.
            at: Further coordinates of the draws [c, 1]; that of a value in its vector follows, as
                in ``fold_in(draw, *at, entry)``.
        """
        count = x.shape[1]
        # a kept state needs messages closer to x than 0 is; unbiased messages may be further away
        unbiased = self.memory == "none"
        match self.kind:
            case "top_k":
                return compressors.top_k(x, self.entries(count))
            case "sign":
                return compressors.sign(x, self._scales(count))
        entry = torch.arange(count, device=x.device)
        hashes = fold_in(draw, *at, entry)
        if self.kind == "qsgd":
            bucket = min(self.bucket or count, count)
            return compressors.qsgd(x, self.levels, bucket, self.norm, hashes, unbiased)
        return compressors.random_k(x, self.entries(count), hashes, unbiased)


@dataclass(frozen=True)
class Compression(Layer):
    """Compressors of the uploads and of the broadcast; None if vectors are sent uncompressed."""

    up: Codec | None
    down: Codec | None

    @property
    def needs(self) -> dict[Demand, str]:
        """Demands on the method, each with the configuration key that causes it."""
        codecs = [codec for codec in (self.up, self.down) if codec is not None]
        needs: dict[Demand, str] = {codec.side: codec.selector for codec in codecs}
        if self.up is not None and self.up.memory != "ef":
            needs["unsent"] = f"compression.up.feedback={self.up.memory}"
        return needs

    def wrap(
        self,
        algo: Algorithm,
        plan: RoundPlan,
    ) -> Algorithm:
        """Return the method with decoded uploads and with the compressors' states."""
        init, down = algo.server_init, self.down
        if self.up is not None:
            algo = _compressed(algo, self.up, plan)
        if down is None:
            return algo

        def server_init(w: Tensor, num_clients: int) -> State:
            state = init(w, num_clients)
            known = vectors(algo.broadcast(state), w.shape)
            missed = torch.full((num_clients,), inf, dtype=torch.float64)
            kept = {}
            for name, v in down.fresh(known).items():
                kept[name] = v.unsqueeze(0)
            return state | {_MISSED: missed} | kept

        return replace(algo, server_init=server_init)

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round plan with compressed message sizes and the decoded broadcast."""
        if (up := self.up) is not None:
            names = _sent(plan.algorithm)
            dense = plan.bytes_up

            def bytes_up(uploads: State) -> int:
                size = dense(uploads)
                for name in names:
                    v = uploads[name]
                    compressed = up.size(v.shape[1], v.element_size())
                    size += len(v) * compressed - v.nbytes
                return size

            notes = dict(plan.notes)
            if not len(plan.ids):
                notes[_ERROR.removeprefix(OWN)] = torch.nan
            plan = replace(
                plan,
                bytes_up=bytes_up,
                notes=notes,
            )
        return plan if self.down is None else _sent_down(plan, self.down)


def _compressed(
    algo: Algorithm,
    codec: Codec,
    plan: RoundPlan,
) -> Algorithm:
    """Return the method with uploads that are decoded from compressed messages."""
    averaging, names = algo.averaging, _sent(algo)
    draw = key(plan.seed, Purpose.UPLINK, plan.round)

    def send(
        msg: State,
        uploads: State,
        states: State,
        ids: Tensor,
    ) -> tuple[State, State]:
        sent = vectors(uploads, msg["w"].shape)
        if list(sent) != names:
            raise RequestError(
                f"compression.up expects the vectors {', '.join(names)}, and the method sends "
                f"{', '.join(sent)}; let its update be an Averaging of these"
            )
        received, kept, error = codec.passed(sent, states, draw, ids.unsqueeze(1))
        return uploads | received | {_ERROR: error.unsqueeze(1)}, states | kept

    def step(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        if _ERROR in uploads:  # without results, the step consists of the noise of ``privacy``
            uploads = uploads | {_ERROR: uploads[_ERROR].mean()}
        return averaging.step(server, uploads, cohort)

    return replace(
        sending(algo, send),
        client_init=lambda w: (
            algo.client_init(w) | codec.fresh(dict.fromkeys(names, torch.zeros_like(w)))
        ),
        update=replace(averaging, step=step),
    )


def _sent_down(plan: RoundPlan, codec: Codec) -> RoundPlan:
    """Return the round plan with a compressed broadcast.

    Server and clients share a reference. Every message moves it towards the model, and clients
    train from it. A round without results sends no new message. A client that has missed messages
    receives all of them, or the whole vector if that is smaller.
    """
    message = plan.algorithm.broadcast(plan.server)
    kept = dict(plan.kept)
    missed = plan.server[_MISSED].cpu()
    sent = vectors(message, plan.server["w"].shape)
    if len(plan.ids):
        rows = {k: v.unsqueeze(0) for k, v in sent.items()}
        draw = key(plan.seed, Purpose.DOWNLINK, plan.round)
        received, new, _ = codec.passed(rows, plan.server, draw)
        message = message | {k: v[0] for k, v in received.items()}
        kept |= new
        missed = missed + 1

    behind = missed[plan.receivers]
    dense = {k: v for k, v in message.items() if k not in sent}
    size = nbytes(dense) * len(behind)
    for v in sent.values():  # new clients, and those too far behind, get the whole vector
        compressed = behind * codec.size(len(v), v.element_size())
        size += int(compressed.clamp(max=v.nbytes).sum())
    kept[_MISSED] = missed.index_fill(0, torch.from_numpy(plan.receivers), 0)
    algo = replace(plan.algorithm, broadcast=lambda server: message)
    return replace(
        plan,
        algorithm=algo,
        bytes_down=lambda message, receivers: size,
        kept=kept,
    )


def _sent(algo: Algorithm) -> list[str]:
    """Return the names of the vectors that clients upload.

    These are the vectors that the server sums or, if there are none, the pseudo-gradient.
    """
    return sorted(algo.averaging.weights) or ["delta"]


def compression(
    *,
    up: Mapping[str, Any] | InstanceOf[Codec],
    down: Mapping[str, Any] | InstanceOf[Codec],
    population: Population,
) -> Compression:
    """Return the layer that compresses the vectors of uploads and of the broadcast.

    Args:
        up: Codec of the uploads, or options of ``Codec``. Every client compresses each of its
            vectors separately.
        down: The same for the broadcast. Server and clients share a reference x̂, and
            the messages of the server move it towards the model (EF21-P, Gruntkowska et al., ICML
            2023).
        population: All clients.
    """
    return Compression(
        up=_codec("up", up, population),
        down=_codec("down", down, population),
    )


def _codec(
    side: Literal["up", "down"],
    given: Mapping[str, Any] | Codec,
    population: Population,
) -> Codec | None:
    section = f"compression.{side}"
    if isinstance(given, Codec):
        with arguments_of(section):
            codec = replace(given, side=side)
    else:
        component = Component(f"{__name__}.Codec", dict(given))
        codec = call(
            component,
            section,
            side=side,
            population=population,
        )
    if not codec.selector:
        return None
    size = FirstCall(codec.size, f"{section}.size", _not_bytes)
    size(sum(map(prod, population.shapes)), 4)
    return codec


def _not_bytes(args: tuple[Any, ...], result: Any) -> str | None:
    """Return the fault of a message's size, or None."""
    if isinstance(result, int) and result >= 0:
        return None
    return f"returned {result!r}; expected a number of bytes, an integer >= 0"
